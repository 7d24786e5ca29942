//! What a person has to know before they agree is on every face: in the question of a client, in the terminal, on the page of the
//! console, and in what an agent reads.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use testkit::{Database, Server, UserAnswer, database, run_countersign};

use super::{id, server_with_questions};
use crate::console::{Console, path, status};
use crate::console_pages::leads_to;

const SCHEMA: &str = "
create schema s;
create table s.acct (id int primary key, name text);
create table s.inv (id int primary key, acct int references s.acct on delete cascade, total numeric);
create table s.line (id int primary key, inv int references s.inv on delete cascade, what text);
create table s.cust (id int primary key, email text, at timestamptz default now());
create function s.touch() returns trigger language plpgsql as $$ begin new.at := clock_timestamp(); return new; end $$;
create trigger touch before update on s.cust for each row execute function s.touch();
insert into s.acct select n, 'a' || n from generate_series(1, 9) n;
insert into s.inv select n, 1 + n % 9, n from generate_series(1, 90) n;
insert into s.line select n, 1 + n % 90, 'x' from generate_series(1, 700) n;
insert into s.cust select n, 'c' || n || '@example.org' from generate_series(1, 300) n;
grant usage on schema s to countersign_writer, countersign_reader;
grant select on all tables in schema s to countersign_reader;
grant select, insert, update, delete on all tables in schema s to countersign_writer;
select countersign.track(t) from unnest(array['s.acct', 's.inv', 's.line', 's.cust']::regclass[]) t";

/// Each write, and the facts of it that no face may lack.
const WRITES: [(&str, &[&str]); 5] = [
    ("delete from s.acct where id = 8", &["delete 1 row of s.acct", "change 88 more rows of 2 tables"]),
    (
        "update s.cust set email = md5(random()::text) where id between 1 and 5",
        &["update 5 rows of s.cust", "c3@example.org"],
    ),
    ("update s.inv set total = total * 100", &["update 90 rows of s.inv", "it changes every row of the table"]),
    ("update s.cust set email = lower(email) || '.' where id <= 250", &["update 250 rows of s.cust", "c3@example.org"]),
    // The first letter is Cyrillic.
    (
        "update s.acct set name = '\u{410}dmin' where id = 1",
        &["update 1 row of s.acct", "mixes Cyrillic and Latin letters in one word"],
    ),
];

