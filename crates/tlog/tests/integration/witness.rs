//! What a witness cosigns, and what it refuses with which status (c2sp.org/tlog-witness).

use countersign_tlog::{
    Checkpoint, CheckpointRequest, Hash, KeyKind, SignedNote, SigningKey, TileId, TileSet, Verdict, WitnessState,
    judge, leaf_hash, root_of,
};
use proptest::prelude::*;

const ORIGIN: &str = "example.com/log";

fn log_key() -> SigningKey {
    SigningKey::from_seed(ORIGIN, KeyKind::Log, [1; 32]).unwrap()
}

fn leaves(size: u64) -> Vec<Hash> {
    (0..size).map(|index| leaf_hash(&index.to_be_bytes())).collect()
}

fn state(size: u64) -> WitnessState {
    WitnessState { size, root: root_of(&leaves(size)) }
}

fn proof(old: u64, new: u64) -> Vec<Hash> {
    let mut set = TileSet::default();
    set.insert(TileId::of_tree(new, 0, 0).unwrap(), leaves(new));
    set.consistency_proof(old, new).unwrap()
}

/// The request of an honest log.
fn request(old_size: u64, size: u64) -> CheckpointRequest {
    let text = Checkpoint { origin: ORIGIN.to_owned(), size, root: root_of(&leaves(size)) }.to_string();
    let proof = if old_size == 0 || old_size >= size { Vec::new() } else { proof(old_size, size) };
    CheckpointRequest { old_size, proof, checkpoint: SignedNote::sign(text, &[log_key()]) }
}

/// The verdict of a witness that trusts the log and has this state.
fn verdict(request: &str, known: Option<WitnessState>) -> Verdict {
    judge(request, &[log_key().verifier_key().clone()], |origin| known.filter(|_| origin == ORIGIN))
}

fn cosigned(size: u64) -> Verdict {
    Verdict::Cosign(Checkpoint { origin: ORIGIN.to_owned(), size, root: root_of(&leaves(size)) })
}

#[test]
fn an_honest_log_is_cosigned_from_the_beginning_on() {
    let mut known = None;
    for (old, new) in [(0, 0), (0, 0), (0, 3), (3, 3), (3, 4), (4, 7), (7, 200), (200, 256)] {
        assert_eq!(verdict(&request(old, new).to_string(), known), cosigned(new), "{old} -> {new}");
        known = Some(state(new));
    }
}

#[test]
fn a_malformed_request_is_refused_with_400() {
    let good = request(3, 7).to_string();
    for bad in [
        String::new(),
        "old 3\n".to_owned(),
        good.replace("old 3", "old 03"),
        good.replace("old 3", "old -3"),
        good.replace("old 3", "old"),
        good.replacen('=', "", 1),
        good.replacen("\n\n", "\n", 1),
        good.replace("\n7\n", "\n07\n"),
        good.replacen("old 3\n", &format!("old 3\n{}", format!("{}\n", Hash::EMPTY_ROOT).repeat(64)), 1),
        request(8, 7).to_string(),
        good.trim_end().to_owned(),
    ] {
        assert_eq!(verdict(&bad, Some(state(3))), Verdict::Malformed, "{bad:?}");
    }
}

#[test]
fn a_checkpoint_without_a_valid_signature_of_a_trusted_key_is_refused_with_403() {
    let mut other = request(3, 7);
    let text = other.checkpoint.text().to_owned();
    other.checkpoint = SignedNote::sign(text.clone(), &[SigningKey::from_seed(ORIGIN, KeyKind::Log, [2; 32]).unwrap()]);
    assert_eq!(verdict(&other.to_string(), Some(state(3))), Verdict::Unsigned, "an unknown key of the same name");
    let forged = SignedNote::sign(text.replace("\n7\n", "\n8\n"), &[log_key()]).to_string();
    other.checkpoint = forged.replace("\n8\n", "\n7\n").parse().unwrap();
    assert_eq!(verdict(&other.to_string(), Some(state(3))), Verdict::Unsigned, "a signature of another text");
    // A witness's key is no key of a log, whatever its name is.
    let witness = SigningKey::from_seed(ORIGIN, KeyKind::Witness, [1; 32]).unwrap();
    other.checkpoint = SignedNote::new(text.clone(), vec![witness.sign(&text, 1)]);
    assert_eq!(verdict(&other.to_string(), Some(state(3))), Verdict::Unsigned);
}

