//! The packages of Go's checksum database come to the same verdicts: another implementation of notes, tiles and proofs, which
//! its authors wrote before C2SP's specifications and know nothing of countersign.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use testkit::audit::{audit, insert_failed_records};
use testkit::{External, GO_PACKAGES, database, repository, skip_without};

use super::verifiers::{GOLDEN, contents, key};
use super::{Auditor, text};

/// `tests/go/verify_log.go`, built.
struct GoVerifier {
    folder: TempDir,
}

impl GoVerifier {
    /// `None` without Go.
    fn build() -> Option<Self> {
        if skip_without(&[External::Go]) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(External::Go.expected_path());
        command.env("GO111MODULE", "off").env("GOPATH", GO_PACKAGES).env("GOCACHE", folder.path().join("cache"));
        command.args(["build", "-o"]).arg(folder.path().join("verify_log"));
        let built = command.arg(repository().join("tests/go/verify_log.go")).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Some(Self { folder })
    }

    fn run(&self, vkey: &str, paths: &[&Path]) -> Output {
        Command::new(self.folder.path().join("verify_log")).arg(vkey).args(paths).output().unwrap()
    }

    /// The sizes of bundles and proofs, all of which are valid.
    fn sizes(&self, vkey: &str, paths: &[&Path]) -> Vec<u64> {
        let output = self.run(vkey, paths);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8(output.stdout).unwrap();
        lines.lines().map(|line| line.split(' ').nth(1).unwrap().parse().unwrap()).collect()
    }

    /// The reason why a bundle or a proof is not valid.
    fn refusal(&self, vkey: &str, path: &Path) -> String {
        let output = self.run(vkey, &[path]);
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

#[test]
#[ignore = "outer: .ci/run runs it"]
fn go_accepts_each_golden_bundle_and_refuses_altered_ones() {
    let Some(go) = GoVerifier::build() else { return };
    let vkey = key().verifier_key().to_string();
    let golden = repository().join("tests/golden/bundles");
    let dirs: Vec<PathBuf> = GOLDEN.iter().map(|(name, ..)| golden.join(name)).collect();
    let sizes = go.sizes(&vkey, &dirs.iter().map(PathBuf::as_path).collect::<Vec<_>>());
    assert_eq!(sizes, GOLDEN.map(|(_, entries, ..)| entries as u64));

    let files = contents(&golden.join("parts"));
    let verified = |path: &Path| !path.starts_with("parts");
    for altered in files.keys().filter(|path| verified(path)) {
        let copy = tempfile::tempdir().unwrap();
        for (path, content) in &files {
            let mut content = content.clone();
            if path == altered {
                let middle = content.len() / 2;
                content[middle] ^= 1;
            }
            let path = copy.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        assert!(!go.refusal(&vkey, copy.path()).is_empty(), "{}", altered.display());
    }
    let other = tlog::SigningKey::from_seed("countersign/test", tlog::KeyKind::Log, [9; 32]).unwrap();
    let unsigned = go.refusal(&other.verifier_key().to_string(), &dirs[1]);
    assert!(unsigned.contains("no verifiable signatures"), "{unsigned}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn go_accepts_what_the_program_exports_and_proves() {
    let Some(go) = GoVerifier::build() else { return };
    let db = database().await;
    let auditor = Auditor::new();
    let vkey = auditor.makes_a_key(&db).await;
    insert_failed_records(&db, 600, 0).await;
    let dir = auditor.exports(&db, "bundle").await;
    let id = db.value("select correlation_id from countersign.record where id = 500").await;
    let path = PathBuf::from(auditor.path("500.tlog-proof"));
    let proof = audit(&db, &["prove", &id]).await;
    fs::write(&path, &proof).unwrap();
    // The fork of the test's database, the making of the ledger and the key are entries as well.
    assert_eq!(go.sizes(&vkey, &[&dir, &path]), [603, 603]);
    fs::write(&path, proof.replace("\nindex 50", "\nindex 51")).unwrap();
    let refused = go.refusal(&vkey, &path);
    assert!(refused.contains("invalid"), "{}: {refused}", text(&path));
}
