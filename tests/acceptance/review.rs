//! What a person reads of a write of many rows: on the page, and in a terminal.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Database, Server, TestManifest, database, run_countersign};

use crate::console::{Browser, Console, path};

const TABLES: &str = r#"
create schema hospital;
create table hospital.patient (id int primary key, family_name text not null);
create table hospital.prescription (id int primary key, patient_id int not null references hospital.patient on delete cascade,
    times_per_day int not null, note text not null, active boolean not null default true, updated_at timestamptz not null default now());
create table hospital.note (id int primary key, body text not null);
create function hospital.touch() returns trigger language plpgsql as $$ begin new.updated_at := clock_timestamp(); return new; end $$;
create trigger touch before update on hospital.prescription for each row execute function hospital.touch();
insert into hospital.patient select n, 'Nowak ' || n from generate_series(1, 10) n;
insert into hospital.prescription (id, patient_id, times_per_day, note)
    select n, n % 9 + 1, n % 3 + 1, 'Take with water after a meal.' from generate_series(1, 5000) n;
insert into hospital.prescription (id, patient_id, times_per_day, note) select 6000 + n, 10, 1, '' from generate_series(1, 3) n;
insert into hospital.note values (1, repeat('The patient reports headaches since the morning, and was given fluids. ', 80));
do $$ begin execute (select 'create table hospital.wide (id int primary key, '
  || string_agg(format('column_%s int not null default 0', n), ', ') || ')' from generate_series(1, 200) n); end $$;
insert into hospital.wide (id) select generate_series(1, 3);
create table hospital.display (ward int primary key, settings jsonb not null);
insert into hospital.display values
    (1, '{"page": {"theme": "dark", "size": 12}, "mail": true, "old": 1, "names": ["Nowak", "Kowalska"],
        "notifications": {"delivery_channels": {"electronic_mail": {"frequency_of_messages": "daily"}}}}');
grant usage on schema hospital to public;
grant all on all tables in schema hospital to public;
"#;

const TOOLS: &str = r#"
[[tool]]
name = "set_dose"
title = "Raise the dose frequency"
access = "write"
tier = "approve"
description = "Change how often doses are taken."
before = "select id, times_per_day, note, active from hospital.prescription where id between $1 and $2 for update"
sql = "update hospital.prescription set times_per_day = 5 where id between $1 and $2 returning id"
after = "select id, times_per_day, note, active from hospital.prescription where id between $1 and $2"
rows = "some"
max_rows = 5000
param = [{ name = "first", description = "From." }, { name = "last", description = "To." }]

[[tool]]
name = "delete_patient"
access = "write"
tier = "approve"
description = "Delete a patient."
before = "select id, family_name from hospital.patient where id = $1 for update"
sql = "delete from hospital.patient where id = $1 returning id"
rows = "one"
undo = { irreversible = "The patient is gone." }
param = [{ name = "id", description = "Which." }]

[[tool]]
name = "set_note"
access = "write"
tier = "approve"
description = "Correct a note."
before = "select id, body from hospital.note where id = 1 for update"
sql = "update hospital.note set body = left(body, 2170) || $1 || substr(body, 2178) where id = 1 returning id"
after = "select id, body from hospital.note where id = 1"
rows = "one"
param = [{ name = "word", description = "What." }]

[[tool]]
name = "set_wide"
access = "write"
tier = "approve"
description = "Change wide rows."
before = "select * from hospital.wide where id > $1 for update"
sql = "update hospital.wide set column_7 = 1, column_90 = id where id > $1 returning id"
after = "select * from hospital.wide where id > $1"
rows = "some"
max_rows = 10
param = [{ name = "id", description = "Above." }]

[[tool]]
name = "set_theme"
summary = "Give the display of ward {ward} the theme {theme}"
access = "write"
tier = "approve"
description = "Change the theme of a display."
before = "select ward from hospital.display where ward = $1 for update"
sql = """update hospital.display set settings = jsonb_set(settings, '{page,theme}', to_jsonb($2::text)) - 'old'
    where ward = $1 returning ward"""
rows = "one"
param = [{ name = "ward", description = "Which." }, { name = "theme", description = "Its name." }]

[[tool]]
name = "set_frequency"
access = "write"
tier = "approve"
description = "Change how often a display sends messages."
before = "select ward from hospital.display where ward = $1 for update"
sql = """update hospital.display
    set settings = jsonb_set(settings, '{notifications,delivery_channels,electronic_mail,frequency_of_messages}', '"hourly"')
    where ward = $1 returning ward"""
rows = "one"
param = [{ name = "ward", description = "Which." }]
"#;

/// A hospital with many rows, and a server whose writes a person approves.
pub(crate) struct Hospital {
    pub(crate) db: Database,
    pub(crate) console: Console,
    pub(crate) server: Server,
}

impl Hospital {
    pub(crate) async fn new() -> Self {
        let db = database().await;
        db.run(TABLES).await;
        let tables = ["patient", "prescription", "note", "wide", "display"].map(|table| format!("hospital.{table}"));
        let track: Vec<&str> = ["track"].into_iter().chain(tables.iter().map(String::as_str)).collect();
        assert_eq!(run_countersign(&db.url(), &track).await.code, 0);
        let console = Console::with(&db, &["--operator-url", &db.url()]).await;
        let server = TestManifest::new(TOOLS).serve(&db).await;
        Self { db, console, server }
    }

