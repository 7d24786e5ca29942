//! The folder of a bundle that is being written. It is marked as incomplete until everything in it is on the disk.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::BundleError;
use super::files::NOT_VERIFIED;

/// The name of the checkpoint until the bundle is complete. The file is created first, and renaming it is the last
/// change of the folder.
pub const INCOMPLETE_CHECKPOINT: &str = "checkpoint.incomplete";

const EXPLANATION: &str = "The export into this folder is not complete: it is running, or it was interrupted. \
    `countersign audit export` into this folder begins it again.\n";

/// A folder in which one process writes a bundle.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// The file [`INCOMPLETE_CHECKPOINT`]. It stays locked until the bundle is complete or the process ends.
    incomplete: File,
    sync: fn(&Path) -> io::Result<()>,
}

impl Folder {
    /// Opens a new folder, an empty one, or that of an interrupted export, whose files are removed.
    pub(super) fn open(path: &Path) -> Result<Self, BundleError> {
        fs::create_dir_all(path).map_err(BundleError::at(path))?;
        Self::begin(path).map_err(BundleError::at(path))
    }

    fn begin(path: &Path) -> io::Result<Self> {
        let marker = path.join(INCOMPLETE_CHECKPOINT);
        let is_empty = fs::read_dir(path)?.next().is_none();
        if !is_empty && !is_regular(&marker) {
            return Err(io::Error::new(ErrorKind::DirectoryNotEmpty, "the folder is not empty"));
        }
        let mut incomplete = OpenOptions::new().write(true).create(is_empty).open(&marker)?;
        incomplete.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                io::Error::new(ErrorKind::WouldBlock, "another process is exporting into this folder")
            }
            TryLockError::Error(error) => error,
        })?;
        remove_interrupted(path)?;
        incomplete.set_len(0)?;
        incomplete.write_all(EXPLANATION.as_bytes())?;
        Ok(Self { path: path.to_owned(), incomplete, sync })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a new file.
    pub(super) fn write(&self, path: &str, bytes: &[u8]) -> Result<(), BundleError> {
        let path = self.path.join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(BundleError::at(folder))?;
        }
        let written = File::create_new(&path).and_then(|mut file| file.write_all(bytes));
        written.map_err(BundleError::at(&path))
    }

    /// Waits until everything that was written is on the disk.
    pub(super) fn sync(&self) -> Result<(), BundleError> {
        (self.sync)(&self.path).map_err(BundleError::at(&self.path))
    }

    /// Completes the bundle by writing its checkpoint, which is on the disk when this returns.
    pub(super) fn complete(mut self, checkpoint: &[u8]) -> Result<(), BundleError> {
        let (from, to) = (self.path.join(INCOMPLETE_CHECKPOINT), self.path.join("checkpoint"));
        let written = (|| {
            io::Seek::rewind(&mut self.incomplete)?;
            self.incomplete.set_len(0)?;
            self.incomplete.write_all(checkpoint)?;
            self.incomplete.sync_all()?;
            fs::rename(&from, &to)?;
            os::sync_folder(&self.path)
        })();
        written.map_err(BundleError::at(&to))
    }
}

fn is_regular(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

/// Removes the files of an export. A folder with anything else is not touched.
fn remove_interrupted(path: &Path) -> io::Result<()> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == INCOMPLETE_CHECKPOINT {
            continue;
        }
        let (name, kind) = (name.to_string_lossy(), entry.file_type()?);
        let is_folder = kind.is_dir() && matches!(&*name, "tile" | "parts");
        let is_file = kind.is_file() && NOT_VERIFIED.contains(&&*name);
        if !is_folder && !is_file {
            let why =
                format!("{name} is not of the interrupted export in this folder: remove it, or take another folder");
            return Err(io::Error::new(ErrorKind::DirectoryNotEmpty, why));
        }
        found.push((entry.path(), is_folder));
    }
    found
        .iter()
        .try_for_each(|(path, is_folder)| if *is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) })
}

/// Syncs the file system of a folder. This is one wait, while a bundle may have a file for each part of a million
/// records. It also waits for what other programs have written to that file system.
#[cfg(target_os = "linux")]
fn sync(path: &Path) -> io::Result<()> {
    nix::unistd::syncfs(File::open(path)?).map_err(io::Error::from)
}

/// Syncs a folder, its name and everything in it.
#[cfg(not(target_os = "linux"))]
fn sync(path: &Path) -> io::Result<()> {
    fn sync_below(path: &Path) -> io::Result<()> {
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                sync_below(&entry.path())?
            } else {
                // Windows syncs only what is open for writing.
                OpenOptions::new().write(true).open(entry.path())?.sync_all()?
            }
        }
        os::sync_folder(path)
    }
    sync_below(path)?;
    path.canonicalize()?.parent().map_or(Ok(()), os::sync_folder)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed, and says where")]
mod tests {
    use super::*;
    use crate::{BundleWriter, Checkpoint, SignedNote};

    fn refuse(_: &Path) -> io::Result<()> {
        Err(io::Error::other("the disk is gone"))
    }

    /// The disk has everything at this moment except for the checkpoint.
    fn inspect(path: &Path) -> io::Result<()> {
        for file in ["README.md", "tile/0/000.p/3", "tile/entries/000.p/3", "parts", INCOMPLETE_CHECKPOINT] {
            assert!(path.join(file).exists(), "{file} is written before the disk is waited for");
        }
        assert!(!path.join("checkpoint").exists(), "the checkpoint is written after the disk was waited for");
        File::create(path.with_extension("synced")).map(drop)
    }

    fn write(dir: &Path, sync: fn(&Path) -> io::Result<()>) -> Result<(), BundleError> {
        let mut writer = BundleWriter::create(dir)?;
        writer.folder.sync = sync;
        writer.extra("README.md", b"")?;
        writer.part(&[0; 16], b"{}")?;
        for entry in ["a", "b", "c"] {
            writer.entry(entry.as_bytes())?;
        }
        let checkpoint = Checkpoint { origin: "log".to_owned(), size: 3, root: writer.root() };
        writer.finish(&SignedNote::sign(checkpoint.to_string(), &[]))
    }

    #[test]
    fn everything_is_on_the_disk_before_the_checkpoint_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("bundle");
        write(&dir, inspect).unwrap();
        assert!(folder.path().join("bundle.synced").exists(), "the disk was waited for");
        assert!(dir.join("checkpoint").exists() && !dir.join(INCOMPLETE_CHECKPOINT).exists());
    }

    #[test]
    fn without_the_disk_there_is_no_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let error = write(folder.path(), refuse).unwrap_err();
        assert!(error.to_string().contains("the disk is gone"), "{error}");
        assert!(!folder.path().join("checkpoint").exists() && folder.path().join(INCOMPLETE_CHECKPOINT).exists());
    }
}
