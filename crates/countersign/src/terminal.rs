//! What a person reads. The one place that writes to standard output or standard error by itself.

use std::io::{IsTerminal, Write};

/// A line on standard output. A reader that went away is no reason to stop.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// A line on standard error.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// How many characters a line of the terminal takes; `None` if standard output is none, so that nothing is cut off.
pub(crate) fn width() -> Option<usize> {
    terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0))
}

/// Text in a terminal's colours, and plain where there is none or NO_COLOR asks for it.
pub(crate) struct Style {
    colours: bool,
}

impl Style {
    pub(crate) fn of_stdout() -> Self {
        Self { colours: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() }
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
