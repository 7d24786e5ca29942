//! The references to columns in an expression as EXPLAIN writes it.
//!
//! EXPLAIN writes a column as `alias.column`, or as `column` if a plan reads only one relation, and a whole row as
//! `alias.*`. A name that might be a column is treated as one.

use std::iter::Peekable;
use std::str::Chars;

use super::referenced_objects::{name, skip_literal};

/// A reference to a column or to a whole row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reference {
    /// `column`.
    Bare(String),
    /// `alias.column`.
    Qualified(String, String),
    /// `alias.*`.
    WholeRow(String),
}

/// The reference, if it is the whole expression.
pub(crate) fn plain(expression: &str) -> Option<Reference> {
    let mut rest = expression.chars().peekable();
    let reference = path(&mut rest)?;
    if rest.next().is_some() {
        return None;
    }
    Some(reference)
}

pub(crate) fn references(expression: &str) -> Vec<Reference> {
    let mut found = Vec::new();
    let mut rest = expression.chars().peekable();
    let mut is_type = false;
    while let Some(&next) = rest.peek() {
        match next {
            '\'' => skip_literal(&mut rest, false),
            ':' => {
                rest.next();
                is_type = rest.next_if_eq(&':').is_some();
            }
            _ if next.is_ascii_digit() => skip_number(&mut rest),
            _ if is_name_start(next) => {
                let reference = path(&mut rest);
                let is_literal = rest.peek() == Some(&'\'');
                if is_literal {
                    // The literal is E'..', which has backslash escapes.
                    skip_literal(&mut rest, reference == Some(Reference::Bare("E".to_owned())));
                } else if !is_type && rest.peek() != Some(&'(') {
                    found.extend(reference);
                }
                is_type = false;
            }
            _ => {
                rest.next();
                is_type = false;
            }
        }
    }
    found
}

/// The longest alias that PostgreSQL certainly does not truncate, in bytes. A name has at most 63.
const MAX_ALIAS_BYTES: usize = 48;

/// Whether a list of column names may follow an alias in a text: `alias (a, b)`. Matches in literals and comments
/// count too.
pub(crate) fn may_have_column_names(sql: &str, alias: &str) -> bool {
    // PostgreSQL truncates long names, and those that it makes unique further.
    if alias.len() > MAX_ALIAS_BYTES || alias.is_empty() {
        return true;
    }
    let (sql, alias) = (sql.to_lowercase(), alias.replace('"', "\"\"").to_lowercase());
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$') || !c.is_ascii();
    sql.match_indices(&alias).any(|(at, _)| {
        let (before, behind) = (sql.get(..at).unwrap_or_default(), sql.get(at + alias.len()..).unwrap_or_default());
        let behind = without_comments(behind.strip_prefix('"').unwrap_or(behind));
        !before.ends_with(is_part) && behind.starts_with('(')
    })
}

/// The text after white space and comments. Block comments can be nested.
fn without_comments(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        if let Some(line) = text.strip_prefix("--") {
            text = line.find(['\n', '\r']).and_then(|end| line.get(end..)).unwrap_or_default();
        } else if let Some(comment) = text.strip_prefix("/*") {
            text = behind_comment(comment);
        } else {
            return text;
        }
    }
}

/// The text after the end of an open block comment.
fn behind_comment(mut text: &str) -> &str {
    let mut depth = 1;
    while depth > 0 {
        let Some(at) = text.find(['/', '*']) else { return "" };
        let rest = text.get(at..).unwrap_or_default();
        (text, depth) = match (rest.strip_prefix("/*"), rest.strip_prefix("*/")) {
            (Some(rest), _) => (rest, depth + 1),
            (_, Some(rest)) => (rest, depth - 1),
            _ => (rest.get(1..).unwrap_or_default(), depth),
        };
    }
    text
}

fn is_name_start(c: char) -> bool {
    c == '"' || c == '_' || c == '$' || c.is_alphabetic() || !c.is_ascii()
}