    /// A server whose writes nobody has to approve.
    pub(crate) async fn agent(&self) -> Server {
        TestManifest::new(&TOOLS.replace("tier = \"approve\"", "")).serve(&self.db).await
    }

    /// The path of a plan that undoes all writes.
    pub(crate) async fn plan(&self, olga: &mut Browser) -> String {
        let made = olga.post("/undo", &[("from", "1h"), ("mode", "strict")]).await;
        made.headers.get("location").unwrap_or_else(|| panic!("{}", made.body)).to_str().unwrap().to_owned()
    }

    pub(crate) fn url(&self, proposal: &Value) -> String {
        format!("{}{}", self.console.url, path(proposal))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_rows_are_a_page_in_a_moment_and_all_of_them_are_paged() {
    let _alone = testkit::exclusive().await;
    let hospital = Hospital::new().await;
    let proposal = hospital.server.propose("set_dose", json!({"first": 1, "last": 5000})).await;
    let mut anna = hospital.console.browser(&hospital.db, "anna", &[]).await;
    let began = Instant::now();
    let page = anna.get(&path(&proposal)).await.body.replace("<wbr>", "");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(page.len() < 100_000, "{} bytes", page.len());
    assert!(page.contains("times_per_day: 5000 rows become 5 (1667 were 2, 1667 were 3, 1666 were 1)"), "{page}");
    let rows = |body: &str| body.matches("<th scope=\"row\">id = ").count();
    assert_eq!((rows(&page), page.contains("4980 more rows")), (20, true), "{page}");
    let mut seen = 0;
    let mut next = "?rows=all".to_owned();
    for _ in 0..10 {
        let page = anna.get(&format!("{}{next}", path(&proposal))).await.body;
        seen += rows(&page);
        next = match page.split("href=\"?rows=all&amp;").nth(1) {
            Some(rest) => format!("?rows=all&{}", rest.split('"').next().unwrap()),
            None => String::new(),
        };
    }
    assert_eq!((seen, next.as_str()), (5000, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_json_document_a_person_sees_the_keys_that_change() {
    let hospital = Hospital::new().await;
    let proposal = hospital.server.propose("set_theme", json!({"ward": 1, "theme": "light"})).await;
    let id = proposal["proposal_id"].as_str().unwrap();
    let shown = run_countersign(&hospital.db.url(), &["proposals", "show", id]).await.out;
    for line in ["settings.page.theme     dark -> light\n", "settings.old (removed)  1\n"] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert!(!shown.contains("Kowalska") && !shown.contains("mail"), "{shown}");
    let mut anna = hospital.console.browser(&hospital.db, "anna", &[]).await;
    let page = anna.get(&path(&proposal)).await.body;
    for part in ["Give the display of ward 1 the theme light", "settings.<wbr>page.<wbr>theme", "old (removed)"] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn eighty_rows_are_one_screen_of_a_terminal() {
    let hospital = Hospital::new().await;
    let proposal = hospital.server.propose("set_dose", json!({"first": 101, "last": 180})).await;
    let id = proposal["proposal_id"].as_str().unwrap();
    let shown = run_countersign(&hospital.db.url(), &["proposals", "show", id]).await.out;
    assert!(shown.lines().count() <= 40, "{shown}");
    for part in ["It would update 80 rows of hospital.prescription.", "80 rows become 5 (27 were 3", "and 72 more rows"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let full = run_countersign(&hospital.db.url(), &["proposals", "show", id, "--full"]).await.out;
    assert!(full.lines().count() > 80 && full.contains("id=180"), "{full}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_undo_shows_what_its_rows_become() {
    let hospital = Hospital::new().await;
    let agent = hospital.agent().await;
    agent.succeed("set_dose", json!({"first": 101, "last": 180})).await;
    agent.succeed("set_note", json!({"word": "evening"})).await;
    let mut olga = hospital.console.browser(&hospital.db, "olga", &["--role", "operator"]).await;
    let plan = hospital.plan(&mut olga).await;
    let page = olga.get(&plan).await.body.replace("<wbr>", "");
    for part in [
        "times_per_day: of 80 rows, 27 become 3, 27 become 1, 26 become 2",
        "<th scope=\"row\">id = 101 &#34;Take with water after a meal.&#34;</th>",
        "60 more rows",
        "Update 1 row of hospital.note",
        "<del>evening,</del><ins>morning,</ins>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let rows = |body: &str| body.matches("<th scope=\"row\">id = ").count();
    let all = olga.get(&format!("{plan}?rows=all")).await.body;
    assert_eq!([rows(&page), rows(&all)], [20, 80], "{all}");
    // The terminal shows the same, and with --full whole values.
    let said = run_countersign(&hospital.db.url(), &["undo", "plan", "--from", "1h"]).await.out;
    for part in ["27 become 3, 27 become 1, 26 become 2\n", "and 72 more rows", "[-evening,-]{+morning,+}"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let full = run_countersign(&hospital.db.url(), &["undo", "plan", "--from", "1h", "--full"]).await.out;
    assert!(
        full.contains("id=180")
            && full.contains(&"The patient reports headaches since the morning, and was given fluids. ".repeat(20)),
        "{full}"
    );
}
