//! Both verifiers come to the same verdict on thousands of altered bundles.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testkit::{External, long_form, repository, skip_without};
use tlog::{BundleWriter, Checkpoint, Entry, Hash, KeyKind, Policy, SignedNote, SigningKey, Trust, verify_bundle};

/// The long form makes ten times as many.
const MUTATIONS: usize = 1500;

/// Bundles that every version must accept, by name: their entries, who signs, and how many witnesses cosign. One with
/// witnesses has a policy.
pub(super) const GOLDEN: [(&str, usize, &[u8], u8); 6] = [
    ("empty", 0, &[5], 0),
    ("one", 1, &[5], 0),
    ("full", 256, &[5], 0),
    ("parts", 300, &[5], 0),
    ("rotated", 3, &[5, 6], 0),
    ("cosigned", 3, &[5], 2),
];

/// The time of the first cosignature.
const COSIGNED_AT: u64 = 1_800_000_000;

pub(super) fn key() -> SigningKey {
    log_key(5)
}

fn log_key(seed: u8) -> SigningKey {
    SigningKey::from_seed("countersign/test", KeyKind::Log, [seed; 32]).unwrap()
}

fn witness_key(number: u8) -> SigningKey {
    SigningKey::from_seed(&format!("example.com/w{number}"), KeyKind::Witness, [100 + number; 32]).unwrap()
}

/// The policy of a bundle with witnesses: two of its two and of one that has not cosigned.
fn policy() -> String {
    let witness = |number: u8| format!("witness w{number} {}\n", witness_key(number).verifier_key());
    let lines = format!("log {}\n{}{}{}", key().verifier_key(), witness(0), witness(1), witness(2));
    format!("{lines}group two 2 w0 w1 w2\nquorum two\n")
}

