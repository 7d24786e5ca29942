//! The ledger as a transparency log that anyone can verify: signed checkpoints, proofs, exports, keys and forks. Whatever is
//! exported is verified twice, by the program and by `docs/verify.py`.

mod copies;
mod entries;
mod erasures;
mod export;
mod go;
mod prunings;
mod verifiers;
mod witnesses;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::audit::{audit, audit_discrepancy, insert_failed_records, run_audit, tamper};
use testkit::{CommandOutput, Database, External, Server, database, repository, run, skip_without};
use tokio::process::Command;

/// A folder with the private key of a log, and what is exported.
struct Auditor {
    folder: TempDir,
}

impl Auditor {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Runs `countersign audit` with the key of this folder.
    async fn signs(&self, db: &Database, arguments: &[&str]) -> String {
        let key = self.path("log.key");
        audit(db, &[arguments, &["--signing-key", &key]].concat()).await
    }

    /// The public key of a new log key.
    async fn makes_a_key(&self, db: &Database) -> String {
        let said = self.signs(db, &["keys", "new"]).await;
        said.lines().last().unwrap().trim().to_owned()
    }

    /// Seals three records, makes a backup, seals three more, and restores the backup: the log is behind what was signed.
    async fn seals_and_restores(&self, db: &Database) {
        insert_failed_records(db, 3, 0).await;
        self.signs(db, &["seal"]).await;
        db.run("create table public.backup as select * from countersign.leaf").await;
        std::fs::copy(self.path("log.checkpoint"), self.path("backup.checkpoint")).unwrap();
        insert_failed_records(db, 3, 0).await;
        self.signs(db, &["seal"]).await;
        tamper(
            db,
            "delete from countersign.leaf where leaf_index >= (select count(*) from public.backup); \
             delete from countersign.record where id > 3; \
             delete from countersign.checkpoint c where c.size > (select count(*) from public.backup)",
        )
        .await;
    }

    async fn exports(&self, db: &Database, name: &str) -> PathBuf {
        let dir = self.path(name);
        self.signs(db, &["export", &dir]).await;
        PathBuf::from(dir)
    }
}

/// Runs a verifier that needs no database.
async fn offline(arguments: &[&str]) -> CommandOutput {
    run(Command::new(testkit::countersign()).args(["audit", "verify"]).args(arguments)).await
}

/// `docs/verify.py`; `None` without Python.
async fn python(arguments: &[&str]) -> Option<CommandOutput> {
    static IS_MISSING: OnceLock<bool> = OnceLock::new();
    if *IS_MISSING.get_or_init(|| skip_without(&[External::Python])) {
        return None;
    }
    let python = External::Python.expected_path();
    Some(run(Command::new(python).arg(repository().join("docs/verify.py")).args(arguments)).await)
}

/// What both verifiers print.
async fn both(arguments: &[&str]) -> Vec<CommandOutput> {
    std::iter::once(offline(arguments).await).chain(python(arguments).await).collect()
}

