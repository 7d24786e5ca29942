//! Limits of a login for reading, and names without a schema in reads.

use serde_json::{Value, json};
use testkit::{Database, Server, database};

use super::{named, succeed};

/// Starts a server that reads with another login; what its start says, if it does not serve reads.
async fn serve_with(db: &Database, role: &str, arguments: &[&str]) -> Server {
    Server::bare_with(db, |it| it.args(["--read-url", &db.url_as(role)]).args(arguments)).await
}

async fn is_served(server: &Server) -> bool {
    server.tool_names().await.contains(&"query_database".to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_reads_everything_or_the_ledger_is_refused() {
    let db = database().await;
    let (all, ledger, plain) = (named(&db, "reads_all"), named(&db, "reads_ledger"), named(&db, "reads_shop"));
    db.run(&format!(
        "create role {all} login; grant pg_read_all_data to {all};
         create role {ledger} login; grant usage on schema countersign to {ledger};
         grant select (params) on countersign.record to {ledger};
         create role {plain} login; grant usage on schema social to {plain}; grant select on social.tweet to {plain}"
    ))
    .await;
    for (role, is_fine) in [(&all, false), (&ledger, false), (&plain, true)] {
        let server = serve_with(&db, role, &[]).await;
        assert_eq!(is_served(&server).await, is_fine, "{role}");
        server.close().await;
    }
    // Where an operator allows such a login, the ledger and its keys stay out of reach all the same.
    let server = serve_with(&db, &all, &["--allow-privileged-reader"]).await;
    server.succeed("query_database", json!({"query": "select count(*) from social.tweet"})).await;
    // The plan of a table whose rows are all hidden names no relation: there is nothing to refuse.
    for secret in ["reader_login", "state_key", "decision_nonce"] {
        assert_eq!(server.query(&format!("select * from countersign.{secret}")).await, Vec::<Value>::new());
    }
    for query in [
        "select params from countersign.mutation",
        "select (select count(*) from countersign.proposal) + 1",
        "with a as (select * from countersign.mutation) select count(*) from a",
        "select * from social.tweet t where exists (select from countersign.mutation m where m.id = t.id)",
    ] {
        let error = server.fail("query_database", json!({"query": query}), "not_permitted").await;
        assert!(error["message"].as_str().unwrap().contains("is not for reads"), "{query}: {error}");
    }
    db.run("create view social.records as select * from countersign.mutation").await;
    server.fail("query_database", json!({"query": "select * from social.records"}), "not_permitted").await;
    server.close().await;
    // Not even a grant, or a function that hides the relation, shows a key.
    db.run(&format!(
        "grant usage on schema countersign to {plain}; grant select on all tables in schema countersign to {plain}"
    ))
    .await;
    for role in [&all, &plain] {
        for secret in ["reader_login", "state_key", "decision_nonce"] {
            let client = testkit::connect(&db.url_as(role)).await;
            let rows = client.query(&format!("select from countersign.{secret}"), &[]).await.unwrap();
            assert!(rows.is_empty(), "{role} reads {secret}");
        }
    }
    assert_eq!(db.value("select count(*) from countersign.reader_login").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_do_not_search_schemas_in_which_others_may_create() {
    // Otherwise a function of another user could run within an agent's harmless query and read what it may read.
    let db = database().await;
    let mallory = named(&db, "mallory");
    db.run(&format!(
        "create role {mallory} login; create schema shared; grant usage, create on schema shared to {mallory};
         create schema shop; create table shop.orders (id int); create table shared.notes (id int);
         grant usage on schema shared, shop to public; grant select on shop.orders, shared.notes to public;
         alter database {} set search_path = shared, shop, public",
        db.name()
    ))
    .await;
    // A better match than PostgreSQL's own function for a column of type varchar: it wins even behind pg_catalog.
    super::run_as(
        &db,
        &mallory,
        "create function shared.upper(varchar) returns text language plpgsql as $$ begin return 'stolen: ' || $1; end $$",
    )
    .await;
    let server = Server::start(Server::bare_command(&db)).await;
    let query = json!({"query": "select upper('hello'::varchar) as u"});
    let answer = server.succeed("query_database", query.clone()).await;
    assert_eq!(answer["data"]["rows"][0]["u"], "HELLO", "{answer}");
    // Names in the schemas that can be trusted are found without a schema; the others need it.
    server.succeed("query_database", json!({"query": "select * from orders"})).await;
    server.fail("query_database", json!({"query": "select * from notes"}), "sql_error").await;
    server.succeed("query_database", json!({"query": "select * from shared.notes"})).await;
    server.close().await;

    let named = format!("reads do not search the schema shared for names without a schema, since {mallory} may create");
    let (said, _) = super::run(&db.writer_url(), &["doctor"]).await;
    assert!(said.contains(&named), "{said}");
    let manifest = testkit::repository().join("manifests/social.toml");
    let said = succeed(&db.writer_url(), &["check", "--manifest", manifest.to_str().unwrap()]).await;
    assert!(said.contains(&named), "{said}");

    // The control: once the schema is its owner's alone it is searched.
    db.run(&format!("revoke create on schema shared from {mallory}")).await;
    let server = Server::start(Server::bare_command(&db)).await;
    let answer = server.succeed("query_database", query).await;
    assert_eq!(answer["data"]["rows"][0]["u"], "stolen: hello", "{answer}");
    server.close().await;
}