/// The faces of a proposal by name.
async fn faces(db: &Database, console: &Console, proposal: &Value, question: &str) -> [(&'static str, String); 5] {
    let run =
        async |arguments: &[&str]| run_countersign(&db.url(), arguments).await.out.replace("\n                 ", " ");
    let mut anna = console.browser(db, "anna", &[]).await;
    let page = anna.get(&path(proposal)).await.body.replace("<wbr>", "");
    [
        ("agent", proposal.to_string()),
        ("description", proposal["description"].as_str().unwrap().to_owned()),
        ("question", question.to_owned()),
        ("terminal", run(&["proposals", "show", id(proposal)]).await),
        ("page", page),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cascade_lost_values_and_every_danger_are_on_every_face() {
    let db = database().await;
    db.run(SCHEMA).await;
    let console = Console::on(&db).await;
    let (server, asked) = server_with_questions(&db).await;
    for (sql, facts) in WRITES {
        let proposal = server.propose("execute_sql", json!({"sql": sql})).await;
        let question = asked.lock().unwrap().clone();
        for (face, text) in faces(&db, &console, &proposal, &question).await {
            for fact in facts {
                // A line has no rows.
                let is_row = fact.contains('@');
                let is_there = text.to_lowercase().contains(&fact.to_lowercase());
                assert!(is_there || is_row && face == "description", "{face} of {sql} lacks {fact:?}:\n{text}");
            }
        }
        server.succeed("reject_proposal", json!({"proposal_id": proposal["proposal_id"]})).await;
    }
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_is_text_with_its_lines_and_its_values_beside_it_on_every_face() {
    let db = database().await;
    db.run(SCHEMA).await;
    db.run("create table s.\"Acct\" (id int primary key, name text); insert into s.\"Acct\" values (1, 'a')").await;
    db.run("grant select, update on s.\"Acct\" to countersign_writer; select countersign.track('s.\"Acct\"')").await;
    let console = Console::on(&db).await;
    let asked = Arc::new(Mutex::new(String::new()));
    let heard = Arc::clone(&asked);
    let mut command = Server::bare_command(&db);
    command.args(["--profile", "admin", "--execute-sql"]);
    let server = Server::with_user(command, move |question| {
        let mut heard = heard.lock().unwrap();
        let answer = if heard.is_empty() { UserAnswer::Cancel } else { UserAnswer::Accept };
        question.clone_into(&mut heard);
        Some(answer)
    })
    .await;
    let call = json!({"sql": "update s.\"Acct\"\n   set name = $1\n where id = $2", "params": ["Ada", 1], "reason": "She said so."});
    let proposal = server.propose("execute_sql", call).await;
    let question = asked.lock().unwrap().clone();
    assert!(
        question.contains("\n  | update s.\"Acct\"\n  |    set name = $1\n  |  where id = $2\n  $1: Ada, $2: 1\n"),
        "{question}"
    );
    let shown = run_countersign(&db.url(), &["proposals", "show", id(&proposal)]).await.out;
    let [lines, values] = [
        "statement        update s.\"Acct\"\n                    set name = $1\n                  where id = $2\n",
        "parameters       $1 = \"Ada\"\n                 $2 = 1\n",
    ];
    assert!(shown.contains(lines) && shown.contains(values), "{shown}");
    let one =
        "Execute SQL “update s.\"Acct\" ↵ set name = $1 ↵ where id = $2” with $1: Ada, $2: 1. It would update 1 row";
    assert!(proposal["description"].as_str().unwrap().starts_with(one), "{proposal}");
    let mut anna = console.browser(&db, "anna", &[]).await;
    let plain = |body: String| body.replace("&#34;", "\"").replace("&#38;", "&");
    let page = plain(anna.get(&path(&proposal)).await.body);
    assert!(page.contains(">update s.\"Acct\"\n   set name = $1\n where id = $2</div>"), "{page}");
    assert!(page.contains("with $1: Ada, $2: 1") && !page.contains("\\\""), "{page}");
    let inbox = plain(anna.get("/").await.body);
    assert!(inbox.contains("“update s.\"Acct\" ↵ set name = $1 ↵ where id = $2”, $1: Ada, $2: 1"), "{inbox}");

    server
        .succeed("confirm_proposal", json!({"proposal_id": proposal["proposal_id"], "digest": proposal["digest"]}))
        .await;
    let list = run_countersign(&db.url(), &["audit", "list", "--tool", "execute_sql"]).await.out;
    assert!(list.contains("“update s.\"Acct\" ↵ set name = $1 ↵ where id = $2”, $1: Ada, $2: 1"), "{list}");
    let record = list.lines().nth(1).unwrap().split(' ').next().unwrap();
    let shown = run_countersign(&db.url(), &["audit", "show", record]).await.out;
    assert!(shown.contains(lines) && shown.contains(values), "{shown}");
    let history = run_countersign(&db.url(), &["audit", "row", "Acct", "1"]).await.out;
    let who = format!("  {record}  execute_sql, account default, ");
    assert!(
        history.contains(&who) && history.contains(", approved by default\n    reason: She said so.\n"),
        "{history}"
    );
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_reader_can_decide_comes_first_with_its_rows_and_risks() {
    let db = database().await;
    db.run(SCHEMA).await;
    let console = Console::on(&db).await;
    let server = async |tier: &str| {
        let mut command = Server::bare_command(&db);
        command.args(["--profile", "admin", "--execute-sql", "--execute-sql-tier", tier]);
        Server::start(command).await
    };
    let (reviewed, confirmed) = (server("approve").await, server("confirm").await);
    let sql = |sql: &str| json!({"sql": sql});
    let mine = reviewed.propose("execute_sql", sql("delete from s.acct where id = 8")).await;
    let theirs = confirmed.propose("execute_sql", sql("update s.inv set total = 7 where id = 1")).await;
    let mut anna = console.browser(&db, "anna", &[]).await;
    let page = anna.get("/").await.body;
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
    assert!(at(&path(&mine)) < at("1 for others to decide") && at("1 for others to decide") < at(&path(&theirs)));
    assert!(page.contains("<title>(1) Inbox"), "{page}");
    let list = run_countersign(&db.url(), &["proposals", "list"]).await.out;
    let lines: Vec<&str> = list.lines().skip(1).collect();
    assert!(lines[0].starts_with(&id(&mine)[..8]) && lines[1].starts_with(&id(&theirs)[..8]), "{list}");
    assert!(lines[1].contains("  Execute SQL: 1 row. “update s.inv set total = 7 where id = 1”"), "{list}");
    assert!(lines[0].contains("  Execute SQL: 1 row, and 88 more rows. “delete from s.acct"), "{list}");
    confirmed.close().await;

    // Below a high risk, approving takes a second step. Then the next one opens.
    let risky = reviewed.propose("execute_sql", sql("update s.inv set total = total + 1")).await;
    assert!(!anna.get(&path(&mine)).await.body.contains("name=\"risks\""));
    let page = anna.get(&path(&risky)).await.body;
    assert!(page.contains("<input type=\"checkbox\" name=\"risks\" value=\"read\" required>"), "{page}");
    let (approve, digest) = (format!("{}/approve", path(&risky)), risky["digest"].as_str().unwrap());
    let refused = anna.post(&approve, &[("digest", digest)]).await;
    assert!(refused.status == 400 && refused.body.contains("Nothing was decided"), "{}", refused.body);
    assert_eq!(status(&db, &risky).await, "pending");
    let approved = anna.post(&approve, &[("digest", digest), ("risks", "read")]).await;
    let next = leads_to(&approved).to_owned();
    assert_eq!(next, format!("{}?decided={}", path(&mine), id(&risky)));
    assert_eq!(status(&db, &risky).await, "executed");
    let page = anna.get(&next).await.body;
    let line = format!("executed</span> Execute SQL. <a href=\"{}\">What was decided</a>", path(&risky));
    assert!(page.contains(&line) && page.contains("delete from s.acct"), "{page}");
    let rejected = anna.post(&format!("{}/reject", path(&mine)), &[("text", "No.")]).await;
    assert_eq!(leads_to(&rejected), format!("/?decided={}", id(&mine)));
    assert!(anna.get(leads_to(&rejected)).await.body.contains("rejected</span> Execute SQL. "));
    reviewed.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn people_see_the_first_text_of_a_row_beside_its_key_and_agents_do_not() {
    let db = database().await;
    db.run(SCHEMA).await;
    db.run(
        "create table s.film (id int primary key, code text, title varchar(40), rate numeric); \
            insert into s.film values (1, 'c0de', 'RIVER OUTLAW', 1), (2, 'c0de', 'ACE <b>', 1); \
            grant select, update on s.film to countersign_writer",
    )
    .await;
    run_countersign(&db.url(), &["track", "s.film", "--sensitive", "code"]).await.succeeded();
    let console = Console::on(&db).await;
    let server = Server::bare_with(&db, |it| it.args(["--profile", "admin", "--execute-sql"])).await;
    let call = json!({"sql": "update s.film set rate = 2 where id <= 2"});
    let proposal = server.propose("execute_sql", call.clone()).await;
    let shown = run_countersign(&db.url(), &["proposals", "show", id(&proposal)]).await.out;
    assert!(shown.contains("id=1 \"RIVER OUTLAW\"") && shown.contains("id=2 \"ACE <b>\""), "{shown}");
    let mut anna = console.browser(&db, "anna", &[]).await;
    let page = anna.get(&path(&proposal)).await.body;
    assert!(
        page.contains("id = 1 &#34;RIVER OUTLAW&#34;") && page.contains("id = 2 &#34;ACE &#60;b&#62;&#34;"),
        "{page}"
    );
    assert!(!page.contains("c0de") && !shown.contains("c0de"), "a sensitive column is no label: {page}");
    let previewed = server.succeed("preview_mutation", json!({"tool": "execute_sql", "params": call})).await;
    let found = server.succeed("get_proposal", json!({"proposal_id": proposal["proposal_id"], "rows": "all"})).await;
    let digest = &proposal["digest"];
    let confirm = json!({"proposal_id": proposal["proposal_id"], "digest": digest});
    let written = server.succeed("confirm_proposal", confirm).await;
    for answer in [&proposal, &previewed, &found, &written] {
        assert!(!answer.to_string().contains("RIVER"), "an agent may not be allowed to read it: {answer}");
    }
    server.close().await;
}
