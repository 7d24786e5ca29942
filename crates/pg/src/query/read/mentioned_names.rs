//! The names that a text may mention, for checks that a plan alone cannot answer: a call needs the name of its
//! function.

use std::collections::BTreeSet;

/// Marks the name of an attribute among the names of functions. No identifier of PostgreSQL has this character.
pub(crate) const ATTRIBUTE: char = '\0';

/// Every name that the text may mention, including in literals and comments: each word as it is and in lower case,
/// and everything between double quotes. Identifiers with Unicode escapes are refused elsewhere (`function_policy`).
pub(super) fn mentioned_names(sql: &str) -> BTreeSet<String> {
    names_between(sql, |_, _| true)
}

/// The mentioned names of functions that the text may call. A parenthesis follows the name, perhaps after a comment.
/// PostgreSQL also takes `(x).f` for `f(x)`: such a name follows a point, perhaps after a comment, and is marked with
/// [`ATTRIBUTE`], because most of these are columns.
pub(crate) fn mentioned_calls(sql: &str) -> BTreeSet<String> {
    let is_called = |rest: &str| ["(", "/*", "--"].iter().any(|start| rest.trim_start().starts_with(start));
    let has_comments = ["/*", "--"].iter().any(|start| sql.contains(start));
    // A comment to the end of the line may end with INTO.
    let is_target = |before: &str| !sql.contains("--") && is_behind_into(before);
    let mut calls = names_between(sql, |before, rest| is_called(rest) && !is_target(before));
    let attributes = names_between(sql, |before, rest| {
        !is_called(rest) && (has_comments || before.trim_end().ends_with('.')) && !is_target(before)
    });
    let is_identifier = |name: &String| !name.starts_with(|c: char| c.is_ascii_digit());
    calls.extend(attributes.into_iter().filter(is_identifier).map(|name| format!("{ATTRIBUTE}{name}")));
    calls
}

/// Whether the text ends with INTO, and perhaps names of a schema: what follows is a table with its list of columns.
fn is_behind_into(before: &str) -> bool {
    let mut before = before.trim_end();
    while let Some(qualified) = before.strip_suffix('.') {
        let qualified = qualified.trim_end();
        let Some(rest) = (match qualified.strip_suffix('"') {
            Some(quoted) => before_quoted(quoted),
            None => Some(qualified.trim_end_matches(is_part)).filter(|rest| rest.len() < qualified.len()),
        }) else {
            return false;
        };
        before = rest.trim_end();
    }
    let word = before.len().checked_sub(4).and_then(|start| before.split_at_checked(start));
    word.is_some_and(|(rest, word)| word.eq_ignore_ascii_case("into") && rest.ends_with(char::is_whitespace))
}

/// What stands before an identifier in double quotes whose closing one is gone. Two quotes are one within it.
fn before_quoted(mut text: &str) -> Option<&str> {
    loop {
        text = text.get(..text.rfind('"')?)?;
        match text.strip_suffix('"') {
            Some(rest) => text = rest,
            None => return Some(text),
        }
    }
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$') || !c.is_ascii()
}

/// Whether the text may have identifiers with Unicode escapes, whose names are not in the text.
pub(crate) fn has_unicode_identifiers(sql: &str) -> bool {
    sql.to_ascii_lowercase().contains("u&\"")
}

/// The mentioned names for which the text before them and the text behind them meet a condition.
fn names_between(sql: &str, is_counted: impl Fn(&str, &str) -> bool) -> BTreeSet<String> {
    const QUOTE: &str = "\u{0}";
    let mut names = BTreeSet::new();
    let mut rest = sql.trim_start_matches(|c| !is_part(c));
    while !rest.is_empty() {
        let (before, _) = sql.split_at(sql.len() - rest.len());
        let (word, behind) = rest.split_at(rest.find(|c| !is_part(c)).unwrap_or(rest.len()));
        if is_counted(before, behind) {
            names.extend([word.to_owned(), word.to_ascii_lowercase(), word.to_lowercase()].map(cut));
        }
        rest = behind.trim_start_matches(|c| !is_part(c));
    }
    let escaped = sql.replace("\"\"", QUOTE);
    let pieces: Vec<&str> = escaped.split('"').collect();
    let mut start = 0;
    for piece in pieces.windows(2).enumerate().map(|(place, pair)| (pair, pieces.get(place + 2))) {
        let ([before, name], behind) = piece else { continue };
        start += before.len() + 1;
        let before = escaped.get(..start - 1).unwrap_or_default();
        if is_counted(before, behind.copied().unwrap_or_default()) {
            names.insert(cut(name.replace(QUOTE, "\"")));
        }
    }
    names
}

