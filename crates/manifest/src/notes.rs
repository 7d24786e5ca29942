//! Notes: texts of the operator about an existing schema, table or column.
//!
//! PostgreSQL checks that the object exists, by describing a statement that names it. The statement contains only the
//! quoted names from the note, and is never executed.

use types::{DescribeError, DescribeStatement};

use crate::infer::UnavailableError;
use crate::missing_privileges::{INSUFFICIENT_PRIVILEGE, MissingPrivileges};
use crate::parse::ParsedNote;
use crate::{Diagnostics, Note};

/// The maximum length of a note, in characters, so that a note does not hide the table that it is about.
const MAX_CHARS: usize = 1000;

const FORMS: &str = "on names a schema, a table or a column as SQL does: social, social.tweet, social.tweet.text or \
                     social.\"My Table\"";

/// Returns the notes whose objects exist. Records mistakes: in `of_files` notes that are invalid by themselves, and
/// in `misfits` notes on objects that do not exist.
///
/// # Errors
/// The database did not answer. The mistake is recorded already.
pub(crate) async fn check(
    parsed_notes: &[ParsedNote<'_>],
    database: &impl DescribeStatement,
    of_files: &mut Diagnostics,
    misfits: &mut Diagnostics,
    denied: &mut MissingPrivileges,
) -> Result<Vec<Note>, UnavailableError> {
    let mut notes = Vec::new();
    for parsed in parsed_notes {
        let Some(note) = declared(parsed, of_files) else { continue };
        match database.describe(&naming(&note), &[]).await {
            Ok(_) => notes.push(note),
            Err(DescribeError::Refused { message, sqlstate, .. }) if sqlstate == INSUFFICIENT_PRIVILEGE => {
                denied.note(parsed.diagnostic(parsed.note.on.span(), message));
            }
            Err(DescribeError::Refused { message, sqlstate, hint, .. }) => {
                let hint = hint.map(|hint| format!("; hint: {hint}")).unwrap_or_default();
                let message = format!("on: {message} (SQLSTATE {sqlstate}){hint}");
                misfits.0.push(parsed.diagnostic(parsed.note.on.span(), message));
            }
            Err(DescribeError::Unavailable(why)) => {
                let message = format!("the database could not be asked whether this exists: {why}");
                misfits.0.push(parsed.diagnostic(parsed.note.on.span(), message));
                return Err(UnavailableError);
            }
        }
    }
    Ok(notes)
}

/// Runs the checks that need no database.
fn declared(parsed: &ParsedNote<'_>, diagnostics: &mut Diagnostics) -> Option<Note> {
    let (on, text) = (&parsed.note.on, parsed.note.text.get_ref().trim());
    let mut say = |span, message: &str| diagnostics.0.push(parsed.diagnostic(span, message));
    if parsed.note.lacks("text", text.is_empty()) {
        say(parsed.note.text.span(), "a note needs a text: what agents should know");
    } else if text.chars().count() > MAX_CHARS {
        say(parsed.note.text.span(), "a note has at most 1000 characters");
    }
    let mut parts = name_parts(on.get_ref()).unwrap_or_default().into_iter();
    let (Some(schema), table, column, None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        if !parsed.note.refused.iter().any(|key| key == "on") {
            say(on.span(), FORMS);
        }
        return None;
    };
    if schema.starts_with("pg_") || ["information_schema", "countersign"].contains(&schema.as_str()) {
        say(on.span(), "the system's schemas and the ledger are never described, so nobody would see this note");
        return None;
    }
    Some(Note { schema, table, column, text: text.to_owned() })
}

/// A statement that PostgreSQL accepts only if the named objects exist.
fn naming(note: &Note) -> String {
    let schema = quoted(&note.schema);
    match (&note.table, &note.column) {
        (None, _) => format!("select '{}'::pg_catalog.regnamespace", schema.replace('\'', "''")),
        (Some(table), None) => format!("select 1 from {schema}.{}", quoted(table)),
        // The alias differs from the column's name, which would otherwise name a whole row.
        (Some(table), Some(column)) => {
            let alias = if column == "a" { "b" } else { "a" };
            format!("select {} from {schema}.{} as {alias}", quoted(column), quoted(table))
        }
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The parts of a name, split as in SQL: `shop."My Table".id` has three. `None` if the text is not a name.
#[must_use]
pub fn name_parts(text: &str) -> Option<Vec<String>> {
    let mut letters = text.trim().chars().peekable();
    let mut parts = Vec::new();
    loop {
        let mut part = String::new();
        if letters.next_if_eq(&'"').is_some() {
            loop {
                match letters.next()? {
                    '"' if letters.next_if_eq(&'"').is_none() => break,
                    letter => part.push(letter),
                }
            }
        } else {
            while let Some(letter) = letters.next_if(|it| it.is_alphanumeric() || ['_', '$'].contains(it)) {
                part.push(letter.to_ascii_lowercase());
            }
        }
        if part.is_empty() || part.contains('\0') {
            return None;
        }
        parts.push(part);
        match letters.next() {
            None => return Some(parts),
            Some('.') => {}
            Some(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_sql_reads_them() {
        for (text, parts) in [
            ("social", Some(vec!["social"])),
            (" Social.Tweet ", Some(vec!["social", "tweet"])),
            ("s.\"My \"\"T.able\"\"\".größe", Some(vec!["s", "My \"T.able\"", "größe"])),
            ("", None),
            ("a.", None),
            (".a", None),
            ("a b", None),
            ("a..b", None),
            ("\"a", None),
            ("\"\"", None),
            ("a'; drop", None),
        ] {
            let parts = parts.map(|parts| parts.into_iter().map(str::to_owned).collect());
            assert_eq!(name_parts(text), parts, "{text}");
        }
    }

    #[test]
    fn a_name_stays_a_name_in_the_statement() {
        let note = |table: Option<&str>, column: Option<&str>| Note {
            schema: "s'\"".into(),
            table: table.map(str::to_owned),
            column: column.map(str::to_owned),
            text: String::new(),
        };
        assert_eq!(naming(&note(None, None)), "select '\"s''\"\"\"'::pg_catalog.regnamespace");
        assert_eq!(naming(&note(Some("t\""), Some("a"))), "select \"a\" from \"s'\"\"\".\"t\"\"\" as b");
    }
}
