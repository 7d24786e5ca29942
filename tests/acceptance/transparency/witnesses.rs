//! Witnesses: a second process, with a file of its own, that cosigns what goes on from what it has cosigned.

use std::path::PathBuf;

use reqwest::{Method, StatusCode};
use testkit::audit::{REBUILD_LOG, audit, insert_failed_records, run_audit, tamper};
use testkit::{CommandOutput, Database, HttpAnswer, HttpClient, HttpServer, Server, database, run};
use tlog::{CheckpointRequest, Hash, SignedNote, VerifierKey};
use tokio::process::Command;

use super::{Auditor, text, verdict};

/// A witness and its file.
struct Witness {
    file: PathBuf,
    vkey: String,
    server: HttpServer,
}

impl Witness {
    async fn of(auditor: &Auditor, log_keys: &[&str]) -> Self {
        let file = PathBuf::from(auditor.path("witness.json"));
        let made = witness(&["new", text(&file), "--name", "example.com/w1"]).await.succeeded();
        let vkey = made.out.lines().last().unwrap().trim().to_owned();
        Self { server: Self::serve(&file, log_keys).await, file, vkey }
    }

    async fn serve(file: &std::path::Path, log_keys: &[&str]) -> HttpServer {
        HttpServer::listening(Self::command(file, log_keys)).await
    }

    fn command(file: &std::path::Path, log_keys: &[&str]) -> Command {
        let mut command = Command::new(testkit::countersign());
        command
            .args(["--log", "info", "witness", "serve"])
            .arg(file)
            .args(["--listen", "127.0.0.1:0"])
            .kill_on_drop(true);
        log_keys.iter().for_each(|key| {
            command.args(["--log-key", key]);
        });
        command
    }

    async fn add_to(&self, db: &Database) {
        audit(db, &["witness", "add", &self.server.url("/"), &self.vkey]).await;
    }

    async fn add_checkpoint(&self, body: impl Into<reqwest::Body>) -> HttpAnswer {
        let client = HttpClient::at(self.server.url(""));
        client.send(client.request(Method::POST, "/add-checkpoint").body(body)).await
    }

    /// The checkpoint that it shows of a log.
    async fn shown(&self, log_key: &str) -> HttpAnswer {
        let origin = log_key.split('+').next().unwrap();
        let client = HttpClient::at(self.server.url(""));
        let path = format!("/{}/checkpoint", Hash::of(&[origin.as_bytes()]).to_hex());
        client.send(client.request(Method::GET, &path)).await
    }

    fn has_cosigned(&self, note: &str) -> bool {
        let key: VerifierKey = self.vkey.parse().unwrap();
        note.parse::<SignedNote>().unwrap().verify(&[key]).is_ok()
    }

    fn policy(&self, log_key: &str) -> String {
        format!("log {log_key}\nwitness w1 {}\nquorum w1\n", self.vkey)
    }
}

async fn witness(arguments: &[&str]) -> CommandOutput {
    run(Command::new(testkit::countersign()).args(["--log", "warn", "witness"]).args(arguments)).await
}

