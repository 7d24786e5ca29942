//! Servers killed between an approval and its write, and between the write and its answer. The write is executed exactly
//! once, and the state shows it.

use std::collections::BTreeMap;
use std::process::Stdio;

use futures_util::future::join_all;
use serde_json::{Value, json};
use testkit::{Database, RawStdioServer, Server, database, run_countersign};

use super::{PRICE, agreement, approve, id, price, state};

fn kill(pid: u32) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), nix::sys::signal::Signal::SIGKILL).unwrap();
}

/// The attempt of a killed server has its time; as if that had passed.
async fn attempts_are_over(db: &Database) {
    db.run("update countersign.proposal set attempt_until = now() where status = 'confirmed'").await;
}

/// Attempts that begin from now on have two seconds, or as long as they always have. What an attempt has locked cannot be
/// changed before it ends. With no time at all, a server takes up what it has itself just begun to carry out.
async fn let_attempts_have_time(db: &Database, they_do: bool) {
    let time = if they_do { "" } else { "new.attempt_until := clock_timestamp() + interval '2 seconds';" };
    db.run(&format!(
        "create or replace function public.attempt_until() returns trigger language plpgsql as \
             $$ begin {time} return new; end $$; \
         create or replace trigger attempt_until before update on countersign.proposal \
             for each row when (new.status = 'confirmed') execute function public.attempt_until()"
    ))
    .await;
}

/// Counts from here on how often servers try to take up what another one has begun: in the sessions that begin after it.
async fn count_claims(db: &Database) {
    db.run(&format!("alter database {} set track_functions = 'pl'", db.name())).await;
}

/// Waits until a server has tried to take up what another one has begun.
async fn until_claimed(db: &Database) {
    db.first_value("select calls from pg_stat_user_functions where funcname = 'claim_proposal'").await;
}

