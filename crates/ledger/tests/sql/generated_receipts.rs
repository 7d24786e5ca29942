//! Generated databases, writes, migrations and changes by others: no receipt is false, no success changes anything else, no refusal
//! changes anything.
//!
//! `COUNTERSIGN_TEST_RECEIPTS_SEED` plays one database again, `COUNTERSIGN_TEST_RECEIPTS` says how many there are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use testkit::{Database, long_form};

use crate::generated_tables::{Style, Tables};
use crate::receipts_kept::COMPARED;
use crate::snapshot::FUNCTION;
use crate::support::{codes, ledger_without, run};
use crate::trial::{Trial, Written};

/// Features and migrations that are left out, each with its reason.
const OFF: &[(&str, &str)] = &[
    // A trigger that is newer than the write sets a column that is newer as well: the answer of the undo does not name it.
    ("new trigger", "set_again"),
];

/// What a login may have, which changes no undo.
const SETTINGS: &[&str] = &[
    "",
    "",
    "set timezone = 'Asia/Tokyo'; set datestyle = german; set intervalstyle = sql_standard",
    "set extra_float_digits = 0; set bytea_output = escape; set xmlbinary = hex; set xmloption = document",
    "set quote_all_identifiers = on; set transform_null_equals = on; set backslash_quote = off",
    "set default_transaction_isolation = 'repeatable read'; set constraint_exclusion = on; set enable_indexscan = off",
];

/// What happens in a database, in the order in which it happens.
#[derive(Debug, Clone)]
enum Step {
    Write {
        number: usize,
        sql: String,
        assigned: BTreeSet<String>,
    },
    /// By somebody else: rows or the schema.
    Other(String),
    /// The undo of a write, or of an undo; it is a write of its own.
    Undo {
        of: usize,
        number: usize,
    },
}

/// A database as it was made, and what happened in it.
#[derive(Debug, Clone, Default)]
struct Case {
    /// Of the server's session.
    settings: &'static str,
    setup: Vec<String>,
    steps: Vec<Step>,
}

impl Case {
    /// Without some of its statements or steps.
    fn without(&self, places: std::ops::Range<usize>) -> Self {
        let mut less = self.clone();
        let mut place = 0;
        let mut stays = || {
            place += 1;
            !places.contains(&(place - 1))
        };
        less.setup.retain(|_| stays());
        less.steps.retain(|_| stays());
        less
    }

    fn len(&self) -> usize {
        self.setup.len() + self.steps.len()
    }

    fn text(&self) -> String {
        let mut text = format!("-- session: {}\n", self.settings);
        for sql in &self.setup {
            writeln!(text, "{sql};").unwrap();
        }
        for step in &self.steps {
            match step {
                Step::Write { number, sql, .. } => writeln!(text, "-- write {number}\n{sql};").unwrap(),
                Step::Other(sql) => writeln!(text, "-- others\n{sql};").unwrap(),
                Step::Undo { of, number } => writeln!(text, "-- undo of {of}, as {number}").unwrap(),
            }
        }
        text
    }
}

/// What is played in one database of PostgreSQL, schema after schema.
struct Player {
    trial: Trial,
    written: BTreeMap<usize, (Written, BTreeSet<String>)>,
    counts: BTreeMap<String, u64>,
    is_disturbed: bool,
    /// Wants to know only whether anything is wrong.
    is_control: bool,
    /// The number of failures that were reduced.
    reduced: usize,
    /// The number of changes by others.
    others: u64,
}

impl Player {
    async fn new(database: Database) -> Self {
        database.run(FUNCTION).await;
        let trial = Trial::over(database).await;
        Self {
            trial,
            written: BTreeMap::new(),
            counts: BTreeMap::new(),
            is_disturbed: false,
            is_control: false,
            reduced: 0,
            others: 0,
        }
    }

    fn count(&mut self, what: &str) {
        *self.counts.entry(what.to_owned()).or_default() += 1;
    }

    async fn set_up(&mut self, space: &str, case: &Case) {
        self.written.clear();
        self.is_disturbed = false;
        self.trial.space = Some(space.to_owned());
        run(&self.trial.session, &format!("reset all; {}", case.settings)).await.unwrap();
        run(&self.trial.other, &format!("drop schema if exists {space} cascade")).await.unwrap();
        for sql in &case.setup {
            // What does not go together is not there.
            if let Err(refused) = run(&self.trial.other, sql).await {
                self.count(&format!("setup refused: {} {}", refused.code, &sql[..sql.len().min(60)]));
            }
        }
    }

