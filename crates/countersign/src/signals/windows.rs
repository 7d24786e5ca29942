use std::future::pending;
use std::io;

use tokio::signal::windows::{
    CtrlBreak, CtrlC, CtrlClose, CtrlShutdown, ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown,
};

/// STATUS_CONTROL_C_EXIT (0xC000013A), the exit code that Windows gives a process that Ctrl-C ends.
const CONTROL_C_EXIT: i32 = -1_073_741_510;

/// Ctrl-C, Ctrl-Break, the end of the console and that of the machine.
pub(crate) struct EndSignals {
    interrupt: CtrlC,
    terminate: CtrlBreak,
    close: CtrlClose,
    shutdown: CtrlShutdown,
}

impl EndSignals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: ctrl_c()?, terminate: ctrl_break()?, close: ctrl_close()?, shutdown: ctrl_shutdown()? })
    }

    /// Waits for the next one. Returns the exit code of a process that it ends.
    pub(crate) async fn recv(&mut self) -> i32 {
        tokio::select! {
            Some(()) = self.interrupt.recv() => CONTROL_C_EXIT,
            Some(()) = self.terminate.recv() => CONTROL_C_EXIT,
            Some(()) = self.close.recv() => CONTROL_C_EXIT,
            Some(()) = self.shutdown.recv() => CONTROL_C_EXIT,
            else => pending().await,
        }
    }
}

/// None: a server is started again to read its configuration again.
pub(crate) struct HangupSignals;

impl HangupSignals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) fn listen_unless_ignored() -> io::Result<Self> {
        Ok(Self)
    }

    /// Waits for ever.
    pub(crate) async fn recv(&mut self) {
        pending().await
    }
}
