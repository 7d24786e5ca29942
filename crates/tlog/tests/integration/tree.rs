//! Roots and proofs: the same from tiles as from the definition of RFC 6962.

use countersign_tlog::{
    Frontier, Hash, ProofError, TileId, TileSet, leaf_hash, node_hash, root_of, tiles_for_consistency,
    tiles_for_inclusion, tiles_for_root, tiles_of, verify_consistency, verify_inclusion,
};
use proptest::prelude::*;

/// MTH of RFC 6962, section 2.1.
fn defined_root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => Hash::EMPTY_ROOT,
        [leaf] => *leaf,
        _ => {
            let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
            node_hash(&defined_root(left), &defined_root(right))
        }
    }
}

fn leaves(count: usize) -> Vec<Hash> {
    (0..count).map(|n| leaf_hash(n.to_string().as_bytes())).collect()
}

/// The hashes of a tile: of leaves, or of the full trees below it.
fn tile(leaves: &[Hash], id: TileId) -> Vec<Hash> {
    let span = 256_usize.pow(id.level());
    let first = usize::try_from(id.index()).unwrap() * 256;
    (first..first + usize::from(id.width())).map(|n| defined_root(&leaves[n * span..(n + 1) * span])).collect()
}

fn loaded(leaves: &[Hash], ids: impl IntoIterator<Item = TileId>) -> TileSet {
    let mut set = TileSet::default();
    ids.into_iter().for_each(|id| set.insert(id, tile(leaves, id)));
    set
}

#[test]
fn known_roots_of_rfc_6962_are_computed() {
    // The test vectors of Certificate Transparency.
    let entries: [&[u8]; 8] = [
        b"",
        b"\x00",
        b"\x10",
        b"\x20\x21",
        b"\x30\x31",
        b"\x40\x41\x42\x43",
        b"\x50\x51\x52\x53\x54\x55\x56\x57",
        b"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f",
    ];
    let hashes: Vec<Hash> = entries.iter().map(|entry| leaf_hash(entry)).collect();
    let known = [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ];
    for (count, root) in (1..).zip(known) {
        assert_eq!(root_of(&hashes[..count]).to_hex(), root, "{count} leaves");
    }
    assert_eq!(root_of(&[]).to_hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

#[test]
fn a_frontier_has_the_defined_root_and_completes_each_full_subtree() {
    let leaves = leaves(300);
    let mut tree = Frontier::default();
    for (count, leaf) in (1..).zip(&leaves) {
        tree.append(*leaf, |height, index, root| {
            let (first, span) = (usize::try_from(index).unwrap() << height, 1 << height);
            assert_eq!(root, defined_root(&leaves[first..first + span]), "height {height}, index {index}");
        });
        assert_eq!(tree.root(), defined_root(&leaves[..count]), "{count} leaves");
    }
}

#[test]
fn a_proof_of_another_length_than_the_size_needs_is_refused() {
    // The root of two leaves as that of a tree of four, and of one of two with one hash more.
    let leaves = leaves(2);
    let root = root_of(&leaves);
    let verify = |size, proof: &[Hash]| verify_inclusion(&leaves[0], 0, size, proof, &root);
    assert_eq!(verify(2, &leaves[1..]), Ok(()));
    assert_eq!(verify(4, &leaves[1..]), Err(ProofError::Length));
    assert_eq!(verify(2, &[leaves[1], leaves[1]]), Err(ProofError::Length));
}

#[test]
fn paths_of_tiles_are_those_of_the_specification() {
    // A tree of 70,000 has 273 full tiles and one of 112, one full tile of level 1 and one of 17, and one hash above.
    let tiles: Vec<TileId> = tiles_of(70_000).collect();
    assert_eq!(tiles.iter().filter(|id| id.level() == 0 && id.width() == 256).count(), 273);
    let partial: Vec<String> = tiles.iter().filter(|id| id.width() < 256).map(|id| id.path()).collect();
    assert_eq!(partial, ["tile/0/273.p/112", "tile/1/001.p/17", "tile/2/000.p/1"]);
    assert_eq!(TileId::of_tree(u64::MAX >> 1, 0, 1_234_067).unwrap().path(), "tile/0/x001/x234/067");
    assert_eq!(tiles_of(256).map(TileId::path).collect::<Vec<_>>(), ["tile/0/000", "tile/1/000.p/1"]);
    assert_eq!(tiles_of(0).count(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn proofs_from_the_tiles_that_they_need_hold_and_others_do_not(
        size in prop_oneof![9 => 1_usize..600, 1 => 65_500..66_000_usize], old in any::<prop::sample::Index>(), index in any::<prop::sample::Index>(), bad in any::<prop::sample::Index>(),
    ) {
        let leaves = leaves(size);
        let (old, index) = (old.index(size + 1), index.index(size));
        let (new_size, old_size) = (size as u64, old as u64);
        let root = root_of(&leaves);
        prop_assert_eq!(loaded(&leaves, tiles_for_root(new_size)).root(new_size).unwrap(), root);
        let set = loaded(&leaves, tiles_for_inclusion(index as u64, new_size));
        let mut proof = set.inclusion_proof(index as u64, new_size).unwrap();
        prop_assert!(verify_inclusion(&leaves[index], index as u64, new_size, &proof, &root).is_ok());
        if !proof.is_empty() {
            let at = bad.index(proof.len());
            proof[at] = leaf_hash(b"another");
            prop_assert!(verify_inclusion(&leaves[index], index as u64, new_size, &proof, &root).is_err());
            proof.pop();
            prop_assert!(verify_inclusion(&leaves[index], index as u64, new_size, &proof, &root).is_err());
        }
        let old_root = root_of(&leaves[..old]);
        let set = loaded(&leaves, tiles_for_consistency(old_size, new_size));
        let mut proof = set.consistency_proof(old_size, new_size).unwrap();
        prop_assert!(verify_consistency((old_size, &old_root), (new_size, &root), &proof).is_ok());
        if old > 0 && old < size {
            prop_assert!(verify_consistency((old_size, &leaf_hash(b"another")), (new_size, &root), &proof).is_err());
            prop_assert!(verify_consistency((old_size, &old_root), (new_size, &leaf_hash(b"another")), &proof).is_err());
            let at = bad.index(proof.len());
            proof[at] = leaf_hash(b"another");
            prop_assert!(verify_consistency((old_size, &old_root), (new_size, &root), &proof).is_err());
        }
    }
}
