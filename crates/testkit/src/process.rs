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
