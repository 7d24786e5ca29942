//! The text of a manifest, and positions in it.

use std::io;
use std::path::{Path, PathBuf};

use crate::Location;

#[derive(Debug, Clone)]
pub struct Source {
    /// The path, as diagnostics show it.
    pub path: PathBuf,
    /// The TOML text.
    pub text: String,
}

impl Source {
    /// Reads the file.
    ///
    /// # Errors
    /// The file cannot be read or is not UTF-8. The message contains the path.
    pub fn read(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let text = std::fs::read_to_string(&path)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        Ok(Self { path, text })
    }

    /// Returns the line and column of a byte offset.
    #[must_use]
    pub fn locate(&self, offset: usize) -> Location {
        let before = self.text.get(..offset).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().count() - before.get(..line_start).unwrap_or_default().chars().count() + 1;
        Location { path: self.path.clone(), line, column }
    }
}

/// The byte offset within `token`, a TOML string as written, of the character at `position` in its value, from 1.
///
/// A position past the end of the value is on the last line of the token: PostgreSQL reports there that text is
/// missing.
pub(crate) fn offset_in_string(token: &str, position: usize) -> usize {
    let (mut offset, escapes) = opening(token);
    for _ in 1..position {
        let rest = token.get(offset..).unwrap_or_default();
        let width = if escapes && rest.starts_with('\\') { escape_width(rest) } else { first_width(rest) };
        if width == 0 {
            break;
        }
        offset += width;
        offset += continuation_width(token.get(offset..).unwrap_or_default(), escapes);
    }
    offset.min(token.len())
}

/// The width of the opening delimiter with the line break after it, and whether the string may contain escapes.
fn opening(token: &str) -> (usize, bool) {
    let escapes = token.starts_with('"');
    let rest = token.strip_prefix("\"\"\"").or_else(|| token.strip_prefix("'''"));
    let width = match rest {
        Some(rest) if rest.starts_with("\r\n") => 5,
        Some(rest) if rest.starts_with('\n') => 4,
        Some(_) => 3,
        None => 1,
    };
    (width + continuation_width(token.get(width..).unwrap_or_default(), escapes), escapes)
}

fn first_width(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

/// The width of an escape sequence for one character.
fn escape_width(text: &str) -> usize {
    match text.as_bytes().get(1) {
        Some(b'x') => 4,
        Some(b'u') => 6,
        Some(b'U') => 10,
        Some(_) => 2,
        None => 1,
    }
}

/// The width of a backslash at the end of a line, with the white space that it removes. It is not part of the value.
fn continuation_width(text: &str, escapes: bool) -> usize {
    let Some(rest) = text.strip_prefix('\\').filter(|_| escapes) else { return 0 };
    let swallowed = rest.len() - rest.trim_start().len();
    let breaks_line = rest.get(..swallowed).is_some_and(|space| space.contains('\n'));
    if breaks_line { 1 + swallowed } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source { path: "m.toml".into(), text: text.to_owned() }
    }

    #[test]
    fn a_column_counts_characters_and_a_line_counts_from_one() {
        let source = source("a = 1\nä = é\n");
        assert_eq!(source.locate(0).to_string(), "m.toml:1:1");
        assert_eq!(source.locate(source.text.find('é').unwrap()).to_string(), "m.toml:2:5");
    }

    #[test]
    fn a_position_in_a_value_is_found_in_every_way_to_write_a_string() {
        for token in [
            "\"select oops\"",
            "'select oops'",
            "\"\"\"select oops\"\"\"",
            "\"\"\"\nselect oops\"\"\"",
            "'''\r\nselect oops'''",
            "\"\"\"\\\n   select oops\"\"\"",
            "\"\"\"sel\\\n   ect oops\"\"\"",
            "\"sel\\u0065ct oops\"",
            "\"s\\x65lect oops\"",
        ] {
            let offset = offset_in_string(token, "select ".len() + 1);
            assert!(token[offset..].starts_with("oops"), "{token}: {offset}");
        }
    }

    #[test]
    fn an_escape_counts_as_the_one_character_it_stands_for() {
        let token = r#""select \"a\" \U0001F600 oops""#;
        let offset = offset_in_string(token, "select \"a\" x ".chars().count() + 1);
        assert!(token[offset..].starts_with("oops"), "{offset}");
    }

    #[test]
    fn a_position_behind_the_end_stays_within_the_token() {
        let token = "'select'";
        assert_eq!(offset_in_string(token, 500), token.len());
    }
}
