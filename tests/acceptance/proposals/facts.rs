//! Property: each fact of a write is on each face of its proposal, or the face says how much of it is not shown.
//!
//! `COUNTERSIGN_TEST_FACTS_SEED` plays one database again, `COUNTERSIGN_TEST_FACTS` says how many there are.

mod fact;
mod lines;
mod oracle;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use testkit::{ConfigDir, Database, Server, database, long_form, run_countersign};

use super::{id, question_to, server_with_questions};
use crate::console::{Browser, Console, path};
use crate::generated_tables::{Style, Tables};
use fact::{Face, Fact, facts, missing};
use lines::lines;
use oracle::Oracle;

/// What generated tables lack: cascades over several tables, many rows, documents, and triggers on all of it.
const CROWD: &str = include_str!("facts/crowd.sql");

/// Statements on these tables; `:a` and `:b` are numbers, `:a` the smaller one.
const STATEMENTS: &[&str] = &[
    "delete from {s}.acct where id = :a",
    "delete from {s}.acct where id between :a and :b",
    "delete from {s}.line",
    "update {s}.acct set name = md5(random()::text), \"Mail Box\" = upper(\"Mail Box\") where id between :a and :b",
    "update {s}.acct set doc = jsonb_set(doc, '{mail,daily}', ':a') where id between :a and :b",
    "update {s}.acct set secret = ':b', state = 'new' where id between :a and :b",
    // The first letter is Cyrillic.
    "update {s}.acct set name = '\u{410}dmin' where id = :a",
    // Of these rows, one stays as it is.
    "update {s}.acct set name = case when id = :a then name else 'b' end where id between :a and :b",
    "update {s}.inv set total = total * 100",
    "update {s}.inv set state = 'paid', total = total + 1 where acct between :a and :b",
    "update {s}.line set what = case when id % 3 = 0 then ':a' else 'x' end",
    "update {s}.line set what = 'l' || id where id < 7 * :b",
    "insert into {s}.inv (acct, total) select id, 5 from {s}.acct where id between :a and :b",
    "with a as (update {s}.acct set state = ':a' where id = :a returning id) update {s}.inv set total = 0 where acct in (select id from a)",
    "with a as (delete from {s}.line where id = :b) update {s}.acct set name = null where id in (:a, :b)",
];

/// A call that a server of [`World`] proposes, and the statement that it runs.
struct Call {
    sql: String,
    tool: String,
    arguments: Value,
}

impl Call {
    fn sql(sql: String) -> Self {
        let arguments = json!({"sql": sql});
        Self { sql, tool: "execute_sql".to_owned(), arguments }
    }

    /// The call of the tool that a manifest has for a statement.
    fn tool(space: &str, number: usize, a: u32, b: u32) -> Self {
        let template = STATEMENTS[number];
        let sql = template.replace("{s}", space).replace(":a", &a.to_string()).replace(":b", &b.to_string());
        let given = json!({"a": a, "b": b});
        let arguments = params(template).map(|name| (name.to_owned(), given[name].clone())).collect();
        Self { sql, tool: format!("{space}_{number}"), arguments: Value::Object(arguments) }
    }
}

/// The numbers that a statement uses, by name.
fn params(template: &str) -> impl Iterator<Item = &'static str> {
    ["a", "b"].into_iter().filter(move |name| template.contains(&format!(":{name}")))
}

/// A manifest with the statements on the tables of a schema that need no number within a text.
fn manifest(space: &str) -> String {
    let mut manifest = format!("name = \"{space}\"\nversion = \"1\"\n");
    for (number, template) in STATEMENTS.iter().enumerate().filter(|(_, sql)| !sql.contains("':")) {
        let (mut sql, mut declared) = (template.replace("{s}", space), String::new());
        for (at, name) in params(template).enumerate() {
            sql = sql.replace(&format!(":{name}"), &format!("${}", at + 1));
            declared += &format!("{{ name = \"{name}\", description = \"A number.\" }},");
        }
        let target = ["update ", "delete from "].iter().filter_map(|verb| Some((sql.rfind(verb)?, verb.len()))).max();
        let before = target.filter(|_| !sql.starts_with("insert")).map_or_else(String::new, |(at, length)| {
            let table = sql[at + length..].split(' ').next().unwrap();
            format!("before = \"select * from {table} for update\"\n")
        });
        sql += " returning *";
        manifest += &format!(
            "[[tool]]\nname = \"{space}_{number}\"\naccess = \"write\"\ntier = \"confirm\"\ndescription = \"Change rows.\"\n\
             rows = \"any\"\nmax_rows = 1000\n{before}sql = {sql:?}\nparam = [{declared}]\n"
        );
    }
    manifest
}

/// The column that callers of tools see masked.
const MASKED: &str = "name";

