//! A node: Patroni, and the PostgreSQL that it starts. All of its processes have their working folders in the node's,
//! by which they are found.

use std::fs::{File, metadata};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

use crate::cluster::cluster;
use crate::external::External;
use crate::poll;

/// How many of the last bytes of a log a failed test prints.
const LOG_BYTES: usize = 3000;

/// Waits until the pipe from the test is closed for any reason. Then it kills every process with a working folder below
/// `$1`, until none is found, and removes that folder.
const REAPER: &str = r#"
cat > /dev/null
while
    found=$(ls -l /proc/[0-9]*/cwd 2> /dev/null | sed -n "s|^.* /proc/\([0-9]*\)/cwd -> $1/.*$|\1|p")
    [ -n "$found" ]
do
    kill -9 $found 2> /dev/null
done
rm -rf "$1"
"#;

/// The process that ends a cluster, also if the test is killed.
#[derive(Debug)]
pub(super) struct Reaper(Child);

impl Reaper {
    pub(super) fn start(folder: &Path) -> Self {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", REAPER, "reaper"]).arg(folder).current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("a shell"))
    }

    pub(super) fn end(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().expect("the reaper ends");
    }
}

/// The account of the operating system under which PostgreSQL runs: the owner of the data of the tests' cluster.
#[derive(Debug, Clone)]
pub(super) struct Account {
    uid: u32,
    gid: u32,
}

impl Account {
    pub(super) fn of_postgresql() -> Self {
        let owner = metadata(cluster().data_dir()).expect("PostgreSQL's data");
        Self { uid: owner.uid(), gid: owner.gid() }
    }

    pub(super) fn own(&self, path: &Path) {
        chown(path, Some(self.uid), Some(self.gid)).expect("its owner");
    }

    /// The command for a Python program. If the tests run as root, its interpreter may be below root's home, which the
    /// account can only enter with this capability (root in a container has no `dac_read_search`).
    fn python(&self, interpreter: &Path) -> Command {
        if !geteuid().is_root() {
            return Command::new(interpreter);
        }
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={}", self.uid), format!("--regid={}", self.gid)]);
        command.args(["--clear-groups", "--inh-caps=+dac_override", "--ambient-caps=+dac_override"]);
        command.arg("--").arg(interpreter);
        command
    }
}

#[derive(Debug)]
pub(super) struct Node {
    account: Account,
    folder: PathBuf,
    patroni: Option<Child>,
}

impl Node {
    pub(super) fn new(account: &Account, folder: &Path, config: &str) -> Self {
        std::fs::create_dir(folder).expect("a folder");
        account.own(folder);
        std::fs::write(folder.join("patroni.yml"), config).expect("patroni.yml");
        Self { account: account.clone(), folder: folder.to_owned(), patroni: None }
    }

    pub(super) fn runs(&self) -> bool {
        self.patroni.is_some()
    }

    pub(super) fn start(&mut self) {
        let log = File::options().create(true).append(true).open(self.log_path()).expect("a log");
        let mut command = self.account.python(&External::Patroni.expected_path());
        command.args(["-m", "patroni", "patroni.yml"]).current_dir(&self.folder).env("HOME", &self.folder);
        // Ctrl-C goes only to the test.
        command.process_group(0).stdin(Stdio::null()).stdout(log.try_clone().expect("the log")).stderr(log);
        self.patroni = Some(command.spawn().expect("Patroni can be started"));
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join("patroni.log")
    }

    /// The end of the log of Patroni and PostgreSQL.
    pub(super) fn log(&self) -> String {
        let log = std::fs::read(self.log_path()).unwrap_or_default();
        let end = &log[log.len().saturating_sub(LOG_BYTES)..];
        format!("{}: {}\n", self.log_path().display(), String::from_utf8_lossy(end))
    }

    /// Every process that runs: Patroni, what it started, and the backends of PostgreSQL.
    fn processes(&self) -> Vec<Pid> {
        let entries = std::fs::read_dir("/proc").expect("Linux");
        let found = entries.filter_map(|entry| {
            let entry = entry.ok()?;
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let folder = std::fs::read_link(entry.path().join("cwd")).ok()?;
            folder.starts_with(&self.folder).then(|| Pid::from_raw(pid))
        });
        found.collect()
    }

    /// Sends a signal to every process, also to those that are started meanwhile.
    pub(super) fn signal(&self, signal: Signal) {
        let mut reached = Vec::new();
        loop {
            let new: Vec<Pid> = self.processes().into_iter().filter(|pid| !reached.contains(pid)).collect();
            if new.is_empty() {
                return;
            }
            for pid in &new {
                let _ended = kill(*pid, signal);
            }
            reached.extend(new);
        }
    }

    pub(super) fn signal_postmaster(&self, signal: Signal) {
        let file = std::fs::read_to_string(self.folder.join("data/postmaster.pid")).expect("PostgreSQL runs");
        let pid = file.lines().next().and_then(|line| line.parse().ok()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("a process of ours");
    }

    pub(super) async fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        self.patroni.take().expect("Patroni runs").wait().expect("Patroni has ended");
        poll::until("no process of the node is left", async || self.processes().is_empty()).await;
    }
}