fn ended(proposal: &Value) -> String {
    format!(
        "select status from countersign.proposal where proposal_id = '{}' and completed_at is not null",
        id(proposal)
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_right_after_the_agreement_leaves_it_to_the_next() {
    let db = database().await;
    let server = Server::studio(&db).await;
    let proposal = server.propose("upsert_package", price("150")).await;
    server.close().await;
    // What the server that took the agreement had written down when it was killed.
    let confirmed = format!(
        "select countersign.decide_proposal('{}', 'default', 'confirmed', 'confirm_proposal', '{}', null, gen_random_uuid(), interval '0')",
        id(&proposal),
        proposal["digest"].as_str().unwrap()
    );
    assert_eq!(db.value(&confirmed).await, "done");
    assert_eq!((state(&db, &proposal).await, db.value(PRICE).await), ("confirmed".to_owned(), "120.00".to_owned()));
    let server = Server::studio(&db).await;
    assert_eq!(db.first_value(&ended(&proposal)).await, "executed");
    assert_eq!(db.value(PRICE).await, "150.00");
    assert_eq!(db.rows("select status from countersign.mutation").await, [["success"]]);
    let answer = server.succeed("confirm_proposal", agreement(&proposal)).await;
    assert_eq!(answer["data"]["status"], "executed", "whoever confirmed hears of it");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_in_the_middle_of_the_write_leaves_it_to_the_next() {
    let db = database().await;
    let_attempts_have_time(&db, false).await;
    let server = Server::studio(&db).await;
    let proposal = server.propose("upsert_package", price("150")).await;
    server.close().await;
    let mut killed = RawStdioServer::logging(Server::studio_command(&db), Stdio::null(), "2025-06-18").await;
    let mut blocker = db.connect().await;
    let lock = blocker.transaction().await.unwrap();
    lock.batch_execute("select from studio.package where package_id = 1 for update").await.unwrap();
    let call = json!({"name": "confirm_proposal", "arguments": agreement(&proposal)});
    killed.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).to_string()).await;
    db.first_value("select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%for update%'")
        .await;
    kill(killed.pid());
    count_claims(&db).await;
    // The next one comes while the backend of the first still waits with the record locked: it must not run beside it.
    let server = Server::studio(&db).await;
    until_claimed(&db).await;
    let_attempts_have_time(&db, true).await;
    lock.commit().await.unwrap();
    assert_eq!(db.first_value(&ended(&proposal)).await, "executed");
    assert_eq!(db.value(PRICE).await, "150.00");
    let records = db.rows("select status, coalesce(error_code, '') from countersign.mutation order by id").await;
    assert_eq!(
        records,
        [["failure", "in_doubt_aborted"], ["success", ""]],
        "the first attempt was ended before the second"
    );
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_between_the_write_and_its_answer_has_written_once() {
    let db = database().await;
    let mut killed = RawStdioServer::logging(Server::studio_command(&db), Stdio::null(), "2025-06-18").await;
    let propose_call = json!({"name": "upsert_package", "arguments": price("150")});
    let proposed = killed.request(1, "tools/call", propose_call).await;
    let proposal = proposed["result"]["structuredContent"]["data"]["proposal"].clone();
    let call = json!({"name": "confirm_proposal", "arguments": agreement(&proposal)});
    killed.send(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}).to_string()).await;
    assert_eq!(db.first_value(&ended(&proposal)).await, "executed");
    kill(killed.pid());
    let server = Server::studio(&db).await;
    let answer = server.succeed("confirm_proposal", agreement(&proposal)).await;
    let receipt = db.value("select correlation_id from countersign.mutation").await;
    assert_eq!(answer["meta"]["correlation_id"], receipt.as_str());
    assert_eq!(db.rows("select status from countersign.mutation").await, [["success"]], "written once");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_outlasts_its_deadline_is_not_called_failed_while_it_goes_on() {
    let db = database().await;
    db.run(
        "create table public.slow (id integer); grant select on public.slow to public; \
         create function public.slow() returns trigger language plpgsql as $$ begin \
         if exists (select from public.slow) then perform pg_sleep(30); end if; return new; end $$; \
         create trigger slow before update on studio.package for each row execute function public.slow()",
    )
    .await;
    let mut slow = Server::studio_command(&db);
    slow.args(["--call-deadline-ms", "1000"]);
    let server = Server::start(slow).await;
    let proposal = server.propose("upsert_package", price("150")).await;
    db.run("insert into public.slow values (1)").await;
    let error = server.fail("confirm_proposal", agreement(&proposal), "timeout").await;
    // What is said is what is: the write was ended with its transaction.
    assert_eq!(state(&db, &proposal).await, "failed", "{error}");
    assert_eq!(db.value(PRICE).await, "120.00");
    assert_eq!(db.value("select count(*) from pg_stat_activity where datname = current_database() and query like '%studio.package%' and state = 'active' and pid <> pg_backend_pid()").await, "0");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_survives_a_database_outage_and_is_executed_later() {
    let db = testkit::lone_database().await;
    let server = Server::studio(&db).await;
    let proposal = server.propose("upsert_package", price("150")).await;
    let mut blocker = db.connect().await;
    let lock = blocker.transaction().await.unwrap();
    lock.batch_execute("select from studio.package where package_id = 1 for update").await.unwrap();
    let crash = async {
        db.first_value("select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%for update%'")
            .await;
        let cluster = std::sync::Arc::clone(db.cluster());
        tokio::task::spawn_blocking(move || cluster.kill9().and_then(|()| cluster.restart())).await.unwrap().unwrap();
    };
    let (answer, ()) = tokio::join!(server.call("confirm_proposal", agreement(&proposal)), crash);
    assert_eq!(answer["error"]["retryable"], true, "{answer}");
    assert_eq!(db.first_value(&ended(&proposal)).await, "executed", "without anybody asking again: {answer}");
    assert_eq!(db.value(PRICE).await, "150.00");
    assert_eq!(db.value("select count(*) from countersign.mutation where status = 'success'").await, "1");
    let again = server.succeed("confirm_proposal", agreement(&proposal)).await;
    assert_eq!(again["data"]["status"], "executed");
    drop(lock);
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_any_kill_each_approval_is_executed_once_or_never() {
    // Many approvals at once over servers that are killed in the middle, twice.
    const EACH: usize = 12;
    let db = database().await;
    let mut proposals = Vec::new();
    {
        let mut command = Server::studio_command(&db);
        command.args(["--profile", "admin", "--execute-sql=any", "--execute-sql-tier", "confirm"]);
        let server = Server::start(command).await;
        for number in 0..EACH * 2 {
            let sql = format!("insert into social.tweet (account_id, text) values ('default', 'storm {number}')");
            proposals.push(server.propose("execute_sql", json!({"sql": sql})).await);
        }
        server.close().await;
    }
    for round in 0..2 {
        let storm = &proposals[round * EACH..(round + 1) * EACH];
        let mut servers = join_all((0..2).map(|_| async {
            let mut command = Server::studio_command(&db);
            command.args(["--profile", "admin", "--execute-sql=any", "--execute-sql-tier", "confirm"]);
            RawStdioServer::logging(command, Stdio::null(), "2025-06-18").await
        }))
        .await;
        for (number, proposal) in storm.iter().enumerate() {
            let call = json!({"name": "confirm_proposal", "arguments": agreement(proposal)});
            let line = json!({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}).to_string();
            // Each on both servers.
            for server in &mut servers {
                server.send(&line).await;
            }
        }
        let some = format!(
            "select 1 where (select count(*) from countersign.proposal where status = 'executed') > {}",
            round * EACH + 1
        );
        db.first_value(&some).await;
        servers.iter().for_each(|server| kill(server.pid()));
    }
    attempts_are_over(&db).await;
    let mut command = Server::studio_command(&db);
    command.args(["--profile", "admin", "--execute-sql=any", "--execute-sql-tier", "confirm"]);
    let server = Server::start(command).await;
    db.first_value("select 1 where not exists (select from countersign.proposal where status = 'confirmed')").await;
    let states: BTreeMap<String, String> = db
        .rows("select params->>'sql', status from countersign.proposal")
        .await
        .into_iter()
        .map(|row| (row[0].clone(), row[1].clone()))
        .collect();
    let written = db.rows("select text, count(*) from social.tweet where text like 'storm %' group by text").await;
    assert!(written.iter().all(|row| row[1] == "1"), "nothing twice: {written:?}");
    let executed = states.values().filter(|state| *state == "executed").count();
    assert_eq!(executed, written.len(), "executed means written, and written means executed: {states:?}");
    // What had begun is not begun again, since a statement of one's own may do more than a rollback takes back.
    assert!(
        states.values().all(|state| ["executed", "pending", "failed"].contains(&state.as_str())),
        "an agreement that was taken in has an end: {states:?}"
    );
    let points = db
        .value(
            "select count(*) from countersign.proposal p join countersign.mutation a using (correlation_id) \
        where p.status = 'executed' and a.status = 'success' and a.approval->>'proposal_id' = p.proposal_id::text",
        )
        .await;
    assert_eq!(points, executed.to_string(), "each points to its record, and its record says who agreed");
    // The next server executes an approval given while no server was running.
    server.close().await;
    if let Some(waiting) = proposals
        .iter()
        .find(|it| states.iter().any(|(sql, state)| state == "pending" && it["params"]["sql"] == sql.as_str()))
    {
        assert_eq!(approve(&db, waiting).await, "not_yours");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_free_statement_is_not_repeated() {
    let db = database().await;
    let_attempts_have_time(&db, false).await;
    let admin = || {
        let mut command = Server::studio_command(&db);
        command.args(["--profile", "admin", "--execute-sql=any", "--execute-sql-tier", "confirm"]);
        command
    };
    let server = Server::start(admin()).await;
    let sql = "update studio.package set price = 1 where package_id = 1";
    let proposal = server.propose("execute_sql", json!({"sql": sql})).await;
    server.close().await;
    let mut killed = RawStdioServer::logging(admin(), Stdio::null(), "2025-06-18").await;
    let mut blocker = db.connect().await;
    let lock = blocker.transaction().await.unwrap();
    lock.batch_execute("select from studio.package where package_id = 1 for update").await.unwrap();
    let call = json!({"name": "confirm_proposal", "arguments": agreement(&proposal)});
    killed.send(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}).to_string()).await;
    db.first_value("select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%price = 1%'",
    )
    .await;
    kill(killed.pid());
    count_claims(&db).await;
    let server = Server::start(admin()).await;
    until_claimed(&db).await;
    let_attempts_have_time(&db, true).await;
    lock.commit().await.unwrap();
    assert_eq!(db.first_value(&ended(&proposal)).await, "failed");
    assert_eq!(db.value(PRICE).await, "120.00");
    let error = server.fail("confirm_proposal", agreement(&proposal), "proposal_closed").await;
    assert!(error["message"].as_str().unwrap().contains("outside"), "{error}");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_is_not_denied_where_only_its_proposal_cannot_be_read_any_more() {
    let db = database().await;
    let server = Server::studio(&db).await;
    let [executed, rejected, withdrawn] = ["130", "140", "150"].map(price);
    let executed = server.propose("upsert_package", executed).await;
    let rejected = server.propose("upsert_package", rejected).await;
    let withdrawn = server.propose("upsert_package", withdrawn).await;
    db.run("create role approver login in role countersign_approver").await;
    // Reading fails from the moment at which a proposal ends until the next begins.
    db.run(
        "create function public.hide() returns trigger language plpgsql security definer as $$ begin \
             revoke select on countersign.proposal from countersign_writer, countersign_approver; return null; end $$; \
         create trigger hide after update on countersign.proposal for each row \
             when (new.status in ('executed', 'rejected')) execute function public.hide()",
    )
    .await;
    let visible = "grant select on countersign.proposal to countersign_writer, countersign_approver";

    let answer = server.succeed("confirm_proposal", agreement(&executed)).await;
    let id_of = |answer: &Value| answer["meta"]["correlation_id"].as_str().unwrap().to_owned();
    let recorded = format!("select status from countersign.mutation where correlation_id = '{}'", id_of(&answer));
    assert_eq!([db.value(PRICE).await, db.value(&recorded).await], ["130.00", "success"]);
    assert_eq!(state(&db, &executed).await, "executed");

    db.run(visible).await;
    let error = server.fail("reject_proposal", json!({"proposal_id": rejected["proposal_id"]}), "db_error").await;
    assert_eq!(state(&db, &rejected).await, "rejected");

    db.run(visible).await;
    let url = db.url().replace("user=postgres", "user=approver");
    let run = run_countersign(&url, &["proposals", "reject", id(&withdrawn)]).await;
    assert_eq!(state(&db, &withdrawn).await, "rejected");
    for said in [error["message"].as_str().unwrap(), &run.err] {
        assert!(said.contains("its state is not known") && !said.contains("nothing was"), "{said}");
    }
    server.close().await;
}
