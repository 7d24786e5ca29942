use std::future::pending;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT; on Windows, the events of a console that end a process. They do not end it any more.
pub(crate) struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl EndSignals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next one. Returns the exit code of a process that it ends.
    pub(crate) async fn recv(&mut self) -> i32 {
        let kind = tokio::select! {
            Some(()) = self.terminate.recv() => SignalKind::terminate(),
            Some(()) = self.interrupt.recv() => SignalKind::interrupt(),
            else => pending().await,
        };
        128 + kind.as_raw_value()
    }
}

/// SIGHUP, which does not end the process any more. Windows has none.
pub(crate) struct HangupSignals(Option<Signal>);

impl HangupSignals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self(Some(signal(SignalKind::hangup())?)))
    }

    /// Of a process that was started by `nohup` or a similar program, none: it goes on ignoring them.
    pub(crate) fn listen_unless_ignored() -> io::Result<Self> {
        if is_ignored() { Ok(Self(None)) } else { Self::listen() }
    }

    /// Waits for the next one.
    pub(crate) async fn recv(&mut self) {
        let received = match &mut self.0 {
            Some(hangup) => hangup.recv().await,
            None => None,
        };
        if received.is_none() {
            pending().await
        }
    }
}

fn is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // The lowest bit is signal 1, SIGHUP.
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
