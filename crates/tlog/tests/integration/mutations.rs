//! Texts near valid ones, for the readers.

use countersign_tlog::{
    Checkpoint, Entry, EntryProof, KeyKind, SignedNote, SigningKey, append_entry, leaf_hash, split_entries,
};
use proptest::prelude::*;

use crate::readers::holds;

/// Valid bytes of each format, behind the byte that selects it.
fn valid() -> Vec<Vec<u8>> {
    let key = || SigningKey::from_seed("log", KeyKind::Log, [1; 32]).unwrap();
    let witness = SigningKey::from_seed("w", KeyKind::Witness, [2; 32]).unwrap();
    let checkpoint = Checkpoint { origin: "log".to_owned(), size: 3, root: leaf_hash(b"x") }.to_string();
    let note = SignedNote::sign(checkpoint.clone(), &[key()]);
    let entry = Entry::new([("kind", "record"), ("tool", "a%\u{7}\u{85}")]).to_string();
    let proof = EntryProof {
        entry: entry.clone().into_bytes(),
        index: 1,
        hashes: vec![leaf_hash(b"y"), leaf_hash(b"z")],
        checkpoint: note.clone(),
    };
    let policy =
        format!("log {}\nwitness a {}\ngroup g all a\nquorum g\n", key().verifier_key(), witness.verifier_key());
    let mut entries = Vec::new();
    for entry in [entry.as_bytes(), b"", entry.as_bytes()] {
        append_entry(&mut entries, entry).unwrap();
    }
    let texts = [
        note.to_string(),
        checkpoint,
        proof.to_string(),
        key().verifier_key().to_string(),
        key().to_secret_text(),
        entry,
        policy,
    ];
    let formats = texts.map(String::into_bytes).into_iter().chain([entries]);
    (0..).zip(formats).map(|(format, bytes)| [&[format], bytes.as_slice()].concat()).collect()
}

#[test]
fn the_valid_texts_are_read() {
    valid().iter().for_each(|bytes| holds(bytes));
    let read = |index: usize| String::from_utf8(valid()[index][1..].to_vec()).unwrap();
    assert!(read(0).parse::<SignedNote>().is_ok() && read(2).parse::<EntryProof>().is_ok());
    assert!(Entry::parse(read(5).as_bytes()).is_ok() && read(6).parse::<countersign_tlog::Policy>().is_ok());
    assert_eq!(split_entries(&valid()[7][1..]).unwrap().len(), 3);
}

/// `UPDATE_GOLDEN=1` writes the seeds of the fuzz target.
#[test]
fn the_seeds_of_the_fuzz_target_are_the_valid_texts() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/log_formats");
    for bytes in valid() {
        let path = folder.join(bytes[0].to_string());
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &bytes).unwrap();
        }
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{}", path.display());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_reader_accepts_only_what_it_would_write(
        which in 0_usize..8, at in any::<prop::sample::Index>(), until in any::<prop::sample::Index>(),
        by in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\n'), Just(b' '), Just(b'0'), Just(b'+'), Just(b'%'), Just(b'=')], 0..4),
    ) {
        let mut bytes = valid()[which].clone();
        let (at, until) = (1 + at.index(bytes.len() - 1), 1 + until.index(bytes.len() - 1));
        let end = if until > at && until - at < 8 { until } else { at };
        bytes.splice(at..end, by);
        holds(&bytes);
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        holds(&bytes);
    }
}
