//! Verifies a bundle in the order of `docs/reference/log-format.md`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::report::MAX_PER_CODE;
use super::{BundleError, FindingCode, Report, SALT_BYTES, files};
use crate::note::MAX_NOTE_BYTES;
use crate::tree::leaf_hash;
use crate::{
    Checkpoint, Entry, EntryProof, Frontier, Hash, MAX_ENTRY_BYTES, SignedNote, TileId, Trust, TrustError, root_of,
    split_entries,
};

/// The maximum size of a file of 256 entries, and of 256 hashes, in bytes.
const MAX_ENTRIES_BYTES: u64 = 256 * (2 + 65_535);
const TILE_BYTES: u64 = 256 * 32;

/// A log under verification.
struct TreeVerifier<'a> {
    dir: &'a Path,
    size: u64,
    from_entries: Option<Frontier>,
    from_tiles: Option<Frontier>,
    /// The first entries whose hashes differ from those of the tiles, and the first tiles that differ.
    differing: (Vec<u64>, Vec<TileId>),
    /// The roots of full tiles, which must be the hashes of the tiles above them.
    nodes: Vec<Hash>,
    /// The tiles above level 0 that differ from the roots below them.
    altered: Vec<TileId>,
    /// The sizes of earlier checkpoints, with the root of the tree at each size.
    sizes: BTreeMap<u64, Option<Hash>>,
    long: Vec<u64>,
    malformed: Vec<u64>,
    /// The parts that exist, and which of them an entry names.
    parts: &'a [Hash],
    named: Vec<bool>,
}

/// Verifies a bundle, and that it is consistent with earlier checkpoints.
pub fn verify_bundle(dir: &Path, trust: &Trust, earlier: &[PathBuf]) -> Result<Report, BundleError> {
    let mut report = Report::default();
    // An absent folder is an error, not a bundle with findings.
    dir.read_dir().map_err(BundleError::at(dir))?;
    let checkpoint = files::read(dir, "checkpoint", MAX_NOTE_BYTES as u64)?.unwrap_or_default();
    let Some(checkpoint) = open_checkpoint(&checkpoint, "checkpoint", trust, &mut report) else {
        return Ok(report);
    };
    let mut kept = Vec::new();
    let mut later = Report::default();
    for path in earlier {
        let place = path.display().to_string();
        let bytes = files::read_argument(path)?;
        if let Some(one) = open_checkpoint(&bytes, &place, trust, &mut later) {
            kept.push((place, one));
        }
    }
    report.origin = Some(checkpoint.origin.clone());
    (report.size, report.root) = (Some(checkpoint.size), Some(checkpoint.root));
    let parts = files::examine(dir, checkpoint.size, &mut report)?;
    let sizes = kept.iter().map(|(_, one)| (one.size, None)).collect();
    let mut tree = TreeVerifier {
        dir,
        size: checkpoint.size,
        from_entries: Some(Frontier::default()),
        from_tiles: Some(Frontier::default()),
        differing: (Vec::new(), Vec::new()),
        nodes: Vec::new(),
        altered: Vec::new(),
        sizes,
        long: Vec::new(),
        malformed: Vec::new(),
        named: vec![false; parts.len()],
        parts: &parts,
    };
    tree.read_level_0(&mut report)?;
    tree.read_higher_levels(&mut report)?;
    tree.compare_roots(&checkpoint, &mut report);
    tree.long.iter().for_each(|index| report.find(FindingCode::EntryTooLong, index));
    tree.malformed.iter().for_each(|index| report.find(FindingCode::EntryMalformed, index));
    tree.verify_parts(&mut report)?;
    report.findings.append(&mut later.findings);
    for (place, one) in kept {
        let is_newer = one.size > checkpoint.size;
        if is_newer {
            report.find(FindingCode::CheckpointNewer, &place);
        }
        let root = tree.sizes.get(&one.size).copied().flatten().filter(|_| !is_newer);
        if one.origin != checkpoint.origin || root.is_some_and(|root| root != one.root) {
            report.find(FindingCode::CheckpointInconsistent, &place);
        }
    }
    Ok(report)
}

