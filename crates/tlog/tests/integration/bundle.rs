//! Bundles: what is written is valid, and each change is found.

use std::fs;
use std::path::{Path, PathBuf};

use countersign_tlog::{
    BundleWriter, Checkpoint, Entry, EntryProof, FindingCode, KeyKind, Report, SignedNote, SigningKey, TileId, TileSet,
    Trust, leaf_hash, root_of, verify_bundle, verify_proof,
};
use tempfile::TempDir;

fn key() -> SigningKey {
    SigningKey::from_seed("log", KeyKind::Log, [7; 32]).unwrap()
}

fn trust() -> Trust {
    Trust { keys: vec![key().verifier_key().clone()], policy: None }
}

fn entry(index: usize) -> String {
    Entry::new([("kind", "record".to_owned()), ("id", index.to_string()), ("tool", "like\u{7}%".to_owned())])
        .to_string()
}

fn signed(size: u64, root: countersign_tlog::Hash) -> SignedNote {
    SignedNote::sign(Checkpoint { origin: "log".to_owned(), size, root }.to_string(), &[key()])
}

/// A bundle of these entries; the first one names two parts, of which one is there.
fn bundle(entries: usize) -> TempDir {
    let dir = TempDir::new().unwrap();
    let mut writer = BundleWriter::create(dir.path()).unwrap();
    for index in 0..entries {
        if index == 0 {
            let part = writer.part(&[3; 16], b"{\"params\": 1}").unwrap();
            let withheld = leaf_hash(b"withheld");
            let parts = [
                ("kind", "record".to_owned()),
                ("params", format!("sha256:{}", part.to_hex())),
                ("result", format!("sha256:{}", withheld.to_hex())),
            ];
            writer.entry(Entry::new(parts).to_string().as_bytes()).unwrap();
        } else {
            writer.entry(entry(index).as_bytes()).unwrap();
        }
    }
    let (size, root) = (writer.size(), writer.root());
    writer.finish(&signed(size, root)).unwrap();
    dir
}

fn verify(dir: &Path) -> Report {
    verify_bundle(dir, &trust(), &[]).unwrap()
}

fn codes(dir: &Path) -> Vec<(FindingCode, String)> {
    verify(dir).findings.into_iter().map(|finding| (finding.code, finding.place)).collect()
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

#[test]
fn bundles_of_any_size_are_valid_and_have_the_root_of_their_entries() {
    for size in [0, 1, 2, 255, 256, 257, 300, 512, 65_536, 65_537, 65_800] {
        let dir = bundle(size);
        let report = verify(dir.path());
        assert!(report.is_valid(), "{size}: {:?}", report.findings);
        assert_eq!((report.size, report.entries), (Some(size as u64), size as u64));
        if size > 0 {
            assert_eq!((report.parts, report.withheld), (1, 1));
        }
    }
}

#[test]
fn each_changed_bit_of_a_bundle_is_found() {
    let dir = bundle(3);
    for path in files(dir.path()) {
        let bytes = fs::read(&path).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut altered = bytes.clone();
            altered[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &altered).unwrap();
            assert!(!verify(dir.path()).is_valid(), "bit {bit} of {}", path.display());
        }
        fs::write(&path, &bytes).unwrap();
    }
    assert!(verify(dir.path()).is_valid());
}

#[test]
fn an_altered_entry_tile_and_part_are_named() {
    let dir = bundle(300);
    let alter = |path: &str, at: usize| {
        let path = dir.path().join(path);
        let bytes = fs::read(&path).unwrap();
        let mut altered = bytes.clone();
        altered[at] ^= 1;
        fs::write(&path, altered).unwrap();
        let found = codes(dir.path());
        fs::write(&path, bytes).unwrap();
        found
    };
    let entries = fs::read(dir.path().join("tile/entries/001.p/44")).unwrap();
    let last = entries.windows(6).position(|window| window == b"id 299").unwrap() + 5;
    assert_eq!(alter("tile/entries/001.p/44", last), [(FindingCode::EntryAltered, "299".to_owned())]);
    assert_eq!(alter("tile/0/001.p/44", 43 * 32), [(FindingCode::TileAltered, "tile/0/001.p/44".to_owned())]);
    assert_eq!(alter("tile/1/000.p/1", 0), [(FindingCode::TileAltered, "tile/1/000.p/1".to_owned())]);
    let part = files(&dir.path().join("parts")).remove(0);
    let place = format!("parts/{}", part.file_name().unwrap().to_str().unwrap());
    assert_eq!(alter(&place, 20), [(FindingCode::PartAltered, place.clone())]);
    assert_eq!(alter("checkpoint", 0), [(FindingCode::SignatureInvalid, "checkpoint".to_owned())]);
    assert_eq!(alter("checkpoint", 5), [(FindingCode::SignatureInvalid, "checkpoint".to_owned())]);
}

