use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::path::Path;

/// The mode that goes for a file, which has none.
#[must_use]
pub fn mode(file: &Metadata) -> u32 {
    if file.permissions().readonly() { 0o400 } else { 0o600 }
}

/// Never: there is no superuser that owns files.
#[must_use]
pub fn is_owned_by_root(_: &Metadata) -> bool {
    false
}

/// Changes nothing: the folder says who may read a new file.
pub fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// None: there are no modes.
#[must_use]
pub fn permissions(_: u32) -> Option<Permissions> {
    None
}

/// Makes a folder and those above it that are missing. The first folder that exists says who may use them.
pub fn create_private_folders(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Makes a file read-only if another one is.
pub fn copy_owner_and_mode(file: &File, from: &Metadata) -> io::Result<()> {
    file.set_permissions(from.permissions())
}

/// Only checks that the folder exists: there is no call that waits for names.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    fs::metadata(path).map(drop)
}

/// Locks nothing: a folder cannot be locked.
#[derive(Debug)]
pub struct FolderLock(());

impl FolderLock {
    /// Only checks that the folder exists.
    pub fn of(folder: &Path) -> io::Result<Self> {
        fs::read_dir(folder).map(|_| Self(()))
    }
}

/// Whether the file exists.
#[must_use]
pub fn is_program(path: &Path) -> bool {
    path.is_file()
}

/// The name of the user, as the system knows it.
#[must_use]
pub fn user_name() -> Option<String> {
    whoami::username().ok()
}

/// The user without a name.
#[must_use]
pub fn user_id() -> String {
    "unknown user".to_owned()
}

/// # Errors
/// Always: what was typed before a question would be taken for its answer.
pub fn discard_typed_input() -> io::Result<()> {
    let why = "on Windows, countersign asks nothing: what was typed before cannot be told from an answer";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}
