//! What the files audit_*.rs share: the command as a person runs it, and records of any age.

use std::process::{Output, Stdio};

use testkit::{Database, countersign};
use tokio::process::Command;

/// What a command did.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs `countersign` on this database, without a terminal.
pub(crate) async fn countersign_on(url: &str, arguments: &[&str]) -> Ran {
    let mut command = Command::new(countersign());
    command.env("DATABASE_URL", url).args(["--log", "warn"]).args(arguments).stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: status.code().unwrap(), out: text(stdout), err: text(stderr) }
}

/// Runs `countersign audit` on this database.
pub(crate) async fn run(url: &str, arguments: &[&str]) -> Ran {
    countersign_on(url, &[&["audit"], arguments].concat()).await
}

/// The same where it has to succeed; what it printed.
pub(crate) async fn audit(db: &Database, arguments: &[&str]) -> String {
    let ran = run(&db.url(), arguments).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{arguments:?}: {}", ran.out);
    ran.out
}

/// The same where it has to exit with 1 after saying something; what it printed on standard output.
pub(crate) async fn disagrees(db: &Database, arguments: &[&str]) -> String {
    let ran = run(&db.url(), arguments).await;
    assert_eq!((ran.code, ran.err.as_str()), (1, ""), "{arguments:?}: {}", ran.out);
    ran.out
}

/// Records that failed so many days ago, as another server would have left them. Their params say their order from 1.
pub(crate) async fn failed_records(db: &Database, count: u32, days_old: u32) {
    db.run(&format!(
        "insert into countersign.mutation_audit (correlation_id, tool_name, params_hash, params, params_summary, status, \
             error_code, created_at, completed_at) \
         select gen_random_uuid(), 'like_tweet', repeat('0', 64), json_build_object('n', n), '{{}}', 'failure', 'sql_error', \
             clock_timestamp() - interval '{days_old} days', clock_timestamp() - interval '{days_old} days' \
         from generate_series(1, {count}) n"
    ))
    .await;
}

/// A record that never finished.
pub(crate) async fn pending_record(db: &Database, days_old: u32) {
    db.run(&format!(
        "insert into countersign.mutation_audit (correlation_id, tool_name, params_hash, params, params_summary, created_at) \
         values (gen_random_uuid(), 'like_tweet', repeat('0', 64), '{{}}', '{{}}', clock_timestamp() - interval '{days_old} days')"
    ))
    .await;
}

/// What somebody does who owns the tables and switches their triggers off.
pub(crate) async fn tamper(db: &Database, sql: &str) {
    db.run(&format!(
        "begin; alter table countersign.mutation_audit disable trigger all; alter table countersign.seal disable trigger all; \
         {sql}; \
         alter table countersign.mutation_audit enable trigger all; alter table countersign.seal enable trigger all; commit"
    ))
    .await;
}

/// The chain as somebody with the owner's rights can build it anew over what is there.
pub(crate) const REBUILD: &str = "delete from countersign.seal; select countersign.seal_records(1000000)";
