//! A proposal whose rows have changed since it was made: what was shown, what is there now, and who changed it, on each face.

use serde_json::{Value, json};
use testkit::{Database, Server, TestManifest, database, run_countersign};

use crate::console::{Browser, Console, Page, path};
use crate::shop::{SET_STATUS, SHOP};

const MARK: &str = r#"
[[tool]]
name = "mark"
access = "write"
tier = "approve"
description = "Mark orders as paid."
before = "select id, status from shop.orders where id between $1 and $2 order by id for update"
sql = "update shop.orders set status = 'paid' where id between $1 and $2 and status <> 'gone' returning id"
after = "select id, status from shop.orders where id between $1 and $2 order by id"
rows = "any"
max_rows = 100
param = [{ name = "first", description = "Which." }, { name = "last", description = "Which." }]
"#;

/// A text that breaks pages and terminals which do not make it harmless.
const HOSTILE: &str = "<script>alert(1)</script>\u{202e}\u{1b}[2J";

/// A server has made the check that was asked for.
const CHECKED: &str = "select 1 from countersign.proposal_check where checked_at is not null";

struct Shop {
    db: Database,
    manifest: TestManifest,
    server: Server,
    console: Console,
    reviewer: String,
}

impl Shop {
    async fn new() -> Self {
        let db = database().await;
        db.run(SHOP).await;
        let reviewer = db.login("reviewer", "countersign_approver").await;
        let manifest = TestManifest::new(&format!("{MARK}{SET_STATUS}"));
        let (server, console) = (manifest.serve(&db).await, Console::on(&db).await);
        Self { db, manifest, server, console, reviewer }
    }

    async fn mark(&self, first: u32, last: u32) -> Value {
        self.server.propose("mark", json!({"first": first, "last": last})).await
    }

    /// A recorded write; its receipt.
    async fn set_status(&self, id: u32, status: &str) -> String {
        let answer = self.server.succeed("set_status", json!({"id": id, "status": status})).await;
        answer["meta"]["correlation_id"].as_str().unwrap().to_owned()
    }

    async fn proposal(&self, proposal: &Value) -> Value {
        self.server.succeed("get_proposal", json!({"proposal_id": proposal["proposal_id"]})).await["data"].clone()
    }

    async fn shown(&self, proposal: &Value, more: &[&str]) -> String {
        let id = proposal["proposal_id"].as_str().unwrap();
        let said = run_countersign(&self.reviewer, &[&["proposals", "show", id], more].concat()).await;
        assert_eq!((said.code, said.err.as_str()), (0, ""));
        said.out
    }

    async fn anna(&self) -> Browser {
        self.console.browser(&self.db, "anna", &[]).await
    }
}

#[track_caller]
fn has_all(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
    let has_markup = text.starts_with("<!doctype") && text.contains("<script>");
    assert!(!has_markup && !text.contains(['\u{202e}', '\u{1b}']), "{text}");
}

