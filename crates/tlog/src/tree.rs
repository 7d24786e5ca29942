//! The Merkle tree of RFC 6962, section 2.1, with SHA-256: hashes, roots, and the verification of proofs (RFC 9162,
//! section 2.1.3 and 2.1.4).

use crate::Hash;

#[must_use]
pub fn leaf_hash(entry: &[u8]) -> Hash {
    Hash::of(&[&[0], entry])
}

/// The hash over two subtrees.
#[must_use]
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    Hash::of(&[&[1], left.as_bytes(), right.as_bytes()])
}

/// The root of a tree with these leaf hashes.
#[must_use]
pub fn root_of(leaves: &[Hash]) -> Hash {
    let mut tree = Frontier::default();
    for leaf in leaves {
        tree.append(*leaf, |_, _, _| ());
    }
    tree.root()
}

/// The right edge of a growing tree: the roots of its full subtrees. They are enough to append to the tree.
#[derive(Debug, Clone, Default)]
pub struct Frontier {
    size: u64,
    /// The height and the root of each subtree, from the largest to the smallest.
    subtrees: Vec<(u32, Hash)>,
}

impl Frontier {
    /// Appends the hash of a leaf. `completed` is called for each subtree that this completes, including the leaf,
    /// with its height, its index among the subtrees of that height, and its root.
    pub fn append(&mut self, leaf: Hash, mut completed: impl FnMut(u32, u64, Hash)) {
        let (mut height, mut root) = (0, leaf);
        completed(0, self.size, root);
        while let Some((_, left)) = self.subtrees.pop_if(|(beside, _)| *beside == height) {
            height += 1;
            root = node_hash(&left, &root);
            completed(height, self.size >> height, root);
        }
        self.subtrees.push((height, root));
        self.size += 1;
    }

    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    #[must_use]
    pub fn root(&self) -> Hash {
        let roots = self.subtrees.iter().rev().map(|(_, root)| *root);
        roots.reduce(|right, left| node_hash(&left, &right)).unwrap_or(Hash::EMPTY_ROOT)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// The index is not in a tree of that size, or the older tree is the larger one.
    #[error("the proof is for a tree of another size")]
    Size,
    /// There are too many or too few hashes for the sizes.
    #[error("the proof has another number of hashes than a tree of this size needs")]
    Length,
    /// The hashes lead to another root.
    #[error("the proof leads to another root")]
    Root,
}

/// Verifies that a tree of this size and root has this leaf at this index.
pub fn verify_inclusion(leaf: &Hash, index: u64, size: u64, proof: &[Hash], root: &Hash) -> Result<(), ProofError> {
    if index >= size {
        return Err(ProofError::Size);
    }
    let (mut node, mut last, mut computed) = (index, size - 1, *leaf);
    for hash in proof {
        if last == 0 {
            return Err(ProofError::Length);
        }
        if node & 1 == 1 || node == last {
            computed = node_hash(hash, &computed);
            while node & 1 == 0 && node != 0 {
                (node, last) = (node >> 1, last >> 1);
            }
        } else {
            computed = node_hash(&computed, hash);
        }
        (node, last) = (node >> 1, last >> 1);
    }
    match last {
        0 if computed == *root => Ok(()),
        0 => Err(ProofError::Root),
        _ => Err(ProofError::Length),
    }
}

/// Verifies that a tree extends an older one.
pub fn verify_consistency(
    (old_size, old_root): (u64, &Hash),
    (new_size, new_root): (u64, &Hash),
    proof: &[Hash],
) -> Result<(), ProofError> {
    if old_size > new_size {
        return Err(ProofError::Size);
    }
    if old_size == new_size || old_size == 0 {
        let is_same = if old_size == 0 { *old_root == Hash::EMPTY_ROOT } else { old_root == new_root };
        let is_empty = new_size > 0 || *new_root == Hash::EMPTY_ROOT;
        return match (proof.is_empty(), is_same && is_empty) {
            (false, _) => Err(ProofError::Length),
            (true, false) => Err(ProofError::Root),
            (true, true) => Ok(()),
        };
    }
    let with_first: Vec<Hash>;
    let proof = if old_size.is_power_of_two() {
        with_first = std::iter::once(*old_root).chain(proof.iter().copied()).collect();
        &with_first
    } else {
        proof
    };
    let (mut node, mut last) = (old_size - 1, new_size - 1);
    while node & 1 == 1 {
        (node, last) = (node >> 1, last >> 1);
    }
    let Some((first, rest)) = proof.split_first() else { return Err(ProofError::Length) };
    let (mut old, mut new) = (*first, *first);
    for hash in rest {
        if last == 0 {
            return Err(ProofError::Length);
        }
        if node & 1 == 1 || node == last {
            (old, new) = (node_hash(hash, &old), node_hash(hash, &new));
            while node & 1 == 0 && node != 0 {
                (node, last) = (node >> 1, last >> 1);
            }
        } else {
            new = node_hash(&new, hash);
        }
        (node, last) = (node >> 1, last >> 1);
    }
    match last {
        0 if old == *old_root && new == *new_root => Ok(()),
        0 => Err(ProofError::Root),
        _ => Err(ProofError::Length),
    }
}
