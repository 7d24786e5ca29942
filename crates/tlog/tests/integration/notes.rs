//! Keys, signed notes and cosignatures.

use countersign_tlog::{
    Checkpoint, Hash, KeyKind, NoteError, Policy, SignedNote, SigningKey, Trust, TrustError, VerifierKey,
};

fn key(name: &str, kind: KeyKind, seed: u8) -> SigningKey {
    SigningKey::from_seed(name, kind, [seed; 32]).unwrap()
}

fn checkpoint(origin: &str) -> String {
    Checkpoint { origin: origin.to_owned(), size: 3, root: Hash::EMPTY_ROOT }.to_string()
}

#[test]
fn the_example_of_the_specification_is_verified() {
    let vkey: VerifierKey = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k".parse().unwrap();
    let note: SignedNote = "This is an example message.\n\n\u{2014} example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
        .parse()
        .unwrap();
    assert_eq!(note.verify(std::slice::from_ref(&vkey)).unwrap(), [(&vkey, 0)]);
    assert_eq!(vkey.to_string(), "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k");
}

#[test]
fn a_private_key_is_read_as_it_was_written_and_debug_does_not_show_it() {
    let own = SigningKey::generate("countersign/log", KeyKind::Log).unwrap();
    let text = own.to_secret_text();
    let read: SigningKey = text.parse().unwrap();
    assert_eq!(read.verifier_key(), own.verifier_key());
    let secret = text.splitn(5, '+').nth(4).unwrap();
    assert_eq!(secret.len(), 44, "base64 has a + too");
    assert!(!format!("{own:?}").contains(secret));
    for (from, to) in [("PRIVATE", "PUBLIC"), ("countersign/log", "countersign/lag"), ("KEY+", "KEY++")] {
        assert!(text.replace(from, to).parse::<SigningKey>().is_err(), "{from} -> {to}");
    }
}

#[test]
fn signatures_of_unknown_keys_are_ignored_and_a_known_one_that_is_wrong_rejects_the_note() {
    let (own, other) = (key("log", KeyKind::Log, 1), key("log", KeyKind::Log, 2));
    let known = [own.verifier_key().clone()];
    let note = SignedNote::sign(checkpoint("log"), &[key("log", KeyKind::Log, 2), key("log", KeyKind::Log, 1)]);
    let read: SignedNote = note.to_string().parse().unwrap();
    assert_eq!(read, note);
    assert_eq!(read.verify(&known).unwrap(), [(&known[0], 0)]);
    assert_eq!(read.verify(&[key("log", KeyKind::Log, 3).verifier_key().clone()]), Err(NoteError::Unsigned));
    let altered: SignedNote = note.to_string().replacen("\n3\n", "\n4\n", 1).parse().unwrap();
    assert_eq!(altered.verify(&known), Err(NoteError::Invalid("log".to_owned())));
    let mut twice = note.to_string();
    twice.push_str(&own.sign(note.text(), 0).to_string());
    let twice: SignedNote = twice.parse().unwrap();
    assert_eq!(twice.verify(&known), Err(NoteError::Invalid("log".to_owned())), "the same key twice");
    assert!(twice.verify(&[other.verifier_key().clone()]).is_ok());
}

#[test]
fn malformed_notes_are_refused() {
    let note = SignedNote::sign(checkpoint("log"), &[key("log", KeyKind::Log, 1)]).to_string();
    assert!(note.parse::<SignedNote>().is_ok());
    for bad in [
        String::new(),
        note.trim_end().to_owned(),
        note.replace("\n\n", "\n"),
        note.replace("log\n3", "log\t\n3"),
        note.replace('\u{2014}', "-"),
        note.replace("\u{2014} log ", "\u{2014} l+g "),
        note.replace("\u{2014} log ", "\u{2014}  "),
        format!("{note}\n"),
        format!("{note}x\n"),
        "x".repeat(65_537),
    ] {
        assert!(bad.parse::<SignedNote>().is_err(), "{bad:?}");
    }
}

#[test]
fn malformed_checkpoints_are_refused() {
    let text = checkpoint("log");
    assert!(text.parse::<Checkpoint>().is_ok());
    for bad in [
        text.replace("3\n", "03\n"),
        text.replace("3\n", "+3\n"),
        text.replace("3\n", "9223372036854775808\n"),
        text.replace("log\n", "\n"),
        format!("{text}extension\n"),
        text.trim_end().to_owned(),
        text.replace("47DEQpj8", "47DEQpj"),
    ] {
        assert!(bad.parse::<Checkpoint>().is_err(), "{bad:?}");
    }
}

