//! Processes of the operating system: whether one runs, which program it is, and how to end it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use crate::environment;

/// Interval between two checks of a condition.
const STEP: Duration = Duration::from_millis(5);

/// Waits for a condition. `false` if it does not hold within the limit.
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

/// Whether the system has an entry for this process. A zombie has one, and PostgreSQL takes it for a running server.
pub(crate) fn exists(pid: i32) -> bool {
    pid > 0 && !matches!(signal::kill(Pid::from_raw(pid), None), Err(Errno::ESRCH))
}

/// Whether this process is running: it exists and is not a zombie.
pub(crate) fn runs(pid: i32) -> bool {
    exists(pid) && !is_zombie(pid)
}

fn is_zombie(pid: i32) -> bool {
    if has_proc() {
        // In "pid (name) S ..", the name may contain parentheses, so the state follows the last one.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        return matches!(state, Some('Z' | 'X') | None);
    }
    ps(&["-o", "state=", "-p", &pid.to_string()]).trim_start().starts_with('Z')
}

/// Whether this process is a postmaster of this data folder, given by its canonical path. The process id alone is not
/// enough: the system may have reused it for another program.
pub(crate) fn is_postmaster_of(pid: i32, data: &Path) -> bool {
    if !runs(pid) {
        return false;
    }
    // A postmaster's working directory is its data folder. Its command line can be read by every user.
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

/// The children of the postmaster with this `cluster_name`, found by their process titles. They may outlive the
/// postmaster and keep a new server from starting. A child that was forked just before the crash still has the
/// postmaster's command line.
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

/// Ends the children of a dead postmaster, with SIGQUIT and then SIGKILL. `false` if some are still running.
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

/// Sends a signal. A process that has already ended is not an error.
pub(crate) fn send(pid: i32, order: Signal) {
    // A process id of 1 or less would address init, a process group or all processes.
    if pid > 1 {
        let _gone = signal::kill(Pid::from_raw(pid), order);
    }
}

/// Runs a program in a folder. The error is the last line of its standard error.
pub(crate) fn run_in(command: &mut Command, folder: &Path) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program} cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(format!("{program} failed: {}", last.trim()))
}

fn has_proc() -> bool {
    Path::new("/proc/self/stat").exists()
}

fn ps(arguments: &[&str]) -> String {
    let output = environment::plain("ps").args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}