/// Verifies the proof of an entry.
pub fn verify_proof(path: &Path, trust: &Trust) -> Result<Report, BundleError> {
    let mut report = Report::default();
    let place = path.display().to_string();
    let bytes = files::read_argument(path)?;
    let proof = std::str::from_utf8(&bytes).ok().and_then(|text| text.parse::<EntryProof>().ok());
    let Some(proof) = proof else {
        report.find(FindingCode::ProofMalformed, place);
        return Ok(report);
    };
    let opened = trust.open(&proof.checkpoint);
    if opened == Err(TrustError::Malformed) {
        report.find(FindingCode::ProofMalformed, place);
        return Ok(report);
    }
    let Some(checkpoint) = accept(opened, &place, &mut report) else { return Ok(report) };
    if proof.verify(&checkpoint).is_err() {
        report.find(FindingCode::ProofInvalid, place);
    }
    if proof.entry.len() > MAX_ENTRY_BYTES {
        report.find(FindingCode::EntryTooLong, proof.index);
    }
    match Entry::parse(&proof.entry) {
        Ok(entry) => report.withheld = entry.parts().count() as u64,
        Err(_) => report.find(FindingCode::EntryMalformed, proof.index),
    }
    report.entries = 1;
    report.origin = Some(checkpoint.origin);
    (report.size, report.root) = (Some(checkpoint.size), Some(checkpoint.root));
    Ok(report)
}

/// Opens the checkpoint in these bytes; `None` if it is not accepted.
fn open_checkpoint(bytes: &[u8], place: &str, trust: &Trust, report: &mut Report) -> Option<Checkpoint> {
    let note = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<SignedNote>().ok());
    let Some(note) = note else {
        report.find(FindingCode::CheckpointMalformed, place);
        return None;
    };
    accept(trust.open(&note), place, report)
}

fn accept(
    opened: Result<(Checkpoint, Vec<(String, u64)>), TrustError>,
    place: &str,
    report: &mut Report,
) -> Option<Checkpoint> {
    let code = match opened {
        Ok((checkpoint, cosigned)) => {
            report.cosigned.extend(cosigned);
            return Some(checkpoint);
        }
        Err(TrustError::Malformed) => FindingCode::CheckpointMalformed,
        Err(TrustError::Unsigned) => FindingCode::CheckpointUnsigned,
        Err(TrustError::Invalid(_)) => FindingCode::SignatureInvalid,
        Err(TrustError::Quorum) => FindingCode::PolicyNotMet,
    };
    report.find(code, place);
    None
}

