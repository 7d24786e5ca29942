//! Generated tables and generated writes: an undo gives back every row exactly, or it is refused and changes nothing.
//!
//! `COUNTERSIGN_TEST_GENERATED_SEED` plays one world again, `COUNTERSIGN_TEST_GENERATED` says how many worlds are played.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use testkit::{Database, long_form};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::generated_tables::{Style, Tables};
use crate::people::{ids, plan, undo_by_person};
use crate::support::{Call, OPERATOR, codes, connect, ledger, ledger_without, run, server, undo};

type Rows = BTreeSet<String>;

struct World<'a> {
    made: Tables,
    session: &'a Client,
    person: &'a Client,
    outside: &'a Client,
    counts: BTreeMap<String, u64>,
}

impl<'a> World<'a> {
    async fn new(database: &Database, [session, person, outside]: [&'a Client; 3], seed: u64) -> World<'a> {
        let has_merge = database.cluster().version().major >= 15;
        let mut made = Tables::new(seed, Style::Plain, has_merge);
        database.run(&made.schema(&[]).join(";\n")).await;
        World { made, session, person, outside, counts: BTreeMap::new() }
    }

    /// Every row of every table, but what logs.
    async fn rows(&self) -> Rows {
        let names =
            self.made.tables.iter().map(|table| table.name.clone()).chain([format!("{}.totals", self.made.space)]);
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
            let statement = self.made.statement();
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

    /// An undo and what it must leave; none where unique values stand in the way ("Limits" of docs/internals/ledger.md).
    async fn must_undo(&mut self, write: Uuid, wanted: &Rows, context: &str) -> Result<Option<Uuid>, String> {
        let now = self.rows().await;
        match undo(self.session, &[write]).await {
            Ok(undone) => {
                self.count("undone");
                same(&self.rows().await, wanted, context).map(|()| Some(undone))
            }
            Err(conflict) if codes(&conflict) == ["constraint"] => {
                self.count("refused for unique values");
                same(&self.rows().await, &now, &format!("refused {context}")).map(|()| None)
            }
            Err(conflict) => Err(format!("{context}: {conflict:#}")),
        }
    }

    /// Undone, every row is what it was; redone, what the write left; undone again, what it was.
    async fn there_and_back(&mut self) -> Result<(), String> {
        let before = self.rows().await;
        let Some((mut write, statement)) = self.write().await else { return Ok(()) };
        let after = self.rows().await;
        for (what, wanted) in [("undo", &before), ("redo", &after), ("second undo", &before)] {
            match self.must_undo(write, wanted, &format!("{what} of {statement}")).await? {
                Some(undone) if after != before => write = undone,
                _ => break,
            }
        }
        Ok(())
    }

    /// After a change by others, an undo takes back its own rows and no other, or nothing.
    async fn after_others(&mut self) -> Result<(), String> {
        let before = self.rows().await;
        let Some((write, statement)) = self.write().await else { return Ok(()) };
        let after = self.rows().await;
        let change = if self.made.random.bool() {
            let Some((_, change)) = self.write().await else { return Ok(()) };
            change
        } else {
            let table = self.made.random.usize(..self.made.tables.len());
            let change = if self.made.random.bool() { self.made.update(table) } else { self.made.insert(table) };
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
                // A deferred constraint speaks at the end, with its own code.
                let is_late = conflict["code"].as_str().is_some_and(|code| code.starts_with("23"));
                let names_a_change = ["changed_since", "deleted_since"].iter().any(|code| found.contains(code));
                // Rows that are as the write left them are no change; and one that is not has to be named.
                if names_a_change != is_in_the_way || found.is_empty() && !is_late {
                    return Err(format!("{context}: {conflict:#}"));
                }
                Ok(())
            }
        }
    }

    /// A plan over many writes takes back what it names, exactly, or is not ready.
    async fn many(&mut self) -> Result<(), String> {
        let mut states = vec![self.rows().await];
        let (mut writes, mut statements) = (Vec::new(), Vec::new());
        for _ in 0..self.made.random.usize(5..=20) {
            let Some((write, statement)) = self.write().await else { break };
            states.push(self.rows().await);
            writes.push(write);
            statements.push(statement);
        }
        let is_all = self.made.random.bool();
        let selected: Vec<Uuid> = writes.iter().copied().filter(|_| is_all || self.made.random.bool()).collect();
        if selected.is_empty() {
            return Ok(());
        }
        let mode = self.made.one(&["strict", "skip", "cascade"]);
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
                // Unique values that rows have exchanged over several writes: "Limits" of docs/internals/ledger.md.
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

/// The control: without the comparisons of `undo` and of its proof, the test above notices.
#[tokio::test(flavor = "multi_thread")]
async fn generated_worlds_show_an_undo_that_compares_nothing() {
    let replaced = [
        (
            "when w.after is not null and now.image is distinct from w.after\n",
            "when false and now.image is distinct from w.after\n",
        ),
        ("where j.is_right is not true)", "where false)"),
    ];
    let database = ledger_without("generated_control", &replaced).await;
    for seed in 1..=20 {
        if !worlds(&database, seed..=seed).await.is_empty() {
            return;
        }
    }
    panic!("an undo that compares nothing was not noticed");
}
