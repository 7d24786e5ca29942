//! Several people decide at once, and people whom the console names: the ledger's functions alone (docs/adr/0083).

use serde_json::{Value, json};
use testkit::{Database, Server, TestManifest, database, repository};
use tokio_postgres::Client;

use super::{id, state};

/// A server whose `delete_package` has these keys in its manifest.
async fn server(db: &Database, keys: &str) -> Server {
    let text = std::fs::read_to_string(repository().join("manifests/studio.toml")).unwrap();
    let tool = "title = \"Delete a package\"\naccess = \"write\"\ntier = \"approve\"\n";
    TestManifest::from_text(&text.replace(tool, &format!("{tool}{keys}\n"))).serve(db).await
}

/// The proposal to delete a new package. No server carries it out.
async fn deletion(db: &Database, keys: &str) -> Value {
    let server = server(db, keys).await;
    let insert = "insert into studio.package (tenant_id, title, description, price, duration_minutes) \
                  values ('default', 'Spare ' || gen_random_uuid(), '', 10, 60) returning package_id";
    let package: i64 = db.value(insert).await.parse().unwrap();
    let proposal = server.propose("delete_package", json!({"package_id": package})).await;
    server.close().await;
    proposal
}

/// A session of a login with this role.
async fn session(db: &Database, name: &str, role: &str) -> Client {
    let login = format!("{name}_{}", db.name());
    db.run(&format!(
        "do $$ begin if to_regrole('{login}') is null then create role {login} login; end if; end $$; grant {role} to {login}"
    ))
    .await;
    testkit::connect(&db.url_as(&login)).await
}

async fn nonce(client: &Client, proposal: &Value) -> String {
    client.query_one(&format!("select countersign.begin_decision('{}')", id(proposal)), &[]).await.unwrap().get(0)
}

/// A reviewer of the command line decides.
async fn decide(client: &Client, proposal: &Value, outcome: &str) -> String {
    let nonce = nonce(client, proposal).await;
    let digest = proposal["digest"].as_str().unwrap();
    let call = format!(
        "select countersign.decide_as_reviewer('{}', '{outcome}', 'os user', '{digest}', null, '{nonce}')",
        id(proposal)
    );
    client.query_one(&call, &[]).await.unwrap().get(0)
}

/// The console decides for a person of these groups, who has a session.
async fn decide_for(db: &Database, client: &Client, proposal: &Value, person: &str, groups: &str) -> String {
    db.run(&format!(
        "insert into countersign.console_session (token_hash, person, role, groups, method, signed_in_at) \
         values (sha256('{person}'), '{person}', 'reviewer', '{groups}', 'oidc', now()) \
         on conflict (token_hash) do update set groups = excluded.groups"
    ))
    .await;
    let nonce = nonce(client, proposal).await;
    let digest = proposal["digest"].as_str().unwrap();
    let call = format!(
        "select countersign.decide_as_console('{}', 'confirmed', sha256('{person}'), '1 hour', '{digest}', null, '{nonce}')",
        id(proposal)
    );
    client.query_one(&call, &[]).await.unwrap().get(0)
}

/// Runs both while the proposal is locked, so that both wait for it at once; their verdicts, in order.
async fn at_once(
    db: &Database,
    proposal: &Value,
    one: impl Future<Output = String>,
    other: impl Future<Output = String>,
) -> [String; 2] {
    let holder = db.connect().await;
    let lock = format!("begin; select from countersign.proposal where proposal_id = '{}' for update", id(proposal));
    holder.batch_execute(&lock).await.unwrap();
    let release = async {
        let waiting = "select 1 where 2 = (select count(*) from pg_stat_activity where datname = current_database() \
                       and wait_event_type = 'Lock' and query like '%decide_as_%')";
        db.first_value(waiting).await;
        holder.batch_execute("commit").await.unwrap();
    };
    let (one, other, ()) = tokio::join!(one, other, release);
    let mut both = [one, other];
    both.sort();
    both
}

