//! Prunings excuse missing records only as far as `prune_records` wrote them, and a verification says which of them no
//! checkpoint covers.

use testkit::audit::{audit, audit_discrepancy, insert_failed_records, tamper};
use testkit::database;

use super::Auditor;

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_pruning_excuses_nothing_and_one_that_is_not_sealed_is_named() {
    let db = database().await;
    let auditor = Auditor::new();
    auditor.makes_a_key(&db).await;
    insert_failed_records(&db, 3, 0).await;
    auditor.signs(&db, &["seal"]).await;
    db.run("create table copy as select * from countersign.record").await;
    // An event that says that it is sealed is passed over by sealing, so that it never becomes an entry.
    let remove = async |kind: &str, fields: &str| {
        let event = format!("('{kind}', '{{{fields}}}', '{{[1,3)}}', true)");
        let insert = format!("insert into countersign.event (kind, fields, removed, sealed) values {event}");
        tamper(&db, &format!("{insert}; delete from countersign.record where id in (1, 2)")).await;
    };
    let whole = "person,me,records,2,made_before,2026-01-01T00:00:00.000000Z";
    for (kind, fields) in [
        ("prune", "a"),
        ("prune", "person,me"),
        ("prune", "person,me,records,1,made_before,2026-01-01T00:00:00.000000Z"),
        ("prune", "records,2,person,me,made_before,2026-01-01T00:00:00.000000Z"),
        ("pruned", whole),
    ] {
        remove(kind, fields).await;
        let said = audit_discrepancy(&db, &["verify"]).await;
        assert!(said.contains("record 1 is missing: it was sealed and never pruned"), "{kind} {fields}: {said}");
        let restore = "insert into countersign.record overriding system value select * from copy where id in (1, 2)";
        tamper(&db, &format!("{restore}; delete from countersign.event where removed is not null")).await;
        audit(&db, &["verify"]).await;
    }
    remove("prune", whole).await;
    let said = audit(&db, &["verify"]).await;
    assert!(said.contains("2 pruned since"), "{said}");
    assert!(said.contains("Only the tables say that 2 of these were pruned: no checkpoint covers the event"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pruning_that_a_checkpoint_covers_is_more_than_the_word_of_the_tables() {
    let db = database().await;
    let auditor = Auditor::new();
    auditor.makes_a_key(&db).await;
    insert_failed_records(&db, 2, 100).await;
    auditor.signs(&db, &["seal"]).await;
    audit(&db, &["prune", "--older-than", "90d"]).await;
    let said = audit(&db, &["verify"]).await;
    assert!(said.contains("2 pruned since") && said.contains("Only the tables say that 2 of these"), "{said}");
    auditor.signs(&db, &["seal"]).await;
    let said = audit(&db, &["verify"]).await;
    assert!(said.contains("2 pruned since") && !said.contains("Only the tables"), "{said}");
}