#[test]
fn files_that_are_missing_or_do_not_belong_there_are_named() {
    let dir = bundle(300);
    let at = |path: &str| dir.path().join(path);
    fs::remove_file(at("tile/entries/000")).unwrap();
    fs::write(at("tile/0/001.p/43"), [0; 43 * 32]).unwrap();
    fs::write(at("tile/0/x000"), "").unwrap();
    fs::write(at("notes.txt"), "").unwrap();
    fs::write(at("parts/abc"), "").unwrap();
    fs::create_dir(at("tile/2")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", at("vkey")).unwrap();
    let found = codes(dir.path());
    let unexpected: Vec<&str> = found
        .iter()
        .filter(|(code, _)| *code == FindingCode::FileUnexpected)
        .map(|(_, place)| place.as_str())
        .collect();
    assert_eq!(unexpected, ["notes.txt", "parts/abc", "tile/0/001.p/43", "tile/0/x000", "tile/2", "vkey"]);
    assert!(found.contains(&(FindingCode::FileMissing, "tile/entries/000".to_owned())), "{found:?}");
    fs::remove_file(at("tile/0/000")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", at("tile/0/000")).unwrap();
    assert!(codes(dir.path()).contains(&(FindingCode::FileMissing, "tile/0/000".to_owned())));
    // A link to the very file that should be there is not followed either.
    let outside = TempDir::new().unwrap();
    fs::rename(at("tile/0/001.p/44"), outside.path().join("44")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("44"), at("tile/0/001.p/44")).unwrap();
    assert!(codes(dir.path()).contains(&(FindingCode::FileMissing, "tile/0/001.p/44".to_owned())));
}

#[test]
fn a_thousand_findings_of_a_code_are_enough() {
    let dir = bundle(0);
    for number in 0..1100 {
        fs::write(dir.path().join(number.to_string()), "").unwrap();
    }
    assert_eq!(codes(dir.path()).len(), 1000);
}

#[test]
fn a_part_without_a_whole_salt_is_named() {
    let dir = TempDir::new().unwrap();
    let mut writer = BundleWriter::create(dir.path()).unwrap();
    let digest = countersign_tlog::Hash::of(&[b"no salt"]).to_hex();
    let fields = [("kind", "record".to_owned()), ("params", format!("sha256:{digest}"))];
    writer.entry(Entry::new(fields).to_string().as_bytes()).unwrap();
    let (size, root) = (writer.size(), writer.root());
    writer.finish(&signed(size, root)).unwrap();
    fs::create_dir(dir.path().join("parts")).unwrap();
    fs::write(dir.path().join("parts").join(&digest), "no salt").unwrap();
    assert_eq!(codes(dir.path()), [(FindingCode::PartAltered, format!("parts/{digest}"))]);
}

#[test]
fn a_part_that_no_entry_names_does_not_belong_there() {
    let dir = TempDir::new().unwrap();
    let mut writer = BundleWriter::create(dir.path()).unwrap();
    let digest = writer.part(&[3; 16], b"{}").unwrap().to_hex();
    writer.entry(entry(1).as_bytes()).unwrap();
    let (size, root) = (writer.size(), writer.root());
    writer.finish(&signed(size, root)).unwrap();
    assert_eq!(codes(dir.path()), [(FindingCode::FileUnexpected, format!("parts/{digest}"))]);
}

#[test]
fn an_interrupted_bundle_is_incomplete_and_is_written_again_from_the_beginning() {
    let dir = TempDir::new().unwrap();
    let incomplete = dir.path().join("checkpoint.incomplete");
    for entries in [1, 300, 600] {
        let mut writer = BundleWriter::create(dir.path()).unwrap();
        writer.extra("README.md", b"x").unwrap();
        writer.part(&[1; 16], b"{}").unwrap();
        for index in 0..entries {
            writer.entry(entry(index).as_bytes()).unwrap();
        }
        assert!(BundleWriter::create(dir.path()).unwrap_err().to_string().contains("another process"));
        drop(writer);
        assert!(incomplete.exists());
        assert_eq!(codes(dir.path()), [(FindingCode::CheckpointMalformed, "checkpoint".to_owned())]);
    }
    let mut writer = BundleWriter::create(dir.path()).unwrap();
    writer.entry(entry(0).as_bytes()).unwrap();
    let (size, root) = (writer.size(), writer.root());
    writer.finish(&signed(size, root)).unwrap();
    assert_eq!(codes(dir.path()), []);
    assert!(!incomplete.exists());
    assert!(BundleWriter::create(dir.path()).unwrap_err().to_string().contains("not empty"));
    // Beside a checkpoint it is a file like any other.
    fs::write(&incomplete, "").unwrap();
    assert_eq!(codes(dir.path()), [(FindingCode::FileUnexpected, "checkpoint.incomplete".to_owned())]);
    let refused = BundleWriter::create(dir.path()).unwrap_err().to_string();
    assert!(refused.contains("checkpoint is not of the interrupted export"), "{refused}");
    assert!(dir.path().join("checkpoint").exists(), "nothing is removed");
}

#[test]
fn a_dropped_tail_a_reordering_and_an_insertion_are_found() {
    let (whole, shorter) = (bundle(300), bundle(299));
    // The checkpoint of 300 over the tree of 299.
    fs::copy(whole.path().join("checkpoint"), shorter.path().join("checkpoint")).unwrap();
    assert!(codes(shorter.path()).iter().any(|(code, _)| *code == FindingCode::FileMissing));
    let dir = TempDir::new().unwrap();
    let mut writer = BundleWriter::create(dir.path()).unwrap();
    for index in [0, 2, 1] {
        writer.entry(entry(index).as_bytes()).unwrap();
    }
    let root = root_of(&[0, 1, 2].map(|index| leaf_hash(entry(index).as_bytes())));
    writer.finish(&signed(3, root)).unwrap();
    assert_eq!(codes(dir.path()), [(FindingCode::RootMismatch, "checkpoint".to_owned())]);
}

#[test]
fn long_and_malformed_entries_are_named_by_their_index() {
    let dir = TempDir::new().unwrap();
    let mut writer = BundleWriter::create(dir.path()).unwrap();
    let of_length = |length: usize| format!("countersign-entry/v1\nkind {}\n", "x".repeat(length - 27));
    for text in
        [of_length(8192), of_length(8193), of_length(65_535), "kind x\n".to_owned(), entry(1).replace("%07", "%7f")]
    {
        writer.entry(text.as_bytes()).unwrap();
    }
    let (size, root) = (writer.size(), writer.root());
    assert!(writer.entry(&vec![b'x'; 65_536]).is_err());
    writer.finish(&signed(size, root)).unwrap();
    assert_eq!(
        codes(dir.path()),
        [
            (FindingCode::EntryTooLong, "1"),
            (FindingCode::EntryTooLong, "2"),
            (FindingCode::EntryMalformed, "3"),
            (FindingCode::EntryMalformed, "4")
        ]
        .map(|(code, place)| (code, place.to_owned()))
    );
}

#[test]
fn earlier_checkpoints_must_be_of_the_same_log() {
    let dir = bundle(300);
    let keep = |name: &str, note: SignedNote| {
        let path = dir.path().with_extension(name);
        fs::write(&path, note.to_string()).unwrap();
        path
    };
    let first = fs::read(dir.path().join("tile/0/000")).unwrap();
    let hashes: Vec<_> = first.as_chunks::<32>().0.iter().map(|bytes| countersign_tlog::Hash::new(*bytes)).collect();
    let good = keep("good", signed(200, root_of(&hashes[..200])));
    let empty = keep("empty", signed(0, countersign_tlog::Hash::EMPTY_ROOT));
    // Signed by a trusted key of another name than its origin.
    let foreign = Checkpoint { origin: "other".to_owned(), size: 200, root: root_of(&hashes[..200]) }.to_string();
    let foreign = keep("foreign", SignedNote::sign(foreign, &[key()]));
    let report = verify_bundle(dir.path(), &trust(), std::slice::from_ref(&foreign)).unwrap();
    assert_eq!(
        report.findings.iter().map(|finding| finding.code).collect::<Vec<_>>(),
        [FindingCode::CheckpointUnsigned]
    );
    fs::remove_file(foreign).unwrap();
    let other = keep("other", signed(200, root_of(&hashes[..201])));
    let newer = keep("newer", signed(301, root_of(&hashes[..2])));
    let report = verify_bundle(dir.path(), &trust(), &[good.clone(), empty.clone()]).unwrap();
    assert!(report.is_valid(), "{:?}", report.findings);
    let report = verify_bundle(dir.path(), &trust(), &[other.clone(), newer.clone()]).unwrap();
    let found: Vec<_> = report.findings.iter().map(|finding| finding.code).collect();
    assert_eq!(found, [FindingCode::CheckpointInconsistent, FindingCode::CheckpointNewer]);
    for path in [good, empty, other, newer] {
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_signed_size_without_tiles_ends_soon() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("checkpoint"), signed(i64::MAX as u64, leaf_hash(b"x")).to_string()).unwrap();
    let report = verify(dir.path());
    assert_eq!(report.findings.len(), 1000);
    assert_eq!(report.findings[0].code, FindingCode::FileMissing);
}

#[test]
fn a_bundle_is_written_only_into_an_empty_folder() {
    let dir = bundle(1);
    assert!(BundleWriter::create(dir.path()).is_err());
    assert!(verify_bundle(&dir.path().join("absent"), &trust(), &[]).is_err());
}

#[test]
fn a_proof_of_an_entry_is_verified_with_its_entry_and_its_checkpoint() {
    let dir = TempDir::new().unwrap();
    let leaves: Vec<_> = (0..300).map(|index| leaf_hash(entry(index).as_bytes())).collect();
    let mut set = TileSet::default();
    let id = |level, index| TileId::of_tree(300, level, index).unwrap();
    set.insert(id(0, 0), leaves[..256].to_vec());
    set.insert(id(0, 1), leaves[256..].to_vec());
    set.insert(id(1, 0), vec![root_of(&leaves[..256])]);
    let proof = EntryProof {
        entry: entry(270).into_bytes(),
        index: 270,
        hashes: set.inclusion_proof(270, 300).unwrap(),
        checkpoint: signed(300, root_of(&leaves)),
    };
    let path = dir.path().join("x.tlog-proof");
    let verify = |text: &str| {
        fs::write(&path, text).unwrap();
        verify_proof(&path, &trust()).unwrap().findings.into_iter().map(|finding| finding.code).collect::<Vec<_>>()
    };
    let text = proof.to_string();
    assert_eq!(text.parse::<EntryProof>().unwrap(), proof);
    assert_eq!(verify(&text), []);
    assert_eq!(verify(&text.replace("index 270", "index 271")), [FindingCode::ProofInvalid]);
    assert_eq!(verify(&text.replace("index 270", "index 0270")), [FindingCode::ProofMalformed]);
    assert_eq!(verify(&text.replace("\n300\n", "\n301\n")), [FindingCode::SignatureInvalid]);
    assert_eq!(verify(&text.replace("extra ", "extra x")), [FindingCode::ProofMalformed]);
    let lines: Vec<&str> = text.lines().collect();
    let without = text.replacen(&format!("{}\n", lines[1]), "", 1);
    assert_eq!(verify(&without), [FindingCode::ProofMalformed]);
}