fn cut(mut name: String) -> String {
    name.truncate(name.floor_char_boundary(MAX_NAME_BYTES));
    name
}

/// `NAMEDATALEN` - 1. PostgreSQL truncates longer names.
const MAX_NAME_BYTES: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_and_everything_in_double_quotes_may_be_a_name() {
        let names = mentioned_names("values (SHOP.Email_Of(1), shop.\"odd \"\"name\"(), 'lit_eral') -- comm\u{e9}nt");
        for name in ["shop", "Email_Of", "email_of", "odd \"name", "lit_eral", "comm\u{e9}nt", "1"] {
            assert!(names.contains(name), "{name} is not in {names:?}");
        }
        assert!(!names.contains("email"));
        assert!(mentioned_names(&"x".repeat(70)).contains(&"x".repeat(63)));
    }

    #[test]
    fn a_table_behind_into_is_no_call() {
        for sql in [
            "insert into track (name) values ('a')",
            "INSERT INTO shop.track(name) values ('a')",
            "with x as (select 1) insert into\n\"track\" (name) select 1",
            "merge into \"a \"\"b\" . track (name)",
            "insert into db.\"shop\".\"track\"(name) values ('a')",
            "insert into shop.track values (1)",
        ] {
            let calls = mentioned_calls(sql);
            let names = ["track", "@track"].map(|name| name.replace('@', &ATTRIBUTE.to_string()));
            assert!(names.iter().all(|name| !calls.contains(name)), "{sql}: {calls:?}");
        }
        for sql in [
            "insert into t select track(1)",
            "insert into t (a) select * from track(1)",
            "insert into track (a) values (track(1))",
            "insert into t values (1) -- into\n, (track(1))",
            "select 1 -- into\ntrack(1)",
            "select 'into' track(1)",
            "select \"into\".track(1)",
            "select \"into\" . \"track\"(1)",
            "select \"x into \".\"track\"(1)",
            "select 'into \"', \"s\".\"track\"(1)",
            "select 'into \"'||\"s\".track(1)",
            "select /* into */ track(1)",
            "select dinto track(1)",
        ] {
            assert!(mentioned_calls(sql).contains("track"), "{sql}");
        }
    }

    #[test]
    fn a_name_before_a_parenthesis_may_be_a_call() {
        let sql = "values (F(1), g /* */ (2), h --\n(3), \"odd \"\"name\" (4), plain, \"also plain\", 'text')";
        let calls = mentioned_calls(sql);
        for name in ["F", "f", "g", "h", "odd \"name", "values"] {
            assert!(calls.contains(name), "{name} is not in {calls:?}");
        }
        for name in ["plain", "also plain", "text"] {
            assert!(!calls.contains(name), "{name} is in {calls:?}");
            assert!(calls.contains(&format!("{ATTRIBUTE}{name}")), "a comment may stand between {name} and a point");
        }
        let calls = mentioned_calls("select (x).F, (y) . \"odd\", t.a, 1.5, plain, g(x) from s.t");
        let attributes = ["F", "f", "odd", "a", "t"].map(|name| format!("{ATTRIBUTE}{name}"));
        assert_eq!(calls, BTreeSet::from_iter(attributes.into_iter().chain(["g", "select"].map(str::to_owned))));
        assert!(has_unicode_identifiers("select U&\"\\0066\"(1)"));
    }
}
