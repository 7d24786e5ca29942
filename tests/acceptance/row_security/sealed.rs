//! What holds when a statement does change the settings of its transaction: claims and accounts that policies take from
//! `countersign.claim` and `countersign.account`, and a login without rights below the role.
//!
//! The operator's functions here let any caller change any setting and run any text: no check of texts and plans stops that.

use serde_json::{Value, json};
use testkit::HttpClient;

use super::{Crm, ids};

const CRM: &str = "
create function crm.set(name text, value text) returns text language plpgsql as 'begin return set_config(name, value, true); end';
create function crm.run(query text) returns text language plpgsql as 'declare answer text; begin execute query into answer; return answer; end';
create table crm.plan (id int primary key, tenant text, account text);
alter table crm.plan enable row level security;
create policy own on crm.plan using (tenant = (select countersign.claim('tenant')));
insert into crm.plan values (1, 'acme', 'oauth:anna'), (2, 'bolt', 'oauth:anna'), (3, 'bolt', 'oauth:bert'), (4, null, null);
create table crm.diary (id int primary key, account text);
alter table crm.diary enable row level security;
create policy own on crm.diary using (account = (select countersign.account()));
insert into crm.diary values (1, 'oauth:anna'), (2, 'oauth:bert');
create table crm.secret (id int primary key);
insert into crm.secret values (7);
grant select on crm.secret, crm.plan, crm.diary to countersign_reader;
grant select, insert, update, delete on crm.plan, crm.diary to app_eu, countersign_writer;
select countersign.track('crm.plan');
";

const MANIFEST: &str = r#"
name = "plans"
version = "1"

[[tool]]
name = "rename_plan"
access = "write"
description = "Give a plan to another account."
sql = "update crm.plan set account = $2 where id = $1 and crm.set('countersign.claim_tenant', 'acme') is not null returning id"
rows = "one"
param = [{ name = "id", description = "The plan." }, { name = "account", description = "The account." }]
"#;

const PLANS: &str = "select id from crm.plan order by id";
const DIARIES: &str = "select id from crm.diary order by id";

async fn crm() -> Crm {
    let oauth = "claims = [\"tenant\"]\nrole_claim = \"db_role\"\nroles = [\"app_eu\"]";
    let db = super::crm().await;
    db.run(CRM).await;
    let url = db.writer_url();
    Crm::serving(MANIFEST, db, &url, "", oauth).await
}

/// The first row that a query returns, or its error.
async fn first(client: &HttpClient, query: &str) -> Result<Value, String> {
    let answer = client.call("query_database", json!({"query": query})).await;
    if answer["success"] == true { Ok(answer["data"]["rows"][0].clone()) } else { Err(answer["error"].to_string()) }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_setting_of_a_query_changes_its_claims_or_its_account() {
    let crm = crm().await;
    let client = crm.client(json!({"db_role": "app_eu", "tenant": "bolt"}));
    assert_eq!((ids(&client, PLANS).await, ids(&client, DIARIES).await), (vec![2, 3], vec![1]));
    for (name, value) in
        [("countersign.claim_tenant", "acme"), ("countersign.account_id", "oauth:bert"), ("countersign.at", "(0,1)")]
    {
        let after =
            |table: &str| format!("select crm.run('select string_agg(id::text, '','') from crm.{table}') as ids");
        let changed = format!("with c as materialized (select crm.set('{name}', '{value}')) {{}} from c");
        for (table, seen) in [("plan", "2,3"), ("diary", "1")] {
            let query = changed.replace("{}", &after(table));
            assert_eq!(first(&client, &query).await, Ok(json!({"ids": seen})), "{query}");
        }
    }
    // It sees its own seal, which is good for its own rows, and can make no other.
    let own = first(&client, "select current_setting('countersign.caller') as seal").await.unwrap();
    let own = own["seal"].as_str().unwrap();
    let with = |seal: &str| {
        format!(
            "with c as materialized (select crm.set('countersign.caller', $x${seal}$x$)) \
             select crm.run('select string_agg(id::text, '','') from crm.plan') as ids from c"
        )
    };
    assert_eq!(first(&client, &with(own)).await, Ok(json!({"ids": "2,3"})));
    let forged = own.replace("bolt", "acme");
    assert_ne!(forged, own);
    let refused = first(&client, &with(&forged)).await.unwrap_err();
    assert!(refused.contains("no server has sealed the caller of this transaction"), "{refused}");
    assert_eq!(first(&client, &with("")).await, Ok(json!({"ids": null})));
    // Whoever is no agent has neither.
    assert_eq!(crm.db.value("select concat(countersign.account(), countersign.claim('tenant'))").await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_has_the_claims_of_its_attempt() {
    let crm = crm().await;
    let bolt = crm.client(json!({"db_role": "app_eu", "tenant": "bolt"}));
    let written = bolt.call("rename_plan", json!({"id": 2, "account": "x"})).await;
    assert_eq!(written["data"], json!({"id": 2}), "{written}");
    let refused = bolt.call("rename_plan", json!({"id": 1, "account": "x"})).await;
    assert_eq!(refused["error"]["code"], "row_count_mismatch", "{refused}");
    let preview = json!({"tool": "rename_plan", "params": {"id": 1, "account": "x"}});
    let refused = bolt.call("preview_mutation", preview).await;
    assert_eq!(refused["error"]["code"], "row_count_mismatch", "{refused}");
    let receipt = json!({"correlation_id": written["meta"]["correlation_id"]});
    let undone = bolt.call("undo_mutation", receipt).await;
    assert_eq!(undone["success"], true, "{undone}");
}

async fn secret_as(role: &str, client: &HttpClient) -> Result<Value, String> {
    let query = format!(
        "with c as materialized (select crm.set('role', '{role}')) select crm.run('select id::text from crm.secret') as id from c"
    );
    first(client, &query).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_leaves_its_role_has_no_rights() {
    let crm = crm().await;
    let client = crm.client(json!({"db_role": "app_eu", "tenant": "bolt"}));
    crm.db.run("revoke app_us from countersign_caller").await;
    for role in ["none", "countersign_caller"] {
        let refused = secret_as(role, &client).await.unwrap_err();
        assert!(refused.contains("permission denied for schema crm"), "{refused}");
    }
    for role in ["app_us", "countersign_reader"] {
        let refused = secret_as(role, &client).await.unwrap_err();
        assert!(refused.contains("permission denied to set role"), "{refused}");
    }
}
