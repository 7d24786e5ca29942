//! Tiles (c2sp.org/tlog-tiles): the tree in pieces of 256 hashes. Roots and proofs are computed from the tiles that
//! they need.

use std::collections::{BTreeMap, BTreeSet};

use crate::Hash;
use crate::tree::node_hash;

/// The number of hashes of a full tile. `TILE_HEIGHT` is its logarithm.
pub(crate) const TILE_WIDTH: u64 = 256;
const TILE_HEIGHT: u32 = 8;

/// One tile: level, index in the level, and the number of its hashes, 1 to 256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TileId {
    level: u32,
    index: u64,
    width: u16,
}

/// A tile that a computation needs is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the tile {} is missing or incomplete", .0.path())]
pub struct MissingTileError(pub TileId);

impl TileId {
    /// The tile at this place in a tree of this size; `None` if the tree has none there.
    #[must_use]
    pub fn of_tree(size: u64, level: u32, index: u64) -> Option<Self> {
        let hashes = size.checked_shr(level * TILE_HEIGHT).unwrap_or(0);
        let width = hashes.saturating_sub(index.checked_mul(TILE_WIDTH)?).min(TILE_WIDTH);
        let width = u16::try_from(width).ok().filter(|width| *width > 0)?;
        Some(Self { level, index, width })
    }

    /// The level: 0 for the hashes of leaves. A hash of level n covers 256^n leaves.
    #[must_use]
    pub const fn level(self) -> u32 {
        self.level
    }

    /// The index among the tiles of its level.
    #[must_use]
    pub const fn index(self) -> u64 {
        self.index
    }

    /// The number of hashes, 1 to 256.
    #[must_use]
    pub const fn width(self) -> u16 {
        self.width
    }

    /// The path of the tile: `tile/0/x001/234.p/17`.
    #[must_use]
    pub fn path(self) -> String {
        format!("tile/{}/{}", self.level, self.place())
    }

    /// The path of the entries below a tile of level 0: `tile/entries/x001/234.p/17`.
    #[must_use]
    pub fn entries_path(self) -> String {
        format!("tile/entries/{}", self.place())
    }

    fn place(self) -> String {
        let mut place = format!("{:03}", self.index % 1000);
        let mut rest = self.index / 1000;
        while rest > 0 {
            place = format!("x{:03}/{place}", rest % 1000);
            rest /= 1000;
        }
        if u64::from(self.width) < TILE_WIDTH {
            place = format!("{place}.p/{}", self.width);
        }
        place
    }
}

/// All tiles of a tree of this size.
pub fn tiles_of(size: u64) -> impl Iterator<Item = TileId> {
    (0..TILE_HEIGHT).flat_map(move |level| (0..).map_while(move |index| TileId::of_tree(size, level, index)))
}

/// The tiles that are needed for the root of a tree of this size.
#[must_use]
pub fn tiles_for_root(size: u64) -> BTreeSet<TileId> {
    let mut needed = NeededTiles { size, tiles: BTreeSet::new() };
    let Ok(_) = range_root(&mut needed, 0, size);
    needed.tiles
}

/// The tiles that are needed to prove that a tree of this size has a leaf at this index.
#[must_use]
pub fn tiles_for_inclusion(index: u64, size: u64) -> BTreeSet<TileId> {
    let mut needed = NeededTiles { size, tiles: BTreeSet::new() };
    let Ok(_) = inclusion(&mut needed, index, 0, size);
    needed.tiles
}

/// The tiles that are needed to prove that a tree of size `new` extends one of size `old`.
#[must_use]
pub fn tiles_for_consistency(old: u64, new: u64) -> BTreeSet<TileId> {
    let mut needed = NeededTiles { size: new, tiles: BTreeSet::new() };
    let Ok(_) = consistency(&mut needed, old, (0, new), true);
    needed.tiles
}

#[derive(Debug, Clone, Default)]
pub struct TileSet {
    tiles: BTreeMap<(u32, u64), Vec<Hash>>,
}

impl TileSet {
    /// Adds the hashes of a tile. If the tile exists with another width, the wider version is kept.
    pub fn insert(&mut self, id: TileId, hashes: Vec<Hash>) {
        let kept = self.tiles.entry((id.level, id.index)).or_default();
        if kept.len() < hashes.len() {
            *kept = hashes;
        }
    }

    pub fn root(&self, size: u64) -> Result<Hash, MissingTileError> {
        range_root(&mut Loaded { tiles: self, size }, 0, size)
    }

