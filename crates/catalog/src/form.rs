//! Detects queries whose form is wrong and for which PostgreSQL's message does not help: an empty query, several
//! statements, or a command of psql.

use types::{ErrorCode, Failure};

const EMPTY: &str = "The query is empty. Give one statement, such as SELECT.";
const SEVERAL: &str =
    "Nothing was executed. One call takes one statement: call once for each, without a semicolon in between.";
const PSQL: &str = "Commands that begin with a backslash are psql's, and no SQL. describe_database lists the schemas and tables, \
    and with table it describes one.";

const FENCED: &str =
    "Nothing was executed. The query is in a fenced block of Markdown: send the SQL alone, without the ``` around it.";

pub(crate) fn hint(query: &str, failure: &Failure) -> Option<&'static str> {
    let statement = without_comments(query);
    if statement.is_empty() && failure.code == ErrorCode::NotReadOnly {
        return Some(EMPTY);
    }
    if failure.sqlstate.as_deref() != Some("42601") {
        return None;
    }
    if statement.starts_with('\\') {
        return Some(PSQL);
    }
    // A fenced block of Markdown around the query.
    if query.lines().any(|line| line.trim_start().starts_with("```")) {
        return Some(FENCED);
    }
    // PostgreSQL reports no position for several statements, but it does for other syntax errors.
    let has_several = statement.trim_end_matches(|it: char| it == ';' || it.is_whitespace()).contains(';');
    (failure.position.is_none() && has_several).then_some(SEVERAL)
}

/// The query without its leading white space, semicolons and comments.
fn without_comments(query: &str) -> &str {
    let mut rest = query;
    loop {
        rest = rest.trim_start_matches(|it: char| it == ';' || it.is_whitespace());
        let after = match (rest.strip_prefix("--"), rest.strip_prefix("/*")) {
            (Some(line), _) => line.split_once('\n').map(|(_, after)| after),
            (_, Some(block)) => after_comment(block),
            _ => return rest,
        };
        rest = after.unwrap_or_default();
    }
}

/// The text after a comment, whose opening was already read. Comments can be nested.
fn after_comment(block: &str) -> Option<&str> {
    let mut depth = 1;
    let mut at = 0;
    while depth > 0 {
        let rest = block.get(at..)?;
        let end = rest.find("*/")?;
        match rest.find("/*").filter(|begin| *begin < end) {
            Some(begin) => (depth, at) = (depth + 1, at + begin + 2),
            None => (depth, at) = (depth - 1, at + end + 2),
        }
    }
    block.get(at..)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// N-24
    #[test]
    fn sql_in_a_fenced_block_is_told_as_such() {
        let failure = |sqlstate: &str| Failure {
            sqlstate: Some(sqlstate.to_owned()),
            position: Some(1),
            ..Failure::new(ErrorCode::SqlError, "syntax error at or near \"```\"")
        };
        for query in ["```sql\nselect 1\n```", "Here it is:\n\n  ```\nselect 1\n  ```"] {
            assert_eq!(hint(query, &failure("42601")), Some(FENCED), "{query}");
            assert_eq!(hint(query, &failure("42P01")), None);
        }
        assert_eq!(hint("selec '```'", &failure("42601")), None);
    }

    #[test]
    fn comments_and_blanks_are_nothing() {
        for (query, expected) in [
            (" ;\n-- a\n /* b /* c */ d */ select 1", "select 1"),
            ("-- a", ""),
            ("/* a", ""),
            (" ; ; ", ""),
            ("\\d x", "\\d x"),
        ] {
            assert_eq!(without_comments(query), expected, "{query}");
        }
    }
}
