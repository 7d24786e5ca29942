//! Reads, edits and replaces a file of another program without losing anything.
//!
//! The new content is written to a file beside it, which is then renamed, so that a reader sees either the old or the
//! new content. A lock on the folder keeps two of these commands apart. The client itself takes no lock, so the
//! content is compared once more just before the file is replaced.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use manifest::Source;
use os::{FolderLock, copy_owner_and_mode, create_private_folders, sync_folder};

use super::edit::EditError;

/// The byte order mark of UTF-8. Some editors on Windows write it.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// The maximum number of attempts, if another program keeps changing the file.
const MAX_ATTEMPTS: usize = 5;

/// The mode of a new file of the user. The file may later contain secrets of other servers.
pub(in crate::commands) const PRIVATE: u32 = 0o600;

/// The mode of a new file of a project, before the umask of the process.
const SHARED: u32 = 0o666;

/// A configuration file, which may not exist yet.
#[derive(Debug)]
pub(super) struct ConfigFile {
    pub(super) path: PathBuf,
    /// The file itself, if `path` is a symbolic link.
    target: PathBuf,
    is_private: bool,
}

struct Content {
    bytes: Vec<u8>,
    metadata: Metadata,
}

/// What an edit has done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Saved {
    Unchanged,
    Created,
    /// The file was replaced; the previous content is in this file.
    Replaced(PathBuf),
}

impl ConfigFile {
    /// The file at this path. `is_private`: a new file is readable only by its owner.
    pub(super) fn at(path: PathBuf, is_private: bool) -> anyhow::Result<Self> {
        let target = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => fs::canonicalize(&path).with_context(|| {
                let to = fs::read_link(&path).unwrap_or_default();
                format!("{} is a symbolic link to {}, which cannot be found", path.display(), to.display())
            })?,
            Ok(_) => path.clone(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.clone(),
            Err(error) => return Err(error).with_context(|| format!("{} cannot be read", path.display())),
        };
        Ok(Self { path, target, is_private })
    }

    /// The text without a byte order mark; empty if there is no file.
    pub(super) fn text(&self) -> anyhow::Result<String> {
        let content = self.content()?;
        let text = content.map(|content| self.decoded(content.bytes)).transpose()?.unwrap_or_default();
        Ok(text.strip_prefix(BYTE_ORDER_MARK).map_or_else(|| text.clone(), str::to_owned))
    }

    pub(super) fn has_folder(&self) -> bool {
        self.target.parent().is_some_and(Path::exists)
    }

    pub(super) fn is_readable_by_others(&self) -> bool {
        fs::metadata(&self.target).is_ok_and(|found| os::mode(&found) & 0o077 != 0)
    }

    /// Refuses a file that its owner has made read-only. A rename would replace it, since a rename depends only on
    /// the folder's mode.
    pub(super) fn check_writable(&self) -> anyhow::Result<()> {
        let path = self.path.display();
        let named = || format!("{path} cannot be written");
        match fs::metadata(&self.target) {
            Ok(found) => ensure!(os::mode(&found) & 0o222 != 0, "{path} is read-only: nothing was changed"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error).with_context(named),
        }
        OpenOptions::new().write(true).open(&self.target).with_context(named)?;
        Ok(())
    }

    /// Edits the text. If `edit` returns `None`, the file stays as it is.
    pub(super) fn edit(
        &self,
        mut edit: impl FnMut(&str) -> Result<Option<String>, EditError>,
    ) -> anyhow::Result<Saved> {
        let folder = self.folder()?;
        if !folder.exists() {
            fs::create_dir_all(folder).with_context(|| format!("the folder {} cannot be made", folder.display()))?;
        }
        let _lock = locked(folder)?;
        for _ in 0..MAX_ATTEMPTS {
            let content = self.content()?;
            let old = content.as_ref().map(|content| self.decoded(content.bytes.clone())).transpose()?;
            let old = old.unwrap_or_default();
            let (mark, text) = match old.strip_prefix(BYTE_ORDER_MARK) {
                Some(text) => (BYTE_ORDER_MARK, text),
                None => ("", old.as_str()),
            };
            let Some(new) = edit(text).map_err(|error| self.located(text, &error))? else {
                return Ok(Saved::Unchanged);
            };
            if let Some(saved) = self.replace(folder, content, &format!("{mark}{new}"))? {
                return Ok(saved);
            }
        }
        bail!("{} was changed by another program {MAX_ATTEMPTS} times: close it and try again", self.path.display())
    }

    /// The error for an invalid text, with line and column.
    pub(super) fn located(&self, text: &str, error: &EditError) -> anyhow::Error {
        let source = Source { path: self.path.clone(), text: text.to_owned() };
        anyhow::anyhow!("{}: {}; nothing was changed", source.locate(error.at), error.message)
    }

