//! What a person reads. The one place that writes to standard output or standard error by itself.

use std::io::{self, BufRead, IsTerminal, Read, Write};

/// Writes bytes to standard output as they are. Whoever closed it does not want them.
pub(crate) fn write_bytes(bytes: &[u8]) {
    let mut output = io::stdout().lock();
    let _ = output.write_all(bytes).and_then(|()| output.flush());
}

/// A line on standard output. A reader that went away is no reason to stop.
pub(crate) fn print_line(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

/// A line on standard error.
pub(crate) fn print_error(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Whether there is somebody to ask: somebody who sees what is shown and types the answer.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Whether somebody types what is read.
pub(crate) fn is_input_interactive() -> bool {
    io::stdin().is_terminal()
}

/// Standard input to its end, but no more than so many bytes.
///
/// # Errors
/// That it cannot be read, or is not UTF-8.
pub(crate) fn read_input(max_bytes: u64) -> io::Result<String> {
    let mut text = String::new();
    io::stdin().lock().take(max_bytes).read_to_string(&mut text)?;
    Ok(text)
}

/// Asks, and waits for a line of the terminal; it comes without its end, and empty at the end of the input.
///
/// # Errors
/// That the terminal cannot be read.
pub(crate) async fn ask(question: &str) -> io::Result<String> {
    // What was typed before the question was there is no answer to it.
    let _ = nix::sys::termios::tcflush(io::stdin(), nix::sys::termios::FlushArg::TCIFLUSH);
    let _ = write!(io::stdout().lock(), "{question} ");
    let _ = io::stdout().flush();
    let read = || {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).map(|_| line.trim().to_owned())
    };
    tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
}

/// How many characters a line of the terminal takes; `None` if standard output is none, so that nothing is cut off.
pub(crate) fn width() -> Option<usize> {
    terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0))
}

/// Text in a terminal's colours, and plain where there is none or NO_COLOR asks for it.
pub(crate) struct Style {
    colours: bool,
}

impl Style {
    pub(crate) fn of_stdout() -> Self {
        Self { colours: io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() }
    }

    /// Without colours, for tests.
    #[cfg(test)]
    pub(crate) const fn plain() -> Self {
        Self { colours: false }
    }

    fn wrap(&self, code: &str, text: &str) -> String {
        if self.colours { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    pub(crate) fn bold(&self, text: &str) -> String {
        self.wrap("1", text)
    }

    pub(crate) fn faint(&self, text: &str) -> String {
        self.wrap("2", text)
    }

    pub(crate) fn good(&self, text: &str) -> String {
        self.wrap("32", text)
    }

    pub(crate) fn bad(&self, text: &str) -> String {
        self.wrap("31", text)
    }
}