/// A bundle of these entries, each of the first ones with two parts.
fn write_signed(dir: &Path, entries: usize, keys: &[SigningKey], witnesses: u8) {
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
    let mut note = SignedNote::sign(checkpoint.to_string(), keys);
    note.add(
        (0..witnesses).map(|number| witness_key(number).sign(&checkpoint.to_string(), COSIGNED_AT + u64::from(number))),
    );
    if witnesses > 0 {
        writer.extra("policy", policy().as_bytes()).unwrap();
    }
    writer.finish(&note).unwrap();
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

/// A bundle, and the policy that its verifier has.
#[derive(Debug, Clone)]
struct Case {
    dir: PathBuf,
    policy: Option<PathBuf>,
}

impl Case {
    /// A case of a bundle that was not altered.
    fn of(dir: &Path) -> Self {
        let policy = dir.join("policy");
        Self { dir: dir.to_owned(), policy: policy.exists().then_some(policy) }
    }
}

fn own_verdict(Case { dir, policy }: &Case) -> Value {
    let policy = policy.as_ref().map(|path| Policy::parse(&fs::read(path).unwrap()));
    let Ok(policy) = policy.transpose() else { return Value::Null };
    let trust = Trust { keys: vec![key().verifier_key().clone()], policy };
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
fn python_verdicts(cases: &[Case]) -> Vec<Value> {
    let mut command = Command::new(External::Python.expected_path());
    let vkey = key().verifier_key().to_string();
    let line = |Case { dir, policy }: &Case| format!("{}\n", json!({"dir": dir, "vkey": [vkey], "policy": policy}));
    let lines: String = cases.iter().map(line).collect();
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
pub(super) fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
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
    let mut cases = Vec::new();
    for (name, entries, seeds, witnesses) in GOLDEN {
        let keys: Vec<SigningKey> = seeds.iter().map(|seed| log_key(*seed)).collect();
        let (made, kept) = (folder.path().join(name), golden.join(name));
        write_signed(&made, entries, &keys, witnesses);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            let _ = fs::remove_dir_all(&kept);
            write_signed(&kept, entries, &keys, witnesses);
        }
        assert_eq!(contents(&made), contents(&kept), "{name}");
        let case = Case::of(&kept);
        assert_eq!(own_verdict(&case)["findings"], json!([]), "{name}");
        cases.push(case);
    }
    if skip_without(&[External::Python]) {
        return;
    }
    for (case, verdict) in cases.iter().zip(python_verdicts(&cases)) {
        assert_eq!(verdict, own_verdict(case), "{case:?}");
    }
}

#[test]
#[ignore = "outer: .ci/run runs it"]
fn two_verifiers_agree_on_altered_bundles() {
    if skip_without(&[External::Python]) {
        return;
    }
    let mutations = long_form::choose(MUTATIONS, 10 * MUTATIONS);
    let folder = tempfile::tempdir().unwrap();
    let bundles = [(0, 0), (1, 0), (3, 0), (256, 0), (300, 0), (3, 2)];
    let (mut cases, mut changes) = (Vec::new(), Vec::new());
    for (number, (size, witnesses)) in bundles.into_iter().enumerate() {
        let original = folder.path().join(format!("original{number}"));
        write_signed(&original, size, &[key()], witnesses);
        let unaltered = Case::of(&original);
        assert_eq!(own_verdict(&unaltered)["findings"], json!([]));
        for (dir, change) in
            mutate(&original, &folder.path().join(format!("altered{number}")), mutations / bundles.len())
        {
            cases.push(Case { dir, policy: unaltered.policy.clone() });
            changes.push(change);
        }
        cases.push(unaltered);
        changes.push("nothing".to_owned());
    }
    let theirs = python_verdicts(&cases);
    assert_eq!(theirs.len(), cases.len());
    let mut invalid = 0;
    for ((case, change), other) in cases.iter().zip(&changes).zip(&theirs) {
        let own = own_verdict(case);
        assert_eq!(&own, other, "{change}");
        invalid += usize::from(own["findings"] != json!([]));
    }
    assert!(invalid * 10 > mutations * 8, "most changes are found: {invalid} of {mutations}");
}

#[test]
#[ignore = "outer: .ci/run runs it"]
fn two_verifiers_agree_on_altered_policies() {
    if skip_without(&[External::Python]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("bundle");
    write_signed(&dir, 3, &[key()], 2);
    let (policy, mut random) = (policy(), fastrand::Rng::with_seed(22));
    let lines: Vec<&str> = policy.lines().collect();
    let alter = |number: usize, random: &mut fastrand::Rng| -> Vec<u8> {
        let mut lines = lines.clone();
        let (one, other) = (random.usize(..lines.len()), random.usize(..lines.len()));
        match number % 6 {
            0 => lines.swap(one, other),
            1 => drop(lines.remove(one)),
            2 => lines.insert(other, lines[one]),
            3 => {
                let words: Vec<&str> = policy.split_inclusive([' ', '\n']).collect();
                let (mut words, at) = (words.clone(), random.usize(..words.len()));
                words[at] = words[random.usize(..words.len())];
                return words.concat().into_bytes();
            }
            4 => {
                let text = policy.replacen(
                    "group two 2",
                    &format!("group two {}", ["0", "1", "3", "4", "all", "any", "02"][one]),
                    1,
                );
                return text.into_bytes();
            }
            _ => {
                let mut bytes = policy.clone().into_bytes();
                let at = random.usize(..bytes.len());
                bytes[at] ^= 1 << random.u8(..8);
                return bytes;
            }
        }
        lines.iter().flat_map(|line| [line, "\n"]).collect::<String>().into_bytes()
    };
    let mut cases = Vec::new();
    for number in 0..long_form::choose(600, 6000) {
        let path = folder.path().join(format!("policy{number}"));
        fs::write(&path, alter(number, &mut random)).unwrap();
        cases.push(Case { dir: dir.clone(), policy: Some(path) });
    }
    let (mut accepted, mut refused, mut malformed) = (0, 0, 0);
    for (case, other) in cases.iter().zip(python_verdicts(&cases)) {
        let own = own_verdict(case);
        assert_eq!(own, other, "{}", String::from_utf8_lossy(&fs::read(case.policy.as_ref().unwrap()).unwrap()));
        match &own["findings"] {
            Value::Null => malformed += 1,
            findings if *findings == json!([]) => accepted += 1,
            _ => refused += 1,
        }
    }
    assert!(accepted > 20 && refused > 20 && malformed > 100, "{accepted} {refused} {malformed}");
}

#[test]
#[ignore = "outer: .ci/run runs it"]
fn the_tests_of_the_verifier_in_python_pass() {
    if skip_without(&[External::Python]) {
        return;
    }
    let tests = repository().join("tests/python/test_verify.py");
    let output = Command::new(External::Python.expected_path()).arg(tests).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