#[test]
fn an_unknown_log_is_refused_with_404() {
    let judged = judge(&request(0, 3).to_string(), &[], |_| None);
    assert_eq!(judged, Verdict::UnknownLog);
    let other = SigningKey::from_seed("example.com/other", KeyKind::Log, [1; 32]).unwrap();
    let judged = judge(&request(0, 3).to_string(), &[other.verifier_key().clone()], |_| None);
    assert_eq!(judged, Verdict::UnknownLog);
}

#[test]
fn another_old_size_than_the_cosigned_one_is_refused_with_409_and_the_size() {
    assert_eq!(verdict(&request(0, 7).to_string(), Some(state(3))), Verdict::Conflict(3));
    assert_eq!(verdict(&request(5, 7).to_string(), Some(state(3))), Verdict::Conflict(3));
    assert_eq!(verdict(&request(3, 7).to_string(), None), Verdict::Conflict(0));
    // An older checkpoint again: nothing is cosigned after a larger one.
    assert_eq!(verdict(&request(3, 5).to_string(), Some(state(7))), Verdict::Conflict(7));
}

#[test]
fn a_split_view_is_refused_with_422() {
    // The same size with other entries, and a growth from other entries, each signed by the log itself.
    let other: Vec<Hash> = (0..7_u64).map(|index| leaf_hash(&(index + 100).to_be_bytes())).collect();
    let text = Checkpoint { origin: ORIGIN.to_owned(), size: 7, root: root_of(&other) }.to_string();
    let forked = |old_size, proof| CheckpointRequest {
        old_size,
        proof,
        checkpoint: SignedNote::sign(text.clone(), &[log_key()]),
    };
    assert_eq!(verdict(&forked(7, Vec::new()).to_string(), Some(state(7))), Verdict::Inconsistent);
    assert_eq!(verdict(&forked(3, proof(3, 7)).to_string(), Some(state(3))), Verdict::Inconsistent);
    let mut set = TileSet::default();
    set.insert(TileId::of_tree(7, 0, 0).unwrap(), other);
    let theirs = set.consistency_proof(3, 7).unwrap();
    assert_eq!(verdict(&forked(3, theirs).to_string(), Some(state(3))), Verdict::Inconsistent);
    // A proof where none is needed, and none where one is.
    let mut idle = request(0, 7);
    idle.proof = proof(3, 7);
    assert_eq!(verdict(&idle.to_string(), None), Verdict::Inconsistent);
    let mut bare = request(3, 7);
    bare.proof.clear();
    assert_eq!(verdict(&bare.to_string(), Some(state(3))), Verdict::Inconsistent);
    // An empty tree has one root.
    let text = Checkpoint { origin: ORIGIN.to_owned(), size: 0, root: root_of(&leaves(1)) }.to_string();
    let empty = CheckpointRequest { old_size: 0, proof: Vec::new(), checkpoint: SignedNote::sign(text, &[log_key()]) };
    assert_eq!(verdict(&empty.to_string(), None), Verdict::Inconsistent);
}

proptest! {
    /// Whatever a log sends, what is cosigned goes on from what was cosigned before.
    #[test]
    fn what_is_cosigned_goes_on_from_what_was(old in 0_u64..40, more in 0_u64..40, known in 0_u64..40, flip in 0_usize..2000) {
        let size = old + more;
        let mut body = request(old, size).to_string().into_bytes();
        if let Some(byte) = body.get_mut(flip) {
            *byte ^= 1;
        }
        let body = String::from_utf8_lossy(&body).into_owned();
        if let Verdict::Cosign(checkpoint) = verdict(&body, Some(state(known))) {
            prop_assert!(checkpoint.size >= known);
            prop_assert_eq!(checkpoint.root, root_of(&leaves(checkpoint.size)));
        }
    }
}
