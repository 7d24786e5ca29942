//! The packages of a release, made from the built binary. Each is installed from its file into an empty folder, without
//! network, and used there by a real MCP client.

mod archive;
mod bundle;
mod catalogs;
mod container;
mod notices;
mod npm;
mod output;
mod wheel;
mod workflows;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex, Weak};

use packaging::{Compression, PackagingOptions, Platform};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{Database, External, Server, countersign, database, external, repository};
use tokio::process::Command;

/// The commit that the packages name.
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// The packages for the platform of the tests.
struct Packages {
    folder: TempDir,
}

/// The packages, which are made once for all tests that use them at the same time.
fn packages() -> Arc<Packages> {
    static PACKAGES: Mutex<Weak<Packages>> = Mutex::new(Weak::new());
    let mut packages = PACKAGES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    packages.upgrade().unwrap_or_else(|| {
        let made = Arc::new(Packages { folder: tempfile::tempdir().unwrap() });
        let binary = stripped_binary(made.folder.path());
        packaging::write(&options(&binary), &made.path("out")).unwrap();
        *packages = Arc::downgrade(&made);
        made
    })
}

/// The debug binary without its symbols, which are most of it.
fn stripped_binary(folder: &Path) -> PathBuf {
    let binary = folder.join("stripped");
    // strip belongs to the linker that Rust needs.
    let status = std::process::Command::new("strip").arg("-o").arg(&binary).arg(countersign()).status();
    assert!(status.unwrap().success());
    binary
}

fn options(binary: &Path) -> PackagingOptions {
    let binaries = BTreeMap::from([(here(), binary.to_owned())]);
    PackagingOptions { binaries, commit: COMMIT.to_owned(), compression: Compression::fast() }
}

/// The platform of the binary that the tests run.
fn here() -> Platform {
    let fitting = |platform: &&Platform| platform.runs_here() && platform.libc != Some(packaging::Libc::Musl);
    Platform::ALL.iter().copied().find(|platform| fitting(&platform)).expect("a platform with packages")
}

impl Packages {
    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// The one file of a folder whose name begins and ends like this.
    fn file(&self, folder: &str, beginning: &str, end: &str) -> PathBuf {
        let fits = |name: &str| name.starts_with(beginning) && name.ends_with(end);
        let mut found = files_of(&self.path("out").join(folder)).into_iter().filter(|path| fits(file_name(path)));
        let file = found.next().unwrap_or_else(|| panic!("{folder}/{beginning}*{end}"));
        assert_eq!(found.next(), None);
        file
    }

    /// A text file of the packages.
    fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.path("out").join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.text(path)).unwrap()
    }
}

fn file_name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// The files below a folder, sorted.
fn files_of(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in folder.read_dir().unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_of(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// A command with an empty home, without the variables of this machine except `PATH`.
fn clean_command(program: impl AsRef<std::ffi::OsStr>, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", home);
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// The Node.js of the npm packages, for a script that is a module.
fn module_command() -> Command {
    let node = external::node(&External::NodeModules.expected_path()).expect("a Node.js");
    let mut command = Command::new(node);
    command.arg("--input-type=module").kill_on_drop(true);
    command
}

/// Runs an installer that has to succeed; what it prints.
async fn succeed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().await.unwrap();
    let [stdout, stderr] = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(status.success(), "{command:?}: {status}\n{stdout}{stderr}");
    stdout
}

/// An MCP client starts the command as a server, lists its tools and reads from a real database.
async fn serves(mut command: Command) {
    let db = database().await;
    command.env("DATABASE_URL", db.writer_url()).env("COUNTERSIGN_LOG", "warn");
    serves_on(command, &db).await;
}

/// Like [`serves`], with the connection string in the command.
async fn serves_on(command: Command, db: &Database) {
    let server = Server::start(command).await;
    let rows = server.query("select count(*) as tweets from social.tweet").await;
    let tweets: i64 = db.value("select count(*) from social.tweet").await.parse().unwrap();
    assert_eq!(rows, [json!({"tweets": tweets})]);
    let golden = std::fs::read_to_string(repository().join("tests/golden/packaging/tools.json")).unwrap();
    let golden: Vec<Value> = serde_json::from_str(&golden).unwrap();
    let expected: Vec<&str> = golden.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(server.tool_names().await, expected);
    server.close().await;
}
