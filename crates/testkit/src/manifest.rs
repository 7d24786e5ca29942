//! A manifest written by a test.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;

use tokio::process::Command;

use crate::cluster::Database;
use crate::server::Server;

/// A manifest in a folder that is removed with this value. A server that is started with it has no other manifest.
#[derive(Debug)]
pub struct TestManifest {
    folder: tempfile::TempDir,
}

impl TestManifest {
    pub fn new(tools: &str) -> Self {
        Self::from_text(&format!("name = \"test\"\nversion = \"1\"\n{tools}"))
    }

    pub fn from_text(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("test.toml"), text).expect("the manifest's file");
        Self { folder }
    }

    pub fn text(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("test.toml")).expect("the manifest's file")
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("test.toml")
    }

    pub fn arguments(&self) -> [OsString; 2] {
        ["--manifest".into(), self.path().into()]
    }

    pub fn command(&self, database: &Database) -> Command {
        let mut command = Server::bare_command(database);
        command.args(self.arguments());
        command
    }

    pub async fn serve(&self, database: &Database) -> Server {
        Server::start(self.command(database)).await
    }

    /// The standard error of a server with `--strict` that does not start because of this manifest. The server logs
    /// in as superuser, so PostgreSQL refuses nothing that the compiler accepts.
    pub async fn compile_error(&self, database: &Database) -> String {
        let mut command = self.command(database);
        command.arg("--strict");
        let output = command.env("DATABASE_URL", database.url()).stdin(Stdio::null()).output().await;
        let output = output.expect("the server can be started");
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        String::from_utf8(output.stderr).expect("UTF-8")
    }
}