/// A database with generated tables, two servers, and the faces of what they propose.
struct World {
    db: Database,
    oracle: Oracle,
    /// It has `execute_sql`.
    server: Server,
    /// It has the tools of manifests, and masks.
    tools: Server,
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
        let folder = ConfigDir::new();
        let (mut manifests, mut masks) = (Vec::new(), String::new());
        for Tables { space, .. } in spaces {
            manifests.push(folder.write(&format!("{space}.toml"), &manifest(space)));
            masks += &format!("\"{space}.acct.{MASKED}\" = \"null\"\n");
        }
        let config =
            format!("database_url = {:?}\nlog = \"warn\"\nmanifests = {manifests:?}\n[mask]\n{masks}", db.writer_url());
        let mut command = folder.command(&config);
        command.args(["serve", "--profile", "admin"]);
        let tools = Server::with_user(command, question_to(&asked)).await;
        Self { db, oracle, server, tools, asked, anna, _console: console }
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

    /// Proposes a call: its facts, and its faces. `None` if it is refused, or changes nothing.
    async fn propose(&mut self, space: &str, call: &Call) -> Option<(Vec<Fact>, [(Face, String); 7])> {
        let Call { sql, tool, arguments } = call;
        let done = self.oracle.tries(space, sql).await?;
        let (server, masked) = match tool.as_str() {
            "execute_sql" => (&self.server, None),
            _ => (&self.tools, Some(format!("{space}.acct"))),
        };
        let answer = server.call(tool, arguments.clone()).await;
        if answer["data"]["requires_approval"] != true {
            println!("{tool} {sql}: {}", answer["error"]["message"]);
            return None;
        }
        let proposal = &answer["data"]["proposal"];
        let stored = self
            .db
            .value(&format!("select preview from countersign.proposal where proposal_id = '{}'", id(proposal)))
            .await;
        let faces = self.faces(proposal).await;
        let server = if masked.is_some() { &self.tools } else { &self.server };
        server.succeed("reject_proposal", json!({"proposal_id": proposal["proposal_id"]})).await;
        let masked = masked.as_deref().map(|table| (table, MASKED));
        Some((facts(&done, &serde_json::from_str(&stored).unwrap(), masked), faces))
    }

    async fn close(self) {
        self.server.close().await;
        self.tools.close().await;
    }
}

/// A call on a generated database.
fn call(made: &mut Tables) -> Call {
    if made.chance(2) {
        return Call::sql(made.any_statement());
    }
    let [one, other] = [made.random.u32(1..=40), made.random.u32(1..=40)];
    let number = made.random.usize(..STATEMENTS.len());
    let call = Call::tool(&made.space, number, one.min(other), one.max(other));
    if STATEMENTS[number].contains("':") || made.chance(2) { Call::sql(call.sql) } else { call }
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
    let (mut proposals, mut of_tools, mut wrong) = (0, 0, Vec::new());
    for made in &mut spaces {
        for _ in 0..10 {
            let (space, call) = (made.space.clone(), call(made));
            let Some((facts, faces)) = world.propose(&space, &call).await else { continue };
            proposals += 1;
            of_tools += u64::from(call.tool != "execute_sql");
            let Call { sql, tool, .. } = call;
            for (face, text) in faces {
                let missing = missing(face, &lines(face, &text), &facts);
                if !missing.is_empty() {
                    wrong.push(format!(
                        "COUNTERSIGN_TEST_FACTS_SEED={}: {face:?} of {tool} {sql} lacks {missing:?}:\n{text}",
                        &space[1..]
                    ));
                }
            }
        }
    }
    println!("{proposals} proposals, {of_tools} of them of tools of manifests");
    assert!(proposals > number && of_tools > 0, "of {number} databases");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    world.close().await;
}

/// The lines without the words of a fact that is told, or without the numbers of what is not shown.
fn without(fact: &Fact, lines: &[String]) -> Vec<String> {
    let words = match fact {
        Fact::Rows { words, .. }
        | Fact::Mark(words)
        | Fact::Unusual(words)
        | Fact::Column { column: words, .. }
        | Fact::Masked { column: words, .. } => words,
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
    let statements = [
        "delete from w0.acct where id between 3 and 18",
        "update w0.acct set name = '\u{410}dmin', state = 'new', secret = 'x' where id < 4",
        "update w0.inv set total = total * 100",
        "update w0.line set what = case when id < 3 then what else 'b' end where id < 6",
    ];
    let calls = statements.map(|sql| Call::sql(sql.to_owned()));
    for call in calls.into_iter().chain([Call::tool("w0", 3, 1, 3)]) {
        let (facts, faces) = world.propose("w0", &call).await.unwrap();
        let sql = &call.sql;
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
    assert_eq!(
        noticed.keys().collect::<Vec<_>>(),
        ["Column", "Mark", "Masked", "Rows", "Unusual", "Words"],
        "{noticed:?}"
    );
    world.close().await;
}
