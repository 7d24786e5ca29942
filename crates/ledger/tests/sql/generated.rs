//! Generated tables and generated writes: an undo gives back every row exactly, or it is refused and changes nothing.
//!
//! `COUNTERSIGN_TEST_GENERATED_SEED` plays one world again, `COUNTERSIGN_TEST_GENERATED` says how many worlds are played.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;
use testkit::{Database, long_form};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::people::{ids, plan, undo_by_person};
use crate::support::{Call, OPERATOR, codes, connect, ledger, ledger_without, run, server, undo};

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
struct Table {
    name: String,
    key: &'static str,
    is_always: bool,
    /// Name, type and values; references have none.
    columns: Vec<(String, String, &'static [&'static str])>,
}

type Rows = BTreeSet<String>;

struct World<'a> {
    random: fastrand::Rng,
    space: String,
    tables: Vec<Table>,
    has_merge: bool,
    session: &'a Client,
    person: &'a Client,
    outside: &'a Client,
    counts: BTreeMap<String, u64>,
}

impl<'a> World<'a> {
    async fn new(database: &Database, [session, person, outside]: [&'a Client; 3], seed: u64) -> World<'a> {
        let space = format!("w{seed}");
        let has_merge = database.cluster().version().major >= 15;
        let random = fastrand::Rng::with_seed(seed);
        let mut world =
            World { random, space, tables: Vec::new(), has_merge, session, person, outside, counts: BTreeMap::new() };
        let sql = world.schema();
        database.run(&sql).await;
        world
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.usize(..of.len())]
    }

    fn schema(&mut self) -> String {
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

    fn insert(&mut self, table: usize) -> String {
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

    fn update(&mut self, table: usize) -> String {
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

    fn statement(&mut self) -> String {
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

    /// Every row of every table, but what logs.
    async fn rows(&self) -> Rows {
        let names = self.tables.iter().map(|table| table.name.clone()).chain([format!("{}.totals", self.space)]);
        let all: Vec<String> = names
            .map(|name| format!("select '{name} ' || t.tableoid::regclass || ' ' || t::text from {name} t"))
            .collect();
        let rows = run(self.outside, &all.join(" union all ")).await.unwrap();
        let (all, distinct) = (rows.len(), rows.into_iter().collect::<Rows>());
        assert_eq!(all, distinct.len(), "each row has a key");
        distinct
    }

    fn count(&mut self, what: &str) {
        *self.counts.entry(what.to_owned()).or_default() += 1;
    }

    /// A generated write that PostgreSQL takes and that has effects; rows may be as before even so.
    async fn write(&mut self) -> Option<(Uuid, String)> {
        for _ in 0..20 {
            let statement = self.statement();
            let call = Call::new("tool", &Uuid::new_v4().to_string());
            if let Err(refused) = call.run(self.session, &statement).await {
                run(self.session, &call.fail(&refused.code, "{}")).await.unwrap();
                self.count(&format!("refused {}", refused.code));
                continue;
            }
            let id = call.correlation_id;
            let effects = format!("select 1 from countersign.effect where correlation_id = '{id}' limit 1");
            if !run(self.outside, &effects).await.unwrap().is_empty() {
                return Some((id, statement));
            }
            self.count("writes without an effect");
        }
        None
    }

    /// An undo that must not be refused, and what it must leave.
    async fn must_undo(&mut self, write: Uuid, wanted: &Rows, context: &str) -> Result<Uuid, String> {
        let undone = undo(self.session, &[write]).await.map_err(|conflict| format!("{context}: {conflict:#}"))?;
        same(&self.rows().await, wanted, context)?;
        self.count("undone");
        Ok(undone)
    }

    /// Undone, every row is what it was; redone, what the write left; undone again, what it was.
    async fn there_and_back(&mut self) -> Result<(), String> {
        let before = self.rows().await;
        let Some((write, statement)) = self.write().await else { return Ok(()) };
        let after = self.rows().await;
        let undone = self.must_undo(write, &before, &format!("undo of {statement}")).await?;
        let redone = self.must_undo(undone, &after, &format!("redo of {statement}")).await?;
        if self.random.bool() {
            self.must_undo(redone, &before, &format!("second undo of {statement}")).await?;
        }
        Ok(())
    }

    /// After a change by others, an undo takes back its own rows and no other, or nothing.
    async fn after_others(&mut self) -> Result<(), String> {
        let before = self.rows().await;
        let Some((write, statement)) = self.write().await else { return Ok(()) };
        let after = self.rows().await;
        let change = if self.random.bool() {
            let Some((_, change)) = self.write().await else { return Ok(()) };
            change
        } else {
            let table = self.random.usize(..self.tables.len());
            let change = if self.random.bool() { self.update(table) } else { self.insert(table) };
            let _refused = run(self.outside, &change).await;
            change
        };
        let now = self.rows().await;
        let context = format!("undo of {statement}, after {change}");
        let is_in_the_way = after.difference(&now).any(|row| !before.contains(row));
        match undo(self.session, &[write]).await {
            Ok(_) if is_in_the_way => Err(format!("{context}: passed over a change")),
            Ok(_) => {
                self.count("undone beside a change");
                same(&self.rows().await, &taken_back(&now, &before, &after), &context)
            }
            Err(conflict) => {
                let found = codes(&conflict).join(" ");
                self.count(&format!("conflict {}", codes(&conflict).first().unwrap_or(&"none")));
                same(&self.rows().await, &now, &format!("refused {context}"))?;
                if found.is_empty() { Err(format!("{context}: {conflict:#}")) } else { Ok(()) }
            }
        }
    }

    /// A plan over many writes takes back what it names, exactly, or is not ready.
    async fn many(&mut self) -> Result<(), String> {
        let mut states = vec![self.rows().await];
        let (mut writes, mut statements) = (Vec::new(), Vec::new());
        for _ in 0..self.random.usize(5..=20) {
            let Some((write, statement)) = self.write().await else { break };
            states.push(self.rows().await);
            writes.push(write);
            statements.push(statement);
        }
        let is_all = self.random.bool();
        let selected: Vec<Uuid> = writes.iter().copied().filter(|_| is_all || self.random.bool()).collect();
        if selected.is_empty() {
            return Ok(());
        }
        let mode = self.one(&["strict", "skip", "cascade"]);
        let planned: Value = plan(self.person, &selected, mode).await;
        let context = format!("{mode} plan over {} of:\n{}", selected.len(), statements.join(";\n"));
        let now = states[states.len() - 1].clone();
        same(&self.rows().await, &now, &format!("a plan changes nothing: {context}"))?;
        let chosen = ids(&planned, "writes");
        if planned["is_ready"] != true || chosen.is_empty() {
            self.count(&format!("{mode} plan not ready"));
            return if is_all { Err(format!("{context}: not ready: {planned:#}")) } else { Ok(()) };
        }
        let mut wanted = now.clone();
        for (number, _) in writes.iter().enumerate().rev().filter(|(_, write)| chosen.contains(write)) {
            wanted = taken_back(&wanted, &states[number], &states[number + 1]);
        }
        match undo_by_person(self.person, &chosen).await {
            Ok(_) => {
                self.count(&format!("{mode} plan carried out"));
                same(&self.rows().await, &wanted, &context)
            }
            Err(conflict) => {
                self.count(&format!("{mode} plan refused {}", codes(&conflict).first().unwrap_or(&"none")));
                same(&self.rows().await, &now, &format!("refused {context}"))?;
                // Unique values that rows have exchanged over several writes: "Limits" of docs/ledger.md.
                if is_all && codes(&conflict) != ["constraint"] {
                    Err(format!("{context}: {conflict:#}"))
                } else {
                    Ok(())
                }
            }
        }
    }

    async fn play(&mut self) -> Result<(), String> {
        for _ in 0..4 {
            self.there_and_back().await?;
            self.after_others().await?;
        }
        self.many().await
    }
}

/// The rows without what a write made of them.
fn taken_back(rows: &Rows, before: &Rows, after: &Rows) -> Rows {
    let kept = rows.iter().filter(|row| before.contains(*row) || !after.contains(*row));
    kept.chain(before.difference(after)).cloned().collect()
}

fn same(found: &Rows, wanted: &Rows, context: &str) -> Result<(), String> {
    if found == wanted {
        return Ok(());
    }
    let (extra, missing): (Vec<_>, Vec<_>) = (found.difference(wanted).collect(), wanted.difference(found).collect());
    Err(format!("{context}: found {extra:?} instead of {missing:?}"))
}

/// Plays worlds; what does not hold, with the seed.
#[allow(clippy::print_stdout, clippy::disallowed_macros, reason = "what was tried is part of the result")]
async fn worlds(database: &Database, seeds: impl Iterator<Item = u64>) -> Vec<String> {
    let (mut broken, mut counts) = (Vec::new(), BTreeMap::<String, u64>::new());
    let (session, person) = (server(database).await, connect(database, OPERATOR).await);
    let outside = connect(database, "postgres").await;
    for seed in seeds {
        let mut world = World::new(database, [&session, &person, &outside], seed).await;
        if let Err(what) = world.play().await {
            println!("COUNTERSIGN_TEST_GENERATED_SEED={seed}: {what}");
            broken.push(format!("COUNTERSIGN_TEST_GENERATED_SEED={seed}: {what}"));
        }
        world.counts.into_iter().for_each(|(what, times)| *counts.entry(what).or_default() += times);
    }
    println!("{counts:#?}");
    broken
}

#[tokio::test(flavor = "multi_thread")]
async fn generated_writes_are_undone_exactly_or_not_at_all() {
    let database = ledger("generated").await;
    let first = long_form::variable("COUNTERSIGN_TEST_GENERATED_SEED");
    let number = if first.is_some() { 1 } else { long_form::variable_or("COUNTERSIGN_TEST_GENERATED", 8, 300) };
    let first = first.unwrap_or(1);
    let broken = worlds(&database, first..first + number).await;
    assert!(broken.is_empty(), "{}", broken.join("\n\n"));
}

/// The control: without the comparison of rows, the test above notices.
#[tokio::test(flavor = "multi_thread")]
async fn generated_worlds_show_an_undo_that_compares_nothing() {
    let replaced = [(
        "when w.after is not null and now.image is distinct from w.after\n",
        "when false and now.image is distinct from w.after\n",
    )];
    let database = ledger_without("generated_control", &replaced).await;
    let mut seeds = 1..=20;
    while let Some(seed) = seeds.next() {
        if !worlds(&database, seed..=seed).await.is_empty() {
            return;
        }
    }
    panic!("an undo that compares nothing was not noticed");
}
