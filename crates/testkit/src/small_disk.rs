//! A small disk, for tests that fill it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// A small file system in memory, unmounted when this value is dropped.
#[derive(Debug)]
pub struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Mounts one of this size. With `owned_like`, it gets the owner of that file.
    ///
    /// # Errors
    /// The reason why it cannot be mounted: only root can mount.
    pub fn mount(bytes: u64, owned_like: Option<&Path>) -> Result<Self, String> {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let options = format!("size={bytes}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder.path()).output();
        match mounted {
            Ok(output) if output.status.success() => {}
            Ok(output) => return Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => return Err(error.to_string()),
        }
        if let Some(owned_like) = owned_like {
            let owner = std::fs::metadata(owned_like).unwrap();
            std::os::unix::fs::chown(folder.path(), Some(owner.uid()), Some(owner.gid())).unwrap();
        }
        Ok(Self(folder))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}
