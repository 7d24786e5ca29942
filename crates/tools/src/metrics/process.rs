//! Metrics of the process, with the names that all Prometheus libraries use. Without /proc only the start time is
//! known.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

pub(super) fn registry(since: SystemTime) -> Registry {
    let mut registry = Registry::default();
    let since = since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let help = "Time of the start of the server, in seconds since 1970";
    registry.register_with_unit("process_start_time", help, Unit::Seconds, ConstGauge::new(since));
    if let Some(bytes) = resident_bytes() {
        let help = "Resident memory of the server (Linux)";
        registry.register_with_unit("process_resident_memory", help, Unit::Bytes, ConstGauge::new(bytes));
    }
    if let Some(count) = open_fds() {
        registry.register("process_open_fds", "Open files and sockets of the server (Linux)", ConstGauge::new(count));
    }
    registry
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

fn open_fds() -> Option<u64> {
    // One descriptor is that of the folder itself.
    let count = fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
    u64::try_from(count).ok()
}