/// The verdicts of both verifiers, which are the same.
async fn verdict(arguments: &[&str]) -> Value {
    let outputs = both(&[arguments, &["--json"]].concat()).await;
    let verdicts: Vec<(i32, Value)> = outputs
        .iter()
        .map(|output| {
            let parsed = serde_json::from_str(&output.out).unwrap_or_else(|error| panic!("{error}: {output:?}"));
            (output.code, parsed)
        })
        .collect();
    assert!(verdicts.iter().all(|other| *other == verdicts[0]), "{arguments:?}: {verdicts:#?}");
    verdicts[0].1.clone()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_signs_what_it_seals_and_anyone_verifies_the_export() {
    let db = database().await;
    let auditor = Auditor::new();
    let vkey = auditor.makes_a_key(&db).await;
    db.run("select countersign.track('social.tweet')").await;
    let mut command = Server::command(&db);
    command.args(["--signing-key", &auditor.path("log.key")]).env("COUNTERSIGN_DUPLICATE_MEMORY_S", "0");
    let server = Server::start(command).await;
    // Its first sweep signs.
    db.first_value("select 1 from countersign.checkpoint").await;
    server.succeed("post_tweet", json!({"text": "for the record"})).await;
    server.fail("like_tweet", json!({"tweet_id": 999_999}), "sql_error").await;
    server.close().await;

    let dir = auditor.exports(&db, "bundle").await;
    let found = verdict(&[text(&dir), "--vkey", &vkey]).await;
    assert_eq!(found["verdict"], "valid", "{found}");
    // The fork of the test's database, the making of the ledger, the key, and two records with four parts each.
    assert_eq!((&found["size"], &found["parts"], &found["withheld"]), (&json!(5), &json!(8), &json!(0)));
    let said = offline(&[text(&dir), "--vkey", &vkey]).await;
    assert!(said.code == 0 && said.out.contains("The bundle is valid: 5 entries of countersign/"), "{said:?}");
    let entries = std::fs::read(dir.join("tile/entries/000.p/5")).unwrap();
    let entries = String::from_utf8_lossy(&entries);
    assert!(entries.contains("tool post_tweet\n") && !entries.contains("for the record"), "{entries}");

    let bare = auditor.path("bare");
    auditor.signs(&db, &["export", &bare, "--without-parts"]).await;
    let found = verdict(&[&bare, "--vkey", &vkey]).await;
    // Each export is logged as well.
    assert_eq!((&found["verdict"], &found["size"], &found["withheld"]), (&json!("valid"), &json!(6), &json!(8)));
    let kept = text(&dir.join("checkpoint")).to_owned();
    let found = verdict(&[&bare, "--vkey", &vkey, "--checkpoint", &kept]).await;
    assert_eq!(found["verdict"], "valid", "it goes on from the first export: {found}");
    let found = verdict(&[text(&dir), "--vkey", &vkey, "--checkpoint", &format!("{bare}/checkpoint")]).await;
    assert_eq!(found["findings"][0]["code"], "checkpoint_newer", "{found}");
    let again = run_audit(&db.url(), &["export", &bare]).await;
    assert!(again.code == 1 && again.err.contains("is not empty"), "{}", again.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_trusted_key_nothing_is_verified() {
    let db = database().await;
    let (auditor, other) = (Auditor::new(), Auditor::new());
    auditor.makes_a_key(&db).await;
    let dir = auditor.exports(&db, "bundle").await;
    for ran in both(&[text(&dir)]).await {
        assert!(ran.code == 2 && ran.err.contains("proves nothing"), "{ran:?}");
    }
    let theirs = other.makes_a_key(&database().await).await;
    let found = verdict(&[text(&dir), "--vkey", &theirs]).await;
    assert_eq!(found["findings"], json!([{"code": "checkpoint_unsigned", "place": "checkpoint"}]));
    for bad in ["x", "log+00000000+AA==", &theirs[..theirs.len() - 1]] {
        for ran in both(&[text(&dir), "--vkey", bad]).await {
            assert!(ran.code == 2 && ran.out.is_empty(), "{ran:?}");
        }
    }
    let absent = auditor.path("absent");
    for ran in both(&[&absent, "--vkey", &theirs]).await {
        assert!(ran.code == 2 && ran.err.contains("absent"), "{ran:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_proved_also_after_it_was_pruned() {
    let db = database().await;
    let auditor = Auditor::new();
    let vkey = auditor.makes_a_key(&db).await;
    insert_failed_records(&db, 300, 100).await;
    let id = db.value("select correlation_id from countersign.record where id = 280").await;
    let unsealed = run_audit(&db.url(), &["prove", &id]).await;
    assert!(unsealed.code == 1 && unsealed.err.contains("not in the log yet"), "{}", unsealed.err);
    auditor.signs(&db, &["seal"]).await;
    let path = auditor.path("280.tlog-proof");
    std::fs::write(&path, audit(&db, &["prove", &id[..8]]).await).unwrap();
    let found = verdict(&["--proof", &path, "--vkey", &vkey]).await;
    assert_eq!((&found["verdict"], &found["size"]), (&json!("valid"), &json!(303)));
    audit(&db, &["prune", "--older-than", "2d"]).await;
    std::fs::write(&path, audit(&db, &["prove", &id]).await).unwrap();
    assert_eq!(verdict(&["--proof", &path, "--vkey", &vkey]).await["verdict"], "valid");
    let altered = std::fs::read_to_string(&path).unwrap().replace("\nindex ", "\nindex 1");
    std::fs::write(&path, altered).unwrap();
    assert_eq!(verdict(&["--proof", &path, "--vkey", &vkey]).await["findings"][0]["code"], "proof_invalid");
    let unknown = run_audit(&db.url(), &["prove", "00000000-0000-4000-8000-000000000001"]).await;
    assert!(unknown.code == 1 && unknown.err.contains("no final record"), "{}", unknown.err);

    // Pruning removes parts and no entry: the bundle is whole.
    let dir = auditor.exports(&db, "bundle").await;
    let found = verdict(&[text(&dir), "--vkey", &vkey]).await;
    assert_eq!((&found["verdict"], &found["size"], &found["withheld"]), (&json!("valid"), &json!(304), &json!(1200)));
    assert_eq!(found["parts"], 1, "what was pruned: {found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_checkpoint_goes_on_from_another() {
    let db = database().await;
    let auditor = Auditor::new();
    auditor.makes_a_key(&db).await;
    let (old, new) = (auditor.path("old"), auditor.path("new"));
    for path in [&old, &new] {
        insert_failed_records(&db, 7, 0).await;
        std::fs::write(path, auditor.signs(&db, &["seal"]).await).unwrap();
    }
    let proof = audit(&db, &["consistency", &old, &new]).await;
    let (head, _) = proof.split_once("\n\n").unwrap();
    let proof: Vec<tlog::Hash> = head.lines().skip(1).map(|line| tlog::Hash::from_base64(line).unwrap()).collect();
    let read = |path: &str| -> tlog::Checkpoint {
        std::fs::read_to_string(path).unwrap().parse::<tlog::SignedNote>().unwrap().text().parse().unwrap()
    };
    let (from, to) = (read(&old), read(&new));
    tlog::verify_consistency((from.size, &from.root), (to.size, &to.root), &proof).unwrap();
    let backwards = run_audit(&db.url(), &["consistency", &new, &old]).await;
    assert!(backwards.code == 1 && backwards.err.contains("the old checkpoint is of"), "{}", backwards.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_replaced_while_both_sign_and_every_change_is_in_the_log() {
    let db = database().await;
    let auditor = Auditor::new();
    let first = auditor.makes_a_key(&db).await;
    auditor.signs(&db, &["seal"]).await;
    let (one, two) = (auditor.path("log.key"), auditor.path("next.key"));
    let said = audit(&db, &["keys", "new", "--signing-key", &format!("{one},{two}")]).await;
    let second = said.lines().last().unwrap().trim().to_owned();
    assert_ne!(first, second);
    let both = audit(&db, &["seal", "--signing-key", &one, "--signing-key", &two]).await;
    assert_eq!(both.lines().filter(|line| line.starts_with('\u{2014}')).count(), 2, "{both}");
    audit(&db, &["keys", "retire", &first]).await;
    let alone = audit(&db, &["seal", "--signing-key", &two]).await;
    assert_eq!(alone.lines().filter(|line| line.starts_with('\u{2014}')).count(), 1, "{alone}");
    let said = audit(&db, &["keys", "list"]).await;
    assert_eq!(said, format!("{first}  (retired)\n{second}\n"));
    let said = audit(&db, &["verify", "--vkey", &first, "--vkey", &second]).await;
    assert!(said.contains("Signed: 3 checkpoints"), "{said}");
    let said = audit(&db, &["verify", "--vkey", &first]).await;
    assert!(
        said.contains("Signed: 2 checkpoints") && said.contains("1 more are not signed by a trusted key"),
        "{said}"
    );
    let other = tlog::SigningKey::from_seed(first.split('+').next().unwrap(), tlog::KeyKind::Log, [1; 32]).unwrap();
    let said = audit_discrepancy(&db, &["verify", "--vkey", &other.verifier_key().to_string()]).await;
    assert!(said.contains("none of them is signed by a trusted key"), "{said}");
    let entries = db.value("select string_agg(entry, '' order by leaf_index) from countersign.leaf").await;
    assert_eq!(
        (entries.matches("action add\n").count(), entries.matches("action retire\n").count()),
        (2, 1),
        "{entries}"
    );
    let again = run_audit(&db.url(), &["keys", "add", &first]).await;
    assert!(again.code == 1 && again.err.contains("the key was retired"), "{} {}", again.out, again.err);
    // The private key of the retired one alone signs nothing more.
    insert_failed_records(&db, 1, 0).await;
    let ran = run_audit(&db.url(), &["seal", "--signing-key", &one]).await;
    assert!(ran.code == 1 && ran.err.contains("the private key of ") && ran.err.contains("is not here"), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_login_stores_without_the_key_stops_nobody() {
    let db = database().await;
    let auditor = Auditor::new();
    let vkey = auditor.makes_a_key(&db).await;
    let origin = vkey.split('+').next().unwrap();
    let thief = testkit::connect(&db.writer_url()).await;
    let store = async |size: u64, note: &str| {
        let size = i64::try_from(size).unwrap();
        thief.query("select countersign.store_checkpoint($1, $2)", &[&size, &note]).await.map(drop)
    };
    // One of the future would stay the newest.
    let future = format!("{origin}\n1000000\n{}\n\n\u{2014} {origin} AAAAAAAA\n", tlog::Hash::EMPTY_ROOT);
    let error = store(1_000_000, &future).await.unwrap_err();
    assert!(error.as_db_error().unwrap().message().contains("no more entries than the log has"), "{error}");
    auditor.signs(&db, &["seal"]).await;
    // Another root for the entries that the log has, and no note at all.
    let signed = db.value("select max(size) from countersign.checkpoint").await.parse::<u64>().unwrap();
    let other = format!("{origin}\n{signed}\n{}\n\n\u{2014} {origin} AAAAAAAA\n", tlog::Hash::EMPTY_ROOT);
    for forged in [other.as_str(), "nonsense"] {
        store(signed, forged).await.unwrap();
        for arguments in [&["verify"][..], &["verify", "--vkey", &vkey]] {
            let said = audit_discrepancy(&db, arguments).await;
            assert!(said.contains("the newest checkpoint in the database: neither a trusted key nor"), "{said}");
        }
    }
    insert_failed_records(&db, 1, 0).await;
    let note = auditor.signs(&db, &["seal"]).await;
    assert!(note.starts_with(&format!("{origin}\n{}\n", signed + 1)), "{note}");
    let said = audit(&db, &["verify", "--vkey", &vkey]).await;
    assert!(
        said.contains("Signed: 2 checkpoints") && said.contains("2 more are not signed by a trusted key"),
        "{said}"
    );
    let dir = auditor.exports(&db, "bundle").await;
    assert_eq!(verdict(&[text(&dir), "--vkey", &vkey]).await["verdict"], "valid");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_signers_at_once_sign_one_log() {
    let db = database().await;
    let auditor = Auditor::new();
    let vkey = auditor.makes_a_key(&db).await;
    for _ in 0..3 {
        insert_failed_records(&db, 40, 0).await;
        let signers = (0..4).map(|_| auditor.signs(&db, &["seal"]));
        for note in futures_util::future::join_all(signers).await {
            let note: tlog::SignedNote = note.parse().unwrap();
            note.verify(&[vkey.parse().unwrap()]).unwrap();
        }
    }
    let said = audit(&db, &["verify", "--vkey", &vkey]).await;
    assert!(said.contains("120 records in 123 entries") && said.contains("the newest of 123 entries"), "{said}");
    let kept: tlog::SignedNote = std::fs::read_to_string(auditor.path("log.checkpoint")).unwrap().parse().unwrap();
    assert!(kept.text().contains("\n123\n"), "{}", kept.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signer_that_is_killed_leaves_a_log_that_is_signed_later() {
    let db = database().await;
    let auditor = Auditor::new();
    let key = tlog::SigningKey::from_seed("countersign/killed", tlog::KeyKind::Log, [3; 32]).unwrap();
    std::fs::write(auditor.path("log.key"), key.to_secret_text()).unwrap();
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(auditor.path("log.key"), std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    auditor.signs(&db, &["keys", "new"]).await;
    insert_failed_records(&db, 3, 0).await;
    // Killed with the text to sign in its hands: everything is sealed, and nothing is signed.
    let script = "kill -9 $PPID; sleep 1";
    let mut command = Command::new(testkit::countersign());
    command.env("DATABASE_URL", db.url()).args(["audit", "seal", "--signing-command", script]);
    let status = command.kill_on_drop(true).status().await.unwrap();
    assert!(!status.success());
    assert_eq!(db.value("select count(*) from countersign.checkpoint").await, "0");
    assert_eq!(db.value("select count(*) from countersign.leaf where record_id is not null").await, "3");
    let note = auditor.signs(&db, &["seal"]).await;
    assert!(note.starts_with("countersign/killed\n6\n"), "{note}");
    let said = audit(&db, &["verify", "--vkey", &key.verifier_key().to_string()]).await;
    assert!(said.contains("3 records in 6 entries"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_key_that_others_may_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let db = database().await;
    let auditor = Auditor::new();
    auditor.makes_a_key(&db).await;
    let key = auditor.path("log.key");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o640)).unwrap();
    let ran = run_audit(&db.url(), &["seal", "--signing-key", &key]).await;
    assert!(ran.code == 1 && ran.err.contains("chmod 600"), "{}", ran.err);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&key, "nonsense").unwrap();
    let ran = run_audit(&db.url(), &["seal", "--signing-key", &key]).await;
    assert!(ran.code == 1 && ran.err.contains("cannot be used as a signing key"), "{}", ran.err);
    let mut server = Server::command(&db);
    let refused = testkit::startup_error(server.args(["--signing-key", &auditor.path("absent.key")])).await;
    assert!(refused.contains("absent.key cannot be used as a signing key"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_signs_in_place_of_a_file() {
    let db = database().await;
    let auditor = Auditor::new();
    let key = tlog::SigningKey::from_seed("countersign/by-command", tlog::KeyKind::Log, [9; 32]).unwrap();
    audit(&db, &["keys", "add", &key.verifier_key().to_string()]).await;
    // The text that is to be signed is known before: a script that answers it stands for a key management service.
    let unsigned = run_audit(&db.url(), &["seal"]).await;
    assert!(unsigned.code == 1 && unsigned.err.contains("is not here"), "{}", unsigned.err);
    let size: u64 = db.value("select count(*) from countersign.leaf").await.parse().unwrap();
    let hashes = db.rows("select encode(hash, 'hex') from countersign.leaf order by leaf_index").await.concat();
    let hashes: Vec<tlog::Hash> = hashes.iter().map(|hex| tlog::Hash::from_hex(hex).unwrap()).collect();
    let checkpoint =
        tlog::Checkpoint { origin: "countersign/by-command".to_owned(), size, root: tlog::root_of(&hashes) };
    let line = key.sign(&checkpoint.to_string(), 0).to_string();
    let base64 = line.trim().rsplit(' ').next().unwrap().to_owned();
    // Behind the four bytes of the id.
    let script = format!("cat > {0}; echo {base64} | base64 -d | tail -c 64 | base64 -w 0", auditor.path("text"));
    let note = audit(&db, &["seal", "--signing-command", &script]).await;
    assert!(note.ends_with(&line), "{note}");
    assert_eq!(std::fs::read_to_string(auditor.path("text")).unwrap(), checkpoint.to_string());
    for (command, why) in [
        ("exit 3", "failed (exit status: 3)"),
        ("echo AAAA", "printed no signature"),
        ("true", "printed no signature"),
        ("head -c 70000 /dev/zero", "printed more than 64 KiB"),
    ] {
        insert_failed_records(&db, 1, 0).await;
        let ran = run_audit(&db.url(), &["seal", "--signing-command", command]).await;
        assert!(ran.code == 1 && ran.err.contains(why), "{command}: {}", ran.err);
    }
}
