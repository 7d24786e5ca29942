//! The same results as other implementations of the same specifications: `tlog_tiles` and `signed_note` of Cloudflare's log.

use countersign_tlog::{
    Checkpoint, Hash, KeyKind, SignedNote, SigningKey, TileId, TileSet, leaf_hash, root_of, tiles_for_consistency,
    tiles_for_inclusion, tiles_of, verify_consistency, verify_inclusion,
};
use proptest::prelude::*;
use signed_note::{Note, StandardSigner, StandardVerifier, VerifierList};
use tlog_tiles::{HashReader, Tile, check_record, check_tree, prove_record, prove_tree, stored_hashes, tree_hash};

/// The nodes that their log stores, by their index.
#[derive(Default)]
struct StoredHashes(Vec<tlog_tiles::Hash>);

impl HashReader for StoredHashes {
    fn read_hashes(&self, indexes: &[u64]) -> Result<Vec<tlog_tiles::Hash>, tlog_tiles::Error> {
        Ok(indexes.iter().map(|index| self.0[usize::try_from(*index).unwrap()]).collect())
    }
}

fn entry(index: u64) -> Vec<u8> {
    format!("entry {index}").into_bytes()
}

/// The tree of both, with this many leaves.
fn trees(size: u64) -> (Vec<Hash>, StoredHashes) {
    let (mut own, mut theirs) = (Vec::new(), StoredHashes::default());
    for index in 0..size {
        own.push(leaf_hash(&entry(index)));
        let hashes = stored_hashes(index, &entry(index), &theirs).unwrap();
        theirs.0.extend(hashes);
    }
    (own, theirs)
}

/// All tiles of a tree, from its leaves.
fn loaded(leaves: &[Hash]) -> TileSet {
    let mut set = TileSet::default();
    for id in tiles_of(leaves.len() as u64) {
        let span = 256_usize.pow(id.level());
        let first = usize::try_from(id.index()).unwrap() * 256;
        let hashes = (first..first + usize::from(id.width())).map(|n| root_of(&leaves[n * span..(n + 1) * span]));
        set.insert(id, hashes.collect());
    }
    set
}

fn ours(hashes: &[tlog_tiles::Hash]) -> Vec<Hash> {
    hashes.iter().map(|hash| Hash::new(hash.0)).collect()
}

fn theirs(hash: &Hash) -> tlog_tiles::Hash {
    tlog_tiles::Hash(*hash.as_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn roots_and_proofs_are_those_of_tlog_tiles(size in 1_u64..700, old in any::<prop::sample::Index>(), index in any::<prop::sample::Index>()) {
        let (leaves, stored) = trees(size);
        let whole = usize::try_from(size).unwrap();
        let (old, index) = (old.index(whole) as u64 + 1, index.index(whole) as u64);
        let root = root_of(&leaves);
        let their_root = tree_hash(size, &stored).unwrap();
        prop_assert_eq!(Hash::new(their_root.0), root);
        let set = loaded(&leaves);

        let proof = set.inclusion_proof(index, size).unwrap();
        let their_proof = prove_record(size, index, &stored).unwrap();
        prop_assert_eq!(&ours(&their_proof), &proof);
        let at = usize::try_from(index).unwrap();
        check_record(&their_proof, size, their_root, index, theirs(&leaves[at])).unwrap();
        verify_inclusion(&leaves[at], index, size, &ours(&their_proof), &root).unwrap();
        prop_assert!(tiles_for_inclusion(index, size).iter().all(|id| tiles_of(size).any(|tile| tile == *id)));

        let proof = set.consistency_proof(old, size).unwrap();
        let their_proof = prove_tree(size, old, &stored).unwrap();
        prop_assert_eq!(&ours(&their_proof), &proof);
        let old_root = root_of(&leaves[..usize::try_from(old).unwrap()]);
        check_tree(&their_proof, size, their_root, old, theirs(&old_root)).unwrap();
        verify_consistency((old, &old_root), (size, &root), &ours(&their_proof)).unwrap();
        prop_assert!(tiles_for_consistency(old, size).iter().all(|id| tiles_of(size).any(|tile| tile == *id)));
    }

    #[test]
    fn paths_of_tiles_are_those_of_tlog_tiles(size in 1_u64..u64::MAX / 2, level in 0_u8..8, index in any::<u64>()) {
        let hashes = size >> (8 * u32::from(level));
        prop_assume!(hashes > 0);
        let index = index % hashes.div_ceil(256);
        let own = TileId::of_tree(size, level.into(), index).unwrap();
        let tile = Tile::new(8, level, index, own.width().into(), false);
        // Their paths name the height of a tile as well.
        prop_assert_eq!(own.path(), tile.path().replacen("tile/8/", "tile/", 1));
    }

    #[test]
    fn notes_of_both_are_verified_by_the_other(seed in any::<[u8; 32]>(), size in 0_u64..1 << 62, name in "[a-z]{1,8}(/[a-z0-9.]{1,8})?") {
        let key = SigningKey::from_seed(&name, KeyKind::Log, seed).unwrap();
        let vkey = key.verifier_key().to_string();
        let known = VerifierList::new(vec![Box::new(StandardVerifier::new(&vkey).unwrap())]);
        let text = Checkpoint { origin: name.clone(), size, root: leaf_hash(&seed) }.to_string();
        let own = SignedNote::sign(text.clone(), &[SigningKey::from_seed(&name, KeyKind::Log, seed).unwrap()]);
        let read = Note::from_bytes(own.to_string().as_bytes()).unwrap();
        prop_assert_eq!(read.verify(&known).unwrap().0.len(), 1);

        let signer = StandardSigner::new(&key.to_secret_text()).unwrap();
        let mut note = Note::new(text.as_bytes(), &[]).unwrap();
        note.add_sigs(&[&signer]).unwrap();
        let note = String::from_utf8(note.to_bytes()).unwrap();
        prop_assert_eq!(&note, &own.to_string(), "Ed25519 signatures are deterministic");
        let parsed: SignedNote = note.parse().unwrap();
        prop_assert!(parsed.verify(&[key.verifier_key().clone()]).is_ok());
        // The same lines are refused.
        for altered in [note.replace("\n\n", "\n"), note.replace('\u{2014}', "-"), note.trim_end().to_owned(), format!("{note}\n")] {
            prop_assert_eq!(altered.parse::<SignedNote>().is_ok(), Note::from_bytes(altered.as_bytes()).is_ok(), "{}", altered);
        }
    }
}
