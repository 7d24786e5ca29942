//! A database that was restored from a backup in its own place: its log is behind what was signed. Nothing is signed or written
//! until it was forked. `copied` has databases that are copies.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ledger::audit::Signing;
use ledger::{
    ConnectOptions, Ledger, LedgerOptions, Statement, WriteCall, WriteExecutor, WriteFuture, WriteOutput, WriteRequest,
    WriteTx,
};
use serde_json::{Map, json};
use testkit::audit::{audit, insert_failed_records, run_audit};
use testkit::{Database, Server, database, poll, run_countersign, startup_error};
use types::{ErrorCode, Principal, Redaction, Rollback};

use super::{Auditor, verdict};

/// A log that was signed, and then restored from a backup without its newest records; and its public key.
async fn restored(auditor: &Auditor) -> (Database, String) {
    let db = database().await;
    let vkey = auditor.makes_a_key(&db).await;
    auditor.seals_and_restores(&db).await;
    (db, vkey)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_database_is_not_signed_for_until_it_is_forked() {
    let auditor = Auditor::new();
    let (db, vkey) = restored(&auditor).await;
    let key = auditor.path("log.key");
    let ran = run_audit(&db.url(), &["seal", "--signing-key", &key]).await;
    assert!(
        ran.code == 1 && ran.err.contains("restored from a backup") && ran.err.contains("fork --restored"),
        "{}",
        ran.err
    );
    // Servers with the key do not start, and `doctor` says why.
    let mut command = Server::command(&db);
    let refused = startup_error(command.args(["--signing-key", &key])).await;
    assert!(refused.contains("contradicts what was signed") && refused.contains("restored from a backup"), "{refused}");
    let doctor = run_countersign(&db.url(), &["doctor", "--signing-key", &key]).await;
    assert!(doctor.code == 1 && doctor.out.contains("contradicts what was signed"), "{} {}", doctor.out, doctor.err);
    let plain = audit(&db, &["fork", "--yes"]).await;
    assert!(plain.contains("Nothing was changed"), "{plain}");
    // Events that are not sealed yet do not come before the fork.
    for verb in ["freeze", "unfreeze"] {
        assert_eq!(run_countersign(&db.url(), &[verb, "--account", "nobody"]).await.code, 0, "without the key");
    }
    // Two logs of one origin would contradict each other, so the fork needs another key.
    let same = run_audit(&db.url(), &["fork", "--yes", "--restored", "--signing-key", &key]).await;
    assert!(same.code == 1 && same.err.contains("another key is needed"), "{} {}", same.out, same.err);
    let next = auditor.path("next.key");
    let said = audit(&db, &["keys", "new", "--signing-key", &next]).await;
    let new = said.lines().last().unwrap().trim().to_owned();
    assert_ne!(new.split('+').next(), vkey.split('+').next(), "another origin: {said}");
    insert_failed_records(&db, 1, 0).await;
    audit(&db, &["seal", "--signing-key", &next]).await;
    let first = db.value("select entry from countersign.leaf where leaf_index = 0 order by log_no desc limit 1").await;
    let origin = vkey.split('+').next().unwrap();
    assert!(first.contains("kind fork\n") && first.contains(&format!("previous_origin {origin}\n")), "{first}");
    assert!(first.contains("previous_size ") && first.contains("previous_root "), "{first}");
    let said = audit(&db, &["verify", "--vkey", &vkey, "--vkey", &new]).await;
    assert!(said.contains("Signed: "), "{said}");
    let dir = auditor.path("forked");
    audit(&db, &["export", &dir, "--signing-key", &next]).await;
    assert_eq!(verdict(&[&dir, "--vkey", &new]).await["verdict"], "valid");
    let mut command = Server::command(&db);
    command.args(["--signing-key", &next]);
    Server::start(command).await.close().await;
}

/// Writes nothing.
struct Idle;

impl WriteExecutor for Idle {
    fn definition(&self) -> String {
        String::new()
    }

    fn execute<'a>(&'a self, tx: &'a mut WriteTx<'_>, _: &'a WriteRequest) -> WriteFuture<'a> {
        Box::pin(async move {
            tx.run(&[Statement::without_params("select 1")]).await?;
            let rollback = Rollback::irreversible("It is idle.");
            Ok(WriteOutput::new(json!({}), 0, rollback))
        })
    }
}

/// The error of a write.
async fn refusal(ledger: &Ledger) -> Option<ErrorCode> {
    let call = WriteCall {
        reason: None,
        tool: "idle".to_owned(),
        request: WriteRequest { principal: Principal::default(), params: Map::new() },
        redaction: Redaction::default(),
        idempotency_key: None,
        deadline: tokio::time::Instant::now() + Duration::from_secs(20),
        executor: Arc::new(Idle),
    };
    ledger.gate().perform(call).await.err().map(|error| error.failure.code)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_server_stops_to_write_when_its_database_was_restored() {
    let auditor = Auditor::new();
    let (db, _) = restored(&auditor).await;
    let signing = Signing { key_files: vec![PathBuf::from(auditor.path("log.key"))], ..Signing::default() };
    let options = LedgerOptions { signing, duplicate_memory: Duration::ZERO, ..LedgerOptions::default() };
    let ledger = Ledger::new(ConnectOptions::parse(&db.writer_url()).unwrap(), options);
    let sweeper = tokio::spawn(ledger.clone().run_sweeper());
    poll::until("writes stop", async || refusal(&ledger).await == Some(ErrorCode::DbError)).await;
    sweeper.abort();
    let records = "select count(*) from countersign.record";
    let before = db.value(records).await;
    assert_eq!(refusal(&ledger).await, Some(ErrorCode::DbError));
    assert_eq!(db.value(records).await, before, "a write that is refused so leaves no record");

    audit(&db, &["fork", "--yes", "--restored", "--signing-key", &auditor.path("next.key")]).await;
    // The private key of the fork is elsewhere: this server signs nothing, and writes again.
    let sweeper = tokio::spawn(ledger.clone().run_sweeper());
    poll::until("writes go on", async || refusal(&ledger).await.is_none()).await;
    sweeper.abort();
}
