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

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file of this name. Returns its path.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).expect("a file in the folder");
        path
    }

    /// A command of the binary with only this configuration: without environment variables, in this folder.
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
