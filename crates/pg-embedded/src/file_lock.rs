//! A lock on a file.

use std::fs::File;

/// A lock that is released when the value is dropped or the process ends.
///
/// Closing the file is not enough: a child that another thread has forked shares the lock until it runs its program.
#[derive(Debug)]
pub(crate) struct FileLock(File);

impl FileLock {
    /// Takes over the lock of a file.
    pub(crate) fn held_by(file: File) -> Self {
        Self(file)
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // The file is closed next. Closing it also releases the lock, unless a child process shares it.
        let _closed_next = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_child_that_shares_the_file_does_not_keep_the_lock() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let locked = file.reopen().unwrap();
        locked.lock().unwrap();
        // The same open file that a child process has between fork and exec.
        let shared = locked.try_clone().unwrap();
        drop(FileLock::held_by(locked));
        file.reopen().unwrap().try_lock().unwrap();
        drop(shared);
    }
}