async fn approvals(db: &Database, proposal: &Value) -> String {
    db.value(&format!("select count(*) from countersign.approval where proposal_id = '{}'", id(proposal))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn approvals_at_once_count_once_for_each_person_and_a_rejection_ends_them() {
    let db = database().await;
    let role = "countersign_approver";
    let anna = session(&db, "anna", role).await;
    let also_anna = session(&db, "anna", role).await;
    let ben = session(&db, "ben", role).await;

    let proposal = deletion(&db, "approvals = 2").await;
    let both = at_once(&db, &proposal, decide(&anna, &proposal, "confirmed"), decide(&ben, &proposal, "confirmed"));
    assert_eq!(both.await, ["approved", "done"]);
    assert_eq!((state(&db, &proposal).await.as_str(), approvals(&db, &proposal).await.as_str()), ("confirmed", "2"));

    let proposal = deletion(&db, "approvals = 2").await;
    let both =
        at_once(&db, &proposal, decide(&anna, &proposal, "confirmed"), decide(&also_anna, &proposal, "confirmed"));
    assert_eq!(both.await, ["approved", "repeated"]);
    assert_eq!((state(&db, &proposal).await.as_str(), approvals(&db, &proposal).await.as_str()), ("pending", "1"));
    let both = at_once(&db, &proposal, decide(&ben, &proposal, "confirmed"), decide(&anna, &proposal, "rejected"));
    // What is approved first is withdrawn by the rejection: no server executes it yet.
    let both = both.await;
    assert!(["done", "rejected"].map(str::to_owned).contains(&both[1]) && both[0] == "done", "{both:?}");
    assert_eq!(state(&db, &proposal).await, "rejected", "{both:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn approvals_at_once_in_repeatable_read_are_not_lost_and_not_counted_twice() {
    let db = database().await;
    let (anna, ben) =
        (session(&db, "anna", "countersign_approver").await, session(&db, "ben", "countersign_approver").await);
    let proposal = deletion(&db, "approvals = 2").await;
    for client in [&anna, &ben] {
        client.batch_execute("set default_transaction_isolation = 'repeatable read'").await.unwrap();
    }
    let nonce = nonce(&ben, &proposal).await;
    ben.batch_execute("begin; select from countersign.proposal").await.unwrap();
    assert_eq!(decide(&anna, &proposal, "confirmed").await, "approved");
    // The snapshot of ben has no approval of anna.
    let call = format!(
        "select countersign.decide_as_reviewer('{}', 'confirmed', 'b', '{}', null, '{nonce}')",
        id(&proposal),
        proposal["digest"].as_str().unwrap()
    );
    let refused = ben.query_one(&call, &[]).await;
    assert!(refused.is_err(), "{refused:?}");
    ben.batch_execute("rollback").await.unwrap();
    assert_eq!(decide(&ben, &proposal, "confirmed").await, "done");
    assert_eq!(approvals(&db, &proposal).await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_console_names_the_person_and_nobody_else_can() {
    let db = database().await;
    let console = session(&db, "console", "countersign_console").await;
    let anna = session(&db, "anna", "countersign_approver").await;
    let server = testkit::connect(&db.writer_url()).await;
    let proposal = deletion(&db, "approvals = 2").await;
    let call = |function: &str, person: &str| {
        format!("select countersign.{function}('{}', 'confirmed', '{person}', null, null, null)", id(&proposal))
    };
    let named = format!(
        "select countersign.decide_as_console('{}', 'confirmed', sha256('x'), null, null, null, '')",
        id(&proposal)
    );
    let private = format!(
        "select countersign.decide_as_person('{}', 'confirmed', 'x', 'x', '{{}}', '{{}}', 'console', null, null, '')",
        id(&proposal)
    );
    for (client, call) in [
        (&anna, &named),
        (&server, &named),
        (&console, &call("decide_as_reviewer", "x")),
        (&server, &call("decide_as_reviewer", "x")),
        (&console, &private),
        (&anna, &private),
    ] {
        let refused = client.simple_query(call).await.unwrap_err();
        assert_eq!(refused.code().map(tokio_postgres::error::SqlState::code), Some("42501"), "{call}: {refused:?}");
    }

    // One person counts once, in whatever letters, and whichever way.
    assert_eq!(decide_for(&db, &console, &proposal, "default", "{}").await, "proposer");
    assert_eq!(decide_for(&db, &console, &proposal, "anna@example.com", "{}").await, "approved");
    assert_eq!(decide_for(&db, &console, &proposal, "Anna@Example.com", "{}").await, "repeated");
    assert_eq!(decide(&anna, &proposal, "confirmed").await, "other_channel");
    assert_eq!(approvals(&db, &proposal).await, "1");
    assert_eq!(decide_for(&db, &console, &proposal, "ben@example.com", "{}").await, "done");
    let decided =
        "select decided_by, decided_login::text, decided_via from countersign.proposal where status = 'confirmed'";
    let login = format!("console_{}", db.name());
    assert_eq!(db.rows(decided).await, [["ben@example.com", login.as_str(), "console"]]);
    let people = "select string_agg(person, ' ' order by number) from countersign.approval";
    assert_eq!(db.value(people).await, "anna@example.com ben@example.com");

    let proposal = deletion(&db, "approvers = \"finance\"").await;
    assert_eq!(decide_for(&db, &console, &proposal, "ben", "{sales}").await, "not_in_group");
    assert_eq!(decide_for(&db, &console, &proposal, "ben", "{sales,finance}").await, "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_confirms_without_the_approvals_and_no_approval_changes() {
    let db = database().await;
    let anna = session(&db, "anna", "countersign_approver").await;
    let proposal = deletion(&db, "approvals = 2").await;
    assert_eq!(decide(&anna, &proposal, "confirmed").await, "approved");
    let superuser = db.connect().await;
    let confirm = "update countersign.proposal set status = 'confirmed', decision = 'confirmed', decided_by = 'x', decided_login = 'x', \
                   decided_via = 'command_line', decided_at = now(), attempt_until = now()";
    for (statement, code) in [
        (confirm, "55000"),
        ("update countersign.approval set person = 'somebody'", "42501"),
        ("delete from countersign.approval", "42501"),
        ("truncate countersign.approval", "42501"),
        ("update countersign.proposal set approvals = 1", "55000"),
        ("update countersign.proposal set approvers = 'somebody'", "55000"),
    ] {
        let refused = superuser.simple_query(statement).await.unwrap_err();
        assert_eq!(refused.code().map(tokio_postgres::error::SqlState::code), Some(code), "{statement}: {refused:?}");
    }
    // Past the triggers: what is carried out is checked again, under the lock.
    let forced = format!(
        "alter table countersign.proposal disable trigger user; {confirm}; alter table countersign.proposal enable trigger user"
    );
    db.run(&forced).await;
    let server = server(&db, "approvals = 2").await;
    let ended = "select status || ' ' || error_code from countersign.proposal where completed_at is not null";
    assert_eq!(db.first_value(ended).await, "failed digest_mismatch");
    server.close().await;
    assert_eq!(db.value("select count(*) from countersign.mutation where status = 'success'").await, "0");
    let ended = deletion(&db, "approvals = 2").await;
    assert_eq!(decide(&anna, &ended, "rejected").await, "done");
    let late = format!(
        "insert into countersign.approval (proposal_id, number, person, decided_by, decided_via) values ('{}', 1, 'x', 'x', 'console')",
        id(&ended)
    );
    assert!(superuser.simple_query(&late).await.is_err(), "no approval after the end");
}