    /// Carries a step out: whether it took place, and what is wrong with it.
    async fn step(&mut self, step: &Step) -> (bool, Vec<String>) {
        match step {
            // It was taken in another form.
            Step::Write { number, .. } if self.written.contains_key(number) => (false, Vec::new()),
            Step::Write { number, sql, assigned } => match self.trial.try_write(sql).await {
                Ok(written) => {
                    self.is_disturbed = false;
                    self.written.insert(*number, (written, assigned.clone()));
                    (true, Vec::new())
                }
                Err(refused) => {
                    self.count(&format!("writes refused: {}", refused.code));
                    // A write that the database takes is not the ledger's to refuse.
                    let wrong = if refused.code.starts_with("CS")
                        || refused.code.starts_with("XX")
                        || refused.code.starts_with("42") && refused.message.contains("countersign")
                    {
                        vec![format!("a write was refused: {refused:?}")]
                    } else {
                        Vec::new()
                    };
                    (false, wrong)
                }
            },
            Step::Other(sql) => {
                let is_done = run(&self.trial.other, sql).await.is_ok();
                self.is_disturbed |= is_done;
                // A sweep may come before the next write, or after it.
                self.others += 1;
                if self.others.is_multiple_of(2) {
                    run(&self.trial.other, "select countersign.keep_table_facts()").await.unwrap();
                }
                (is_done, Vec::new())
            }
            Step::Undo { of, number } => self.undo(*of, *number).await,
        }
    }

    async fn undo(&mut self, of: usize, number: usize) -> (bool, Vec<String>) {
        let Some((written, assigned)) = self.written.get(&of).cloned() else { return (false, Vec::new()) };
        self.trial.facts.assigned.clone_from(&assigned);
        // Another write may have come after it.
        let is_disturbed = self.is_disturbed || self.written.keys().any(|later| *later > of);
        let judged = self.trial.undo(&written, is_disturbed).await;
        let kind = match (judged.receipt.is_a_promise(), judged.receipt.reversible) {
            (true, _) => "promised",
            (_, true) => "unchecked",
            _ => "irreversible",
        };
        let end = judged.outcome.as_ref().map_or_else(
            |conflict| format!("refused {}", codes(conflict).first().map_or("-", |code| *code)),
            |_| "done".to_owned(),
        );
        self.count(&format!("{kind}{}, {end}", if is_disturbed { " after a change" } else { "" }));
        let is_done = judged.outcome.is_ok();
        if let Some(undo) = judged.undo {
            self.is_disturbed = false;
            self.written.insert(number, (undo, assigned));
        }
        let said = format!("{:?}", judged.receipt);
        let did = match &judged.outcome {
            Ok(undone) => undone.answer.to_string(),
            Err(conflict) => conflict.to_string(),
        };
        let mut wrong = judged.wrong;
        if !wrong.is_empty() {
            wrong.push(format!("the receipt said: {said}"));
            wrong.push(format!("the undo did: {did}"));
        }
        (is_done, wrong)
    }

    /// The same once more: what is wrong, if anything is.
    async fn replay(&mut self, space: &str, case: &Case) -> Vec<String> {
        self.set_up(space, case).await;
        for step in &case.steps {
            let (_, wrong) = self.step(step).await;
            if !wrong.is_empty() {
                return wrong;
            }
        }
        Vec::new()
    }

    /// As little of a case as shows that something is wrong, within some seconds.
    async fn shrink(&mut self, space: &str, mut case: Case, mut wrong: Vec<String>) -> (Case, Vec<String>) {
        let until = Instant::now() + Duration::from_secs(20);
        let counts = self.counts.clone();
        let mut size = case.len() / 2;
        while size > 0 {
            let mut end = case.len();
            while end > 0 && Instant::now() < until {
                let less = case.without(end.saturating_sub(size)..end);
                let still = self.replay(space, &less).await;
                if kind_of(&still) == kind_of(&wrong) {
                    (case, wrong) = (less, still);
                }
                end = end.saturating_sub(size).min(case.len());
            }
            size /= 2;
        }
        self.counts = counts;
        (case, wrong)
    }

