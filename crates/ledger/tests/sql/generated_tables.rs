//! The tables and the statements of a generated world.

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

const ACTIONS: &[&str] = &["cascade", "set null", "set default", "restrict", "no action"];

/// A table with the columns `id`, `n` and others.
pub(crate) struct Table {
    pub(crate) name: String,
    key: &'static str,
    is_always: bool,
    /// Name, type and values; references have none.
    columns: Vec<(String, String, &'static [&'static str])>,
}

/// What is generated: a schema, then statements on its tables.
pub(crate) struct Tables {
    pub(crate) random: fastrand::Rng,
    pub(crate) space: String,
    pub(crate) tables: Vec<Table>,
    pub(crate) has_merge: bool,
}

impl Tables {
    pub(crate) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.usize(..of.len())]
    }

    pub(crate) fn schema(&mut self) -> String {
        let s = self.space.clone();
        let mut sql = format!(
            "create schema {s}; create type {s}.mood as enum ('sad', 'it''s, \"ok\"'); create type {s}.pair as (a int, b text);
             create domain {s}.amount as numeric(12, 2) check (value >= 0); create domain {s}.words as text[];
             create table {s}.totals (id int primary key, total numeric not null); insert into {s}.totals values (0, 0), (1, 0), (2, 0);
             create table {s}.log (id int generated always as identity primary key, what text);
             create function {s}.count() returns trigger language plpgsql as $$ begin
                 if tg_op <> 'INSERT' then update {s}.totals set total = total - coalesce(old.n, 0) where id = abs(old.id) % 3; end if;
                 if tg_op <> 'DELETE' then update {s}.totals set total = total + coalesce(new.n, 0) where id = abs(new.id) % 3; end if;
                 return null; end $$;
             create function {s}.note() returns trigger language plpgsql as $$ begin insert into {s}.log (what) values (tg_op); return null; end $$;
             create function {s}.tidy() returns trigger language plpgsql as $$ begin new.n := abs(new.n); return new; end $$;"
        );
        for number in 0..self.random.usize(2..=6) {
            let table = self.table(number, &mut sql);
            self.tables.push(table);
        }
        for number in 0..self.tables.len() {
            for _ in 0..2 {
                // Whatever a constraint refuses is left out.
                let insert = self.insert(number);
                write!(
                    sql,
                    "do $do$ begin {insert}; set constraints all immediate; exception when others then null; end $do$;"
                )
                .unwrap();
            }
        }
        for table in &self.tables {
            write!(sql, "select countersign.track('{}');", table.name).unwrap();
        }
        write!(sql, "select countersign.track('{s}.totals'), countersign.track('{s}.log', is_log => true)").unwrap();
        sql
    }

    fn table(&mut self, number: usize, sql: &mut String) -> Table {
        let s = self.space.clone();
        let name =
            format!("{s}.{}", if self.random.bool() { format!("t{number}") } else { format!("\"Tab % {number}\"") });
        let (id, key, constraint) = self.one(&[
            ("int", "id", "primary key (id)"),
            ("bigint generated always as identity", "id", "primary key (id)"),
            ("int generated by default as identity", "id", "primary key (id)"),
            ("serial", "id", "primary key (id)"),
            ("int not null", "id", "unique (id)"),
            ("int", "id, \"Part\"", "primary key (id, \"Part\")"),
            ("int", "id, \"Part\"", "primary key (\"Part\", id)"),
        ]);
        let is_partitioned = key != "id" && self.random.bool();
        let mut body = format!("id {id}, \"Part\" int not null default 1, n int, {constraint}");
        let mut columns = Vec::new();
        for place in 0..self.random.usize(1..=5) {
            let (kind, values) = self.one(TYPES);
            let (column, kind) = (format!("\"C {place}\""), kind.replace("{s}", &s));
            write!(body, ", {column} {kind}").unwrap();
            columns.push((column, kind, values));
        }
        let generated = self.one(&[
            "",
            ", twice int generated always as (n * 2) stored",
            ", mark text generated always as ('n' || id) stored",
        ]);
        body.push_str(generated);
        if !is_partitioned {
            body.push_str(self.one(&["", "", ", unique (n)", ", unique (n) deferrable initially deferred"]));
        }
        let mut parents: Vec<String> = self.tables.iter().filter(|t| t.key == "id").map(|t| t.name.clone()).collect();
        if key == "id" {
            parents.push(name.clone());
        }
        for place in 0..self.random.usize(..=2).min(parents.len()) {
            let (parent, action) = (self.random.usize(..parents.len()), self.one(ACTIONS));
            let (update, deferred) = (
                self.one(&["", "on update cascade", "on update set null"]),
                self.one(&["", "", "deferrable initially deferred"]),
            );
            write!(
                body,
                ", r{place} int default 1 references {} (id) on delete {action} {update} {deferred}",
                parents[parent]
            )
            .unwrap();
            columns.push((format!("r{place}"), "int".to_owned(), &[]));
        }
        write!(sql, "create table {name} ({body})").unwrap();
        if is_partitioned {
            let kind = self.one(&["list", "range"]);
            write!(sql, " partition by {kind} (\"Part\")").unwrap();
            for part in 1..=3 {
                let bounds =
                    if kind == "list" { format!("in ({part})") } else { format!("from ({part}) to ({})", part + 1) };
                write!(sql, "; create table {s}.part_{number}_{part} partition of {name} for values {bounds}").unwrap();
            }
        }
        sql.push(';');
        for (function, when) in [
            ("count", "after insert or update or delete"),
            ("note", "after insert or update or delete"),
            ("tidy", "before insert"),
        ] {
            if self.random.u8(..3) == 0 {
                write!(
                    sql,
                    "create trigger {function} {when} on {name} for each row execute function {s}.{function}();"
                )
                .unwrap();
            }
        }
        Table { name, key, is_always: id.contains("always"), columns }
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
        let condition = self.condition();
        format!("update {} set {set} where {condition}", self.tables[table].name)
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
}
