use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use nix::libc;
use nix::sys::termios::{FlushArg, tcflush};
use nix::unistd::{AccessFlags, Uid, User, access};

/// The mode of a file, without its type. On Windows, where lists of access control say who may read a file and are not
/// read here, 0600, or 0400 if the file is read-only.
#[must_use]
pub fn mode(file: &Metadata) -> u32 {
    file.mode() & 0o7777
}

/// Whether the superuser owns a file. Never on Windows.
#[must_use]
pub fn is_owned_by_root(file: &Metadata) -> bool {
    file.uid() == 0
}

/// Lets only the owner read a file that is made with these options. On Windows, the folder says who may read it.
pub fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options.mode(0o600)
}

/// The permissions of a mode. None on Windows.
#[must_use]
pub fn permissions(mode: u32) -> Option<Permissions> {
    Some(Permissions::from_mode(mode))
}

/// Makes a folder and those above it that are missing. Only their owner may use them; on Windows, the first folder
/// that exists says who may.
pub fn create_private_folders(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Gives a file the owner, the group and the mode of another one. On Windows, only whether it is read-only.
pub fn copy_owner_and_mode(file: &File, from: &Metadata) -> io::Result<()> {
    let now = file.metadata()?;
    if (now.uid(), now.gid()) != (from.uid(), from.gid()) {
        fchown(file, Some(from.uid()), Some(from.gid()))?;
    }
    file.set_permissions(Permissions::from_mode(mode(from)))
}

/// Waits until the names of the files in a folder are on the disk. Windows has no such call.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// A lock on a folder, released when this value is dropped. It leaves no file behind. Some network file systems
/// cannot lock a folder, and neither can Windows: there this locks nothing.
#[derive(Debug)]
pub struct FolderLock(File);

impl FolderLock {
    /// Waits until no other process has the lock.
    pub fn of(folder: &Path) -> io::Result<Self> {
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(folder)?;
        match opened.lock() {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::EBADF | libc::ENOTSUP | libc::ENOLCK)) => {
                Err(error)
            }
            _ => Ok(Self(opened)),
        }
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Closing the file releases the lock as well.
        let _ = self.0.unlock();
    }
}

/// Whether this process may run the file. On Windows, whether the file exists.
#[must_use]
pub fn is_program(path: &Path) -> bool {
    path.is_file() && access(path, AccessFlags::X_OK).is_ok()
}

/// The name of the effective user, as the system knows it: variables such as `USER` can contain anything.
#[must_use]
pub fn user_name() -> Option<String> {
    User::from_uid(Uid::effective()).ok().flatten().map(|user| user.name)
}

/// The effective user without a name: `uid 1000`; on Windows, `unknown user`.
#[must_use]
pub fn user_id() -> String {
    format!("uid {}", Uid::effective())
}

/// Discards what was typed in the terminal at standard input and is not read yet. Nothing happens without a terminal.
///
/// # Errors
/// On Windows always: it cannot be done there.
pub fn discard_typed_input() -> io::Result<()> {
    let _ = tcflush(io::stdin(), FlushArg::TCIFLUSH);
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, and says where")]
mod tests {
    use super::*;

    #[test]
    fn new_files_and_folders_are_their_owners() {
        let folder = tempfile::tempdir().unwrap();
        let (file, below) = (folder.path().join("file"), folder.path().join("a/b"));
        private(OpenOptions::new().write(true).create_new(true)).open(&file).unwrap();
        create_private_folders(&below).unwrap();
        let of = |path: &Path| mode(&path.metadata().unwrap());
        assert_eq!((of(&file), of(&below), of(below.parent().unwrap())), (0o600, 0o700, 0o700));
    }

    #[test]
    fn a_file_gets_the_mode_of_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let made = |name: &str, mode: u32| {
            let file = File::create(folder.path().join(name)).unwrap();
            file.set_permissions(permissions(mode).unwrap()).unwrap();
            file
        };
        let (from, to) = (made("from", 0o640), made("to", 0o600));
        copy_owner_and_mode(&to, &from.metadata().unwrap()).unwrap();
        assert_eq!(mode(&to.metadata().unwrap()), 0o640);
    }

    #[test]
    fn a_locked_folder_is_locked_until_the_lock_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let lock = FolderLock::of(folder.path()).unwrap();
        let other = File::open(folder.path()).unwrap();
        assert!(other.try_lock().is_err());
        drop(lock);
        other.try_lock().unwrap();
        assert!(FolderLock::of(&folder.path().join("missing")).is_err());
    }

    #[test]
    fn a_program_is_a_file_that_may_be_run() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("text"), "").unwrap();
        assert!(is_program(Path::new("/bin/sh")));
        assert!(!is_program(folder.path()) && !is_program(&folder.path().join("text")));
    }
}