    /// Plays the database of a seed; what is wrong, in words.
    async fn play(&mut self, seed: u64) -> Option<String> {
        let has_merge = self.trial.database.cluster().version().major >= 15;
        let style = if seed.is_multiple_of(3) { Style::Wild } else { Style::Ordinary };
        let mut made = Tables::new(seed, style, has_merge);
        let setup = made.schema(OFF).to_vec();
        let space = made.space.clone();
        let settings = if style == Style::Wild { made.one(SETTINGS) } else { "" };
        let mut case = Case { settings, setup, steps: Vec::new() };
        self.set_up(&space, &case).await;
        made.features.iter().for_each(|name| self.count(&format!("with {name}")));
        let mut wrong = Vec::new();
        let mut number = 0;
        for _ in 0..6 {
            for step in rounds(&mut made, &mut number) {
                let (is_done, found) = self.step(&step).await;
                if let (Step::Other(sql), true) = (&step, is_done) {
                    made.migrated(sql);
                }
                if is_done || !found.is_empty() {
                    case.steps.push(step);
                }
                if !found.is_empty() {
                    wrong = found;
                    break;
                }
            }
            if !wrong.is_empty() {
                break;
            }
        }
        run(&self.trial.other, &format!("drop schema if exists {space} cascade")).await.unwrap();
        if wrong.is_empty() {
            return None;
        }
        let features = made.features.iter().copied().collect::<Vec<_>>().join(", ");
        // Some of them, where much is wrong: it takes longer than everything else.
        if !self.is_control && self.reduced < 4 {
            self.reduced += 1;
            (case, wrong) = self.shrink(&space, case, wrong).await;
        }
        run(&self.trial.other, &format!("drop schema if exists {space} cascade")).await.unwrap();
        Some(format!(
            "COUNTERSIGN_TEST_RECEIPTS_SEED={seed} ({style:?}; {features})\n{}{}\n",
            case.text(),
            wrong.iter().map(|one| format!("--> {one}\n")).collect::<String>()
        ))
    }
}

/// What is wrong, without its particulars.
fn kind_of(wrong: &[String]) -> Option<&str> {
    wrong.first().map(|first| first.split(':').next().unwrap_or_default())
}

/// A write, perhaps a migration or a change by others, and then its undo, the redo and so on.
fn rounds(made: &mut Tables, number: &mut usize) -> Vec<Step> {
    let mut steps = Vec::new();
    // Perhaps first an undo of something that is long ago, or of an undo, or of what was undone before.
    if *number > 0 && made.chance(6) {
        let of = made.random.usize(1..=*number);
        *number += 1;
        steps.push(Step::Undo { of, number: *number });
    }
    let mut next = || {
        *number += 1;
        *number
    };
    let written = next();
    // PostgreSQL refuses some of them: there are more than one of the same number.
    for _ in 0..3 {
        made.assigned.clear();
        let sql = made.any_statement();
        steps.push(Step::Write { number: written, sql, assigned: made.assigned.clone() });
    }
    match made.random.u8(..10) {
        0 | 1 => steps.extend(made.migration(OFF).map(|(_, sql)| Step::Other(sql))),
        2 => {
            let sql = if made.outside.is_empty() || made.chance(3) { made.statement() } else { made.one_outside() };
            steps.push(Step::Other(sql));
        }
        _ => {}
    }
    let (first, second) = (next(), next());
    steps.push(Step::Undo { of: written, number: first });
    steps.push(Step::Undo { of: first, number: second });
    if made.random.bool() {
        steps.push(Step::Undo { of: second, number: next() });
    }
    steps
}

/// What a run is without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Without {
    Nothing,
    /// Receipts are what a manifest says.
    Receipts,
    /// An undo is believed to have restored what it should.
    Proof,
}

impl Without {
    /// Whether a control has shown what it is for.
    fn is_noticed(self, broken: &[String]) -> bool {
        let kinds: &[&str] = match self {
            Self::Nothing => &[],
            Self::Receipts => &["promised and refused"],
            Self::Proof => &["not restored", "still there", "missing", "the undo changed a row"],
        };
        broken.iter().any(|what| kinds.iter().any(|kind| what.contains(&format!("--> {kind}"))))
    }
}

/// The number of databases of PostgreSQL that are played in at a time. Every third generated database takes three times as long, so
/// this is no multiple of 3.
const PLAYERS: u64 = 4;

