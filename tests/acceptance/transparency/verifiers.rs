//! Both verifiers come to the same verdict on thousands of altered bundles.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testkit::{External, long_form, repository, skip_without};
use tlog::{BundleWriter, Checkpoint, Entry, Hash, KeyKind, SignedNote, SigningKey, Trust, verify_bundle};

/// The long form makes ten times as many.
const MUTATIONS: usize = 1500;

/// Bundles that every version must accept, by name: their entries, and who signs.
const GOLDEN: [(&str, usize, &[u8]); 5] =
    [("empty", 0, &[5]), ("one", 1, &[5]), ("full", 256, &[5]), ("parts", 300, &[5]), ("rotated", 3, &[5, 6])];

fn key() -> SigningKey {
    SigningKey::from_seed("countersign/test", KeyKind::Log, [5; 32]).unwrap()
}

/// A bundle of these entries, each of the first ones with two parts.
fn write(dir: &Path, entries: usize) {
    write_signed(dir, entries, &[key()]);
}

fn write_signed(dir: &Path, entries: usize, keys: &[SigningKey]) {
    let mut writer = BundleWriter::create(dir).unwrap();
    for index in 0..entries {
        let mut fields =
            vec![("kind", "record".to_owned()), ("id", index.to_string()), ("tool", "a %\u{7}".to_owned())];
        if index < 3 {
            for name in ["params", "result"] {
                let part = writer.part(&[index as u8; 16], format!("{{\"{name}\": {index}}}").as_bytes()).unwrap();
                fields.push((name, format!("sha256:{}", part.to_hex())));
            }
        }
        writer.entry(Entry::new(fields).to_string().as_bytes()).unwrap();
    }
    let checkpoint = Checkpoint { origin: "countersign/test".to_owned(), size: writer.size(), root: writer.root() };
    writer.finish(&SignedNote::sign(checkpoint.to_string(), keys)).unwrap();
}

/// Altered copies of a bundle, each with what was changed.
fn mutate(bundle: &Path, target: &Path, count: usize) -> Vec<(PathBuf, String)> {
    let mut command = Command::new(External::Python.expected_path());
    command.arg(repository().join("tests/python/mutate_bundle.py")).args([bundle, target]).arg(count.to_string());
    let output = command.args(["--seed", "20"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    let copies = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    copies.map(|copy| (PathBuf::from(copy["dir"].as_str().unwrap()), copy["mutations"].to_string())).collect()
}

fn own_verdict(dir: &Path) -> Value {
    let trust = Trust { keys: vec![key().verifier_key().clone()], policy: None };
    let Ok(report) = verify_bundle(dir, &trust, &[]) else { return Value::Null };
    let findings: Vec<Value> =
        report.findings.iter().map(|finding| json!({"code": finding.code.name(), "place": finding.place})).collect();
    json!({"size": report.size, "root": report.root.as_ref().map(Hash::to_string), "entries": report.entries, "findings": sorted(findings)})
}

/// The page of the format does not say in which order findings of one step are reported.
fn sorted(mut findings: Vec<Value>) -> Vec<Value> {
    findings.sort_by_key(Value::to_string);
    findings
}

/// The verdicts of `docs/verify.py`.
fn python_verdicts(dirs: &[PathBuf]) -> Vec<Value> {
    let mut command = Command::new(External::Python.expected_path());
    let lines: String = dirs
        .iter()
        .map(|dir| format!("{}\n", json!({"dir": dir, "vkey": [key().verifier_key().to_string()]})))
        .collect();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(lines.as_bytes()).unwrap();
    command.arg(repository().join("tests/python/compare_verifiers.py")).arg(file.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| {
            let verdict: Value = serde_json::from_str(line).unwrap();
            if verdict["verdict"] == "error" {
                return Value::Null;
            }
            let findings = sorted(verdict["findings"].as_array().unwrap().clone());
            json!({"size": verdict["size"], "root": verdict["root"], "entries": verdict["entries"], "findings": findings})
        })
        .collect()
}

/// The files of a folder, with their content.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(dir).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// `UPDATE_GOLDEN=1` writes them. A difference is a change of the format.
#[test]
fn golden_bundles_are_written_as_ever_and_both_verifiers_accept_them() {
    let folder = tempfile::tempdir().unwrap();
    let golden = repository().join("tests/golden/bundles");
    let mut dirs = Vec::new();
    for (name, entries, seeds) in GOLDEN {
        let key = |seed: &u8| SigningKey::from_seed("countersign/test", KeyKind::Log, [*seed; 32]).unwrap();
        let (made, kept) = (folder.path().join(name), golden.join(name));
        write_signed(&made, entries, &seeds.iter().map(key).collect::<Vec<_>>());
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            let _ = fs::remove_dir_all(&kept);
            write_signed(&kept, entries, &seeds.iter().map(key).collect::<Vec<_>>());
        }
        assert_eq!(contents(&made), contents(&kept), "{name}");
        assert_eq!(own_verdict(&kept)["findings"], json!([]), "{name}");
        dirs.push(kept);
    }
    if skip_without(&[External::Python]) {
        return;
    }
    for (dir, verdict) in dirs.iter().zip(python_verdicts(&dirs)) {
        assert_eq!(verdict, own_verdict(dir), "{}", dir.display());
    }
}

#[test]
fn two_verifiers_agree_on_altered_bundles() {
    if skip_without(&[External::Python]) {
        return;
    }
    let mutations = long_form::choose(MUTATIONS, 10 * MUTATIONS);
    let folder = tempfile::tempdir().unwrap();
    let sizes = [0, 1, 3, 256, 300];
    let mut copies = Vec::new();
    for size in sizes {
        let original = folder.path().join(format!("original{size}"));
        write(&original, size);
        assert_eq!(own_verdict(&original)["findings"], json!([]));
        copies.extend(mutate(&original, &folder.path().join(format!("altered{size}")), mutations / sizes.len()));
        copies.push((original, "nothing".to_owned()));
    }
    let dirs: Vec<PathBuf> = copies.iter().map(|(dir, _)| dir.clone()).collect();
    let theirs = python_verdicts(&dirs);
    assert_eq!(theirs.len(), dirs.len());
    let mut invalid = 0;
    for ((dir, change), other) in copies.iter().zip(&theirs) {
        let own = own_verdict(dir);
        assert_eq!(&own, other, "{change}");
        invalid += usize::from(own["findings"] != json!([]));
    }
    assert!(invalid * 10 > mutations * 8, "most changes are found: {invalid} of {mutations}");
}

#[test]
fn the_tests_of_the_verifier_in_python_pass() {
    if skip_without(&[External::Python]) {
        return;
    }
    let tests = repository().join("tests/python/test_verify.py");
    let output = Command::new(External::Python.expected_path()).arg(tests).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
