//! Witnesses, which cosign what goes on from what they have cosigned.

use testkit::audit::{REBUILD_LOG, audit, insert_failed_records, run_audit, tamper};
use testkit::{CommandOutput, Database, Server, Witness, database};
use tlog::SignedNote;

use super::{Auditor, text, verdict};

fn policy_of(witness: &Witness, log_key: &str) -> String {
    format!("log {log_key}\nwitness w1 {}\nquorum w1\n", witness.vkey())
}

async fn add_to(db: &Database, witness: &Witness) {
    audit(db, &["witness", "add", &witness.url(), &witness.vkey()]).await;
}

async fn remove_from(db: &Database, witness: &Witness) {
    audit(db, &["witness", "remove", &witness.vkey()]).await;
}

async fn run_seal(db: &Database, auditor: &Auditor) -> CommandOutput {
    run_audit(&db.url(), &["seal", "--signing-key", &auditor.path("log.key")]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_witness_cosigns_what_a_server_signs_and_a_policy_asks_for_it() {
    let db = database().await;
    let auditor = Auditor::new();
    let log_key = auditor.makes_a_key(&db).await;
    let witness = Witness::of(&log_key).await;
    add_to(&db, &witness).await;
    let server = Server::with(&db, |it| it.args(["--signing-key", &auditor.path("log.key")])).await;
    db.first_value("select 1 from countersign.checkpoint where strpos(note, 'example.com/w1') > 0").await;
    server.close().await;

    insert_failed_records(&db, 3, 0).await;
    let sealed = auditor.signs(&db, &["seal"]).await;
    assert!(witness.has_cosigned(&sealed), "{sealed}");
    let policy = auditor.path("policy");
    std::fs::write(&policy, policy_of(&witness, &log_key)).unwrap();
    let dir = auditor.exports(&db, "bundle").await;
    let found = verdict(&[text(&dir), "--policy", &policy]).await;
    assert_eq!(found["verdict"], "valid", "{found}");
    let listed = audit(&db, &["witness", "list"]).await;
    assert!(listed.contains(&witness.vkey()) && listed.contains("cosigned"), "{listed}");

    let events = db
        .value("select string_agg(array_to_string(fields, ' '), '; ') from countersign.event where kind = 'key'")
        .await;
    assert!(events.contains(&format!("action add vkey {}", witness.vkey())), "{events}");
    remove_from(&db, &witness).await;
    let dir = auditor.exports(&db, "alone").await;
    let found = verdict(&[text(&dir), "--policy", &policy]).await;
    assert_eq!(found["findings"][0]["code"], "policy_not_met", "{found}");
    assert_eq!(verdict(&[text(&dir), "--vkey", &log_key]).await["verdict"], "valid");
    let again = run_audit(&db.url(), &["witness", "remove", &witness.vkey()]).await;
    assert!(again.code == 1 && again.err.contains("no such witness"), "{}", again.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_witness_that_is_down_holds_up_nothing_and_cosigns_later() {
    let db = database().await;
    let auditor = Auditor::new();
    let log_key = auditor.makes_a_key(&db).await;
    auditor.signs(&db, &["seal"]).await;
    let mut witness = Witness::of(&log_key).await;
    add_to(&db, &witness).await;
    witness.stop().await;
    let ran = run_seal(&db, &auditor).await;
    assert!(
        ran.code == 1 && ran.err.contains("the checkpoint is signed, but the witness example.com/w1"),
        "{}",
        ran.err
    );
    assert!(ran.out.parse::<SignedNote>().is_ok() && !witness.has_cosigned(&ran.out), "{}", ran.out);
    let doctor = testkit::run_countersign(&db.url(), &["doctor"]).await;
    assert!(doctor.out.contains("example.com/w1") && doctor.out.contains("has cosigned nothing yet"), "{}", doctor.out);

    witness.resume().await;
    let later = auditor.signs(&db, &["seal"]).await;
    assert!(witness.has_cosigned(&later), "{later}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_history_is_not_cosigned() {
    let db = database().await;
    let auditor = Auditor::new();
    let log_key = auditor.makes_a_key(&db).await;
    insert_failed_records(&db, 3, 0).await;
    let witness = Witness::of(&log_key).await;
    add_to(&db, &witness).await;
    auditor.signs(&db, &["seal"]).await;
    // Somebody with the key and the database makes the log anew, and lets the signer forget.
    remove_from(&db, &witness).await;
    tamper(&db, &format!("update countersign.record set actor = 'mallory'; {REBUILD_LOG}")).await;
    std::fs::remove_file(auditor.path("log.checkpoint")).unwrap();
    auditor.signs(&db, &["seal"]).await;
    add_to(&db, &witness).await;
    let ran = run_seal(&db, &auditor).await;
    assert!(
        ran.code == 1 && ran.err.contains("422") && ran.err.contains("does not go on from what it cosigned"),
        "{}",
        ran.err
    );
}

/// A log that a witness has cosigned, in a database that was then restored from a backup.
async fn restored(auditor: &Auditor) -> (Database, Witness) {
    let db = database().await;
    let log_key = auditor.makes_a_key(&db).await;
    let witness = Witness::of(&log_key).await;
    add_to(&db, &witness).await;
    auditor.seals_and_restores(&db).await;
    (db, witness)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signer_that_has_lost_its_memory_asks_the_witnesses_before_it_signs() {
    let auditor = Auditor::new();
    let (db, mut witness) = restored(&auditor).await;
    let signed = "select count(*) from countersign.checkpoint";
    let before = db.value(signed).await;
    std::fs::remove_file(auditor.path("log.checkpoint")).unwrap();
    witness.stop().await;
    let ran = run_seal(&db, &auditor).await;
    assert!(ran.code == 1 && ran.err.contains("cannot be asked what was signed elsewhere"), "{}", ran.err);
    witness.resume().await;
    let ran = run_seal(&db, &auditor).await;
    assert!(ran.code == 1 && ran.err.contains("restored from a backup"), "{}", ran.err);
    assert_eq!(db.value(signed).await, before, "nothing was signed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signer_that_was_restored_as_well_learns_from_a_witness_that_it_is_behind() {
    let auditor = Auditor::new();
    let (db, _witness) = restored(&auditor).await;
    std::fs::copy(auditor.path("backup.checkpoint"), auditor.path("log.checkpoint")).unwrap();
    insert_failed_records(&db, 1, 0).await;
    let ran = run_seal(&db, &auditor).await;
    assert!(ran.code == 1 && ran.err.contains("and the log has"), "{}", ran.err);
    let ran = run_seal(&db, &auditor).await;
    assert!(ran.code == 1 && ran.err.contains("Nothing is signed or written until"), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_or_url_of_a_witness_is_refused() {
    let db = database().await;
    let auditor = Auditor::new();
    let log_key = auditor.makes_a_key(&db).await;
    let witness = Witness::of(&log_key).await.vkey();
    let origin = log_key.split('+').next().unwrap();
    let named = tlog::SigningKey::from_seed(origin, tlog::KeyKind::Witness, [1; 32]).unwrap();
    let named = named.verifier_key().to_string();
    for (url, key, code, why) in [
        ("https://w.example.com/", &log_key, 1, "key of a log"),
        ("http://w.example.com/", &witness, 2, "https://"),
        ("https://w.example.com/", &named, 1, "another name than the log"),
    ] {
        let wrong = run_audit(&db.url(), &["witness", "add", url, key]).await;
        assert!(wrong.code == code && wrong.err.contains(why), "{}", wrong.err);
    }
}
