//! What the system knows about processes: whether one lives, what it is, and how to end it.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use crate::environment;

/// How often a condition is looked at while waiting for it.
const STEP: Duration = Duration::from_millis(5);

/// Waits for a condition; `false` if it did not come true in time.
pub(crate) fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(STEP);
    }
}

/// Whether the system still has an entry for this process. A zombie, dead but not reaped by its parent, has one;
/// PostgreSQL takes it for a living server.
pub(crate) fn exists(pid: i32) -> bool {
    pid > 0 && !matches!(signal::kill(Pid::from_raw(pid), None), Err(Errno::ESRCH))
}

/// Whether this process runs: it exists and is no zombie.
pub(crate) fn runs(pid: i32) -> bool {
    exists(pid) && !is_zombie(pid)
}

fn is_zombie(pid: i32) -> bool {
    if has_proc() {
        // "pid (name) S ..": the name may hold anything, so look behind the last parenthesis.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        return matches!(state, Some('Z' | 'X') | None);
    }
    ps(&["-o", "state=", "-p", &pid.to_string()]).trim_start().starts_with('Z')
}

/// Whether this process is a postmaster that serves this data folder, given by its real path. A process id alone says
/// nothing: it may have been given to another program since it was written down.
pub(crate) fn is_postmaster_of(pid: i32, data: &Path) -> bool {
    if !runs(pid) {
        return false;
    }
    // A postmaster works in its data folder; who may not see that can still see the command line.
    fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == data)
        || command_line(pid).contains(&format!("-D {}", data.display()))
}

fn command_line(pid: i32) -> String {
    if has_proc() {
        let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        return String::from_utf8_lossy(&bytes).replace('\0', " ");
    }
    ps(&["-ww", "-o", "command=", "-p", &pid.to_string()])
}

/// The processes whose title says that they belong to the server of this `cluster_name`. The postmaster has no such
/// title: these are its children, which may outlive it for a while and keep a new server from starting. One that was born in
/// the moment in which the postmaster died still looks like it.
fn children_of_cluster(cluster_name: &str, data: &Path) -> Vec<i32> {
    let title = format!("postgres: {cluster_name}: ");
    if has_proc() {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_child = |pid: &i32| command_line(*pid).starts_with(&title) && runs(*pid) || is_postmaster_of(*pid, data);
        return pids.filter(is_child).collect();
    }
    let listed = ps(&["-axww", "-o", "pid=,command="]);
    let lines = listed.lines().filter_map(|line| line.trim_start().split_once(' '));
    let newborn = format!("-D {}", data.display());
    let is_child = |command: &str| command.starts_with(&title) || command.contains(&newborn);
    lines.filter(|(_, command)| is_child(command)).filter_map(|(pid, _)| pid.parse().ok()).collect()
}

/// Ends what a dead postmaster left behind: asks at once, then insists. `false` if some still live.
pub(crate) fn end_children_of_cluster(cluster_name: &str, data: &Path) -> bool {
    let real = data.canonicalize();
    let data = real.as_deref().unwrap_or(data);
    for (order, limit) in [(Signal::SIGQUIT, Duration::from_secs(2)), (Signal::SIGKILL, Duration::from_secs(5))] {
        for pid in children_of_cluster(cluster_name, data) {
            send(pid, order);
        }
        if wait_until(limit, || children_of_cluster(cluster_name, data).is_empty()) {
            return true;
        }
    }
    false
}

/// Sends a signal. That the process is gone already is no error.
pub(crate) fn send(pid: i32, order: Signal) {
    // Process ids from 1 down name init, groups and everybody.
    if pid > 1 {
        let _gone = signal::kill(Pid::from_raw(pid), order);
    }
}

fn has_proc() -> bool {
    Path::new("/proc/self/stat").exists()
}

fn ps(arguments: &[&str]) -> String {
    let output = environment::plain("ps").args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}