impl TreeVerifier<'_> {
    /// Reads the entries together with the tiles of level 0.
    fn read_level_0(&mut self, report: &mut Report) -> Result<(), BundleError> {
        self.note_size();
        let size = self.size;
        for id in (0..).map_while(|index| TileId::of_tree(size, 0, index)) {
            if report.is_full(FindingCode::FileMissing) {
                (self.from_entries, self.from_tiles) = (None, None);
                break;
            }
            let file = files::read(self.dir, &id.entries_path(), MAX_ENTRIES_BYTES)?;
            let entries = file.as_deref().and_then(|bytes| entries_of(id, bytes, report));
            let tile = self.read_tile(id, report)?;
            let hashes: Option<Vec<Hash>> =
                entries.as_ref().map(|entries| entries.iter().map(|entry| leaf_hash(entry)).collect());
            if let (Some(hashes), Some(tile)) = (&hashes, &tile) {
                let differs = hashes.iter().zip(tile).zip(id.index() * 256..).filter(|((own, other), _)| own != other);
                for (_, index) in differs {
                    push_bounded(&mut self.differing.0, index);
                    if self.differing.1.last() != Some(&id) {
                        push_bounded(&mut self.differing.1, id);
                    }
                }
            }
            for (index, entry) in (id.index() * 256..).zip(entries.iter().flatten()) {
                self.read_entry(index, entry, report);
            }
            extend(&mut self.from_tiles, tile.as_deref());
            match (&mut self.from_entries, &hashes) {
                (Some(tree), Some(hashes)) => {
                    for hash in hashes {
                        tree.append(*hash, |_, _, _| ());
                        if let Some(root) = self.sizes.get_mut(&tree.size()) {
                            *root = Some(tree.root());
                        }
                    }
                }
                _ => self.from_entries = None,
            }
            if id.width() == 256 {
                self.nodes.push(tile.map_or(Hash::EMPTY_ROOT, |tile| root_of(&tile)));
            }
        }
        Ok(())
    }

    /// Notes the root of an empty tree, which an earlier checkpoint may have.
    fn note_size(&mut self) {
        if let Some(root) = self.sizes.get_mut(&0) {
            *root = Some(Hash::EMPTY_ROOT);
        }
    }

    fn read_entry(&mut self, index: u64, entry: &[u8], report: &mut Report) {
        report.entries += 1;
        if entry.len() > MAX_ENTRY_BYTES {
            push_bounded(&mut self.long, index);
        }
        let Ok(parsed) = Entry::parse(entry) else {
            push_bounded(&mut self.malformed, index);
            return;
        };
        report.note_erasure(index, &parsed);
        for digest in parsed.parts() {
            match self.parts.binary_search(&digest) {
                Ok(at) => {
                    if let Some(named) = self.named.get_mut(at) {
                        *named = true;
                    }
                }
                Err(_) => report.withheld += 1,
            }
        }
    }

    fn read_tile(&self, id: TileId, report: &mut Report) -> Result<Option<Vec<Hash>>, BundleError> {
        let Some(bytes) = files::read(self.dir, &id.path(), TILE_BYTES)? else { return Ok(None) };
        let (hashes, rest) = bytes.as_chunks::<32>();
        if hashes.len() != usize::from(id.width()) || !rest.is_empty() {
            report.find(FindingCode::TileMalformed, id.path());
            return Ok(None);
        }
        Ok(Some(hashes.iter().map(|bytes| Hash::new(*bytes)).collect()))
    }

    /// Compares each hash of a higher tile with the root of the tile below it.
    fn read_higher_levels(&mut self, report: &mut Report) -> Result<(), BundleError> {
        for level in 1.. {
            if TileId::of_tree(self.size, level, 0).is_none() || report.is_full(FindingCode::FileMissing) {
                break;
            }
            let below = std::mem::take(&mut self.nodes);
            for id in (0..).map_while(|index| TileId::of_tree(self.size, level, index)) {
                let first = usize::try_from(id.index() * 256).unwrap_or(usize::MAX);
                let expected = below.get(first..).unwrap_or_default();
                let tile = self.read_tile(id, report)?;
                // The empty root marks a tile that could not be read.
                let differs = |(own, other): (&Hash, &Hash)| *other != Hash::EMPTY_ROOT && own != other;
                if tile.as_ref().is_some_and(|tile| tile.iter().zip(expected).any(differs)) {
                    push_bounded(&mut self.altered, id);
                }
                if id.width() == 256 {
                    self.nodes.push(tile.map_or(Hash::EMPTY_ROOT, |tile| root_of(&tile)));
                }
            }
        }
        Ok(())
    }

    fn compare_roots(&self, checkpoint: &Checkpoint, report: &mut Report) {
        let root = |tree: &Option<Frontier>| tree.as_ref().map(Frontier::root);
        let (entries, tiles) = (root(&self.from_entries), root(&self.from_tiles));
        let entries_fit = entries == Some(checkpoint.root);
        let (indexes, tiles_of_level_0) = &self.differing;
        if entries_fit {
            tiles_of_level_0.iter().for_each(|id| report.find(FindingCode::TileAltered, id.path()));
        } else {
            indexes.iter().for_each(|index| report.find(FindingCode::EntryAltered, index));
        }
        self.altered.iter().for_each(|id| report.find(FindingCode::TileAltered, id.path()));
        if entries.is_some() && tiles.is_some() && !entries_fit && tiles != Some(checkpoint.root) {
            report.find(FindingCode::RootMismatch, "checkpoint");
        }
    }

    fn verify_parts(&self, report: &mut Report) -> Result<(), BundleError> {
        for (digest, named) in self.parts.iter().zip(&self.named) {
            let place = format!("parts/{}", digest.to_hex());
            // An entry that could not be read may name the part.
            if !named && self.from_entries.is_some() {
                report.find(FindingCode::FileUnexpected, &place);
            }
            report.parts += u64::from(*named);
            let path = self.dir.join(&place);
            let (found, length) = digest_of(&path).map_err(BundleError::at(&path))?;
            if found != *digest || length < SALT_BYTES as u64 {
                report.find(FindingCode::PartAltered, place);
            }
        }
        Ok(())
    }
}

/// The entries of a file, if it has as many as its name says.
fn entries_of<'a>(id: TileId, bytes: &'a [u8], report: &mut Report) -> Option<Vec<&'a [u8]>> {
    let entries = split_entries(bytes).filter(|entries| entries.len() == usize::from(id.width()));
    if entries.is_none() {
        report.find(FindingCode::EntriesMalformed, id.entries_path());
    }
    entries
}

/// Keeps at most as many findings as are reported, so that a hostile bundle takes no more memory than a large one.
fn push_bounded<T>(found: &mut Vec<T>, one: T) {
    if found.len() < MAX_PER_CODE {
        found.push(one);
    }
}

fn extend(tree: &mut Option<Frontier>, hashes: Option<&[Hash]>) {
    match (tree.as_mut(), hashes) {
        (Some(tree), Some(hashes)) => hashes.iter().for_each(|hash| tree.append(*hash, |_, _, _| ())),
        _ => *tree = None,
    }
}

/// The SHA-256 of a file, and its length.
fn digest_of(path: &Path) -> io::Result<(Hash, u64)> {
    let mut file = File::open(path)?;
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    let mut buffer = vec![0; 65_536];
    let mut length = 0;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        context.update(buffer.get(..read).unwrap_or_default());
        length += read as u64;
    }
    let mut bytes = [0; 32];
    bytes.copy_from_slice(context.finish().as_ref());
    Ok((Hash::new(bytes), length))
}