async fn approve(browser: &mut Browser, proposal: &Value) -> Page {
    let digest = proposal["digest"].as_str().unwrap();
    browser.post(&format!("{}/approve", path(proposal)), &[("digest", digest)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_proposal_shows_what_is_there_now_and_who_changed_it_and_the_newer_one() {
    let shop = Shop::new().await;
    let proposal = shop.mark(1, 4).await;
    let receipt = shop.set_status(1, HOSTILE).await;
    shop.db.run("update shop.orders set status = 'lost' where id = 2; delete from shop.orders where id = 3").await;
    let mut anna = shop.anna().await;
    approve(&mut anna, &proposal).await;
    shop.db.first_value(CHECKED).await;
    let newer = shop.mark(1, 4).await["proposal_id"].as_str().unwrap().to_owned();

    let found = shop.proposal(&proposal).await;
    assert_eq!((&found["status"], found["newer_proposal"].as_str()), (&json!("stale"), Some(newer.as_str())));
    let changed = "2 rows of shop.orders have changed since";
    let rows = found["since"]["rows"].as_array().unwrap();
    let row =
        |id: u32| rows.iter().find(|row| row["key"]["id"].to_string().trim_matches('"') == id.to_string()).unwrap();
    assert_eq!((&row(1)["what"], &row(1)["correlation_id"]), (&json!(changed), &json!(receipt)), "{found}");
    assert_eq!(row(1)["columns"], json!({"status": {"shown": "open", "now": HOSTILE}}));
    assert!(row(1)["changed_by"].as_str().unwrap().starts_with("set_status of default, "), "{found}");
    assert_eq!(row(2)["columns"], json!({"status": {"shown": "open", "now": "lost"}}));
    assert_eq!(row(2)["changed_by"], "not through countersign", "{found}");
    assert_eq!(rows.len(), 3, "the row that is as it was is not there: {found}");

    let page = anna.get(&path(&proposal)).await.body;
    has_all(
        &page,
        &["Since it was proposed", "2 rows of shop.orders have changed since", "set_status of default", "lost"],
    );
    has_all(&page, &["not through countersign", &format!("/records/{receipt}"), &format!("/proposals/{newer}")]);
    has_all(
        &page,
        &["&#60;script&#62;", "Attempt, not executed", "1 row of shop.orders would not be changed any more"],
    );
    assert!(!page.contains("Executed as"), "{page}");
    let said = shop.shown(&proposal, &[]).await;
    has_all(&said, &["since then", "open -> lost", "not through countersign", &receipt[..8], &newer]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_proposal_says_when_it_is_opened_that_its_rows_have_changed() {
    let shop = Shop::new().await;
    let proposal = shop.mark(1, 2).await;
    let mut anna = shop.anna().await;
    let page = anna.get(&path(&proposal)).await.body;
    has_all(&page, &["No change of its rows is recorded", "Check again"]);
    assert!(!page.contains("Since it was proposed"), "{page}");
    assert_eq!(shop.proposal(&proposal).await.get("since"), None);

    // Another row, and the same row before the proposal, are no change.
    shop.set_status(9, "sent").await;
    assert_eq!(shop.proposal(&proposal).await.get("since"), None);
    let receipt = shop.set_status(1, "sent").await;
    let page = anna.get(&path(&proposal)).await.body;
    has_all(&page, &["1 row of shop.orders has changed since", "sent", &format!("/records/{receipt}")]);
    let said = shop.shown(&proposal, &[]).await;
    has_all(&said, &["1 row of shop.orders has changed since", "open -> sent", "set_status of default"]);
    let found = shop.proposal(&proposal).await;
    assert_eq!(found["since"]["rows"][0]["columns"]["status"], json!({"shown": "open", "now": "sent"}), "{found}");
    let again = shop.mark(1, 2).await;
    assert_eq!(shop.proposal(&again).await.get("since"), None, "the write was before the new proposal");
    assert_eq!(shop.proposal(&proposal).await["newer_proposal"], again["proposal_id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_finds_what_is_not_recorded_and_says_so_if_all_is_as_shown() {
    let shop = Shop::new().await;
    let proposal = shop.mark(1, 2).await;
    let check = format!("{}/check", path(&proposal));
    let mut anna = shop.anna().await;
    anna.post(&check, &[]).await;
    let same = "it would still do what is shown";
    has_all(&anna.get(&path(&proposal)).await.body, &[same]);

    shop.db.run("update shop.orders set status = 'lost' where id = 2").await;
    has_all(&shop.shown(&proposal, &[]).await, &[same]);
    has_all(
        &shop.shown(&proposal, &["--check"]).await,
        &["the rows have changed", "open -> lost", "not through countersign"],
    );
    has_all(&anna.get(&path(&proposal)).await.body, &["the rows have changed", "lost", "not through countersign"]);
    assert_eq!(
        shop.db.value("select string_agg(status, ' ' order by id) from shop.orders where id < 3").await,
        "open lost"
    );
    assert_eq!(shop.proposal(&proposal).await["status"], "pending", "a check decides nothing");

    // A check waits for a server, and for nothing else.
    shop.db.run("update shop.orders set status = 'open' where id = 2").await;
    shop.server.close().await;
    anna.post(&check, &[]).await;
    has_all(&anna.get(&path(&proposal)).await.body, &["no server has made it yet"]);
    let server = shop.manifest.serve(&shop.db).await;
    shop.db.first_value(CHECKED).await;
    has_all(&anna.get(&path(&proposal)).await.body, &[same]);
    server.close().await;
    let mut auditor = shop.console.browser(&shop.db, "olga", &["--role", "auditor"]).await;
    assert_eq!(auditor.post(&check, &[]).await.status, 403);
    assert!(!auditor.get(&path(&proposal)).await.body.contains("Check again"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_has_changed_is_found_by_a_check_too() {
    let shop = Shop::new().await;
    let proposal = shop.mark(1, 2).await;
    shop.db.run("alter table shop.orders alter status set default 'new'").await;
    let said = shop.shown(&proposal, &["--check"]).await;
    has_all(&said, &["the definition of shop.orders has changed since"]);
}