    /// The proof that the tree of this size has a leaf at this index, from the leaf to the root. Empty if the index
    /// is not in the tree.
    pub fn inclusion_proof(&self, index: u64, size: u64) -> Result<Vec<Hash>, MissingTileError> {
        inclusion(&mut Loaded { tiles: self, size }, index, 0, size)
    }

    /// The proof that the tree of size `new` extends the one of size `old`. Empty if `old` is 0.
    pub fn consistency_proof(&self, old: u64, new: u64) -> Result<Vec<Hash>, MissingTileError> {
        consistency(&mut Loaded { tiles: self, size: new }, old, (0, new), true)
    }
}

/// A source of the roots of full subtrees.
trait Subtrees {
    type Error;
    /// The root of a subtree with 2^height leaves. `index` counts the subtrees of this height.
    fn root(&mut self, height: u32, index: u64) -> Result<Hash, Self::Error>;
}

struct NeededTiles {
    size: u64,
    tiles: BTreeSet<TileId>,
}

impl Subtrees for NeededTiles {
    type Error = std::convert::Infallible;

    fn root(&mut self, height: u32, index: u64) -> Result<Hash, Self::Error> {
        let (level, first) = (height / TILE_HEIGHT, index << (height % TILE_HEIGHT));
        self.tiles.extend(TileId::of_tree(self.size, level, first / TILE_WIDTH));
        Ok(Hash::EMPTY_ROOT)
    }
}

struct Loaded<'a> {
    tiles: &'a TileSet,
    size: u64,
}

impl Subtrees for Loaded<'_> {
    type Error = MissingTileError;

    fn root(&mut self, height: u32, index: u64) -> Result<Hash, MissingTileError> {
        let (level, bits) = (height / TILE_HEIGHT, height % TILE_HEIGHT);
        let first = index << bits;
        let tile = first / TILE_WIDTH;
        let missing = || {
            MissingTileError(TileId::of_tree(self.size, level, tile).unwrap_or(TileId {
                level,
                index: tile,
                width: 256,
            }))
        };
        let start = usize::try_from(first % TILE_WIDTH).map_err(|_| missing())?;
        let hashes = self.tiles.tiles.get(&(level, tile)).and_then(|hashes| hashes.get(start..start + (1 << bits)));
        let mut hashes = hashes.ok_or_else(missing)?.to_vec();
        while hashes.len() > 1 {
            let (pairs, _) = hashes.as_chunks::<2>();
            hashes = pairs.iter().map(|[left, right]| node_hash(left, right)).collect();
        }
        hashes.first().copied().ok_or_else(missing)
    }
}

/// The largest power of two below `leaves`, which must be more than 1.
const fn split(leaves: u64) -> u64 {
    1 << (u64::BITS - 1 - (leaves - 1).leading_zeros())
}

/// The root over the leaves in `first..end`.
fn range_root<S: Subtrees>(tree: &mut S, first: u64, end: u64) -> Result<Hash, S::Error> {
    let leaves = end - first;
    if leaves == 0 {
        return Ok(Hash::EMPTY_ROOT);
    }
    if leaves.is_power_of_two() {
        return tree.root(leaves.trailing_zeros(), first / leaves);
    }
    let middle = first + split(leaves);
    Ok(node_hash(&range_root(tree, first, middle)?, &range_root(tree, middle, end)?))
}

fn inclusion<S: Subtrees>(tree: &mut S, index: u64, first: u64, end: u64) -> Result<Vec<Hash>, S::Error> {
    if end - first <= 1 || index >= end {
        return Ok(Vec::new());
    }
    let middle = first + split(end - first);
    let (mut proof, beside) = if index < middle {
        (inclusion(tree, index, first, middle)?, range_root(tree, middle, end)?)
    } else {
        (inclusion(tree, index, middle, end)?, range_root(tree, first, middle)?)
    };
    proof.push(beside);
    Ok(proof)
}

/// The proof for a subtree. `is_known`: the subtree is the whole older tree, whose root the verifier has.
fn consistency<S: Subtrees>(
    tree: &mut S,
    old: u64,
    (first, end): (u64, u64),
    is_known: bool,
) -> Result<Vec<Hash>, S::Error> {
    if old == 0 || old > end {
        return Ok(Vec::new());
    }
    if old == end {
        return if is_known { Ok(Vec::new()) } else { Ok(vec![range_root(tree, first, end)?]) };
    }
    let middle = first + split(end - first);
    let (mut proof, beside) = if old <= middle {
        (consistency(tree, old, (first, middle), is_known)?, range_root(tree, middle, end)?)
    } else {
        (consistency(tree, old, (middle, end), false)?, range_root(tree, first, middle)?)
    };
    proof.push(beside);
    Ok(proof)
}
