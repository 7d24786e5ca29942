//! The files of a bundle: the existing ones, and the expected ones.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use super::{BundleError, FindingCode, Report};
use crate::tile::tiles_of;
use crate::{Hash, TileId};

/// Files at the top level of the folder that are not verified.
pub(super) const NOT_VERIFIED: [&str; 4] = ["README.md", "verify.py", "policy", "vkey"];

/// Reports the files that are missing and those that do not belong to a tree of this size. Returns the parts that
/// exist, in order.
pub(super) fn examine(dir: &Path, size: u64, report: &mut Report) -> Result<Vec<Hash>, BundleError> {
    let mut parts = Vec::new();
    for (name, is_file, is_folder) in entries(dir)? {
        match name.as_str() {
            "checkpoint" => {}
            "tile" if is_folder => walk(dir, "tile", &mut |path, is_file| {
                if !is_file || !belongs(path, size) {
                    report.find(FindingCode::FileUnexpected, path);
                }
            })?,
            "parts" if is_folder => walk(dir, "parts", &mut |path, is_file| match path
                .strip_prefix("parts/")
                .and_then(Hash::from_hex)
                .filter(|_| is_file)
            {
                Some(digest) => parts.push(digest),
                None => report.find(FindingCode::FileUnexpected, path),
            })?,
            _ if is_file && NOT_VERIFIED.contains(&name.as_str()) => {}
            _ => report.find(FindingCode::FileUnexpected, name),
        }
    }
    for path in tiles_of(size).flat_map(paths) {
        if report.is_full(FindingCode::FileMissing) {
            break;
        }
        if !is_regular(dir, &path) {
            report.find(FindingCode::FileMissing, path);
        }
    }
    parts.sort_unstable();
    Ok(parts)
}

fn paths(tile: TileId) -> Vec<String> {
    if tile.level() == 0 { vec![tile.path(), tile.entries_path()] } else { vec![tile.path()] }
}

/// Whether a bundle of this size has a file at this path.
fn belongs(path: &str, size: u64) -> bool {
    let Some((level, place)) = path.strip_prefix("tile/").and_then(|path| path.split_once('/')) else { return false };
    let (full, _) = place.split_once(".p/").unwrap_or((place, ""));
    let digits: String = full.chars().filter(char::is_ascii_digit).collect();
    let Ok(index) = digits.parse() else { return false };
    let tile = if level == "entries" { Some(0) } else { level.parse().ok().filter(|level| *level < 8) };
    let tile = tile.and_then(|level| TileId::of_tree(size, level, index));
    tile.is_some_and(|tile| path == if level == "entries" { tile.entries_path() } else { tile.path() })
}

/// The names in a folder, sorted, and whether each is a regular file or a folder. A name that is not UTF-8 is shown
/// as far as possible.
fn entries(folder: &Path) -> Result<Vec<(String, bool, bool)>, BundleError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(BundleError::at(folder))? {
        let entry = entry.map_err(BundleError::at(folder))?;
        let kind = entry.file_type().map_err(BundleError::at(folder))?;
        names.push((entry.file_name().to_string_lossy().into_owned(), kind.is_file(), kind.is_dir()));
    }
    names.sort_unstable();
    Ok(names)
}

/// Calls `found` for everything below a folder except non-empty folders, and says whether it is a regular file.
fn walk(dir: &Path, folder: &str, found: &mut impl FnMut(&str, bool)) -> Result<(), BundleError> {
    let names = entries(&dir.join(folder))?;
    for (name, is_file, is_folder) in names {
        let path = format!("{folder}/{name}");
        if !is_folder {
            found(&path, is_file);
        } else if fs::read_dir(dir.join(&path)).map_err(BundleError::at(dir))?.next().is_none() {
            found(&path, false);
        } else {
            walk(dir, &path, found)?;
        }
    }
    Ok(())
}

/// The bytes of a regular file of the bundle; empty if it has more than `most` bytes. `None` if there is no such
/// file.
pub(super) fn read(dir: &Path, path: &str, most: u64) -> Result<Option<Vec<u8>>, BundleError> {
    if !is_regular(dir, path) {
        return Ok(None);
    }
    let path = dir.join(path);
    let mut bytes = Vec::new();
    let file = File::open(&path).map_err(BundleError::at(&path))?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(BundleError::at(&path))?;
    Ok(Some(if bytes.len() as u64 <= most { bytes } else { Vec::new() }))
}

/// Whether the bundle has a regular file at this path that is reached without links.
fn is_regular(dir: &Path, path: &str) -> bool {
    let folders = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
    let is = |path: &str, of_kind: fn(&fs::Metadata) -> bool| {
        fs::symlink_metadata(dir.join(path)).is_ok_and(|found| of_kind(&found))
    };
    folders.into_iter().all(|folder| is(folder, fs::Metadata::is_dir)) && is(path, fs::Metadata::is_file)
}

/// The bytes of a file that an argument names: a note or a proof.
pub(super) fn read_argument(path: &Path) -> Result<Vec<u8>, BundleError> {
    const MAX_BYTES: u64 = 1 << 18;
    let found = fs::metadata(path).map_err(BundleError::at(path))?;
    if !found.is_file() {
        let error = io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file");
        return Err(BundleError { path: path.to_owned(), error });
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(BundleError::at(path))?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(BundleError::at(path))?;
    Ok(if bytes.len() as u64 <= MAX_BYTES { bytes } else { Vec::new() })
}
