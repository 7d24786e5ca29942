//! Who uses a cluster: one file a user, locked for as long as its process lives.
//!
//! A file is called `<pid>-<number>`. Rust looks at the lock, which no other process can have by accident; the watcher's
//! shell script cannot, so it looks at the process id in the name.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::error::{Error, at};
use crate::process::{runs, wait_until};

/// How long an announced stop may take: as long as a watcher gives the server, and a little more.
const STOP_LIMIT: Duration = Duration::from_secs(30);

static NEXT: AtomicU32 = AtomicU32::new(1);

/// One user. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct User {
    file: PathBuf,
    _locked: File,
}

impl User {
    /// Registers this process in a `users` folder. Only under the start lock, or another user could take the file for
    /// an abandoned one before it is locked.
    pub(crate) fn register(folder: &Path) -> Result<Self, Error> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let file = folder.join(format!("{}-{number}", process::id()));
        let locked = File::create(&file).map_err(at("create", &file))?;
        locked.lock().map_err(at("lock", &file))?;
        Ok(Self { file, _locked: locked })
    }

    /// The file, for the watcher.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// The process ids of the other users. Files that nobody holds any more are removed. Only under the start lock.
    pub(crate) fn others(&self) -> Vec<i32> {
        let entries = self.file.parent().map(fs::read_dir).into_iter().flatten().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| *path != self.file).filter_map(|path| holder(&path)).collect()
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.file);
    }
}

/// The process that holds a file, if one does.
fn holder(path: &Path) -> Option<i32> {
    let free = match File::open(path) {
        Ok(file) => !matches!(file.try_lock(), Err(TryLockError::WouldBlock)),
        Err(_) => true,
    };
    if free {
        let _gone = fs::remove_file(path);
        return None;
    }
    path.file_name()?.to_str()?.split_once('-')?.0.parse().ok()
}

/// Waits until no watcher has a stop announced. To be called after registering: see the crate's head. A watcher that
/// died leaves its announcement behind; that one does not count.
pub(crate) fn wait_for_announced_stops(home: &Path) {
    wait_until(STOP_LIMIT, || {
        let entries = fs::read_dir(home).into_iter().flatten().flatten();
        let announced = entries.filter_map(|entry| {
            let name = entry.file_name();
            Some((name.to_str()?.strip_prefix("stopping.")?.parse::<i32>().ok()?, entry.path()))
        });
        let mut clear = true;
        for (watcher, path) in announced {
            if runs(watcher) {
                clear = false;
            } else {
                let _gone = fs::remove_file(path);
            }
        }
        clear
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_sees_the_others_and_not_itself_nor_the_dead() {
        let folder = tempfile::tempdir().unwrap();
        let first = User::register(folder.path()).unwrap();
        assert!(first.others().is_empty());
        let second = User::register(folder.path()).unwrap();
        // A file that nobody has locked: its process was killed.
        fs::write(folder.path().join("1-1"), "").unwrap();
        assert_eq!(first.others(), [i32::try_from(process::id()).unwrap()]);
        drop(second);
        assert!(first.others().is_empty());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_announcement_of_a_dead_watcher_does_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        fs::write(folder.path().join(format!("stopping.{}", child.id())), "").unwrap();
        wait_for_announced_stops(folder.path());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
