//! Processes under test: signals, and their memory.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Sends a signal to a process, which must exist.
pub fn send_signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.try_into().expect("a process id")), signal).expect("a process of ours");
}

/// The resident memory of a process, compared with its idle level.
#[derive(Debug)]
pub struct ProcessMemory {
    pid: u32,
    idle_kib: u64,
}

impl ProcessMemory {
    /// Begins a measurement. The process must be idle.
    pub fn of(pid: u32) -> Self {
        let mut memory = Self { pid, idle_kib: 0 };
        memory.idle_kib = memory.read("VmRSS");
        memory.reset_peak();
        memory
    }

    /// A line of /proc/PID/status, in KiB.
    fn read(&self, line: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).expect("a process that runs");
        let value = status.lines().find_map(|it| it.strip_prefix(line)?.strip_prefix(':')).expect("the line");
        value.trim().strip_suffix(" kB").expect("its unit").parse().expect("a number")
    }

    pub fn idle_kib(&self) -> u64 {
        self.idle_kib
    }

    /// Resets the peak (proc(5), clear_refs).
    pub fn reset_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.pid), "5").expect("a process of ours");
    }

    /// The peak above the idle level since the last reset, in KiB.
    pub fn peak_above_idle_kib(&self) -> u64 {
        self.read("VmHWM").saturating_sub(self.idle_kib)
    }

    /// The current memory above the idle level, in KiB.
    pub fn above_idle_kib(&self) -> u64 {
        self.read("VmRSS").saturating_sub(self.idle_kib)
    }
}

/// The processes that a process has started, and those that they have started.
pub fn descendants(pid: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("Linux").filter_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is a name in parentheses, which may contain anything.
        let parent: u32 = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        Some((pid, parent))
    });
    let processes: Vec<(u32, u32)> = processes.collect();
    let mut found = vec![pid];
    let mut index = 0;
    while let Some(parent) = found.get(index).copied() {
        found.extend(processes.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        index += 1;
    }
    found.split_off(1)
}

/// The arguments of a running process, with spaces in between; `None` if it has ended.
pub fn command_line(pid: u32) -> Option<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).ok().filter(|bytes| !bytes.is_empty())?;
    Some(String::from_utf8_lossy(&bytes).replace('\0', " "))
}
