//! Values of rows are text, whatever they are, and leave the page readable and its buttons in reach.

use serde_json::{Value, json};
use testkit::{Server, Tab, TestManifest, database};

use super::looks::findings;
use super::{APPROVE, browser, logged_in, until_executed};
use crate::console::{Console, path};

const TABLES: &str = "
create schema shop;
create table shop.note (id int primary key, body text not null);
insert into shop.note values (1, 'old');
do $$ begin execute (select 'create table shop.wide (id int primary key, '
  || string_agg(format('column_%s int not null default 0', n), ', ') || ')' from generate_series(1, 499) n); end $$;
insert into shop.wide (id) values (1);
grant usage on schema shop to public;
grant all on all tables in schema shop to public;
";

const TOOLS: &str = r#"
[[tool]]
name = "set_note"
access = "write"
tier = "approve"
description = "Change a note."
before = "select id, body from shop.note where id = $1 for update"
sql = "update shop.note set body = $2 where id = $1 returning id"
after = "select id, body from shop.note where id = $1"
rows = "one"
undo = { irreversible = "The old text is not kept." }
param = [{ name = "id", description = "Which." }, { name = "body", description = "What." }]

[[tool]]
name = "set_wide"
access = "write"
tier = "approve"
description = "Change a wide row."
before = "select * from shop.wide where id = $1 for update"
sql = "update shop.wide set column_250 = 1 where id = $1 returning id"
after = "select * from shop.wide where id = $1"
rows = "one"
undo = { irreversible = "The old value is not kept." }
param = [{ name = "id", description = "Which." }]
"#;

/// The longest text in a row of a write, whose limit is 1 MiB with its other columns, in bytes.
const LONGEST: usize = (1 << 20) - 1_000;

/// Opens the page of a proposal, which can be approved; its text.
async fn opened(tab: &Tab, console: &Console, proposal: &Value) -> String {
    assert_eq!(tab.open(&format!("{}{}", console.url, path(proposal))).await, 200);
    assert_eq!(tab.count(APPROVE).await, 1);
    tab.text().await
}

async fn propose(server: &Server, body: &str) -> Value {
    server.propose("set_note", json!({"id": 1, "body": body})).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn markup_directions_and_long_values_are_text_on_a_page_that_can_be_used() {
    let Some(browser) = browser().await else { return };
    let db = database().await;
    db.run(TABLES).await;
    let console = Console::on(&db).await;
    let server = TestManifest::new(TOOLS).serve(&db).await;
    let tab = logged_in(&browser, &console, &db, "anna", json!({})).await;
    let mut found = Vec::new();

    let markup =
        "\"'><img src=x onerror=alert(1)><script>alert(2)</script><form action=/logout method=post><button>Approve";
    let text = opened(&tab, &console, &propose(&server, markup).await).await;
    assert!(text.contains(markup), "{text}");
    found.extend(findings(&tab, "markup").await);

    let directions = "safe\u{202e}gnp.exe\u{2066}a\u{2069}\u{200b}\u{feff}\u{1b}[31m\u{85}";
    let text = opened(&tab, &console, &propose(&server, directions).await).await;
    assert!(text.contains("safe\\u202egnp.exe\\u2066a\\u2069\\u200b\\ufeff\\u001b[31m\\u0085"), "{text}");
    found.extend(findings(&tab, "directions").await);

    // Without a place to break a line, and in lines.
    for (name, body) in
        [("a long word", "x".repeat(LONGEST)), ("many lines", "one of many lines\n".repeat(LONGEST / 20))]
    {
        opened(&tab, &console, &propose(&server, &body).await).await;
        let windows = tab.run("document.documentElement.scrollHeight / innerHeight").await.as_f64().unwrap();
        assert!(windows < 10.0, "{name}: the page is {windows} windows high");
        found.extend(findings(&tab, name).await);
    }

    let wide = server.propose("set_wide", json!({"id": 1})).await;
    let text = opened(&tab, &console, &wide).await;
    for part in ["column_250", "id = 1", "Columns that stay as they are"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    found.extend(findings(&tab, "500 columns").await);
    assert!(found.is_empty(), "{found:#?}");
    tab.run("document.querySelector('[name=risks]').click()").await;
    assert_eq!(tab.follow(APPROVE).await, 200);
    until_executed(&db, &wide).await;
    found.extend(findings(&tab, "500 columns, approved").await);
    assert!(found.is_empty(), "{found:#?}");
}
