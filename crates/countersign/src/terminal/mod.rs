//! Standard input and output. Only this module writes to standard output and standard error directly.

pub(crate) mod effects;
pub(crate) mod os_user;
pub(crate) mod rows;
pub(crate) mod shell_word;
pub(crate) mod short_id;
pub(crate) mod table;
pub(crate) mod undo_way;

use std::io::{self, BufRead, IsTerminal, Read, Write};

use serde::Serialize;
use serde_json::{Value, json};
use types::DatabaseLabel;

/// Writes bytes to standard output unchanged. Ignores errors: the reader may have closed it.
pub(crate) fn write_bytes(bytes: &[u8]) {
    let mut output = io::stdout().lock();
    let _ = output.write_all(bytes).and_then(|()| output.flush());
}

/// Prints a line on standard output. Ignores errors: the reader may have closed it.
pub(crate) fn print_line(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

pub(crate) fn print_lines(lines: impl IntoIterator<Item: AsRef<str>>) {
    lines.into_iter().for_each(|line| print_line(line.as_ref()));
}

tokio::task_local! {
    /// The database that is printed about; not set if there is one without a name.
    static DATABASE: DatabaseLabel;
}

/// Runs a command that prints about this database.
pub(crate) async fn about<T>(database: &DatabaseLabel, command: impl Future<Output = T>) -> T {
    DATABASE.scope(database.clone(), command).await
}

/// The database that is printed about.
pub(crate) fn current_database() -> Option<DatabaseLabel> {
    DATABASE.try_with(Clone::clone).ok()
}

/// Prints the name of a database above what follows. Production stands out.
pub(crate) fn print_heading(database: &DatabaseLabel) {
    let style = Style::of_stdout();
    let text = database.to_string();
    print_line(&if database.is_production() { style.bad(&text) } else { style.bold(&text) });
}

/// Prints a value as JSON on one line.
pub(crate) fn print_json(value: impl Serialize) {
    print_line(&json_text(value));
}

/// A value as JSON on one line. An object begins with the name of the database that is printed about.
pub(crate) fn json_text(value: impl Serialize) -> String {
    let mut value = json!(value);
    if let (Some(database), Value::Object(fields)) = (current_database(), &mut value) {
        let Value::Object(mut named) = json!(database) else { return table::json_line(&value) };
        named.append(fields);
        *fields = named;
    }
    table::json_line(&value)
}

/// Prints a line on standard output at once.
///
/// # Errors
/// The reader has closed standard output.
pub(crate) fn try_print_line(line: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush())
}

pub(crate) fn is_output_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Prints a line on standard error. Ignores errors.
pub(crate) fn print_error(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Whether the command can ask the user: standard input and output are a terminal.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

pub(crate) fn is_input_interactive() -> bool {
    io::stdin().is_terminal()
}

/// Reads standard input to its end, but at most `max_bytes`.
pub(crate) fn read_input(max_bytes: u64) -> io::Result<String> {
    let mut text = String::new();
    io::stdin().lock().take(max_bytes).read_to_string(&mut text)?;
    Ok(text)
}

/// Asks a question and reads one line of the terminal, without surrounding whitespace. Empty at the end of the input.
pub(crate) async fn ask(question: &str) -> io::Result<String> {
    os::discard_typed_input()?;
    let _ = write!(io::stdout().lock(), "{question} ");
    let _ = io::stdout().flush();
    let read = || {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).map(|_| line.trim().to_owned())
    };
    tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
}

/// The width of the terminal in characters; `None` if standard output is not a terminal. Then nothing is truncated.
pub(crate) fn width() -> Option<usize> {
    terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0))
}

/// Colours of a terminal. Text is plain if standard output is not a terminal or NO_COLOR is set.
pub(crate) struct Style {
    colours: bool,
}

impl Style {
    pub(crate) fn of_stdout() -> Self {
        Self { colours: io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() }
    }

    /// A style without colours, for tests.
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
