//! The states of the ledger, as the servers' login may count them.

use ledger::{ConnectOptions, Ledger, LedgerOptions};
use testkit::audit::{audit, insert_failed_records, insert_pending_record};
use testkit::{Database, database};

use super::{Scraped, without_reader};

/// What a server that has just started would tell.
async fn scrape(db: &Database) -> Scraped {
    let ledger = Ledger::new(ConnectOptions::parse(&db.writer_url()).unwrap(), LedgerOptions::default());
    let services = without_reader(&ledger);
    Scraped::parse(&services.metrics.render(&[services.gauges().await]))
}

/// A proposal of that state: made, decided and ended so many minutes ago.
async fn proposal(db: &Database, status: &str, minutes_ago: u32, expires_in_minutes: i32) {
    let decision = match status {
        "pending" | "expired" => "null, null, null, null, null",
        "rejected" => "'rejected', 'anna', 'anna', 'command_line', at",
        _ => "'confirmed', 'anna', 'anna', 'command_line', at",
    };
    let record = if status == "executed" { "gen_random_uuid()" } else { "null" };
    let completed = if ["pending", "confirmed"].contains(&status) { "null" } else { "at" };
    db.run(&format!(
        "insert into countersign.proposal (proposal_id, account_id, tool_name, title, tool_version, definition, tier, description, \
             params, fingerprint, preview, preview_hash, created_at, expires_at, digest, status, decision, decided_by, \
             decided_login, decided_via, decided_at, correlation_id, completed_at) \
         select id, 'default', 'delete_package', 'Delete a package', '1.0', repeat('0', 64), 'approve', '', '{{}}', repeat('0', 64), '{{}}', id::text, \
             at - interval '1 minute', clock_timestamp() + interval '{expires_in_minutes} minutes', repeat('0', 64), '{status}', \
             {decision}, {record}, {completed} \
         from (select gen_random_uuid() as id, clock_timestamp() - interval '{minutes_ago} minutes' as at) made"
    ))
    .await;
}

fn about(seconds: f64, expected: f64) {
    assert!((expected..expected + 60.0).contains(&seconds), "{seconds} is not about {expected}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_ledger_entries_are_counted_with_their_age() {
    let db = database().await;
    let empty = scrape(&db).await;
    assert_eq!(empty.of("countersign_database_up"), 1.0);
    for name in [
        "countersign_records_pending",
        "countersign_oldest_pending_record_seconds",
        "countersign_unsealed_records",
        "countersign_oldest_unsealed_record_seconds",
        r#"countersign_proposals{status="pending"}"#,
        r#"countersign_proposals{status="confirmed"}"#,
        "countersign_oldest_confirmed_proposal_seconds",
        r#"countersign_proposals_ended_last_hour{status="stale"}"#,
    ] {
        assert_eq!(empty.of(name), 0.0, "{name}");
    }

    insert_failed_records(&db, 3, 2).await;
    audit(&db, &["seal"]).await;
    insert_failed_records(&db, 5, 1).await;
    insert_pending_record(&db, 3).await;
    insert_pending_record(&db, 0).await;
    for (status, minutes_ago, expires_in) in [
        ("pending", 1, 30),
        ("pending", 60, -1),
        ("confirmed", 1, 29),
        ("confirmed", 20, 10),
        ("executed", 59, -29),
        ("executed", 61, -31),
        ("failed", 2, 28),
        ("stale", 2, 28),
        ("stale", 3, 27),
        ("rejected", 2, 28),
        ("expired", 2, -2),
        ("expired", 120, -120),
    ] {
        proposal(&db, status, minutes_ago, expires_in).await;
    }
    let full = scrape(&db).await;
    assert_eq!(full.of("countersign_records_pending"), 2.0);
    about(full.of("countersign_oldest_pending_record_seconds"), 3.0 * 86_400.0);
    assert_eq!(full.of("countersign_unsealed_records"), 5.0, "neither those that are sealed nor the pending ones");
    about(full.of("countersign_oldest_unsealed_record_seconds"), 86_400.0);
    assert_eq!(full.of(r#"countersign_proposals{status="pending"}"#), 1.0, "an expired one can be agreed to no more");
    assert_eq!(full.of(r#"countersign_proposals{status="confirmed"}"#), 2.0);
    about(full.of("countersign_oldest_confirmed_proposal_seconds"), 20.0 * 60.0);
    for (status, count) in [("executed", 1.0), ("failed", 1.0), ("stale", 2.0), ("rejected", 1.0), ("expired", 1.0)] {
        let sample = format!("countersign_proposals_ended_last_hour{{status=\"{status}\"}}");
        assert_eq!(full.of(&sample), count, "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counting_reads_only_the_ends_of_indexes_at_any_size_of_the_ledger() {
    let db = database().await;
    let sql = include_str!("../../../crates/ledger/src/watch/gauges.sql");
    insert_failed_records(&db, 30_000, 2).await;
    // In a sealed ledger of which PostgreSQL knows no statistics yet, and in one of which it does.
    audit(&db, &["seal"]).await;
    insert_failed_records(&db, 100, 1).await;
    for prepare in
        ["select 1", "analyze countersign.record, countersign.attempt, countersign.proposal, countersign.leaf"]
    {
        db.run(prepare).await;
        let client = testkit::connect(&db.writer_url()).await;
        let rows = client.query(&format!("explain (analyze, costs off) {sql}"), &[]).await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let plan = plan.join("\n");
        assert!(!plan.contains("Seq Scan on record"), "{plan}");
        assert!(plan.contains("record_id"), "{plan}");
        assert!(!plan.contains("Removed by Filter: 3"), "30,000 records are looked at:\n{plan}");
    }
}