/// `a`, `a.b`, `a.b.c` (the last two count), or `a.*`.
fn path(rest: &mut Peekable<Chars<'_>>) -> Option<Reference> {
    if !rest.peek().copied().is_some_and(is_name_start) {
        return None;
    }
    let (mut before, mut last) = (None, name(rest)?);
    while rest.next_if_eq(&'.').is_some() {
        if rest.next_if_eq(&'*').is_some() {
            return Some(Reference::WholeRow(last));
        }
        let Some(next) = name(rest) else { break };
        before = Some(std::mem::replace(&mut last, next));
    }
    Some(match before {
        Some(alias) => Reference::Qualified(alias, last),
        None => Reference::Bare(last),
    })
}

fn skip_number(rest: &mut Peekable<Chars<'_>>) {
    while rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '.').is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(expression: &str) -> Vec<String> {
        let text = |reference| match reference {
            Reference::Bare(column) => column,
            Reference::Qualified(alias, column) => format!("{alias}.{column}"),
            Reference::WholeRow(alias) => format!("{alias}.*"),
        };
        references(expression).into_iter().map(text).collect()
    }

    #[test]
    fn a_plain_reference_is_the_whole_expression() {
        let qualified = |alias: &str, column: &str| Some(Reference::Qualified(alias.to_owned(), column.to_owned()));
        assert_eq!(plain("c.email"), qualified("c", "email"));
        assert_eq!(plain("\"*SELECT* 1\".\"E mail\""), qualified("*SELECT* 1", "E mail"));
        assert_eq!(plain("email"), Some(Reference::Bare("email".to_owned())));
        assert_eq!(plain("c.*"), Some(Reference::WholeRow("c".to_owned())));
        for expression in ["(c.email)", "c.email || 'x'", "lower(email)", "(c.email)::text", "'email'::text", "1", ""] {
            assert_eq!(plain(expression), None, "{expression}");
        }
    }

    #[test]
    fn every_reference_is_found_and_no_literal_type_or_function() {
        for (expression, expected) in [
            ("((c.email)::text ~~ 'c.secret%'::text)", vec!["c.email"]),
            ("(lower(email) = E'it\\'s x.y')", vec!["email"]),
            ("ROW(c.id, c.\"E mail\")", vec!["c.id", "c.E mail"]),
            ("to_jsonb(c.*)", vec!["c.*"]),
            ("((c.addr).zip)::\"My\".\"Type\"", vec!["c.addr", "zip"]),
            ("(1.5 * c.price) + 2e10", vec!["c.price"]),
            ("shop.f(c.a, 'x')", vec!["c.a"]),
            ("c.tags[c.i]", vec!["c.tags", "c.i"]),
            ("(c.a OPERATOR(shop.=) c.b)", vec!["c.a", "shop", "c.b"]),
        ] {
            assert_eq!(shown(expression), expected, "{expression}");
        }
    }

    #[test]
    fn a_list_of_column_names_is_found_behind_its_alias() {
        for (sql, alias, expected) in [
            ("select x from shop.customers as c(a, x)", "c", true),
            ("select x from shop.customers C (a, x)", "c", true),
            ("select x from shop.customers as \"C \"\"d\"\n(a, x)", "C \"d", true),
            ("select x from shop.customers c/* */(a, x)", "c", true),
            ("select x from shop.customers c--\n(a, x)", "c", true),
            ("select x from shop.customers c /* /* */ */ -- (\n /**/ (a, x)", "c", true),
            ("select c.id from shop.customers c -- (all of them)\nwhere id > 1", "c", false),
            ("select c.id from shop.customers c /* (all) */", "c", false),
            ("select count(c.id), func(c.id) from shop.customers c", "c", false),
            ("select c.id from shop.customers c where (c.id) in (1)", "c", false),
        ] {
            assert_eq!(may_have_column_names(sql, alias), expected, "{sql}");
        }
        assert!(may_have_column_names("", &"x".repeat(63)));
    }

    #[test]
    fn words_of_sql_are_taken_for_columns() {
        assert_eq!(
            shown("CASE WHEN (c.a IS NULL) THEN 1 ELSE c.b END"),
            ["CASE", "WHEN", "c.a", "IS", "NULL", "THEN", "ELSE", "c.b", "END"]
        );
    }
}
