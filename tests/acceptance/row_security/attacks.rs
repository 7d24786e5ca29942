//! Statements of an agent that would change the role, the claims or the account of its transaction.

use serde_json::json;
use testkit::{ConfigDir, Server};

use super::{Crm, DEALS, NOTES, command_with_role, crm, ids, ids_of};

/// Expressions that change what a policy depends on.
const CHANGES: [&str; 11] = [
    "set_config('role', 'none', true)",
    "set_config('ROLE', 'countersign_reader', false)",
    "pg_catalog.set_config('role'::text, 'app_us', true)",
    "set_config($$role$$, 'none', true)",
    "set_config('ro' || 'le', 'none', true)",
    "set_config(E'\\x72ole', 'none', true)",
    "set_config/**/('role', 'none', true)",
    "set_config('session_authorization', session_user, true)",
    "set_config('countersign.claim_tenant', 'acme', true)",
    "set_config('countersign.role', 'app_us', true)",
    "set_config('countersign.account_id', 'x', true)",
];

/// Texts that run other texts, or are commands.
const STATEMENTS: [&str; 12] = [
    "set role none",
    "reset role",
    "set local role app_us",
    "set session authorization default",
    "reset all",
    "discard all",
    "set countersign.claim_tenant = 'acme'",
    "do $$ begin reset role; update crm.deal set amount = 0; end $$",
    "do $$ begin execute 'set ro' || 'le none'; end $$",
    "create function crm.escape() returns int language plpgsql as 'begin reset role; return 1; end'",
    "create procedure crm.escape() language plpgsql as 'begin reset role; end'",
    "call crm.as_login()",
];

#[tokio::test(flavor = "multi_thread")]
async fn no_read_changes_what_policies_depend_on() {
    let crm = Crm::new("", "claims = [\"tenant\"]\nrole_claim = \"db_role\"\nroles = [\"app_eu\"]").await;
    let client = crm.client(json!({"db_role": "app_eu", "tenant": "bolt"}));
    let other = "select query_to_xml('select set_' || 'config(''role'', ''none'', true)', true, true, '')";
    let reads = CHANGES.iter().flat_map(|change| {
        [
            format!("select {change}"),
            format!("with changed as materialized (select {change} as c) select d.id from changed, crm.deal d"),
            format!("select id from crm.deal where ({change}) is not null limit (select length({change}))"),
            format!("explain analyze select {change}"),
        ]
    });
    for read in reads.chain([other.to_owned()]) {
        let refused = client.call("query_database", json!({"query": read})).await;
        assert_eq!(refused["error"]["code"], "not_permitted", "{read}: {refused}");
    }
    for statement in STATEMENTS {
        let refused = client.call("query_database", json!({"query": statement})).await;
        assert_eq!(refused["success"], false, "{statement}: {refused}");
    }
    assert_eq!((ids(&client, DEALS).await, ids(&client, NOTES).await), (vec![1, 2], vec![3]));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_statement_of_execute_sql_changes_what_policies_depend_on() {
    let (db, folder) = (crm().await, ConfigDir::new());
    db.run("create procedure crm.as_login() language plpgsql as 'begin reset role; end'").await;
    for mode in ["rows", "any"] {
        let top = format!("execute_sql = \"{mode}\"\nexecute_sql_tier = \"auto\"\nexecute_sql_reason = \"optional\"");
        let server = Server::start(command_with_role(&folder, &db.writer_url(), "app_eu", &top)).await;
        let changing = CHANGES.iter().flat_map(|change| {
            [
                format!("update crm.deal set amount = 0 where ({change}) is not null"),
                format!("with c as materialized (select {change} as c) update crm.deal set amount = 0 from c"),
                format!("select {change}"),
            ]
        });
        let statements = STATEMENTS.iter().map(|statement| (*statement).to_owned());
        let runner = "update crm.deal set amount = length(query_to_xml('select set_' || 'config(''role'', ''none'', true)', true, true, '')::text)";
        for sql in changing.chain(statements).chain([runner.to_owned()]) {
            let refused = server.call("execute_sql", json!({"sql": sql})).await;
            assert_eq!(refused["success"], false, "{mode}: {sql}: {refused}");
            assert!(
                ["not_permitted", "invalid_params"].contains(&refused["error"]["code"].as_str().unwrap()),
                "{sql}: {refused}"
            );
        }
        assert_eq!(db.value("select sum(amount) from crm.deal").await, "60", "{mode}");
        // What it does change are the rows of the role.
        let sql = format!("update crm.deal set amount = amount + 1 where amount > 0 /* {mode} */");
        let written = server.succeed("execute_sql", json!({"sql": sql})).await;
        assert_eq!(written["meta"]["rows_affected"], 2, "{written}");
        let receipt = json!({"correlation_id": written["meta"]["correlation_id"]});
        server.succeed("undo_mutation", receipt).await;
        assert_eq!(ids_of(&server, DEALS).await, [1, 2]);
        server.close().await;
    }
}
