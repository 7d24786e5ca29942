//! Plumbing of the tests: folders, queries, and other processes that use a cluster.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use countersign_pg_embedded::{Cluster, Error, Options};
use tempfile::TempDir;

/// Names the folder of the cluster that `another_process` is to use.
const FOLDER: &str = "COUNTERSIGN_TEST_FOLDER";

/// A folder that the server's user can reach, also when we are root.
pub(crate) fn folder() -> TempDir {
    tempfile::Builder::new().prefix("cs-").permissions(fs::Permissions::from_mode(0o711)).tempdir().unwrap()
}

/// Names the data folder that it begins with, if not with `initdb`.
const COPY_OF: &str = "COUNTERSIGN_TEST_COPY_OF";

/// A cluster that is kept and begins with `initdb`, with the settings of an ephemeral one: tests need no fsync.
pub(crate) fn made_in(folder: &Path) -> Options {
    Options::persistent_at(folder).settings(&[("fsync", "off"), ("shared_buffers", "16MB")])
}

/// The same without the time that `initdb` takes.
pub(crate) fn kept_in(folder: &Path) -> Options {
    made_in(folder).copy_of(stopped_data())
}

/// An ephemeral cluster without the time that `initdb` takes.
pub(crate) fn ephemeral() -> Options {
    Options::ephemeral().copy_of(stopped_data())
}

/// The data folder of a server that has stopped. It ends with the process.
fn stopped_data() -> PathBuf {
    static STOPPED: OnceLock<Cluster> = OnceLock::new();
    let stop = || {
        let cluster = start(Options::ephemeral()).unwrap();
        signal(cluster.pid(), "-INT");
        wait_for("the server has stopped", || !cluster.is_alive());
        cluster
    };
    STOPPED.get_or_init(stop).data_dir()
}

pub(crate) fn start(options: Options) -> Result<Cluster, Error> {
    Cluster::start(options, &mut |_| {})
}

/// The first column of the first row, as text.
pub(crate) fn query(cluster: &Cluster, sql: &str) -> Result<String, String> {
    query_at(&cluster.connection_string("postgres"), sql)
}

pub(crate) fn query_at(connection: &str, sql: &str) -> Result<String, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, driver) =
            tokio_postgres::connect(connection, tokio_postgres::NoTls).await.map_err(|error| format!("{error:?}"))?;
        let driver = tokio::spawn(driver);
        let messages = client.simple_query(sql).await.map_err(|error| format!("{error:?}"))?;
        drop(client);
        let _closed = driver.await;
        let row = messages.iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        Ok(row.unwrap_or_default().to_owned())
    })
}

/// Waits for a condition for at most 30 seconds.
pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process exists and is not just waiting to be reaped.
pub(crate) fn runs(pid: i32) -> bool {
    let output = Command::new("ps").args(["-o", "state=", "-p", &pid.to_string()]).output().unwrap();
    let state = String::from_utf8_lossy(&output.stdout).into_owned();
    // Z is a process that waits to be reaped, X one that is being reaped.
    !state.trim().is_empty() && !state.trim().starts_with(['Z', 'X'])
}

pub(crate) fn signal(pid: i32, name: &str) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

/// Another process that uses a cluster, until it is told to leave or killed.
pub(crate) struct Other {
    process: Child,
    stdin: Option<ChildStdin>,
    /// Kept open: the test harness in the other process writes its report there.
    _stdout: Lines<BufReader<ChildStdout>>,
    pub(crate) folder: String,
    pub(crate) server: i32,
    pub(crate) attached: bool,
}

impl Other {
    /// Runs the test `another_process` of this test binary as a process of its own.
    pub(crate) fn spawn(folder: &str) -> Child {
        Self::command(folder).env(COPY_OF, stopped_data()).spawn().unwrap()
    }

    /// The same in a folder without data, where it runs `initdb`.
    pub(crate) fn spawn_making(folder: &str) -> Child {
        Self::command(folder).spawn().unwrap()
    }

    fn command(folder: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "another_process", "--ignored", "--nocapture"]).env(FOLDER, folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }

    /// Waits until its cluster answers.
    pub(crate) fn ready(mut process: Child) -> Self {
        let stdin = process.stdin.take();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.split_once("ready ").map(|found| found.1.to_owned()));
        let line = line.expect("the other process could not start the cluster");
        let words: Vec<_> = line.splitn(3, ' ').collect();
        Self {
            process,
            stdin,
            _stdout: lines,
            server: words[0].parse().unwrap(),
            attached: words[1] == "true",
            folder: words[2].to_owned(),
        }
    }

    pub(crate) fn start(folder: &Path) -> Self {
        Self::ready(Self::spawn(folder.to_str().unwrap()))
    }

    pub(crate) fn start_ephemeral() -> Self {
        Self::ready(Self::spawn("ephemeral"))
    }

    /// Ends in order.
    pub(crate) fn leave(mut self) {
        drop(self.stdin.take());
        assert!(self.process.wait().unwrap().success());
    }

    /// Ends by SIGKILL.
    pub(crate) fn kill9(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// What `another_process` does: uses a cluster until its standard input ends.
pub(crate) fn be_another_process() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let options = if folder == "ephemeral" { Options::ephemeral() } else { made_in(Path::new(&folder)) };
    let options = match std::env::var_os(COPY_OF) {
        Some(data) => options.copy_of(data),
        None => options,
    };
    let cluster = start(options).unwrap();
    let home = cluster.data_dir().parent().unwrap().display().to_string();
    let line = format!("\nready {} {} {home}\n", cluster.pid(), cluster.attached());
    std::io::stdout().write_all(line.as_bytes()).unwrap();
    let mut rest = String::new();
    std::io::stdin().read_line(&mut rest).unwrap();
}
