//! The tables and the statements of a generated world.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A type, and values of it that are easily lost.
const TYPES: &[(&str, &[&str])] = &[
    ("smallint", &["-32768", "7"]),
    ("bigint", &["9223372036854775807", "0"]),
    ("numeric", &["NaN", "1.10", "1.1", "1e30", "-0.000"]),
    ("numeric(12,3)", &["1.5", "NaN", "-7"]),
    ("real", &["-0", "0", "NaN", "0.1"]),
    ("float8", &["-0", "0", "NaN", "-Infinity", "1e-310"]),
    ("text", &["", "a, \"b\" (c)", "\\", "\n\t", "ünï💥", "NULL", "{}"]),
    ("char(5)", &["", "a b"]),
    ("bytea", &["\\x00ff5c", ""]),
    ("boolean", &["t", "f"]),
    ("date", &["infinity", "0044-03-15 BC", "2024-02-29"]),
    ("timestamp", &["-infinity", "4713-01-01 BC", "2024-02-29 23:59:59.999999"]),
    ("timestamptz", &["infinity", "0044-03-15 12:00:00+00 BC", "2024-03-31 02:30:00+01"]),
    ("timetz", &["04:05:06+03", "24:00:00-15:59"]),
    ("interval", &["1 mon -2 days 03:04:05.6", "-1 year", "24:00:00", "1 day"]),
    ("uuid", &["00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    ("inet", &["10.0.0.1/8", "::1"]),
    ("json", &["{\"a\": 1,  \"a\": 2}", "null", "\"\\ud800\""]),
    ("jsonb", &["null", "{\"x\": [null, 1.0]}", "1.10"]),
    ("int[]", &["[0:2]={1,NULL,3}", "{}", "{{1,2},{3,4}}"]),
    ("text[]", &["{\"a,b\",NULL,\"NULL\",\"q\\\"\\\\\"}", "{{a},{b}}"]),
    ("int4range", &["[1,5)", "empty", "(,)"]),
    ("numrange", &["[1.0,2.00]", "(,1]"]),
    ("bit varying", &["101", ""]),
    ("point", &["(1,-0)", "(NaN,2)"]),
    ("xml", &["<a> b</a>", ""]),
    ("{s}.mood", &["sad", "it's, \"ok\""]),
    ("{s}.pair", &["(1,)", "(,\"x, (y)\")"]),
    ("{s}.pair[]", &["{\"(1,\\\"a b\\\")\",NULL}", "{}"]),
    ("{s}.amount", &["0.00", "12.50"]),
    ("{s}.words", &["{a,NULL}", "[3:3]={x}"]),
];

/// Those that ordinary tables are made of.
const COMMON: &[(&str, &[&str])] = &[
    ("text", &["", "a, \"b\" (c)", "plain", "ünï💥"]),
    ("varchar(20)", &["short", "it's"]),
    ("int", &["0", "-7", "2147483647"]),
    ("numeric(12,2)", &["1.10", "-0.00", "99.90"]),
    ("boolean", &["t", "f"]),
    ("date", &["2024-02-29", "2026-11-24"]),
    ("timestamptz", &["2024-03-31 02:30:00+01", "2026-11-24 10:00:00+00"]),
    ("uuid", &["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
    ("jsonb", &["{\"x\": [null, 1.0]}", "{}"]),
    ("text[]", &["{a,\"b c\"}", "{}"]),
    ("{s}.mood", &["sad", "it's, \"ok\""]),
    ("{s}.amount", &["0.00", "12.50"]),
];

const ACTIONS: &[&str] = &["cascade", "set null", "set default", "restrict", "no action"];

/// What generated databases are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Every type and constraint, few triggers, all of it tracked.
    Plain,
    /// One to three tables of common types with at most one trigger.
    Ordinary,
    /// All types and constraints, and several of the things that [`Tables::features`] adds.
    Wild,
}

/// A table with the columns `id`, `n` and others.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) key: &'static str,
    pub(crate) is_always: bool,
    pub(crate) is_partitioned: bool,
    /// Name, type and values; references have none.
    pub(crate) columns: Vec<(String, String, &'static [&'static str])>,
}

/// What is generated: a schema, then statements on its tables.
pub(crate) struct Tables {
    pub(crate) random: fastrand::Rng,
    pub(crate) space: String,
    pub(crate) style: Style,
    pub(crate) tables: Vec<Table>,
    pub(crate) has_merge: bool,
    /// The statements that made it all.
    pub(crate) setup: Vec<String>,
    /// How each table is tracked, as `track` is called; others are not.
    pub(crate) tracked: Vec<String>,
    pub(crate) features: BTreeSet<&'static str>,
    /// Statements of particular kinds, for what features have added.
    pub(crate) statements: Vec<String>,
    /// Changes that only others make: of tables that are not tracked.
    pub(crate) outside: Vec<String>,
    /// The columns that the last statement assigned to rows that were there.
    pub(crate) assigned: BTreeSet<String>,
}

impl Tables {
    pub(crate) fn new(seed: u64, style: Style, has_merge: bool) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            space: format!("w{seed}"),
            style,
            tables: Vec::new(),
            has_merge,
            setup: Vec::new(),
            tracked: Vec::new(),
            features: BTreeSet::new(),
            statements: Vec::new(),
            outside: Vec::new(),
            assigned: BTreeSet::new(),
        }
    }

    pub(crate) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.usize(..of.len())]
    }

    /// Whether one of so many times.
    pub(crate) fn chance(&mut self, of: u8) -> bool {
        self.random.u8(..of) == 0
    }

    pub(crate) fn make(&mut self, sql: impl Into<String>) {
        self.setup.push(sql.into());
    }

    /// Makes the schema, without the features that are off: its statements.
    pub(crate) fn schema(&mut self, off: &[(&str, &str)]) -> &[String] {
        let s = self.space.clone();
        self.make(format!("create schema {s}"));
        self.make(format!("create type {s}.mood as enum ('sad', 'it''s, \"ok\"')"));
        self.make(format!("create type {s}.pair as (a int, b text)"));
        self.make(format!("create domain {s}.amount as numeric(12, 2) check (value >= 0)"));
        self.make(format!("create domain {s}.words as text[]"));
        if self.style != Style::Ordinary {
            self.shared_triggers();
        }
        let number = if self.style == Style::Ordinary { self.random.usize(1..=3) } else { self.random.usize(2..=5) };
        for number in 0..number {
            let table = self.table(number);
            self.tracked.push(format!("'{}'", table.name));
            self.tables.push(table);
        }
        let is_filled_first = self.random.bool();
        if is_filled_first {
            self.fill();
        }
        if self.style != Style::Plain {
            self.add_features(off);
        }
        if !is_filled_first {
            self.fill();
        }
        for table in self.tracked.clone() {
            self.make(format!("select countersign.track({table})"));
        }
        &self.setup
    }

    fn shared_triggers(&mut self) {
        let s = self.space.clone();
        self.make(format!("create table {s}.totals (id int primary key, total numeric not null)"));
        self.make(format!("insert into {s}.totals values (0, 0), (1, 0), (2, 0)"));
        self.make(format!("create table {s}.log (id int generated always as identity primary key, what text)"));
        self.make(format!(
            "create function {s}.count() returns trigger language plpgsql as $$ begin
                 if tg_op <> 'INSERT' then update {s}.totals set total = total - coalesce(old.n, 0) where id = abs(old.id) % 3; end if;
                 if tg_op <> 'DELETE' then update {s}.totals set total = total + coalesce(new.n, 0) where id = abs(new.id) % 3; end if;
                 return null; end $$"
        ));
        self.make(format!(
            "create function {s}.note() returns trigger language plpgsql as $$ begin insert into {s}.log (what) values (tg_op); return null; end $$"
        ));
        self.make(format!(
            "create function {s}.tidy() returns trigger language plpgsql as $$ begin new.n := abs(new.n); return new; end $$"
        ));
        self.tracked.push(format!("'{s}.totals'"));
        self.tracked.push(format!("'{s}.log', is_log => true"));
    }

    /// Some rows in each table.
    fn fill(&mut self) {
        for number in 0..self.tables.len() {
            for _ in 0..2 {
                // Whatever a constraint refuses is left out.
                let insert = self.insert(number);
                self.make(format!(
                    "do $do$ begin {insert}; set constraints all immediate; exception when others then null; end $do$"
                ));
            }
        }
    }

    fn table(&mut self, number: usize) -> Table {
        let s = self.space.clone();
        let is_ordinary = self.style == Style::Ordinary;
        let is_odd = if is_ordinary { self.chance(4) } else { self.random.bool() };
        let name = format!("{s}.{}", if is_odd { format!("\"Tab % {number}\"") } else { format!("t{number}") });
        let keys = [
            ("int", "id", "primary key (id)"),
            ("bigint generated always as identity", "id", "primary key (id)"),
            ("int generated by default as identity", "id", "primary key (id)"),
            ("serial", "id", "primary key (id)"),
            ("int not null", "id", "unique (id)"),
            ("int", "id, \"Part\"", "primary key (id, \"Part\")"),
            ("int", "id, \"Part\"", "primary key (\"Part\", id)"),
        ];
        let (id, key, constraint) = self.one(if is_ordinary { &keys[..4] } else { &keys });
        let is_partitioned = key != "id" && self.random.bool();
        let mut create = format!("create table {name} (id {id}, \"Part\" int not null default 1, n int, {constraint})");
        if is_partitioned {
            let kind = self.one(&["list", "range"]);
            write!(create, " partition by {kind} (\"Part\")").unwrap();
            self.make(create);
            for part in 1..=3 {
                let bounds =
                    if kind == "list" { format!("in ({part})") } else { format!("from ({part}) to ({})", part + 1) };
                self.make(format!("create table {s}.part_{number}_{part} partition of {name} for values {bounds}"));
            }
        } else {
            self.make(create);
        }
        let mut columns = Vec::new();
        for place in 0..self.random.usize(1..=if is_ordinary { 3 } else { 5 }) {
            let (kind, values) = self.one(if is_ordinary { COMMON } else { TYPES });
            let (column, kind) =
                (if is_ordinary { format!("c{place}") } else { format!("\"C {place}\"") }, kind.replace("{s}", &s));
            self.make(format!("alter table {name} add column {column} {kind}"));
            columns.push((column, kind, values));
        }
        let generated = self.one(&[
            "",
            "",
            "twice int generated always as (n * 2) stored",
            "mark text generated always as ('n' || id) stored",
        ]);
        if !generated.is_empty() {
            self.make(format!("alter table {name} add column {generated}"));
        }
        let unique = self.one(&["", "", "", "unique (n)", "unique (n) deferrable initially deferred"]);
        if !unique.is_empty() && !is_partitioned {
            self.make(format!("alter table {name} add {unique}"));
            if !unique.contains("deferrable") && self.chance(2) {
                let action = self.one(&["on update cascade", "on update set null", ""]);
                self.make(format!(
                    "alter table {name} add column of_n int references {name} (n) on delete set null {action}"
                ));
                columns.push(("of_n".to_owned(), "int".to_owned(), &[][..]));
            }
        }
        let mut parents: Vec<String> = self.tables.iter().filter(|t| t.key == "id").map(|t| t.name.clone()).collect();
        if key == "id" {
            parents.push(name.clone());
        }
        for place in 0..self.random.usize(..=if is_ordinary { 1 } else { 2 }).min(parents.len()) {
            let (parent, action) = (self.random.usize(..parents.len()), self.one(ACTIONS));
            let (update, deferred) = (
                self.one(&["", "on update cascade", "on update set null"]),
                self.one(&["", "", "deferrable initially deferred"]),
            );
            self.make(format!(
                "alter table {name} add column r{place} int default 1 references {} (id) on delete {action} {update} {deferred}",
                parents[parent]
            ));
            columns.push((format!("r{place}"), "int".to_owned(), &[][..]));
        }
        if !is_ordinary {
            for (function, when) in [
                ("count", "after insert or update or delete"),
                ("note", "after insert or update or delete"),
                ("tidy", "before insert"),
            ] {
                if self.chance(3) {
                    self.make(format!(
                        "create trigger {function} {when} on {name} for each row execute function {s}.{function}()"
                    ));
                }
            }
        }
        Table { name, key, is_always: id.contains("always"), is_partitioned, columns }
    }

    fn value(&mut self, table: usize, column: usize) -> String {
        let (_, kind, values) = &self.tables[table].columns[column];
        let (kind, values) = (kind.clone(), *values);
        if self.random.u8(..6) == 0 {
            return "null".to_owned();
        }
        if values.is_empty() {
            return self.random.i32(1..=8).to_string();
        }
        format!("'{}'::{kind}", self.one(values).replace('\'', "''"))
    }

    pub(crate) fn insert(&mut self, table: usize) -> String {
        let columns: Vec<String> = self.tables[table].columns.iter().map(|(name, ..)| name.clone()).collect();
        let first = self.random.i32(1..=12);
        let rows: Vec<String> = (0..self.random.i32(1..=4))
            .map(|row| {
                let mut one = format!("({}, {}, {}", first + row, self.random.i32(1..=3), self.random.i32(-9..=40));
                for column in 0..columns.len() {
                    write!(one, ", {}", self.value(table, column)).unwrap();
                }
                one + ")"
            })
            .collect();
        let overriding = if self.tables[table].is_always { "overriding system value" } else { "" };
        let names: String = columns.iter().map(|name| format!(", {name}")).collect();
        format!(
            "insert into {} (id, \"Part\", n{names}) {overriding} values {}",
            self.tables[table].name,
            rows.join(", ")
        )
    }

    fn condition(&mut self) -> String {
        let (a, b) = (self.random.i32(1..=12), self.random.i32(1..=12));
        self.one(&["true", "id = A", "id = A", "id in (A, B)", "id % 3 = 1", "id < A", "\"Part\" = 2"])
            .replace('A', &a.to_string())
            .replace('B', &b.to_string())
    }

    pub(crate) fn update(&mut self, table: usize) -> String {
        let set = match self.random.u8(..10) {
            0 => format!("id = {}", self.one(&["id + 1", "id + 20", "13 - id", "5"])),
            1 | 2 => format!("\"Part\" = {}", self.one(&["\"Part\" % 3 + 1", "1", "2"])),
            3 | 4 => format!("n = {}", self.one(&["n + 1", "-n", "5", "null", "n"])),
            _ => {
                let column = self.random.usize(..self.tables[table].columns.len());
                let value = self.value(table, column);
                format!("{} = {value}, n = coalesce(n, 0) + 1", self.tables[table].columns[column].0)
            }
        };
        // The server's login may not change what is always generated.
        let set = if self.tables[table].is_always && set.starts_with("id") { "n = 3".to_owned() } else { set };
        let assigned: Vec<&str> = set.split(", ").filter_map(|one| Some(one.split_once(" = ")?.0)).collect();
        self.assign(table, &assigned);
        let condition = self.condition();
        format!("update {} set {set} where {condition}", self.tables[table].name)
    }

    fn assign(&mut self, table: usize, columns: &[&str]) {
        let name = &self.tables[table].name;
        self.assigned.extend(columns.iter().map(|column| format!("{name}.{}", column.trim_matches('"'))));
    }

    pub(crate) fn statement(&mut self) -> String {
        let (table, other) = (self.random.usize(..self.tables.len()), self.random.usize(..self.tables.len()));
        let (name, key) = (self.tables[table].name.clone(), self.tables[table].key);
        match self.random.u8(..12) {
            0 | 1 => self.insert(table),
            2..=5 => self.update(table),
            6 => format!("delete from {name} where {}", self.condition()),
            7 => format!(
                "{} on conflict ({key}) do update set n = {name}.n + excluded.n",
                self.insert(table).replace(&format!("into {name}"), &format!("into {name} as x"))
            )
            .replace(&format!("{name}.n"), "x.n"),
            8 => format!("with a as ({} returning id) {}", self.update(table), self.update(other)),
            9 => {
                format!("with a as (delete from {name} where {} returning id) {}", self.condition(), self.insert(other))
            }
            10 if self.has_merge && !self.tables[table].is_always => format!(
                "merge into {name} t using (values (1, 2), (2, 3), (30, 4)) s (id, n) on t.id = s.id when matched and t.n > 9 then delete \
                 when matched then update set n = s.n, \"Part\" = s.n % 3 + 1 when not matched then insert (id, \"Part\", n) values (s.id, 1, s.n)"
            ),
            _ => format!("{}; {}", self.update(table), self.statement()),
        }
    }

    /// A statement of any kind, one that finds nothing to change included.
    pub(crate) fn any_statement(&mut self) -> String {
        let table = self.random.usize(..self.tables.len());
        let name = self.tables[table].name.clone();
        match self.random.u8(..20) {
            0..=4 if !self.statements.is_empty() => {
                let number = self.random.usize(..self.statements.len());
                self.statements[number].clone()
            }
            5 => {
                let column = self.random.usize(..self.tables[table].columns.len());
                let column = self.tables[table].columns[column].0.clone();
                format!("update {name} set {column} = {column} where {}", self.condition())
            }
            6 => format!(
                "update {name} set n = -5 where id = 1; update {name} set n = (select n from {name} where id = 2 limit 1) where id = 3;
                 update {name} set n = 6 where id = 1"
            ),
            7..=11 if self.style == Style::Ordinary => self.update(table),
            12 if self.style == Style::Ordinary => self.insert(table),
            13 if self.style == Style::Ordinary => format!("delete from {name} where {}", self.condition()),
            _ => self.statement(),
        }
    }

    pub(crate) fn one_outside(&mut self) -> String {
        let number = self.random.usize(..self.outside.len());
        self.outside[number].clone()
    }
}
