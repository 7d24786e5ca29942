//! The password file (PostgreSQL manual, "The Password File"). It is read for each connection, so a changed password
//! needs no restart.

use std::path::Path;

use types::Secret;

/// The fields that a line must match: host, port, database, user.
pub(super) type Wanted<'a> = [&'a str; 4];

/// The password for this connection, if the file has one.
///
/// # Errors
/// The reason why the file is not used, for the error of a missing password.
pub(super) fn look_up(path: &Path, wanted: &Wanted<'_>) -> Result<Option<Secret>, String> {
    let Ok(metadata) = std::fs::metadata(path) else { return Err("there is no such file".to_owned()) };
    if !metadata.is_file() {
        return Err("it is no plain file".to_owned());
    }
    let mode = os::mode(&metadata);
    if mode & 0o077 != 0 {
        return Err(format!("others may read it (mode {:04o}); make it 0600 or less", mode));
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("it cannot be read: {error}"))?;
    Ok(text.lines().filter(|line| !line.starts_with('#')).find_map(|line| password(line, wanted)).map(Secret::new))
}

/// The password of a line `host:port:database:user:password`, if the other fields match.
fn password(line: &str, wanted: &Wanted<'_>) -> Option<String> {
    let mut rest = line;
    for wanted in wanted {
        let (field, after) = field(rest)?;
        if rest.strip_prefix("*:") != Some(after) && field != *wanted {
            return None;
        }
        rest = after;
    }
    // As in libpq, a colon in the password is escaped as well.
    Some(field(rest).map_or_else(|| unescaped(rest), |(password, _)| password)).filter(|password| !password.is_empty())
}

/// The field up to the next unescaped colon, and the text after the colon.
fn field(text: &str) -> Option<(String, &str)> {
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            ':' => return Some((unescaped(text.get(..at)?), text.get(at + 1..)?)),
            _ => {}
        }
    }
    None
}

fn unescaped(text: &str) -> String {
    let mut chars = text.chars();
    let mut plain = String::new();
    while let Some(c) = chars.next() {
        match c {
            '\\' => plain.extend(chars.next()),
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Wanted<'_> = ["db.example", "5432", "shop", "me"];

    #[test]
    fn a_line_fits_word_for_word_or_with_wildcards_and_escapes() {
        for (line, expected) in [
            ("db.example:5432:shop:me:secret", Some("secret")),
            ("*:*:*:*:secret", Some("secret")),
            (r"db\.example:5432:shop:me:a\:b\\c", Some(r"a:b\c")),
            ("*:*:*:me:a:b", Some("a")),
            ("db.example:5433:shop:me:secret", None),
            (r"\*:*:*:*:secret", None),
            ("*:*:*:you:secret", None),
            ("*:*:*:me", None),
            ("", None),
            ("*:*:*:me:", None),
        ] {
            assert_eq!(password(line, &WANTED).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn the_first_line_that_fits_counts_and_a_file_that_others_can_read_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pgpass");
        assert!(look_up(&path, &WANTED).unwrap_err().contains("no such file"));
        std::fs::write(&path, "# *:*:*:*:comment\n*:*:other:*:no\n*:*:shop:*:first\n*:*:*:*:second\n").unwrap();
        std::fs::set_permissions(&path, os::permissions(0o600).unwrap()).unwrap();
        assert_eq!(look_up(&path, &WANTED).unwrap().unwrap().expose(), "first");
        std::fs::set_permissions(&path, os::permissions(0o640).unwrap()).unwrap();
        assert!(look_up(&path, &WANTED).unwrap_err().contains("0640"));
    }

    proptest::proptest! {
        #[test]
        fn no_line_makes_the_reader_panic(line in ".*") {
            let _ = password(&line, &WANTED);
        }

        #[test]
        fn any_password_can_be_written(secret in "[^\n\r\0]*") {
            let written = secret.replace('\\', r"\\").replace(':', r"\:");
            let line = format!("*:*:*:*:{written}");
            let read = password(&line, &WANTED);
            proptest::prop_assert_eq!(read.unwrap_or_default(), secret);
        }
    }
}
