//! A person decides about a write on its first screen, whatever its rows are.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Database, Server, Tab, TestManifest, WebBrowser, database, run_countersign};

use super::looks::findings;
use super::{APPROVE, has_no_browser, logged_in};
use crate::console::{Console, path};

const TABLES: &str = "
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
grant usage on schema hospital to public;
grant all on all tables in schema hospital to public;
";

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
"#;

/// The windows of a desk and of a phone.
const WINDOWS: [(u32, u32); 2] = [(1280, 800), (400, 800)];

struct Hospital {
    db: Database,
    console: Console,
    server: Server,
}

impl Hospital {
    async fn new() -> Self {
        let db = database().await;
        db.run(TABLES).await;
        let tables = ["patient", "prescription", "note", "wide"].map(|table| format!("hospital.{table}"));
        let track: Vec<&str> = ["track"].into_iter().chain(tables.iter().map(String::as_str)).collect();
        assert_eq!(run_countersign(&db.url(), &track).await.code, 0);
        let console = Console::on(&db).await;
        let server = TestManifest::new(TOOLS).serve(&db).await;
        Self { db, console, server }
    }

    fn url(&self, proposal: &Value) -> String {
        format!("{}{}", self.console.url, path(proposal))
    }
}

/// The height of the page, and whether the whole button is in the window that opens.
async fn measured(tab: &Tab) -> (f64, bool) {
    let script = format!(
        "(() => {{ scrollTo(0, 0); const button = [...document.querySelectorAll('button')].find((one) => one.textContent === '{APPROVE}'); \
         const box = button.getBoundingClientRect(); \
         const isSeen = button.contains(document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2)); \
         return [document.documentElement.scrollHeight, isSeen && box.top >= 0 && box.bottom <= innerHeight]; }})()"
    );
    let found = tab.run(&script).await;
    (found[0].as_f64().unwrap(), found[1].as_bool().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_and_the_decision_are_on_the_first_screen() {
    if has_no_browser() {
        return;
    }
    let (browser, hospital) = (WebBrowser::start().await, Hospital::new().await);
    let tab = logged_in(&browser, &hospital.console, &hospital.db, "anna", json!({})).await;
    let mut found = Vec::new();
    let doses = |last: u32| ("set_dose", json!({"first": 101, "last": last}));
    let dose_of_80 = "times_per_day: 80 rows become 5 (27 were 3, 27 were 1, 26 were 2)";
    for (name, (tool, call), height, parts) in [
        ("1 row", doses(101), 1300.0, &["It would update 1 row of hospital.prescription.", "id = 101"][..]),
        (
            "80 rows",
            doses(180),
            2500.0,
            &["It would update 80 rows of hospital.prescription.", dose_of_80, "60 more rows"],
        ),
        (
            "a cascade",
            ("delete_patient", json!({"id": 10})),
            1600.0,
            &[
                "It would delete 1 row of hospital.patient.",
                "It would also delete 3 rows of hospital.prescription",
                "It cannot be undone",
            ],
        ),
        (
            "a long text",
            ("set_note", json!({"word": "evening"})),
            1600.0,
            &["\u{2212}\u{a0}morning", "+\u{a0}evening", "characters …"],
        ),
        (
            "wide rows",
            ("set_wide", json!({"id": 0})),
            1600.0,
            &["column_7", "column_90", "Columns that stay as they are"],
        ),
    ] {
        let proposal = hospital.server.propose(tool, call).await;
        assert_eq!(tab.open(&hospital.url(&proposal)).await, 200);
        let text = tab.run("document.body.innerText").await;
        for part in parts {
            let part = part.trim_start_matches(['\u{2212}', '+', '\u{a0}']);
            assert!(text.as_str().unwrap().contains(part), "{name}: {part}: {text}");
        }
        for (width, window) in WINDOWS {
            tab.look(width, window, "light").await;
            let (tall, is_seen) = measured(&tab).await;
            assert!(is_seen, "{name}: {APPROVE} is outside of the window of {width} x {window}");
            let most = if width == 1280 { height } else { 2.0 * height };
            assert!(tall < most, "{name}: {tall} px tall at a width of {width}");
        }
        let bytes = tab.run("document.documentElement.outerHTML.length").await.as_u64().unwrap();
        assert!(bytes < 100_000, "{name}: {bytes} bytes");
        found.extend(findings(&tab, &format!("review: {name}")).await);
    }
    assert_eq!(tab.open(&format!("{}/", hospital.console.url)).await, 200);
    let inbox = tab.text().await;
    for part in ["cannot be undone", "and 3 further rows", " min"] {
        assert!(inbox.contains(part), "{part}: {inbox}");
    }
    assert!(!inbox.contains("set_dose"), "the tool says nothing more: {inbox}");
    found.extend(findings(&tab, "review: inbox").await);
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_rows_are_a_page_in_a_moment_and_all_of_them_are_paged() {
    let _alone = testkit::exclusive().await;
    let hospital = Hospital::new().await;
    let proposal = hospital.server.propose("set_dose", json!({"first": 1, "last": 5000})).await;
    let mut anna = hospital.console.browser(&hospital.db, "anna", &[]).await;
    let began = Instant::now();
    let page = anna.get(&path(&proposal)).await.body;
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
