//! What an executor written in Rust cannot do: the gate does not trust it.

use std::sync::Arc;
use std::time::Duration;

use contract::{ErrorCode, Principal, Redaction, Rollback};
use ledger::{Attempt, Executor, Ledger, Order, Settings, Statement, Stopped, Target, Work, Working, WriteTx};
use serde_json::{Map, json};
use testkit::{Database, database};

/// Runs its statements one by one and says that all went well, whatever they said.
struct Careless {
    statements: &'static [&'static str],
}

impl Executor for Careless {
    fn definition(&self) -> String {
        String::new()
    }

    fn execute<'a>(&'a self, tx: &'a mut WriteTx<'_>, _: &'a Order) -> Working<'a> {
        Box::pin(async move {
            for &sql in self.statements {
                let _swallowed = tx.run(&[Statement { sql, params: &[], param_types: &[] }]).await;
            }
            let rollback = Rollback::irreversible("It is careless.");
            Ok(Work { data: json!({}), rows_affected: 1, before: None, after: None, rollback, reversals: Vec::new() })
        })
    }
}

/// What the gate makes of it, and the record that it leaves.
async fn perform(db: &Database, statements: &'static [&'static str]) -> (Stopped, Vec<Vec<String>>) {
    let target = Target::parse(&db.writer_url()).unwrap();
    let attempt = Attempt {
        tool: "careless".to_owned(),
        order: Order { principal: Principal::default(), params: Map::new() },
        redaction: Redaction::default(),
        idempotency_key: None,
        deadline: tokio::time::Instant::now() + Duration::from_secs(20),
        executor: Arc::new(Careless { statements }),
        agreed: None,
    };
    let stopped = Ledger::new(target, Settings::default()).gate().perform(attempt).await.unwrap_err();
    (stopped, db.rows("select status, error_code from countersign.mutation_audit").await)
}

const INSERT: &str = "insert into social.tweet (account_id, text) values ('default', 'careless')";
const POSTED: &str = "select count(*) from social.tweet where text = 'careless'";

#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_the_executor_swallowed_is_no_success() {
    // CR07: COMMIT of a failed transaction would say ROLLBACK, and no error.
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
