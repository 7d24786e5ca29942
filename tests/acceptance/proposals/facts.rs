//! Property: each fact of a write is on each face of its proposal, or the face says how much of it is not shown.
//!
//! `COUNTERSIGN_TEST_FACTS_SEED` plays one database again, `COUNTERSIGN_TEST_FACTS` says how many there are.

mod fact;
mod lines;
mod oracle;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use testkit::{Database, Server, database, long_form, run_countersign};

use super::{id, server_with_questions};
use crate::console::{Browser, Console, path};
use crate::generated_tables::{Style, Tables};
use fact::{Face, Fact, facts, missing};
use lines::lines;
use oracle::Oracle;

/// What generated tables lack: cascades over several tables, many rows, documents, and triggers on all of it.
const CROWD: &str = include_str!("facts/crowd.sql");

/// Statements on these tables; `A` and `B` are numbers, `A` the smaller one.
const STATEMENTS: &[&str] = &[
    "delete from {s}.acct where id = A",
    "delete from {s}.acct where id between A and B",
    "delete from {s}.line",
    "update {s}.acct set name = md5(random()::text), \"Mail Box\" = upper(\"Mail Box\") where id between A and B",
    "update {s}.acct set doc = jsonb_set(doc, '{mail,daily}', 'A') where id between A and B",
    "update {s}.acct set secret = 'B', state = 'new' where id between A and B",
    // The first letter is Cyrillic.
    "update {s}.acct set name = '\u{410}dmin' where id = A",
    "update {s}.inv set total = total * 100",
    "update {s}.inv set state = 'paid', total = total + 1 where acct between A and B",
    "update {s}.line set what = case when id % 3 = 0 then 'A' else 'x' end",
    "update {s}.line set what = 'l' || id where id < 7 * B",
    "insert into {s}.inv (acct, total) select id, 5 from {s}.acct where id between A and B",
    "with a as (update {s}.acct set state = 'A' where id = A returning id) update {s}.inv set total = 0 where acct in (select id from a)",
    "with a as (delete from {s}.line where id = B) update {s}.acct set name = null where id in (A, B)",
];

/// A database with generated tables, a server, and the faces of what it proposes.
struct World {
    db: Database,
    oracle: Oracle,
    server: Server,
    asked: Arc<Mutex<String>>,
    anna: Browser,
    _console: Console,
}

