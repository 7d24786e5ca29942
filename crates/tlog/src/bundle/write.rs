//! Writes a bundle.

use std::io;
use std::path::Path;

use super::folder::Folder;
use super::{BundleError, SALT_BYTES};
use crate::tile::TILE_WIDTH;
use crate::tree::{leaf_hash, root_of};
use crate::{Hash, SignedNote, TileId, append_entry};

/// Writes the entries of a log one after another, and the tree over them. The checkpoint is written last, when
/// everything else is on the disk. Until then the folder contains the file `checkpoint.incomplete`, and can be
/// written again from the beginning.
#[derive(Debug)]
pub struct BundleWriter {
    pub(super) folder: Folder,
    size: u64,
    /// The hashes of the last, incomplete tile of each level.
    levels: Vec<Vec<Hash>>,
    /// The entries below the last tile, each with its length before it.
    entries: Vec<u8>,
}

impl BundleWriter {
    /// A bundle in a new folder, an empty one, or that of an interrupted export.
    ///
    /// # Errors
    /// [`BundleError`] if the folder has other files, another process is writing to it, or it cannot be created.
    pub fn create(dir: &Path) -> Result<Self, BundleError> {
        Ok(Self { folder: Folder::open(dir)?, size: 0, levels: Vec::new(), entries: Vec::new() })
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// [`BundleError`] if the entry has more than 65,535 bytes, or a file cannot be written.
    pub fn entry(&mut self, entry: &[u8]) -> Result<(), BundleError> {
        append_entry(&mut self.entries, entry)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an entry has at most 65,535 bytes"))
            .map_err(BundleError::at(self.folder.path()))?;
        self.size += 1;
        let mut hash = leaf_hash(entry);
        let mut level = 0;
        loop {
            if self.levels.len() <= level {
                self.levels.push(Vec::new());
            }
            let Some(tile) = self.levels.get_mut(level) else { return Ok(()) };
            tile.push(hash);
            if tile.len() as u64 != TILE_WIDTH {
                return Ok(());
            }
            hash = root_of(tile);
            self.write_tile(level)?;
            level += 1;
        }
    }

    /// Adds a part: the salt and the content.
    pub fn part(&mut self, salt: &[u8; SALT_BYTES], content: &[u8]) -> Result<Hash, BundleError> {
        let digest = Hash::of(&[salt, content]);
        self.folder.write(&format!("parts/{}", digest.to_hex()), &[salt.as_slice(), content].concat())?;
        Ok(digest)
    }

    /// Writes another file of a bundle, such as `README.md`.
    pub fn extra(&self, name: &str, content: &[u8]) -> Result<(), BundleError> {
        self.folder.write(name, content)
    }

    /// Writes the incomplete tiles, waits until everything is on the disk, and writes the checkpoint.
    pub fn finish(mut self, checkpoint: &SignedNote) -> Result<(), BundleError> {
        for level in 0..self.levels.len() {
            if self.levels.get(level).is_some_and(|tile| !tile.is_empty()) {
                self.write_tile(level)?;
            }
        }
        self.folder.sync()?;
        self.folder.complete(checkpoint.to_string().as_bytes())
    }

    /// The number of entries so far.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The root over the entries so far.
    #[must_use]
    pub fn root(&self) -> Hash {
        // The hashes of a tile cover earlier leaves than the subtrees of the levels below it.
        self.levels
            .iter()
            .filter(|tile| !tile.is_empty())
            .fold(None, |below, tile| {
                let hashes: Vec<Hash> = tile.clone();
                Some(join(&hashes, below))
            })
            .unwrap_or(Hash::EMPTY_ROOT)
    }

    fn write_tile(&mut self, level: usize) -> Result<(), BundleError> {
        let Some(hashes) = self.levels.get_mut(level).map(std::mem::take) else { return Ok(()) };
        let number = u32::try_from(level).unwrap_or(u32::MAX);
        let index = (self.size - 1) >> (8 * (number + 1));
        let Some(id) = TileId::of_tree(self.size, number, index) else { return Ok(()) };
        let bytes: Vec<u8> = hashes.iter().flat_map(|hash| *hash.as_bytes()).collect();
        self.folder.write(&id.path(), &bytes)?;
        if level == 0 {
            let entries = std::mem::take(&mut self.entries);
            self.folder.write(&id.entries_path(), &entries)?;
        }
        Ok(())
    }
}

/// The root over full subtrees of one level, followed by the subtree `behind`.
fn join(hashes: &[Hash], behind: Option<Hash>) -> Hash {
    let mut subtrees = Vec::new();
    let mut rest = hashes;
    while !rest.is_empty() {
        let width = 1_usize << (usize::BITS - 1 - rest.len().leading_zeros());
        let (subtree, after) = rest.split_at(width);
        subtrees.push(root_of(subtree));
        rest = after;
    }
    let all = subtrees.into_iter().chain(behind).rev();
    all.reduce(|right, left| crate::node_hash(&left, &right)).unwrap_or(Hash::EMPTY_ROOT)
}