/// The number of generated databases in one of PostgreSQL. Its sessions keep the plans of functions that were dropped, and each
/// change of the catalog goes through all of them.
const PLAYED: usize = 50;

/// Plays databases, several at a time; what is wrong, with what was tried. A control ends with what it is to show.
#[allow(clippy::print_stdout, clippy::disallowed_macros, reason = "what was tried is part of the result")]
async fn play(name: &str, seeds: std::ops::Range<u64>, without: Without) -> (Vec<String>, BTreeMap<String, u64>) {
    let tasks: Vec<_> = (0..PLAYERS.min(seeds.end - seeds.start))
        .map(|place| {
            let (name, seeds) = (format!("{name}_{place}"), seeds.clone());
            tokio::spawn(async move {
                let (mut broken, mut counts) = (Vec::new(), BTreeMap::new());
                let seeds: Vec<u64> =
                    (seeds.start + place..seeds.end).step_by(usize::try_from(PLAYERS).unwrap()).collect();
                for (number, seeds) in seeds.chunks(PLAYED).enumerate() {
                    let mut player = Player::new(ledger_without(&format!("{name}_{number}"), &[COMPARED]).await).await;
                    player.counts = counts;
                    player.is_control = without != Without::Nothing;
                    player.trial.believes_manifests = without == Without::Receipts;
                    if without == Without::Proof {
                        player.trial.database.run(NO_PROOF).await;
                    }
                    for &seed in seeds {
                        if let Some(what) = player.play(seed).await {
                            println!("{what}");
                            broken.push(what);
                            if without.is_noticed(&broken) {
                                return (broken, player.counts);
                            }
                        }
                    }
                    counts = player.counts;
                }
                (broken, counts)
            })
        })
        .collect();
    let (mut broken, mut counts) = (Vec::new(), BTreeMap::<String, u64>::new());
    for task in tasks {
        let (more, counted) = task.await.unwrap();
        broken.extend(more);
        counted.into_iter().for_each(|(what, times)| *counts.entry(what).or_default() += times);
    }
    println!("{counts:#?}");
    (broken, counts)
}

/// What an undo has left otherwise than it should is found, and not said.
const NO_PROOF: &str = "alter function countersign.deviations(uuid[], uuid[], bigint, jsonb) rename to deviations_in_truth;
    create function countersign.deviations(writes uuid[], undos uuid[], after_position bigint, evidence jsonb,
        out wrong json, out set_again json, out grown oid[], out kept json) language sql stable security definer set search_path = pg_catalog, pg_temp as $$
        select null::json, d.set_again, d.grown, null::json from countersign.deviations_in_truth(writes, undos, after_position, evidence) d $$";

#[tokio::test(flavor = "multi_thread")]
async fn no_receipt_is_false() {
    let first = long_form::variable("COUNTERSIGN_TEST_RECEIPTS_SEED");
    let number = long_form::variable("COUNTERSIGN_TEST_RECEIPTS");
    let number = number.unwrap_or_else(|| if first.is_some() { 1 } else { long_form::choose(60, 300) });
    let first = first.unwrap_or(1);
    let (broken, counts) = play("receipts", first..first + number, Without::Nothing).await;
    assert!(broken.is_empty(), "{} of {number}:\n{}", broken.len(), broken.join("\n"));
    // Receipts that promise nothing would all be true.
    let undos = |start: &str| -> u64 {
        counts.iter().filter(|(what, _)| what.starts_with(start)).map(|(_, times)| times).sum()
    };
    let (promised, others) = (undos("promised, done"), undos("unchecked,") + undos("irreversible,"));
    assert!(promised > 2 * others, "{counts:#?}");
}

/// The control: receipts that a manifest makes up are false.
#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_from_the_manifest_alone_is_false() {
    let (broken, _) = play("receipts_of_manifests", 1..31, Without::Receipts).await;
    assert!(Without::Receipts.is_noticed(&broken), "{broken:#?}");
}

/// The control: an undo that is not proved leaves rows that are not what they were.
#[tokio::test(flavor = "multi_thread")]
async fn an_undo_without_its_proof_is_noticed() {
    let (broken, _) = play("receipts_without_proof", 1..31, Without::Proof).await;
    assert!(Without::Proof.is_noticed(&broken), "{broken:#?}");
}