async fn run_seal(db: &Database, auditor: &Auditor) -> CommandOutput {
    run_audit(&db.url(), &["seal", "--signing-key", &auditor.path("log.key")]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_witness_cosigns_what_a_server_signs_and_a_policy_asks_for_it() {
    let db = database().await;
    let auditor = Auditor::new();
    let log_key = auditor.makes_a_key(&db).await;
    let witness = Witness::of(&auditor, &[&log_key]).await;
    witness.add_to(&db).await;
    let mut command = Server::command(&db);
    command.args(["--signing-key", &auditor.path("log.key")]);
    let server = Server::start(command).await;
    db.first_value("select 1 from countersign.checkpoint where strpos(note, 'example.com/w1') > 0").await;
    server.close().await;

    insert_failed_records(&db, 3, 0).await;
    let sealed = auditor.signs(&db, &["seal"]).await;
    assert!(witness.has_cosigned(&sealed), "{sealed}");
    let policy = auditor.path("policy");
    std::fs::write(&policy, witness.policy(&log_key)).unwrap();
    let dir = auditor.exports(&db, "bundle").await;
    let found = verdict(&[text(&dir), "--policy", &policy]).await;
    assert_eq!(found["verdict"], "valid", "{found}");
    let shown = witness.shown(&log_key).await;
    assert_eq!(shown.status, StatusCode::OK, "{}", shown.body);
    let both: Vec<VerifierKey> = [&witness.vkey, &log_key].map(|key| key.parse().unwrap()).into();
    assert_eq!(shown.body.parse::<SignedNote>().unwrap().verify(&both).unwrap().len(), 2, "{}", shown.body);
    let listed = audit(&db, &["witness", "list"]).await;
    assert!(listed.contains(&witness.vkey) && listed.contains("cosigned"), "{listed}");

    let events = db
        .value("select string_agg(array_to_string(fields, ' '), '; ') from countersign.event where kind = 'key'")
        .await;
    assert!(events.contains(&format!("action add vkey {}", witness.vkey)), "{events}");
    audit(&db, &["witness", "remove", &witness.vkey]).await;
    let dir = auditor.exports(&db, "alone").await;
    let found = verdict(&[text(&dir), "--policy", &policy]).await;
    assert_eq!(found["findings"][0]["code"], "policy_not_met", "{found}");
    assert_eq!(verdict(&[text(&dir), "--vkey", &log_key]).await["verdict"], "valid");
    let again = run_audit(&db.url(), &["witness", "remove", &witness.vkey]).await;
    assert!(again.code == 1 && again.err.contains("no such witness"), "{}", again.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_witness_that_is_down_holds_up_nothing_and_cosigns_later() {
    let db = database().await;
    let auditor = Auditor::new();
    let log_key = auditor.makes_a_key(&db).await;
    auditor.signs(&db, &["seal"]).await;
    let mut witness = Witness::of(&auditor, &[&log_key]).await;
    witness.add_to(&db).await;
    witness.server.kill().await;
    let ran = run_seal(&db, &auditor).await;
    assert!(
        ran.code == 1 && ran.err.contains("the checkpoint is signed, but the witness example.com/w1"),
        "{}",
        ran.err
    );
    assert!(ran.out.parse::<SignedNote>().is_ok() && !witness.has_cosigned(&ran.out), "{}", ran.out);
    let doctor = testkit::run_countersign(&db.url(), &["doctor"]).await;
    assert!(doctor.out.contains("example.com/w1") && doctor.out.contains("has cosigned nothing yet"), "{}", doctor.out);

    audit(&db, &["witness", "remove", &witness.vkey]).await;
    witness.server = Witness::serve(&witness.file, &[&log_key]).await;
    witness.add_to(&db).await;
    let later = auditor.signs(&db, &["seal"]).await;
    assert!(witness.has_cosigned(&later), "{later}");
    // What it has cosigned is on its disk.
    witness.server.kill().await;
    witness.server = Witness::serve(&witness.file, &[&log_key]).await;
    assert!(witness.has_cosigned(&witness.shown(&log_key).await.body));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_refusal_of_a_witness_has_the_status_of_the_specification() {
    let db = database().await;
    let (auditor, other) = (Auditor::new(), Auditor::new());
    let log_key = auditor.makes_a_key(&db).await;
    let old = auditor.signs(&db, &["seal"]).await;
    let witness = Witness::of(&auditor, &[&log_key]).await;
    let first = CheckpointRequest { old_size: 0, proof: Vec::new(), checkpoint: old.parse().unwrap() }.to_string();
    assert_eq!(witness.shown(&log_key).await.status, StatusCode::NOT_FOUND, "nothing was cosigned yet");
    let cosigned = witness.add_checkpoint(first.clone()).await;
    assert_eq!(cosigned.status, StatusCode::OK, "{}", cosigned.body);
    assert!(witness.has_cosigned(&format!("{old}{}", cosigned.body)));
    let conflict = witness.add_checkpoint(first.clone()).await;
    let size = old.lines().nth(1).unwrap();
    assert_eq!((conflict.status, conflict.body.as_str()), (StatusCode::CONFLICT, format!("{size}\n").as_str()));
    assert_eq!(conflict.header("content-type"), Some("text/x.tlog.size"));

    insert_failed_records(&db, 3, 0).await;
    let new = auditor.signs(&db, &["seal"]).await;
    let files = ["old", "new"].map(|name| auditor.path(name));
    std::fs::write(&files[0], &old).unwrap();
    std::fs::write(&files[1], &new).unwrap();
    let grown = audit(&db, &["consistency", &files[0], &files[1]]).await;
    let proof_line = grown.lines().nth(1).unwrap();
    let altered = grown.replacen(proof_line, &Hash::EMPTY_ROOT.to_string(), 1);
    for (body, status) in [
        ("hello".to_owned(), StatusCode::BAD_REQUEST),
        ("x".repeat(100_000), StatusCode::PAYLOAD_TOO_LARGE),
        (grown.replace("log_key", "x").replacen("old ", "old 9", 1), StatusCode::BAD_REQUEST),
        (altered, StatusCode::UNPROCESSABLE_ENTITY),
        (grown.replacen("\n\u{2014} ", "\n\u{2014} other/", 1), StatusCode::FORBIDDEN),
    ] {
        let answer = witness.add_checkpoint(body.clone()).await;
        assert_eq!(answer.status, status, "{body} {}", answer.body);
    }
    assert_eq!(witness.add_checkpoint(vec![0xff_u8, 0xfe]).await.status, StatusCode::BAD_REQUEST);
    let theirs = database().await;
    other.makes_a_key(&theirs).await;
    let note = other.signs(&theirs, &["seal"]).await.parse().unwrap();
    let stranger = CheckpointRequest { old_size: 0, proof: Vec::new(), checkpoint: note }.to_string();
    assert_eq!(witness.add_checkpoint(stranger).await.status, StatusCode::NOT_FOUND);
    // None of it has changed what it cosigns.
    assert_eq!(witness.add_checkpoint(grown).await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_history_is_not_cosigned() {
    let db = database().await;
    let auditor = Auditor::new();
    let log_key = auditor.makes_a_key(&db).await;
    insert_failed_records(&db, 3, 0).await;
    let witness = Witness::of(&auditor, &[&log_key]).await;
    witness.add_to(&db).await;
    auditor.signs(&db, &["seal"]).await;
    // Somebody with the key and the database makes the log anew, and lets the signer forget.
    audit(&db, &["witness", "remove", &witness.vkey]).await;
    tamper(&db, &format!("update countersign.record set actor = 'mallory'; {REBUILD_LOG}")).await;
    std::fs::remove_file(auditor.path("log.checkpoint")).unwrap();
    auditor.signs(&db, &["seal"]).await;
    witness.add_to(&db).await;
    let ran = run_seal(&db, &auditor).await;
    assert!(
        ran.code == 1 && ran.err.contains("422") && ran.err.contains("does not go on from what it cosigned"),
        "{}",
        ran.err
    );
    assert!(witness.server.logged("keep it as evidence").await.contains("does not go on"));
}

/// A log that a witness has cosigned, in a database that was then restored from a backup.
async fn restored(auditor: &Auditor) -> (Database, Witness) {
    let db = database().await;
    let log_key = auditor.makes_a_key(&db).await;
    let witness = Witness::of(auditor, &[&log_key]).await;
    witness.add_to(&db).await;
    insert_failed_records(&db, 3, 0).await;
    auditor.signs(&db, &["seal"]).await;
    db.run("create table public.backup as select * from countersign.leaf").await;
    std::fs::copy(auditor.path("log.checkpoint"), auditor.path("backup.checkpoint")).unwrap();
    insert_failed_records(&db, 3, 0).await;
    auditor.signs(&db, &["seal"]).await;
    tamper(
        &db,
        "delete from countersign.leaf where leaf_index >= (select count(*) from public.backup); delete from countersign.record where id > 3; \
         delete from countersign.checkpoint c where c.size > (select count(*) from public.backup)",
    )
    .await;
    (db, witness)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signer_that_has_lost_its_memory_asks_the_witnesses_before_it_signs() {
    let auditor = Auditor::new();
    let (db, mut witness) = restored(&auditor).await;
    let signed = "select count(*) from countersign.checkpoint";
    let before = db.value(signed).await;
    std::fs::remove_file(auditor.path("log.checkpoint")).unwrap();
    witness.server.kill().await;
    let ran = run_seal(&db, &auditor).await;
    assert!(ran.code == 1 && ran.err.contains("cannot be asked what was signed elsewhere"), "{}", ran.err);
    let log_key = audit(&db, &["keys", "list"]).await;
    witness.server = Witness::serve(&witness.file, &[log_key.trim()]).await;
    tamper(&db, &format!("update countersign.witness set url = '{}'", witness.server.url("/"))).await;
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
async fn the_file_of_a_witness_is_private_and_has_one_server() {
    let db = database().await;
    let auditor = Auditor::new();
    let log_key = auditor.makes_a_key(&db).await;
    let witness_of = Witness::of(&auditor, &[&log_key]).await;
    let file = text(&witness_of.file);
    let second = run(&mut Witness::command(&witness_of.file, &[&log_key])).await;
    assert!(second.code == 1 && second.err.contains("another process serves it"), "{}", second.err);
    let again = witness(&["new", file, "--name", "w2"]).await;
    assert!(again.code == 1 && again.err.contains("exists"), "{}", again.err);
    let absent = witness(&["serve", &auditor.path("absent"), "--log-key", &log_key]).await;
    assert!(absent.code == 1 && absent.err.contains("witness new"), "{}", absent.err);
    let wrong = witness(&["serve", file, "--log-key", &witness_of.vkey]).await;
    assert!(wrong.code == 1 && wrong.err.contains("key of a witness"), "{}", wrong.err);
    let wrong = run_audit(&db.url(), &["witness", "add", "https://w.example.com/", &log_key]).await;
    assert!(wrong.code == 1 && wrong.err.contains("key of a log"), "{}", wrong.err);
    let wrong = run_audit(&db.url(), &["witness", "add", "http://w.example.com/", &witness_of.vkey]).await;
    assert!(wrong.code == 2 && wrong.err.contains("https://"), "{}", wrong.err);
    let origin = log_key.split('+').next().unwrap();
    let named = tlog::SigningKey::from_seed(origin, tlog::KeyKind::Witness, [1; 32]).unwrap();
    let named = named.verifier_key().to_string();
    let wrong = run_audit(&db.url(), &["witness", "add", "https://w.example.com/", &named]).await;
    assert!(wrong.code == 1 && wrong.err.contains("another name than the log"), "{}", wrong.err);
    drop(witness_of.server);

    std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let open = witness(&["serve", file, "--log-key", &log_key]).await;
    assert!(open.code == 1 && open.err.contains("chmod 600"), "{}", open.err);
    let bad = auditor.path("bad.json");
    std::fs::write(&bad, "{").unwrap();
    std::fs::set_permissions(&bad, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let bad = witness(&["serve", &bad, "--log-key", &log_key]).await;
    assert!(bad.code == 1 && bad.err.contains("line 1"), "{}", bad.err);
}
