//! The npm packages, installed by npm and run by Node.js.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::Signal;
use tempfile::TempDir;
use testkit::{External, RawStdioServer, countersign, database, external, poll, send_signal, skip_without};
use tokio::process::Command;

use super::{Packages, clean_command, here, packages, serves, succeed};

/// A folder into which npm has installed packages.
struct Installed {
    folder: TempDir,
}

/// A command that finds npm and Node.js.
fn npm_command(program: impl AsRef<std::ffi::OsStr>, home: &Path) -> Command {
    let mut command = clean_command(program, home);
    let node = external::node(&External::NodeModules.expected_path()).expect("a Node.js");
    let npm = External::Npm.expected_path();
    let folders = [&node, &npm].map(|program| program.parent().unwrap().to_owned());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(folders.into_iter().chain(std::env::split_paths(&path))).unwrap();
    command.env("PATH", path);
    command
}

impl Installed {
    /// Installs these files without network, with an empty cache.
    async fn new(files: &[PathBuf], options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut npm = npm_command(External::Npm.expected_path(), folder.path());
        npm.current_dir(folder.path()).args(["install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund"]);
        succeed(npm.args(options).args(files)).await;
        Self { folder }
    }

    /// The command that the package installs.
    fn command(&self) -> Command {
        npm_command(self.folder.path().join("node_modules/.bin/countersign"), self.folder.path())
    }
}

/// The files of the package with the command, and of the one with the binary for this machine.
fn files(packages: &Packages) -> [PathBuf; 2] {
    let version = packaging::project::VERSION;
    let names = [format!("countersign-{version}"), format!("countersign-{}-{version}", here())];
    names.map(|name| packages.file("npm", &name, ".tgz"))
}

/// The process that a process has started.
async fn child_of(pid: u32) -> u32 {
    poll::until_some("a child", async || {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split(' ').next()?.parse().ok()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn npm_installs_the_command_and_the_binary_and_a_client_is_served() {
    if skip_without(&[External::NodeModules, External::Npm]) {
        return;
    }
    let packages = packages();
    let installed = Installed::new(&files(&packages), &[]).await;
    let mut command = installed.command();
    command.arg("serve");
    serves(command).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn the_command_of_npm_ends_as_the_binary_does() {
    if skip_without(&[External::NodeModules, External::Npm]) {
        return;
    }
    let packages = packages();
    let installed = Installed::new(&files(&packages), &[]).await;
    let home = tempfile::tempdir().unwrap();
    // Success, an error, and a mistake in the arguments.
    for (arguments, code) in [(vec!["--version"], 0), (vec!["check"], 1), (vec!["serve", "--no-such-flag"], 2)] {
        let output = |mut command: Command| {
            command.args(&arguments);
            async move { command.output().await.unwrap() }
        };
        let (ours, npm) = tokio::join!(output(clean_command(countersign(), home.path())), output(installed.command()));
        assert_eq!(npm, ours, "{arguments:?}");
        assert_eq!(ours.status.code(), Some(code), "{arguments:?}: {ours:?}");
    }

    // A server that is told to end answers what is running, and exits with 0; one that is killed takes Node.js with it.
    let db = database().await;
    for (signal, is_sent_to_binary) in
        [(Signal::SIGTERM, false), (Signal::SIGINT, false), (Signal::SIGKILL, true), (Signal::SIGABRT, true)]
    {
        let mut command = installed.command();
        command.arg("serve").env("DATABASE_URL", db.writer_url());
        let server = RawStdioServer::logging(command, Stdio::null(), "2025-11-25").await;
        let node = server.pid();
        let binary = child_of(node).await;
        send_signal(if is_sent_to_binary { binary } else { node }, signal);
        let status = server.exit_status().await;
        let expected = if is_sent_to_binary { (None, Some(signal as i32)) } else { (Some(0), None) };
        assert_eq!((status.code(), status.signal()), expected, "{signal}");
        assert!(!Path::new(&format!("/proc/{binary}")).exists(), "{signal}: the binary still runs");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn a_missing_package_with_the_binary_is_named() {
    if skip_without(&[External::NodeModules, External::Npm]) {
        return;
    }
    let packages = packages();
    let [main, platform] = files(&packages);
    let installed = Installed::new(&[main], &["--omit=optional"]).await;
    let output = installed.command().arg("--version").output().await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), b"".as_slice()), "{said}");
    let name = format!("countersign-{}", here());
    assert!(said.starts_with(&format!("countersign: the package {name} is not installed.")), "{said}");
    assert!(said.contains(&format!("npm install {name}@{}", packaging::project::VERSION)), "{said}");
    // What it says helps.
    let mut npm = npm_command(External::Npm.expected_path(), installed.folder.path());
    npm.current_dir(installed.folder.path()).args(["install", "--offline", "--no-audit", "--no-fund"]).arg(platform);
    succeed(&mut npm).await;
    let version = succeed(installed.command().arg("--version")).await;
    assert_eq!(version, format!("countersign {}\n", packaging::project::VERSION));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn a_machine_without_a_package_is_told_which_ones_there_are() {
    if skip_without(&[External::NodeModules, External::Npm]) {
        return;
    }
    let packages = packages();
    let installed = Installed::new(&files(&packages), &[]).await;
    let script = installed.folder.path().join("node_modules/countersign/bin/run.js");
    let pretend = "Object.defineProperty(process, 'arch', {value: 'riscv64'}); require(process.argv[1]);";
    let mut node = npm_command("node", installed.folder.path());
    let output = node.arg("-e").arg(pretend).arg(&script).output().await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("countersign: there is no package for linux on riscv64, only countersign-"), "{said}");
}