impl World {
    async fn new(spaces: &[Tables]) -> Self {
        let db = database().await;
        let (oracle, person) = (Oracle::new(&db).await, db.connect().await);
        for made in spaces {
            let space = &made.space;
            for sql in &made.setup {
                // What does not go together is not there.
                let _refused = person.batch_execute(sql).await;
            }
            db.run(&CROWD.replace("{s}", space)).await;
            db.run(&format!("grant usage on schema {space} to countersign_writer, countersign_reader;
                grant select on all tables in schema {space} to countersign_reader; grant usage on all sequences in schema {space} to countersign_writer;
                grant select, insert, update, delete on all tables in schema {space} to countersign_writer")).await;
        }
        let console = Console::on(&db).await;
        let anna = console.browser(&db, "anna", &[]).await;
        let (server, asked) = server_with_questions(&db).await;
        Self { db, oracle, server, asked, anna, _console: console }
    }

    /// The faces of a proposal, each with its text.
    async fn faces(&mut self, proposal: &Value) -> [(Face, String); 7] {
        let url = self.db.url();
        let [show, list] = [&["proposals", "show", id(proposal)][..], &["proposals", "list", "--limit", "1"]];
        let question = self.asked.lock().unwrap().clone();
        let (shown, listed) = tokio::join!(run_countersign(&url, show), run_countersign(&url, list));
        [
            (Face::Agent, proposal.to_string()),
            (Face::Description, proposal["description"].as_str().unwrap().to_owned()),
            (Face::Question, question),
            (Face::Terminal, shown.out),
            (Face::Page, self.anna.get(&path(proposal)).await.body),
            (Face::List, listed.out),
            (Face::Inbox, self.anna.get("/").await.body),
        ]
    }

    /// Proposes a statement: its facts, and its faces. `None` if it is refused, or changes nothing.
    async fn propose(&mut self, space: &str, sql: &str) -> Option<(Vec<Fact>, [(Face, String); 7])> {
        let done = self.oracle.tries(space, sql).await?;
        let answer = self.server.call("execute_sql", json!({"sql": sql})).await;
        if answer["data"]["requires_approval"] != true {
            println!("{sql}: {}", answer["error"]["message"]);
            return None;
        }
        let proposal = &answer["data"]["proposal"];
        let stored = self
            .db
            .value(&format!("select preview from countersign.proposal where proposal_id = '{}'", id(proposal)))
            .await;
        let faces = self.faces(proposal).await;
        self.server.succeed("reject_proposal", json!({"proposal_id": proposal["proposal_id"]})).await;
        Some((facts(&done, &serde_json::from_str(&stored).unwrap()), faces))
    }
}

/// A statement of a generated database.
fn statement(made: &mut Tables) -> String {
    if made.chance(2) {
        return made.any_statement();
    }
    let [one, other] = [made.random.u32(1..=40), made.random.u32(1..=40)];
    let template = made.one(STATEMENTS);
    template
        .replace("{s}", &made.space)
        .replace('A', &one.min(other).to_string())
        .replace('B', &one.max(other).to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fact_is_on_every_face_or_counted_as_not_shown() {
    let first = long_form::variable("COUNTERSIGN_TEST_FACTS_SEED");
    let number = long_form::variable("COUNTERSIGN_TEST_FACTS")
        .unwrap_or_else(|| if first.is_some() { 1 } else { long_form::choose(4, 60) });
    let first = first.unwrap_or(1);
    let mut spaces: Vec<Tables> = (first..first + number)
        .map(|seed| {
            let style = if seed.is_multiple_of(3) { Style::Wild } else { Style::Ordinary };
            let mut made = Tables::new(seed, style, false);
            made.schema(&[]);
            made
        })
        .collect();
    let mut world = World::new(&spaces).await;
    let (mut proposals, mut wrong) = (0, Vec::new());
    for made in &mut spaces {
        for _ in 0..10 {
            let (space, sql) = (made.space.clone(), statement(made));
            let Some((facts, faces)) = world.propose(&space, &sql).await else { continue };
            proposals += 1;
            for (face, text) in faces {
                let missing = missing(face, &lines(face, &text), &facts);
                if !missing.is_empty() {
                    wrong.push(format!(
                        "COUNTERSIGN_TEST_FACTS_SEED={}: {face:?} of {sql} lacks {missing:?}:\n{text}",
                        &space[1..]
                    ));
                }
            }
        }
    }
    println!("{proposals} proposals");
    assert!(proposals > number, "of {number} databases");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    world.server.close().await;
}

/// The lines without the words of a fact that is told, or without the numbers of what is not shown.
fn without(fact: &Fact, lines: &[String]) -> Vec<String> {
    let words = match fact {
        Fact::Rows { words, .. } | Fact::Mark(words) | Fact::Unusual(words) | Fact::Column { column: words, .. } => {
            words
        }
        Fact::Words(words) => words.last().unwrap(),
    };
    let is_told = lines.iter().any(|line| fact.is_in(line));
    let cut = |line: &String| match is_told {
        true if fact.is_in(line) => line.to_lowercase().replace(&words.to_lowercase(), ""),
        true => line.clone(),
        false => line.replace(" more ", ""),
    };
    lines.iter().map(cut).collect()
}

/// The control: without a cascade, a column, a risk, a word of the receipt or a mark, each face lacks it.
#[tokio::test(flavor = "multi_thread")]
async fn a_fact_that_a_face_leaves_out_is_noticed() {
    let mut made = Tables::new(0, Style::Plain, false);
    made.make("create schema w0");
    let mut world = World::new(&[made]).await;
    let mut noticed: BTreeMap<String, u64> = BTreeMap::new();
    for sql in [
        "delete from w0.acct where id between 3 and 18",
        "update w0.acct set name = '\u{410}dmin', state = 'new', secret = 'x' where id < 4",
        "update w0.inv set total = total * 100",
    ] {
        let (facts, faces) = world.propose("w0", sql).await.unwrap();
        for (face, text) in faces {
            let lines = lines(face, &text);
            assert_eq!(missing(face, &lines, &facts), [], "{face:?} of {sql}:\n{text}");
            for fact in facts.iter().filter(|fact| fact.concerns(face)) {
                let found = missing(face, &without(fact, &lines), &facts);
                assert!(found.contains(fact), "{face:?} of {sql} without {fact:?}: {found:?}");
                let kind = format!("{fact:?}");
                *noticed.entry(kind.split(['(', ' ']).next().unwrap().to_owned()).or_default() += 1;
            }
        }
    }
    assert_eq!(noticed.keys().collect::<Vec<_>>(), ["Column", "Mark", "Rows", "Unusual", "Words"], "{noticed:?}");
    world.server.close().await;
}
