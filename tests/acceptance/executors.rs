//! Limits of an executor written in Rust: the gate does not trust it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ledger::{
    ConnectOptions, Ledger, LedgerOptions, Statement, WriteCall, WriteError, WriteExecutor, WriteFuture, WriteOutput,
    WriteRequest, WriteTx,
};
use serde_json::{Map, json};
use testkit::{Database, database};
use types::{ErrorCode, Principal, Redaction, Rollback};

/// Runs its statements one by one and says that all went well, whatever they said.
struct Careless {
    statements: &'static [&'static str],
}

impl WriteExecutor for Careless {
    fn definition(&self) -> String {
        String::new()
    }

    fn execute<'a>(&'a self, tx: &'a mut WriteTx<'_>, _: &'a WriteRequest) -> WriteFuture<'a> {
        Box::pin(async move {
            for &sql in self.statements {
                let _swallowed = tx.run(&[Statement::without_params(sql)]).await;
            }
            let rollback = Rollback::irreversible("It is careless.");
            Ok(WriteOutput::new(json!({}), 1, rollback))
        })
    }
}

/// What the gate makes of it, and the record that it leaves.
async fn perform(db: &Database, statements: &'static [&'static str]) -> (WriteError, Vec<Vec<String>>) {
    let target = ConnectOptions::parse(&db.writer_url()).unwrap();
    let call = WriteCall {
        reason: None,
        tool: "careless".to_owned(),
        request: WriteRequest { principal: Principal::default(), params: Map::new() },
        redaction: Redaction::default(),
        idempotency_key: None,
        deadline: tokio::time::Instant::now() + Duration::from_secs(20),
        executor: Arc::new(Careless { statements }),
    };
    let stopped = Ledger::new(target, LedgerOptions::default()).gate().perform(call).await.unwrap_err();
    (stopped, db.rows("select status, error_code from countersign.mutation").await)
}

const INSERT: &str = "insert into social.tweet (account_id, text) values ('default', 'careless')";
const POSTED: &str = "select count(*) from social.tweet where text = 'careless'";

#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_the_executor_swallowed_is_no_success() {
    // COMMIT of a failed transaction would say ROLLBACK, and no error.
    let db = database().await;
    let (stopped, records) = perform(&db, &[INSERT, "select 1/0"]).await;
    assert_eq!(stopped.failure.sqlstate.as_deref(), Some("25P02"), "{stopped:?}");
    assert_eq!(records, [["failure", "sql_error"]]);
    assert_eq!(db.value(POSTED).await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_the_executor_ended_has_no_outcome() {
    let db = database().await;
    for statements in
        [&["rollback", INSERT], &["rollback", "begin"], &["rollback", "select 1/0", INSERT]] as [&[&str]; 3]
    {
        let (stopped, records) = perform(&db, statements).await;
        assert_eq!(stopped.failure.code, ErrorCode::InDoubtAborted, "{stopped:?}");
        assert!(records.iter().all(|record| record == &["failure", "in_doubt_aborted"]), "{records:?}");
        assert_eq!(db.value(POSTED).await, "0", "nothing runs where it would commit by itself");
    }
}

/// Does something that no rollback takes back, and says what it would be without doing it.
#[derive(Default)]
struct Outside {
    done: AtomicU32,
    shown: AtomicU32,
}

fn burnt() -> WriteOutput {
    let rollback = Rollback::irreversible("It is burnt.");
    WriteOutput::new(json!({"burnt": true}), 0, rollback)
}

impl WriteExecutor for Outside {
    fn definition(&self) -> String {
        "burn 1".to_owned()
    }

    fn execute<'a>(&'a self, _: &'a mut WriteTx<'_>, _: &'a WriteRequest) -> WriteFuture<'a> {
        self.done.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(burnt()) })
    }

    fn preview<'a>(&'a self, _: &'a mut WriteTx<'_>, _: &'a WriteRequest) -> WriteFuture<'a> {
        self.shown.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(burnt()) })
    }

    fn preview_is_binding(&self) -> bool {
        false
    }
}

const BURN: &str = r#"
name = "burn"
version = "1.0"
[[tool]]
name = "burn_package"
access = "write"
tier = "confirm"
description = "Burn a package."
before = "select package_id from studio.package where package_id = $1 for update"
executor = "burn"
undo = { irreversible = "It is burnt." }
[[tool.param]]
name = "package_id"
description = "Which."
"#;

#[tokio::test(flavor = "multi_thread")]
async fn effects_beyond_a_rollback_are_shown_by_their_own_preview_and_happen_after_approval() {
    let db = database().await;
    let ledger = Ledger::new(ConnectOptions::parse(&db.url()).unwrap(), LedgerOptions::default());
    let source = manifest::Source { path: "burn.toml".into(), text: BURN.to_owned() };
    let names = manifest::ServerNames { builtin: &tools::builtin::NAMES, executors: &["burn"], prefix: "" };
    let catalog = manifest::compile(&[source], &names, &ledger).await.unwrap();
    let outside = Arc::new(Outside::default());
    let mut native = ledger::ExecutorRegistry::default();
    native.register("burn", outside.clone()).unwrap();
    let services = tools::Services {
        reader: None,
        name: None,
        has_ledger: true,
        scrape: tools::LedgerScrape::new(Some(ledger.gauges())),
        ledger: ledger.clone(),
        metrics: tools::Metrics::new(),
        call_deadline: Duration::from_secs(20),
        activity: tools::Activity::default(),
        masks: tools::MaskPolicy::default(),
        execute_sql: None,
        agent_confirms: true,
        console: None,
    };
    let tools = tools::Toolset::new(&services, &catalog, &native).unwrap();
    let registry = tools::Registry::of_one(Arc::new(tools));
    let call = async |tool: &str, arguments: serde_json::Value| {
        let arguments = arguments.as_object().unwrap().clone();
        let reply = registry.call(tool, arguments, Principal::default()).await.unwrap();
        serde_json::from_str::<serde_json::Value>(&reply.envelope.into_json().unwrap()).unwrap()
    };
    let counts = || (outside.done.load(Ordering::SeqCst), outside.shown.load(Ordering::SeqCst));
    let arguments = json!({"package_id": 1});
    call("preview_mutation", json!({"tool": "burn_package", "params": arguments})).await;
    assert_eq!(counts(), (0, 1));
    let proposed = call("burn_package", arguments).await;
    assert_eq!(counts(), (0, 2), "{proposed}");
    let proposal = &proposed["data"]["proposal"];
    let agreement = json!({"proposal_id": proposal["proposal_id"], "digest": proposal["digest"]});
    for _ in 0..2 {
        let done = call("confirm_proposal", agreement.clone()).await;
        assert_eq!(done["data"]["result"], json!({"burnt": true}), "{done}");
        assert_eq!(counts(), (1, 2));
    }
}
