//! Names of tables without a schema in a statement that writes. It runs with `pg_catalog` alone as search_path, so that
//! nobody can put a function of their own before another one; its tables are found where reads find them.

use std::collections::HashSet;

use read::ReadError;
use tokio::time::Instant;
use types::{DescribeError, DescribeStatement};

use crate::error_position::{is_name_letter, name_at};
use crate::hints::{HINT_TIMEOUT, UNDEFINED_TABLE};
use crate::names::CatalogNames;
use crate::queries;

/// The maximum number of names that are completed in one statement.
const MAX_NAMES: usize = 20;

/// The statement with the schemas of its tables, where reads find a table of this name, or only one is readable. If names
/// cannot be looked up, the statement stays as it is: its own error says which name is missing.
pub async fn qualified(
    names: &CatalogNames,
    describer: &(impl DescribeStatement + Sync),
    sql: String,
    deadline: Instant,
) -> String {
    let until = deadline.min(Instant::now() + HINT_TIMEOUT);
    match tokio::time::timeout_at(until, completed(names, describer, &sql)).await {
        Ok(Ok(Some(completed))) => completed,
        Ok(Ok(None)) => sql,
        Ok(Err(error)) => {
            tracing::debug!(%error, "no schema could be looked up for a statement");
            sql
        }
        Err(_) => sql,
    }
}

async fn completed(
    names: &CatalogNames,
    describer: &(impl DescribeStatement + Sync),
    sql: &str,
) -> Result<Option<String>, ReadError> {
    // Most statements name their schemas, and cost nothing here: the list of tables is kept for some seconds.
    let words = bare_words(sql);
    if words.is_empty() || names.mentioned_tables(&words).await?.is_empty() {
        return Ok(None);
    }
    let mut completed: Option<String> = None;
    for _ in 0..MAX_NAMES {
        let text = completed.as_deref().unwrap_or(sql);
        let Err(DescribeError::Refused { sqlstate, position: Some(position), .. }) =
            describer.describe(text, &[]).await
        else {
            break;
        };
        let name = name_at(text, position);
        let ([bare], UNDEFINED_TABLE) = (name.parts.as_slice(), sqlstate.as_str()) else { break };
        let Some(whole) = only_table(names, bare).await? else { break };
        let before: String = text.chars().take(name.span.start).collect();
        let after: String = text.chars().skip(name.span.end).collect();
        completed = Some(format!("{before}{whole}{after}"));
    }
    Ok(completed)
}

/// The table of this name in the search path of reads, or else the only one that the caller may read.
async fn only_table(names: &CatalogNames, bare: &str) -> Result<Option<String>, ReadError> {
    if let Some(searched) = queries::searched_table(names.reader(), bare).await? {
        return Ok(Some(searched));
    }
    let tables = names.tables(bare).await?;
    let mut named = tables.iter().filter(|table| table.name == bare);
    let only = named.next().filter(|_| named.next().is_none());
    Ok(only.map(|table| table.shown.clone()))
}

/// The words of a statement that do not stand behind a dot, in lower case.
fn bare_words(sql: &str) -> HashSet<String> {
    let (mut words, mut is_behind_dot) = (HashSet::new(), false);
    for piece in sql.split_inclusive(|letter| !is_name_letter(letter)) {
        let word = piece.trim_end_matches(|letter| !is_name_letter(letter));
        if !word.is_empty() && !is_behind_dot {
            words.insert(word.to_lowercase());
        }
        // White space and the quote of a name may stand behind the dot.
        is_behind_dot = match piece.chars().next_back() {
            Some('.') => true,
            Some(end) => is_behind_dot && word.is_empty() && (end == '"' || end.is_whitespace()),
            None => false,
        };
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_behind_a_dot_are_none() {
        let words = |sql| {
            let mut words: Vec<String> = bare_words(sql).into_iter().collect();
            words.sort_unstable();
            words
        };
        assert_eq!(words("update shop.Item set a.b=1"), ["1", "a", "set", "shop", "update"]);
        assert_eq!(words("delete from \"Film\" where x . \"y\" = $1"), ["$1", "delete", "film", "from", "where", "x"]);
    }
}
