//! Several servers with other settings on one ledger: none spoils what another one has proposed.

use serde_json::json;
use testkit::{Database, Server, database};

use super::{approve, id, state};

/// A server with these settings of `execute_sql`.
async fn server(db: &Database, max_rows: &str, tier: &str, key: Option<&str>) -> Server {
    let mut command = Server::bare_command(db);
    command.args(["--execute-sql", "--execute-sql-max-rows", max_rows, "--execute-sql-tier", tier]);
    command.envs(key.map(|key| ("COUNTERSIGN_FINGERPRINT_KEY", key)));
    Server::start(command).await
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_with_other_settings_leave_an_approved_proposal_to_the_one_that_has_its_tool() {
    let db = database().await;
    db.run(
        "create table public.t (id integer primary key, v integer not null); insert into public.t select g, 0 from generate_series(1, 9) g; \
         grant select, update on public.t to public; select countersign.track('public.t')",
    )
    .await;
    let own = server(&db, "500", "approve", None).await;
    let others = [
        server(&db, "400", "approve", None).await,
        server(&db, "500", "confirm", None).await,
        server(&db, "500", "approve", Some("the key of another server")).await,
    ];
    for number in 1..=6 {
        let sql = format!("update public.t set v = {number} where id = {number}");
        let proposal = own.propose("execute_sql", json!({"sql": sql})).await;
        assert_eq!(approve(&db, &proposal).await, "done");
        db.first_value(&format!(
            "select 1 from countersign.proposal where proposal_id = '{}' and status <> 'confirmed'",
            id(&proposal)
        ))
        .await;
        assert_eq!(state(&db, &proposal).await, "executed");
    }
    assert_eq!(db.value("select sum(v) from public.t").await, "21");
    own.close().await;

    // Nobody has it any more: after a minute the proposal says why it waits.
    let own = server(&db, "500", "approve", None).await;
    let proposal = own.propose("execute_sql", json!({"sql": "update public.t set v = 7 where id = 7"})).await;
    own.close().await;
    assert_eq!(approve(&db, &proposal).await, "done");
    let of_it = format!("where proposal_id = '{}'", id(&proposal));
    db.run("alter table countersign.proposal disable trigger user").await;
    db.run(&format!("update countersign.proposal set decided_at = now() - interval '2 minutes' {of_it}")).await;
    db.run("alter table countersign.proposal enable trigger user").await;
    let why =
        db.first_value(&format!("select error_message from countersign.proposal {of_it} and error_code <> ''")).await;
    let reasons = ["execute_sql of this server is not the one that was proposed", "another fingerprint_key"];
    assert!(reasons.iter().any(|reason| why.contains(reason)), "{why}");
    assert_eq!(state(&db, &proposal).await, "confirmed");
    let own = server(&db, "500", "approve", None).await;
    db.first_value(&format!(
        "select 1 from countersign.proposal {of_it} and status = 'executed' and error_code is null"
    ))
    .await;
    for server in others.into_iter().chain([own]) {
        server.close().await;
    }
}
