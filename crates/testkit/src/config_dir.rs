//! A configuration file written by a test.

use std::path::{Path, PathBuf};

use tokio::process::Command;

use crate::server::countersign;

/// A folder for a configuration file and the files that it names. It is removed with this value.
#[derive(Debug)]
pub struct ConfigDir {
    folder: tempfile::TempDir,
}

impl ConfigDir {
    /// An empty folder.
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file of this name; its path.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).expect("a file in the folder");
        path
    }

    /// The binary with this configuration only: no variables around it, and the folder as its working directory.
    pub fn command(&self, config: &str) -> Command {
        let mut command = Command::new(countersign());
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("COUNTERSIGN_") || text.starts_with("PG") || text == "DATABASE_URL" {
                command.env_remove(&name);
            }
        }
        command.current_dir(self.path()).arg("--config").arg(self.write("countersign.toml", config));
        command.kill_on_drop(true);
        command
    }
}
