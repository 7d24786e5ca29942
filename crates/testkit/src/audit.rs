//! `countersign audit` on a test's database, and records of any age.

use crate::cluster::Database;
use crate::command::{CommandOutput, run_countersign};

/// Runs `countersign audit`.
pub async fn run_audit(url: &str, arguments: &[&str]) -> CommandOutput {
    run_countersign(url, &[&["audit"], arguments].concat()).await
}

/// Runs `countersign audit`, which has to succeed; its standard output.
pub async fn audit(database: &Database, arguments: &[&str]) -> String {
    audit_exiting(database, 0, arguments).await
}

/// Runs `countersign audit`, which has to report a discrepancy; its standard output.
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
            "insert into countersign.record (correlation_id, tool_name, params_hash, params, params_summary, \
                 status, error_code, created_at, completed_at) \
             select gen_random_uuid(), 'like_tweet', repeat('0', 64), json_build_object('n', n), '{{}}', \
                 'failure', 'sql_error', clock_timestamp() - interval '{days_old} days', \
                 clock_timestamp() - interval '{days_old} days' \
             from generate_series(1, {count}) n"
        ))
        .await;
}

/// Inserts a record that never finished.
pub async fn insert_pending_record(database: &Database, days_old: u32) {
    database
        .run(&format!(
            "insert into countersign.record \
                 (correlation_id, tool_name, params_hash, params, params_summary, created_at) \
             values (gen_random_uuid(), 'like_tweet', repeat('0', 64), '{{}}', '{{}}', \
                 clock_timestamp() - interval '{days_old} days')"
        ))
        .await;
}

/// Runs statements as the owner of the tables, who has switched their triggers off.
pub async fn tamper(database: &Database, sql: &str) {
    database
        .run(&format!(
            "begin; alter table countersign.record disable trigger all; \
             alter table countersign.seal disable trigger all; \
             {sql}; \
             alter table countersign.record enable trigger all; \
             alter table countersign.seal enable trigger all; commit"
        ))
        .await;
}

/// Builds the chain of seals anew over the records that are there, which takes the owner's rights.
pub const REBUILD_SEALS: &str = "delete from countersign.seal; select countersign.seal_records(1000000)";