#[test]
fn a_policy_needs_its_log_and_its_quorum() {
    let (log, one, two) = (key("log", KeyKind::Log, 1), key("w1", KeyKind::Witness, 2), key("w2", KeyKind::Witness, 3));
    let policy = format!(
        "# comment\nlog {}\nwitness a {}\nwitness b\t{} https://b.example\ngroup g all a b\nquorum g\n",
        log.verifier_key(),
        one.verifier_key(),
        two.verifier_key()
    );
    let trust = |policy: &str| Trust { keys: Vec::new(), policy: Some(policy.parse().unwrap()) };
    let mut note = SignedNote::sign(checkpoint("log"), &[key("log", KeyKind::Log, 1)]);
    assert_eq!(trust(&policy).open(&note), Err(TrustError::Quorum));
    let first = one.sign(note.text(), 7);
    note.add([first]);
    assert_eq!(trust(&policy).open(&note), Err(TrustError::Quorum));
    assert!(trust(&policy.replace(" all ", " any ")).open(&note).is_ok());
    assert!(trust(&policy.replace(" all ", " 1 ")).open(&note).is_ok());
    assert!(trust(&policy.replace("quorum g", "quorum none")).open(&note).is_ok());
    let second = two.sign(note.text(), 8);
    note.add([second]);
    let (opened, cosigned) = trust(&policy).open(&note).unwrap();
    assert_eq!((opened.size, cosigned), (3, vec![("w1".to_owned(), 7), ("w2".to_owned(), 8)]));
    // A cosignature is over the time as well, and a log's key is no witness.
    let forged: SignedNote = note
        .to_string()
        .replace(&one.sign(note.text(), 7).to_string(), &{
            let line = one.sign(note.text(), 7).to_string();
            let (head, base64) = line.trim_end().rsplit_once(' ').unwrap();
            let mut letters: Vec<char> = base64.chars().collect();
            letters[12] = if letters[12] == 'A' { 'B' } else { 'A' };
            format!("{head} {}\n", letters.into_iter().collect::<String>())
        })
        .parse()
        .unwrap();
    assert_eq!(trust(&policy).open(&forged), Err(TrustError::Invalid("w1".to_owned())));
}

#[test]
fn mistakes_in_a_policy_are_named_with_their_line() {
    let (log, witness) = (key("log", KeyKind::Log, 1), key("w", KeyKind::Witness, 2));
    let (log, witness) = (log.verifier_key(), witness.verifier_key());
    for (policy, line) in [
        ("quorum x\n".to_owned(), 1),
        (String::new(), 1),
        ("quorum none\nquorum none\n".to_owned(), 2),
        (format!("log {witness}\nquorum none\n"), 1),
        (format!("witness w {log}\nquorum w\n"), 1),
        (format!("log {log}\nlog {log}\nquorum none\n"), 2),
        (format!("witness w {witness}\nwitness v {witness}\nquorum w\n"), 2),
        (format!("witness none {witness}\nquorum none\n"), 1),
        (format!("witness w {witness}\ngroup g 2 w\nquorum g\n"), 2),
        (format!("witness w {witness}\ngroup g 0 w\nquorum g\n"), 2),
        (format!("witness w {witness}\ngroup g 01 w\nquorum g\n"), 2),
        (format!("witness w {witness}\ngroup g any\nquorum g\n"), 2),
        (format!("witness w {witness}\ngroup g any w w\nquorum g\n"), 2),
        (format!("witness w {witness}\ngroup g any w\ngroup h any w\nquorum g\n"), 3),
        (format!("group g any w\nwitness w {witness}\nquorum g\n"), 1),
        ("quorum none".to_owned(), 1),
        ("quorum none\u{1}\n".to_owned(), 1),
        ("quorum none\r\n".to_owned(), 1),
        ("witnesses\nquorum none\n".to_owned(), 1),
    ] {
        let error = policy.parse::<Policy>().unwrap_err();
        assert_eq!(error.line, line, "{policy:?}: {error}");
    }
}