    fn folder(&self) -> anyhow::Result<&Path> {
        self.target.parent().with_context(|| format!("{} is in no folder", self.path.display()))
    }

    fn decoded(&self, bytes: Vec<u8>) -> anyhow::Result<String> {
        String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            anyhow::anyhow!(
                "{} is not UTF-8 (byte {at}): save it as UTF-8 in an editor; nothing was changed",
                self.path.display()
            )
        })
    }

    fn content(&self) -> anyhow::Result<Option<Content>> {
        let named = || format!("{} cannot be read", self.path.display());
        let mut file = match File::open(&self.target) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(named),
        };
        let metadata = file.metadata().with_context(named)?;
        ensure!(metadata.is_file(), "{} is not a file", self.path.display());
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(named)?;
        Ok(Some(Content { bytes, metadata }))
    }

    /// Replaces the content. `None` if another program has changed it in the meantime.
    fn replace(&self, folder: &Path, old: Option<Content>, new: &str) -> anyhow::Result<Option<Saved>> {
        let path = self.path.display();
        let mode = if self.is_private { PRIVATE } else { SHARED };
        let named = || format!("{path} cannot be written");
        let Some(old) = old else {
            let file = written(folder, mode, new.as_bytes()).with_context(named)?;
            return match file.persist_noclobber(&self.target) {
                Ok(_) => self.made_durable(folder, Saved::Created),
                Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
                Err(error) => Err(error.error).with_context(named),
            };
        };
        self.check_writable()?;
        let backup = self.back_up(folder, &old)?;
        let file = written(folder, PRIVATE, new.as_bytes()).with_context(named)?;
        copy_owner_and_mode(file.as_file(), &old.metadata).with_context(|| {
            format!("{path} belongs to another user or group, which a new file cannot be given to: nothing was changed")
        })?;
        if self.content()?.is_none_or(|now| now.bytes != old.bytes) {
            return Ok(None);
        }
        file.persist(&self.target).map_err(|error| error.error).with_context(named)?;
        self.made_durable(folder, Saved::Replaced(backup))
    }

    fn made_durable(&self, folder: &Path, saved: Saved) -> anyhow::Result<Option<Saved>> {
        sync_folder(folder)
            .with_context(|| format!("the folder {} cannot be written to the disk", folder.display()))?;
        Ok(Some(saved))
    }

    /// Keeps the old content in a file beside it. An existing backup with other content stays, and the new one gets
    /// another name.
    fn back_up(&self, folder: &Path, old: &Content) -> anyhow::Result<PathBuf> {
        let name = self.target.file_name().unwrap_or_default();
        for number in 1_u32.. {
            let mut name = name.to_owned();
            name.push(if number == 1 { ".backup".to_owned() } else { format!(".backup-{number}") });
            let path = folder.join(name);
            let named = || format!("the backup {} cannot be written", path.display());
            match fs::read(&path) {
                Ok(known) if known == old.bytes => return Ok(path),
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).with_context(named),
            }
            let file = written(folder, PRIVATE, &old.bytes).with_context(named)?;
            copy_owner_and_mode(file.as_file(), &old.metadata).with_context(named)?;
            match file.persist_noclobber(&path) {
                Ok(_) => return Ok(path),
                Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.error).with_context(named),
            }
        }
        bail!("there are too many backups of {}", self.path.display())
    }
}

/// A new file in the folder with this content, synced to disk.
pub(in crate::commands) fn written(folder: &Path, mode: u32, content: &[u8]) -> io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".countersign-");
    if let Some(permissions) = os::permissions(mode) {
        builder.permissions(permissions);
    }
    let mut file = builder.tempfile_in(folder)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    Ok(file)
}

fn locked(folder: &Path) -> anyhow::Result<FolderLock> {
    FolderLock::of(folder).with_context(|| format!("the folder {} cannot be locked", folder.display()))
}

/// Writes a file that only its owner can read. `false` if the same file exists already.
///
/// # Errors
/// A file with other content exists, and `replace` is not set.
pub(super) fn write_private(path: &Path, content: &str, replace: bool) -> anyhow::Result<bool> {
    let named = || format!("{} cannot be written", path.display());
    let folder = path.parent().with_context(named)?;
    create_private_folders(folder).with_context(named)?;
    let _lock = locked(folder)?;
    match fs::read(path) {
        Ok(known) if known == content.as_bytes() => {
            let is_open = os::mode(&fs::metadata(path).with_context(named)?) & 0o077 != 0;
            ensure!(!is_open, "{0} can be read by other users: chmod 600 {0}", path.display());
            return Ok(false);
        }
        Ok(_) => ensure!(
            replace,
            "{} has another connection string or key, which other entries may use: choose another --name, or replace it with \
             --replace",
            path.display()
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(named),
    }
    let file = written(folder, PRIVATE, content.as_bytes()).with_context(named)?;
    file.persist(path).map_err(|error| error.error).with_context(named)?;
    Ok(true)
}
