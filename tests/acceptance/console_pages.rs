//! The pages of the console that read the ledger, undo writes and freeze accounts.

use reqwest::StatusCode;
use serde_json::{Value, json};
use testkit::audit::audit;
use testkit::{Database, Server};

use crate::console::{Browser, Console};
use crate::shop::{self, DROP_ORDER, SET_STATUS};

/// A shop with tracked tables, a server of an agent, and a console that undoes.
pub(crate) struct Shop {
    pub(crate) db: Database,
    pub(crate) server: Server,
    pub(crate) console: Console,
}

impl Shop {
    pub(crate) async fn new() -> Self {
        let (db, server, url) = shop::with_operator(&format!("{SET_STATUS}{DROP_ORDER}")).await;
        let console = Console::with(&db, &["--operator-url", &url]).await;
        Self { db, server, console }
    }

    pub(crate) async fn set_status(&self, id: u32, status: &str) -> String {
        let answer = self.server.succeed("set_status", json!({"id": id, "status": status})).await;
        answer["meta"]["correlation_id"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn operator(&self) -> Browser {
        self.console.browser(&self.db, "olga", &["--role", "operator"]).await
    }

    pub(crate) async fn status_of(&self, id: u32) -> String {
        self.db.value(&format!("select status from shop.orders where id = {id}")).await
    }
}

/// The address that a page of status 303 leads to.
pub(crate) fn leads_to(page: &crate::console::Page) -> &str {
    assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.body);
    page.headers["location"].to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_tries_an_undo_and_then_makes_it_in_their_own_name() {
    let shop = Shop::new().await;
    let before = shop.status_of(1).await;
    let write = shop.set_status(1, "shipped").await;
    let mut olga = shop.operator().await;
    let page = olga.get(&format!("/records/{write}")).await;
    assert!(page.body.contains("Try the undo") && page.body.contains("shop.orders"), "{}", page.body);
    let tried = olga.post(&format!("/records/{write}/try-undo"), &[]).await;
    assert!(tried.status == StatusCode::OK && tried.body.contains("It puts back 1 row"), "{}", tried.body);
    for part in ["What is there now, and what it becomes", "Update 1 row of shop.orders", "shipped", &before] {
        assert!(tried.body.contains(part), "{part}: {}", tried.body);
    }
    assert_eq!(shop.status_of(1).await, "shipped", "a trial changes nothing");
    let undone = olga.post(&format!("/records/{write}/undo"), &[]).await;
    let receipt = leads_to(&undone).strip_prefix("/records/").unwrap().to_owned();
    assert_eq!(shop.status_of(1).await, before);
    let record = format!(
        "select concat(actor, ' ', login, ' ', undo_of) from countersign.record where correlation_id = '{receipt}'"
    );
    let expected = format!("olga operator_{} {{{write}}}", shop.db.name());
    assert_eq!(shop.db.value(&record).await, expected);
    let page = olga.get(&format!("/records/{write}")).await;
    assert!(page.body.contains("Undone by") && page.body.contains(&receipt), "{}", page.body);
    // A second time: the page names what is in the way.
    let again = olga.post(&format!("/records/{write}/undo"), &[]).await;
    assert!(again.status == StatusCode::CONFLICT && again.body.contains("undone before"), "{}", again.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_names_the_row_the_values_and_what_changed_it() {
    let shop = Shop::new().await;
    let write = shop.set_status(1, "shipped").await;
    let later = shop.set_status(1, "cancelled").await;
    let mut olga = shop.operator().await;
    let refused = olga.post(&format!("/records/{write}/undo"), &[]).await;
    assert_eq!(refused.status, StatusCode::CONFLICT, "{}", refused.body);
    for part in ["shop.orders id = 1", "shipped", "cancelled", &format!("/records/{later}"), "What you can do"] {
        assert!(refused.body.contains(part), "{part}: {}", refused.body);
    }
    assert_eq!(shop.status_of(1).await, "cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_carried_out_exactly_as_it_was_shown_or_not_at_all() {
    let shop = Shop::new().await;
    let before = [shop.status_of(1).await, shop.status_of(2).await];
    shop.set_status(1, "shipped").await;
    shop.set_status(2, "shipped").await;
    let mut olga = shop.operator().await;
    let form = [("from", "1h"), ("table", "shop.orders"), ("mode", "strict")];
    let made = olga.post("/undo", &form).await;
    let plan = leads_to(&made).to_owned();
    let page = olga.get(&plan).await;
    assert!(page.body.contains("2 rows") && page.body.contains("set_status"), "{}", page.body);
    let digest = page.body.split("name=\"digest\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let wrong = olga.post(&plan, &[("digest", &"0".repeat(64))]).await;
    assert_eq!(wrong.status, StatusCode::CONFLICT, "{}", wrong.body);
    // A row changes between the look and the click.
    shop.set_status(2, "cancelled").await;
    let stale = olga.post(&plan, &[("digest", &digest)]).await;
    assert!(stale.status == StatusCode::CONFLICT && stale.body.contains("Nothing was changed"), "{}", stale.body);
    assert_eq!([shop.status_of(1).await, shop.status_of(2).await], ["shipped", "cancelled"]);

    let made = olga.post("/undo", &form).await;
    let plan = leads_to(&made).to_owned();
    let page = olga.get(&plan).await;
    let digest = page.body.split("name=\"digest\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let done = olga.post(&plan, &[("digest", &digest)]).await;
    assert!(leads_to(&done).starts_with("/records/"));
    assert_eq!([shop.status_of(1).await, shop.status_of(2).await], before);
    let again = olga.post(&plan, &[("digest", &digest)]).await;
    assert!(again.status == StatusCode::CONFLICT && again.body.contains("Undone before"), "{}", again.body);

    let bad = olga.post("/undo", &[("from", "teatime")]).await;
    assert!(bad.status == StatusCode::BAD_REQUEST && bad.body.contains("teatime"), "{}", bad.body);
    assert_eq!(olga.get("/undo/00000000-0000-4000-8000-000000000000").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_operators_undo_and_freeze_and_only_where_the_console_has_a_login_for_it() {
    let shop = Shop::new().await;
    let write = shop.set_status(1, "shipped").await;
    let plain = Console::on(&shop.db).await;
    let mut people = Vec::new();
    for role in ["auditor", "reviewer"] {
        people.push(shop.console.browser(&shop.db, role, &["--role", role]).await);
    }
    people.push(plain.browser(&shop.db, "olga", &["--role", "operator"]).await);
    for mut person in people {
        let page = person.get(&format!("/records/{write}")).await;
        assert!(page.status == StatusCode::OK && !page.body.contains("Try the undo"), "{}", page.body);
        for (path, form) in [
            (format!("/records/{write}/try-undo"), &[][..]),
            (format!("/records/{write}/undo"), &[]),
            ("/undo".to_owned(), &[("from", "1h")]),
            ("/freeze".to_owned(), &[("kind", "all")]),
            ("/unfreeze".to_owned(), &[("kind", "all")]),
        ] {
            let refused = person.post(&path, form).await;
            assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}: {}", refused.body);
        }
    }
    assert_eq!(shop.status_of(1).await, "shipped");
    assert_eq!(shop.db.value("select count(*) from countersign.freeze").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_freeze_stops_the_writes_until_it_is_taken_back() {
    let shop = Shop::new().await;
    shop.set_status(1, "shipped").await;
    let mut olga = shop.operator().await;
    let misspelt = olga.post("/freeze", &[("kind", "account"), ("name", "defualt")]).await;
    assert!(misspelt.status == StatusCode::CONFLICT && misspelt.body.contains("defualt"), "{}", misspelt.body);
    let nobody = olga.post("/freeze", &[("kind", "account"), ("name", "")]).await;
    assert_eq!(nobody.status, StatusCode::BAD_REQUEST);
    let frozen = olga.post("/freeze", &[("kind", "account"), ("name", "default"), ("reason", "odd writes")]).await;
    assert_eq!(leads_to(&frozen), "/activity");
    let page = olga.get("/activity").await;
    assert!(page.body.contains("odd writes") && page.body.contains("account default"), "{}", page.body);
    let refused = shop.server.call("set_status", json!({"id": 1, "status": "open"})).await;
    assert_eq!(refused["error"]["code"], "account_frozen");
    let event = "select concat(frozen_by, ' ', frozen_login) from countersign.freeze";
    assert_eq!(shop.db.value(event).await, format!("olga operator_{}", shop.db.name()));
    let thawed = [("kind", "account"), ("name", "default")];
    assert_eq!(leads_to(&olga.post("/unfreeze", &thawed).await), "/activity");
    assert_eq!(olga.post("/unfreeze", &thawed).await.status, StatusCode::CONFLICT);
    shop.set_status(1, "open").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_writes_of_a_session_are_undone_from_the_page_that_shows_it() {
    let shop = Shop::new().await;
    shop.set_status(1, "shipped").await;
    let session = shop.db.value("select session_id from countersign.record where session_id is not null limit 1").await;
    let mut olga = shop.operator().await;
    let page = olga.get("/activity").await;
    let link = format!("/undo?account=default&#38;session={session}&#38;from=7d");
    assert!(page.body.contains(&link) && page.body.contains(">Freeze the whole account<"), "{}", page.body);
    let form = olga.get(&link.replace("&#38;", "&")).await;
    assert!(form.body.contains(&format!("name=\"session\" value=\"{session}\"")), "{}", form.body);
    assert!(form.body.contains("name=\"from\" value=\"7d\"") && form.body.contains("name=\"to\" value=\"now\""));
    // As the page shows it.
    let made = olga.post("/undo", &[("from", "1h"), ("session", &session[..8])]).await;
    let plan = olga.get(leads_to(&made)).await;
    assert!(plan.body.contains(&session) && plan.body.contains("1 row"), "{}", plan.body);
    let similar = format!("{}x", &session[..session.len() - 1]);
    let unknown = olga.post("/undo", &[("from", "1h"), ("session", &similar)]).await;
    assert!(unknown.body.contains(&format!("did you mean {session}?<")), "{}", unknown.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_filtered_by_the_address_paged_and_exported() {
    let shop = Shop::new().await;
    shop.set_status(1, "shipped").await;
    shop.set_status(2, "shipped").await;
    testkit::audit::insert_failed_records(&shop.db, 620, 0).await;
    let mut olga = shop.console.browser(&shop.db, "olga", &["--role", "auditor"]).await;
    let lines = |body: &str| body.matches("<th scope=\"row\" class=\"what\"><a href=\"/records/").count();
    let first = olga.get("/records").await;
    assert_eq!(lines(&first.body), 50);
    let older = first.body.split("<a href=\"/records?before=").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let second = olga.get(&format!("/records?before={older}")).await;
    assert_eq!(lines(&second.body), 50);
    assert!(!second.body.contains(first.body.split("href=\"/records/").nth(1).unwrap().split('"').next().unwrap()));
    let filtered = olga.get("/records?tool=set_status&status=success&table=shop.orders&since=1h").await;
    assert_eq!(lines(&filtered.body), 2, "{}", filtered.body);
    assert!(
        filtered.body.contains("value=\"tool:set_status status:success table:shop.orders since:1h\""),
        "{}",
        filtered.body
    );

    let line = "tool%3Aset_status+status%3Asuccess+table%3Ashop.orders+since%3A1h";
    let searched = olga.get(&format!("/records?q={line}")).await;
    assert_eq!(lines(&searched.body), 2, "{}", searched.body);
    assert!(searched.body.contains(&format!("/records.jsonl?q={line}\"")), "{}", searched.body);
    assert_eq!(lines(&olga.get("/records?q=status%3Asuccess+before%3A1h").await.body), 0);
    let part = "status%3Afailure";
    let failures = olga.get(&format!("/records?q={part}")).await.body;
    assert!(failures.contains(&format!("<a href=\"/records?q={part}&#38;before=")), "{failures}");
    // The ledger suggests what there is, behind what is given.
    for suggestion in ["tool:set_status", "table:shop.orders", "account:default", "status:failure", "since:7d"] {
        assert!(first.body.contains(&format!("<option value=\"{suggestion}\">")), "{suggestion}: {}", first.body);
        assert!(!failures.contains(&format!("<option value=\"{suggestion}\">")), "{failures}");
    }
    assert!(failures.contains("<option value=\"status:failure table:shop.orders\">"), "{failures}");

    // What was not given is not listed, and a failure says why.
    let failed = olga.get("/records?status=failure").await.body;
    assert!(failed.contains("<span class=\"note failed\">") && !failed.contains(": null"), "{failed}");

    let exported = olga.get("/records.jsonl").await;
    let all: Vec<Value> = exported.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(all.len(), 622);
    let exported = olga.get("/records.jsonl?status=success").await;
    assert_eq!(exported.body.lines().count(), 2);
    assert_eq!(exported.headers["content-type"], "application/jsonl; charset=utf-8");

    for (query, why) in [
        ("status=done", "status: is one of success, failure, pending and duplicate, not &#34;done&#34;"),
        ("since=lately", "is no time: give one such as 30m"),
        ("before=x", "before is the number of a record"),
        ("table=shop.nothing", "is not tracked"),
        ("q=owner%3Aanna", "&#34;owner&#34; is no key"),
        ("q=anna", "&#34;anna&#34; has no key"),
        ("q=since%3Alately", "since: &#34;lately&#34; is no time"),
        ("q=tool%3Aa&tool=b", "tool: is given twice"),
    ] {
        let page = olga.get(&format!("/records?{query}")).await;
        assert!(page.status == StatusCode::BAD_REQUEST && page.body.contains(why), "{query}: {}", page.body);
        assert!(page.body.contains("The keys are tool, status, account, actor, session, table, since, before."));
        assert!(page.body.contains("name=\"q\""), "the filter can be corrected");
        assert_eq!(olga.get(&format!("/records.jsonl?{query}")).await.status, StatusCode::BAD_REQUEST, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_has_its_history_and_a_record_its_proof() {
    let shop = Shop::new().await;
    let write = shop.set_status(1, "shipped").await;
    let mut olga = shop.console.browser(&shop.db, "olga", &["--role", "auditor"]).await;
    let page = olga.get("/rows?table=shop.orders&key=1").await;
    assert!(
        page.body.contains(&format!("/records/{write}")) && page.body.contains("\u{2192} shipped"),
        "{}",
        page.body
    );
    for (query, why) in
        [("table=shop.nothing&key=1", "not tracked"), ("table=shop.orders&key=a%3D1,b%3D2", "the key of")]
    {
        let page = olga.get(&format!("/rows?{query}")).await;
        assert!(page.status == StatusCode::BAD_REQUEST && page.body.contains(why), "{query}: {}", page.body);
    }
    let none = olga.get(&format!("/records/{write}/proof")).await;
    assert_eq!(none.status, StatusCode::CONFLICT, "it is not sealed: {}", none.body);

    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    let made = audit(&shop.db, &["keys", "new", "--signing-key", key.to_str().unwrap()]).await;
    assert!(made.contains('+'), "{made}");
    audit(&shop.db, &["seal", "--signing-key", key.to_str().unwrap()]).await;
    let proof = olga.get(&format!("/records/{write}/proof")).await;
    assert!(proof.body.starts_with("c2sp.org/tlog-proof@v1"), "{}", proof.body);
    let log = olga.get("/log").await;
    assert!(log.body.contains("Newest checkpoint") && log.body.contains("Public key"), "{}", log.body);
    let checkpoint = olga.get("/log/checkpoint").await;
    assert!(checkpoint.body.contains("\u{2014} "), "{}", checkpoint.body);
    assert_eq!(olga.get("/records/00000000-0000-4000-8000-000000000000").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_health_page_says_what_doctor_says() {
    let shop = Shop::new().await;
    let mut olga = shop.console.browser(&shop.db, "olga", &["--role", "auditor"]).await;
    let page = olga.get("/health").await;
    assert!(page.body.contains("a login of the console"), "{}", page.body);
    assert!(page.body.contains("the log is not signed"), "{}", page.body);
}
