//! Both verifiers come to the same verdict on thousands of altered bundles.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::{External, long_form, repository, skip_without};
use tlog::{BundleWriter, Checkpoint, Entry, Hash, KeyKind, SignedNote, SigningKey, Trust, verify_bundle};

/// The long form makes ten times as many.
const MUTATIONS: usize = 1500;

fn key() -> SigningKey {
    SigningKey::from_seed("countersign/test", KeyKind::Log, [5; 32]).unwrap()
}

/// A bundle of these entries, each of the first ones with two parts.
fn write(dir: &Path, entries: usize) {
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
    writer.finish(&SignedNote::sign(checkpoint.to_string(), &[key()])).unwrap();
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    for path in files(from) {
        let target = to.join(path.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(path, target).unwrap();
    }
}

/// Changes something in a bundle; says what.
fn mutate(dir: &Path, random: &mut fastrand::Rng) -> String {
    let files = files(dir);
    let (path, other) = (random.choice(&files).unwrap().clone(), random.choice(&files).unwrap().clone());
    let bytes = fs::read(&path).unwrap();
    let at = random.usize(..bytes.len().max(1));
    let altered = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        fs::write(&path, bytes).unwrap();
    };
    let what = match random.usize(..14) {
        0..=3 => {
            let bit = 1 << random.u8(..8);
            altered(&|bytes| bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= bit));
            "a bit"
        }
        4 => {
            altered(&|bytes| bytes.truncate(at));
            "truncated"
        }
        5 => {
            let byte = random.u8(..);
            altered(&|bytes| bytes.insert(at, byte));
            "a byte more"
        }
        6 => {
            altered(&|bytes| {
                bytes.drain(at..(at + 1).min(bytes.len()));
            });
            "a byte less"
        }
        7 => {
            fs::remove_file(&path).unwrap();
            "removed"
        }
        8 => {
            fs::write(&path, fs::read(&other).unwrap()).unwrap();
            "another file"
        }
        9 => {
            let name = random
                .choice([
                    "tile/0/001",
                    "tile/0/000.p/7",
                    "tile/9/000",
                    "tile/0/x000/000",
                    "parts/x",
                    "tile/entries/000.p/0",
                    "extra",
                    "tile/x/1",
                ])
                .unwrap();
            let target = dir.join(name);
            let _ = fs::create_dir_all(target.parent().unwrap());
            let _ = fs::write(target, &bytes);
            "a file more"
        }
        10 => {
            fs::rename(&path, path.with_file_name(random.choice(["000", "001", "000.p", "verify.py"]).unwrap()))
                .unwrap_or_default();
            "renamed"
        }
        11 => {
            fs::remove_file(&path).unwrap();
            let _ = std::os::unix::fs::symlink(&other, &path);
            "a link"
        }
        12 => {
            let note = fs::read_to_string(dir.join("checkpoint")).unwrap_or_default();
            let from = random.choice(["\n\n", "countersign/test", "\u{2014} ", "=", "\n"]).unwrap();
            let to = random.choice(["", "\n", "x", "\n\n", "\u{2014} countersign/test AAAAAAA=\n", " "]).unwrap();
            fs::write(dir.join("checkpoint"), note.replacen(from, to, 1 + random.usize(..2))).unwrap();
            "the checkpoint"
        }
        _ => {
            // Two halves of a file change places.
            altered(&|bytes| bytes.rotate_left(at));
            "rotated"
        }
    };
    format!("{what}: {} at {at}, {}", path.display(), other.display())
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
    let mut command = std::process::Command::new(External::Python.expected_path());
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

#[test]
fn two_verifiers_agree_on_altered_bundles() {
    if skip_without(&[External::Python]) {
        return;
    }
    let mutations = long_form::choose(MUTATIONS, 10 * MUTATIONS);
    let folder = tempfile::tempdir().unwrap();
    let originals: Vec<PathBuf> = [0, 1, 3, 256, 300].map(|size| folder.path().join(format!("original{size}"))).into();
    for (dir, size) in originals.iter().zip([0, 1, 3, 256, 300]) {
        write(dir, size);
        assert_eq!(own_verdict(dir)["findings"], json!([]));
    }
    let mut random = fastrand::Rng::with_seed(20);
    let (mut dirs, mut changes) = (originals.clone(), vec!["none".to_owned(); originals.len()]);
    for number in 0..mutations {
        let dir = folder.path().join(number.to_string());
        copy(random.choice(&originals).unwrap(), &dir);
        changes.push(mutate(&dir, &mut random));
        dirs.push(dir);
    }
    let theirs = python_verdicts(&dirs);
    assert_eq!(theirs.len(), dirs.len());
    let mut invalid = 0;
    for ((dir, change), other) in dirs.iter().zip(&changes).zip(&theirs) {
        let own = own_verdict(dir);
        assert_eq!(&own, other, "{change}");
        invalid += usize::from(own["findings"] != json!([]));
    }
    assert!(invalid * 10 > mutations * 8, "most changes are found: {invalid} of {mutations}");
}
