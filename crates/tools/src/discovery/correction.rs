//! What helps a model to correct its query: the line that PostgreSQL points to, and the nearest names that exist for
//! one that does not.

use std::collections::HashSet;
use std::time::Duration;

use contract::{ErrorCode, Failure};
use ledger::read::{ReadError, Reader};
use tokio::time::Instant;

use super::place::{is_name_letter, line_at, name_at};
use super::{TableName, column_names, function_names, mentioned_tables, nearest, table_names};

/// How long looking for names may take beyond the failed query itself.
const PATIENCE: Duration = Duration::from_secs(2);

/// Words of a query that may be names of tables, and what is listed at the most.
const MAX_WORDS: usize = 2_000;
const MAX_COLUMNS: usize = 40;
const MAX_FUNCTIONS: usize = 20;

/// The failure of `query` with all the help that can be had before `deadline`. Whatever goes wrong while looking for
/// it, the failure stays what it was.
pub(crate) async fn corrected(reader: &Reader, query: &str, failure: Failure, deadline: Instant) -> Failure {
    let mut failure = failure;
    let Some(position) = failure.position else { return failure };
    if failure.detail.is_none() {
        failure.detail = line_at(query, position);
    }
    if failure.code != ErrorCode::SqlError {
        return failure;
    }
    let until = deadline.min(Instant::now() + PATIENCE);
    match tokio::time::timeout_at(until, suggestion(reader, query, &failure, position)).await {
        Ok(Ok(Some(suggestion))) => {
            failure.hint = Some(match failure.hint.take() {
                Some(hint) => format!("{hint} {suggestion}"),
                None => suggestion,
            });
        }
        Ok(Ok(None)) => {}
        Ok(Err(error)) => tracing::debug!(%error, "no names could be looked up for a hint"),
        Err(_) => tracing::debug!("looking up names for a hint took too long"),
    }
    failure
}

async fn suggestion(
    reader: &Reader,
    query: &str,
    failure: &Failure,
    position: u32,
) -> Result<Option<String>, ReadError> {
    let name = name_at(query, position);
    let Some(last) = name.last() else { return Ok(None) };
    match (failure.sqlstate.as_deref(), &failure.hint) {
        (Some("42P01"), None) => unknown_table(reader, &name, failure).await,
        // PostgreSQL may point to a word beside the name (JOIN .. USING): then its message has another name in it.
        (Some("42703"), None) if failure.message.contains(last.as_str()) => unknown_column(reader, query, last).await,
        // Always has a hint, but one that is about its arguments.
        (Some("42883"), _) if failure.message.contains(last.as_str()) => unknown_function(reader, last).await,
        _ => Ok(None),
    }
}

async fn unknown_table(reader: &Reader, name: &[String], failure: &Failure) -> Result<Option<String>, ReadError> {
    // The message quotes the whole name of a table that does not exist; but only `x` of a column `x.id` whose `x` is not
    // in FROM.
    let wanted = match name {
        [alias @ .., _] if !alias.is_empty() && !failure.message.contains(&name.join(".")) => alias,
        name => name,
    };
    let (schema, table) = match wanted {
        [.., schema, table] => (Some(schema.as_str()), table),
        [table] => (None, table),
        [] => return Ok(None),
    };
    let existing = table_names(reader, table).await?;
    let near = nearest_tables(schema, table, &existing);
    Ok(listed("The nearest tables that exist", near.into_iter().map(|table| table.shown.clone())))
}

/// Tables with a name like this one; of those that are equally like it, the ones in `schema` first.
pub(crate) fn nearest_tables<'a>(schema: Option<&str>, table: &str, existing: &'a [TableName]) -> Vec<&'a TableName> {
    let mut ordered: Vec<&TableName> = existing.iter().collect();
    ordered.sort_by_key(|it| schema.is_some_and(|schema| it.schema_name != schema));
    nearest(table, &ordered, |it| &it.name).into_iter().copied().collect()
}

async fn unknown_column(reader: &Reader, query: &str, column: &str) -> Result<Option<String>, ReadError> {
    // Which tables the query is about, PostgreSQL does not say. Words that are names of tables are guess enough.
    let words = query.split(|it| !is_name_letter(it)).filter(|word| !word.is_empty()).map(str::to_lowercase);
    let words: HashSet<String> = words.take(MAX_WORDS).collect();
    let mentioned = mentioned_tables(reader, &words).await?;
    let [first, ..] = mentioned.as_slice() else { return Ok(None) };
    let columns = column_names(reader, &mentioned).await?;
    let near = nearest(column, &columns, |it| &it.name);
    if near.is_empty() && mentioned.len() == 1 {
        let all = columns.iter().take(MAX_COLUMNS).map(|it| it.shown.clone());
        return Ok(listed(&format!("{} has", first.shown), all));
    }
    Ok(listed("The nearest columns that exist", near.into_iter().map(|it| format!("{} (in {})", it.shown, it.table))))
}

async fn unknown_function(reader: &Reader, function: &str) -> Result<Option<String>, ReadError> {
    let existing = function_names(reader, function).await?;
    let same: Vec<String> = existing
        .iter()
        .flat_map(|it| it.arguments.iter().flatten().map(|arguments| format!("{}({arguments})", it.shown)))
        .collect();
    if !same.is_empty() {
        return Ok(listed("It exists as", same.into_iter().take(MAX_FUNCTIONS)));
    }
    let near = nearest(function, &existing, |it| &it.name);
    Ok(listed("The nearest functions that exist", near.into_iter().map(|it| it.shown.clone())))
}

/// `What: a, b.`; nothing if there is nothing to list.
pub(crate) fn listed(what: &str, names: impl Iterator<Item = String>) -> Option<String> {
    let names: Vec<String> = names.collect();
    (!names.is_empty()).then(|| format!("{what}: {}.", names.join(", ")))
}
