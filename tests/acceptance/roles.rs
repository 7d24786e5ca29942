//! Privileges on the ledger: its owner is not a login, the writer has only the functions of the protocol, and the reader
//! has none.

use std::process::{Output, Stdio};

use serde_json::json;
use testkit::{Database, Server, countersign, database, repository};
use tokio::process::Command;

/// Runs a statement as the servers' login; the SQLSTATE of its refusal.
async fn refusal(db: &Database, sql: &str) -> String {
    let client = testkit::connect(&db.writer_url()).await;
    let refused = client.batch_execute(sql).await.expect_err(sql);
    refused.as_db_error().unwrap_or_else(|| panic!("{sql}: {refused}")).code().code().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_writer_changes_the_ledger_through_the_protocol_and_in_no_other_way() {
    let db = database().await;
    let server = Server::on(&db).await;
    server.succeed("post_tweet", json!({"text": "on the record"})).await;
    let before = db.rows("select a::text from countersign.mutation a").await;
    let tables = db.rows("select tablename from pg_tables where schemaname = 'countersign'").await.concat();
    assert!(tables.len() >= 5, "{tables:?}");
    for table in tables {
        for statement in [
            "insert into {} default values",
            "delete from {}",
            "truncate {} cascade",
            "drop table {}",
            "alter table {} disable trigger all",
            "create trigger t before insert on {} execute function public.no()",
        ] {
            let sql = statement.replace("{}", &format!("countersign.{table}"));
            assert_eq!(refusal(&db, &sql).await, "42501", "{sql}");
        }
    }
    for sql in [
        "update countersign.record set status = 'failure'",
        "update countersign.admission set params_summary = ''",
        "update countersign.record set holds_until = '-infinity'",
        "select * from countersign.reader_login",
        "select * from countersign.state_key",
        "select countersign.rotate_state_key(true)",
        "select countersign.begin_decision(gen_random_uuid())",
        "create table countersign.mine ()",
        "create or replace function countersign.age_ms(timestamptz) returns integer language sql as 'select 0'",
        "set role countersign_owner",
        "set session_replication_role = replica",
    ] {
        assert_eq!(refusal(&db, sql).await, "42501", "{sql}");
    }
    assert_eq!(db.rows("select a::text from countersign.mutation a").await, before);
    // Triggers refuse it to the owner as well.
    for sql in [
        "update countersign.record set completed_at = admitted_at",
        "delete from countersign.record",
        "truncate countersign.record cascade",
    ] {
        let refused = db.connect().await.batch_execute(sql).await.expect_err(sql);
        assert!(["42501", "55000"].contains(&refused.as_db_error().unwrap().code().code()), "{sql}: {refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_seal_and_cannot_prune() {
    let db = database().await;
    Server::on(&db).await.succeed("post_tweet", json!({"text": "on the record"})).await;
    for (arguments, said) in [
        (&["audit", "seal"] as &[&str], "Sealed: the log has 3 entries"),
        (&["audit", "verify"], "1 records in 3 entries"),
        (&["audit", "prune", "--older-than", "90d"], "may not prune: use a member of countersign_owner"),
    ] {
        let output =
            Command::new(countersign()).env("DATABASE_URL", db.writer_url()).args(arguments).output().await.unwrap();
        let all = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(all.contains(said), "{arguments:?}: {all}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_other_role_can_call_the_protocol() {
    let db = database().await;
    let server = Server::on(&db).await;
    for call in
        ["countersign.sweep('0', 1)", "countersign.resolve(gen_random_uuid(), 1)", "countersign.reader_credentials()"]
    {
        let query = format!("select {call}");
        let error = server.fail("query_database", json!({"query": query}), "not_permitted").await;
        assert_eq!(error["sqlstate"], "42501", "{error}");
    }
    let open = "select p.oid::regprocedure from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a \
                where p.pronamespace = 'countersign'::regnamespace and a.grantee = 0 order by 1";
    // Policies of row level security call these with the rights of whoever reads.
    let about_callers = ["countersign.account()", "countersign.claim(text)"].map(|function| vec![function.to_owned()]);
    assert_eq!(db.rows(open).await, about_callers, "functions that everybody may call");
    // Triggers of tracked tables qualify every name instead (`crates/ledger/tests/sql/effects.rs`).
    let unsafe_path = "select p.oid::regprocedure from pg_proc p where p.pronamespace = 'countersign'::regnamespace \
                       and p.prosecdef and not coalesce(p.proconfig::text like '%search_path=pg_catalog, pg_temp%', false) \
                       and p.proname not like 'effect\\_of\\_%'";
    assert_eq!(db.rows(unsafe_path).await, Vec::<Vec<String>>::new(), "SECURITY DEFINER without a fixed search_path");
    let foreign = "select relname from pg_class where relnamespace = 'countersign'::regnamespace \
                   and relkind in ('r', 'S') and relowner <> 'countersign_owner'::regrole";
    assert_eq!(db.rows(foreign).await, Vec::<Vec<String>>::new(), "tables that the owner does not own");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_privilege_that_a_manifest_needs_and_the_writer_lacks_is_a_mistake_of_the_manifest() {
    let db = database().await;
    db.run("revoke update, delete on social.tweet from countersign_writer").await;
    let mut command = Command::new(countersign());
    command.env("DATABASE_URL", db.writer_url()).args(["check", "--manifest"]);
    let output = command.arg(repository().join("manifests/social.toml")).output().await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("delete_tweet") && said.contains("permission denied for table tweet"), "{said}");
}

/// Starts a server whose client is gone at once; what it said, and whether it started.
async fn start(url: &str, arguments: &[&str]) -> (String, bool) {
    let mut command = Command::new(countersign());
    command.env("DATABASE_URL", url).arg("serve").args(arguments).stdin(Stdio::null());
    let output: Output = command.output().await.unwrap();
    (String::from_utf8(output.stderr).unwrap(), output.status.success())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_can_do_too_much_is_named_and_refused_under_strict_roles() {
    let db = database().await;
    let (said, started) = start(&db.writer_url(), &["--strict-roles"]).await;
    assert!(started && !said.contains("more than"), "{said}");

    db.run(&format!("create role owning_{0} login; grant countersign_owner to owning_{0}", db.name())).await;
    db.run(&format!(
        "create role mighty_{0} login createrole bypassrls; grant countersign_writer to mighty_{0}",
        db.name()
    ))
    .await;
    db.run(&format!(
        "create role approving_{0} login; grant countersign_writer, countersign_approver to approving_{0}",
        db.name()
    ))
    .await;
    db.run(&format!(
        "create role deciding_{0} login; grant countersign_writer, countersign_console to deciding_{0}",
        db.name()
    ))
    .await;
    db.run(&format!(
        "create role operating_{0} login; grant countersign_writer, countersign_operator to operating_{0}",
        db.name()
    ))
    .await;
    let as_role = |role: &str| db.url().replace("user=postgres", &format!("user={role}_{}", db.name()));
    for (url, power) in [
        (db.url(), "\"postgres\", which is a superuser"),
        (as_role("owning"), "owns the ledger"),
        // No server has the role of approvers.
        (as_role("approving"), "which may approve what its agents propose"),
        (as_role("deciding"), "which may approve what its agents propose"),
        (as_role("operating"), "which may undo the writes of every account, and freeze accounts"),
        (as_role("mighty"), "may create roles, bypasses row level security"),
    ] {
        let (said, started) = start(&url, &[]).await;
        assert!(started && said.contains("WARN") && said.contains(power), "{said}");
        let (said, started) = start(&url, &["--strict-roles"]).await;
        assert!(!started && said.contains(power) && said.contains("countersign_writer"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_login_for_servers_can_be_named() {
    let db = database().await;
    let role = format!("second_{}", db.name());
    let mut command = Command::new(countersign());
    let output = command.env("DATABASE_URL", db.url()).args(["init", "--writer", &role]).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let url = db.url_as(&role);
    let (said, started) = start(&url, &["--strict-roles"]).await;
    assert!(started, "{said}");
    assert_eq!(
        db.value("select string_agg(role_name, ' ' order by role_name) from countersign.writer_login").await,
        format!("countersign_writer {role}")
    );
}
