//! Recorded values have no policies. An agent sees those of rows that it can read now; other rows are counted.

use serde_json::{Value, json};
use testkit::{Database, HttpClient, TestManifest, database, run_countersign};

use super::Crm;

/// Changes by any login are recorded.
const ALL_WRITERS: &str =
    "select countersign.track(t, all_writers => true) from unnest(array['crm.note', 'crm.deal']::regclass[]) t";

const BOTH: &str = "claims = [\"tenant\"]\nrole_claim = \"db_role\"\nroles = [\"app_eu\", \"app_us\"]";

/// A row that the cascade of a deletion reaches, whatever policies say.
const BILLS: &str = "
create table crm.bill (id int primary key, deal int references crm.deal on delete cascade, region text, total text);
insert into crm.bill values (1, 1, 'eu', 'EUTOTAL'), (2, 1, 'us', 'USSECRET');
alter table crm.bill enable row level security;
create policy eu on crm.bill to app_eu using (region = 'eu');
create policy us on crm.bill to app_us using (region = 'us');
grant select, insert, update, delete on crm.bill to app_eu, app_us, countersign_writer;
select countersign.track('crm.bill');
";

/// A proposal as its caller sees it, whole and in pages.
async fn shown(client: &HttpClient, id: &Value) -> Value {
    let whole = client.call("get_proposal", json!({"proposal_id": id})).await;
    let page = client.call("get_proposal", json!({"proposal_id": id, "rows": "all"})).await;
    for answer in [&whole, &page] {
        assert!(answer["success"] == true && !answer.to_string().contains("SECRET"), "{answer}");
    }
    assert_eq!(whole["data"]["since"], page["data"]["since"]);
    whole["data"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proposal_does_not_show_what_became_of_rows_that_went_to_another_tenant_or_role() {
    let crm = Crm::new("", BOTH).await;
    crm.db.run(ALL_WRITERS).await;
    let eu = crm.client(json!({"db_role": "app_eu", "tenant": "acme"}));
    let acme = crm.client(json!({"db_role": "app_eu", "tenant": "acme"}));
    let notes = acme.call("set_all_notes", json!({"body": "x"})).await["data"]["proposal"]["proposal_id"].clone();
    let deals =
        eu.call("raise_deals", json!({"by": 5, "reason": "r"})).await["data"]["proposal"]["proposal_id"].clone();
    assert!(shown(&eu, &deals).await.get("since").is_none());
    crm.db
        .run(
            "update crm.note set tenant = 'bolt', body = 'SECRET 1' where id = 1; update crm.note set body = 'ours' where id = 2; \
             update crm.deal set region = 'us', amount = 7042 where id = 1",
        )
        .await;
    for round in ["pending", "checked", "stale"] {
        let found = shown(&acme, &notes).await;
        let since = &found["since"];
        assert_eq!(since["rows"].as_array().map(Vec::len), Some(1), "{round}: {found}");
        assert_eq!(since["rows"][0]["columns"]["body"], json!({"shown": "acme 2", "now": "ours"}), "{round}: {found}");
        let counted = json!("1 row that you cannot read now.");
        assert!(since["found"].as_array().unwrap().contains(&counted), "{round}: {found}");
        let found = shown(&eu, &deals).await;
        assert!(!found["since"].to_string().contains("7042"), "{round}: {found}");
        assert!(found["since"]["found"].as_array().unwrap().contains(&counted), "{round}: {found}");
        assert!(found["since"]["rows"].is_null(), "{round}: {found}");
        let (reviewer, id) = (crm.db.url(), deals.as_str().unwrap());
        if round == "pending" {
            // A person sees the rows.
            let said = run_countersign(&reviewer, &["proposals", "show", id]).await;
            assert!(said.out.contains("7042"), "{}{}", said.out, said.err);
            run_countersign(&reviewer, &["proposals", "show", id, "--check"]).await;
            crm.db.first_value("select 1 from countersign.proposal_check where found is not null").await;
        } else if round == "checked" {
            run_countersign(&reviewer, &["proposals", "approve", id, "--yes"]).await;
            let status = "select status from countersign.proposal where tool_name = 'raise_deals'";
            crm.db.until_value(status, "stale").await;
        }
    }
    // A row that came back is shown as it is.
    crm.db.run("update crm.deal set region = 'eu', amount = 11 where id = 1").await;
    let found = shown(&eu, &deals).await;
    assert_eq!(found["since"]["rows"][0]["columns"]["amount"], json!({"shown": "10", "now": "11"}), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_a_cascade_reaches_and_policies_hide_are_only_counted() {
    let crm = Crm::new("", BOTH).await;
    crm.db.run(BILLS).await;
    let eu = crm.client(json!({"db_role": "app_eu", "tenant": "acme"}));
    let preview = eu.call("preview_mutation", json!({"tool": "drop_deal", "params": {"id": 1}})).await;
    let of_table = |effects: &Value, table: &str| {
        let rows = effects["rows"].as_array().unwrap_or_else(|| panic!("{effects}"));
        rows.iter().filter(|row| row["table"] == table).count()
    };
    let effects = &preview["data"]["effects"];
    assert_eq!((of_table(effects, "crm.bill"), of_table(effects, "crm.deal"), &effects["count"]), (1, 1, &json!(3)));
    assert!(effects.to_string().contains("EUTOTAL") && !preview.to_string().contains("USSECRET"), "{preview}");
    let counted: Vec<u64> =
        effects["by_table"].as_array().unwrap().iter().filter_map(|it| it["count"].as_u64()).collect();
    assert_eq!(counted.iter().sum::<u64>(), 3, "{preview}");

    // Of a write, the rows that are there and that the caller reads.
    let set = eu.call("set_deal", json!({"id": 2, "amount": 8})).await;
    let detail = json!({"correlation_id": set["meta"]["correlation_id"]});
    let effects = eu.call("get_mutation_detail", detail.clone()).await["data"]["effects"].clone();
    assert_eq!(effects["rows"][0]["columns"]["amount"], json!({"before": "20", "after": "8"}), "{effects}");
    let plan = eu.call("undo_plan", json!({"from": "1h"})).await;
    assert_eq!(plan["data"]["effects"]["rows"].as_array().map(Vec::len), Some(1), "{plan}");
    crm.db.run("update crm.deal set region = 'us' where id = 2").await;
    let effects = eu.call("get_mutation_detail", detail).await["data"]["effects"].clone();
    assert_eq!((&effects["rows"], &effects["count"]), (&json!([]), &json!(1)), "{effects}");
    let plan = eu.call("undo_plan", json!({"from": "1h"})).await;
    assert!(plan["data"]["conflicts"][0]["code"] == "not_permitted", "{plan}");

    let dropped = eu.call("drop_deal", json!({"id": 1})).await;
    assert_eq!(dropped["success"], true, "{dropped}");
    let detail = eu.call("get_mutation_detail", json!({"correlation_id": dropped["meta"]["correlation_id"]})).await;
    assert!(!detail.to_string().contains("USSECRET"), "{detail}");
    assert_eq!(detail["data"]["effects"]["count"], 3, "{detail}");
    let plan = eu.call("undo_plan", json!({"from": "1h", "mode": "skip"})).await;
    assert!(!plan.to_string().contains("USSECRET"), "{plan}");
    // The record is whole for people.
    let record = dropped["meta"]["correlation_id"].as_str().unwrap();
    let audit = run_countersign(&crm.db.url(), &["audit", "show", record, "--full"]).await;
    assert!(audit.out.contains("USSECRET"), "{}{}", audit.out, audit.err);
}

const NOTES: &str = "
create schema crm;
create table crm.note (id int primary key, owner text not null, body text not null);
alter table crm.note enable row level security;
create policy own on crm.note using (owner = current_setting('countersign.account_id', true));
insert into crm.note values (1, 'default', 'mine');
grant usage on schema crm to countersign_reader, countersign_writer;
grant select, insert, update, delete on crm.note to countersign_writer;
grant select on crm.note to countersign_reader;
select countersign.track('crm.note', all_writers => true);
";

const SET_NOTE: &str = r#"
[[tool]]
name = "set_note"
access = "write"
tier = "confirm"
description = "Change a note."
before = "select id, body from crm.note where id = $1 for update"
sql = "update crm.note set body = $2 where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "The note." }, { name = "body", description = "Its text." }]
"#;

async fn notes() -> Database {
    let db = database().await;
    db.run(NOTES).await;
    db
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_over_the_account_alone_hides_what_became_of_a_row() {
    let db = notes().await;
    let manifest = TestManifest::new(SET_NOTE);
    let server = manifest.serve(&db).await;
    let proposal = server.propose("set_note", json!({"id": 1, "body": "new"})).await;
    assert_eq!(proposal["preview"]["effects"]["rows"].as_array().map(Vec::len), Some(1), "{proposal}");
    let id = json!({"proposal_id": proposal["proposal_id"]});
    db.run("update crm.note set body = 'SECRET 1' where id = 1; update crm.note set body = 'theirs' where id = 1")
        .await;
    let since = server.succeed("get_proposal", id.clone()).await["data"]["since"].clone();
    assert_eq!(since["rows"][0]["columns"]["body"], json!({"shown": "mine", "now": "theirs"}), "{since}");
    db.run("update crm.note set owner = 'bob', body = 'SECRET 2' where id = 1").await;
    let since = server.succeed("get_proposal", id.clone()).await["data"]["since"].clone();
    assert_eq!(since, json!({"found": ["1 row that you cannot read now."]}));
    db.run("select countersign.request_check(proposal_id) from countersign.proposal").await;
    db.first_value("select 1 from countersign.proposal_check where checked_at is not null").await;
    let since = server.succeed("get_proposal", id).await["data"]["since"].clone();
    assert!(!since.to_string().contains("SECRET") && since["rows"].is_null(), "{since}");
    server.close().await;
}
