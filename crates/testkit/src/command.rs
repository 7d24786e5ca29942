//! The built binary as a command that ends: what it printed and its exit code.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;

use crate::repository;
use crate::server::countersign;

const DEADLINE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct CommandOutput {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl CommandOutput {
    /// The same output, of a command that must have succeeded.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert_eq!(self.code, 0, "{}{}", self.out, self.err);
        self
    }
}

/// Runs `countersign` on a database, without a terminal.
pub async fn run_countersign(url: &str, arguments: &[&str]) -> CommandOutput {
    let mut command = Command::new(countersign());
    let command = command.env("DATABASE_URL", url).env("XDG_CONFIG_HOME", config_home());
    run(command.args(["--log", "warn"]).args(arguments)).await
}

/// The folder in which `init` writes the private keys of logs, in place of the user's own.
pub fn config_home() -> PathBuf {
    repository().join("target/test-config")
}

/// Runs a command that must exit with 1 before it writes to standard output. Returns its standard error.
pub async fn startup_error(command: &mut Command) -> String {
    let output = run(command).await;
    assert_eq!((output.code, output.out.as_str()), (1, ""), "{}", output.err);
    assert!(!output.err.contains("panicked"), "{}", output.err);
    output.err
}

pub async fn run(command: &mut Command) -> CommandOutput {
    let output = tokio::time::timeout(DEADLINE, command.stdin(Stdio::null()).output()).await;
    let Output { status, stdout, stderr } = output.expect("it ends by itself").expect("it can be started");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    CommandOutput { code: status.code().expect("an exit code"), out: text(stdout), err: text(stderr) }
}
