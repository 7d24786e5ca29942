//! Runs `countersign audit` on a test's database, and inserts records of any age.

use crate::cluster::Database;
use crate::command::{CommandOutput, run_countersign};

pub async fn run_audit(url: &str, arguments: &[&str]) -> CommandOutput {
    run_countersign(url, &[&["audit"], arguments].concat()).await
}

/// Runs `countersign audit`, which must succeed. Returns its standard output.
pub async fn audit(database: &Database, arguments: &[&str]) -> String {
    audit_exiting(database, 0, arguments).await
}

/// Runs `countersign audit`, which must report a discrepancy. Returns its standard output.
pub async fn audit_discrepancy(database: &Database, arguments: &[&str]) -> String {
    audit_exiting(database, 1, arguments).await
}

async fn audit_exiting(database: &Database, code: i32, arguments: &[&str]) -> String {
    let output = run_audit(&database.url(), arguments).await;
    assert_eq!((output.code, output.err.as_str()), (code, ""), "{arguments:?}: {}", output.out);
    output.out
}

/// Inserts records that failed `days_old` days ago, as another server would have left them. Their params number them
/// from 1.
pub async fn insert_failed_records(database: &Database, count: u32, days_old: u32) {
    database
        .run(&format!(
            "insert into countersign.record (correlation_id, account_id, tool_name, fingerprint, params, params_summary, \
                 status, error_code, login, xid, admitted_at, completed_at) \
             select gen_random_uuid(), 'default', 'like_tweet', repeat('0', 64), json_build_object('n', n), '{{}}', \
                 'failure', 'sql_error', session_user, pg_current_xact_id(), \
                 clock_timestamp() - interval '{days_old} days', clock_timestamp() - interval '{days_old} days' \
             from generate_series(1, {count}) n"
        ))
        .await;
}

/// Inserts a write in flight that never finished.
pub async fn insert_pending_record(database: &Database, days_old: u32) {
    database
        .run(&format!(
            "insert into countersign.attempt (slot, correlation_id, account_id, tool_name, fingerprint, idempotency_key, params, \
                 params_summary, own_transaction, admitted_at) \
             select countersign.slot_of('default', 'like_tweet', id::text, repeat('0', 64)), id, 'default', 'like_tweet', \
                 repeat('0', 64), id::text, '{{}}', '{{}}', true, clock_timestamp() - interval '{days_old} days' \
             from gen_random_uuid() id"
        ))
        .await;
}

/// Runs statements as the owner of the tables, with triggers disabled.
pub async fn tamper(database: &Database, sql: &str) {
    const TABLES: [&str; 9] =
        ["record", "effect", "reversal", "reversal_part", "event", "leaf", "tree_node", "checkpoint", "log_key"];
    let switch = |to: &str| TABLES.map(|table| format!("alter table countersign.{table} {to} trigger all;")).concat();
    // Sealing holds this lock, and locks of these tables behind it.
    let lock = "select from countersign.seal_state for update;";
    database.run(&format!("begin; {lock} {} {sql}; {} commit", switch("disable"), switch("enable"))).await;
}

/// Rebuilds the log over the present records and events, which takes the owner's privileges.
pub const REBUILD_LOG: &str = "delete from countersign.leaf; delete from countersign.tree_node; delete from countersign.checkpoint; \
    update countersign.event set sealed = false; select countersign.seal(1000000)";
