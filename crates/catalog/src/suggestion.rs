//! Finds the nearest existing names for a name that does not exist, among tables, columns, functions and types. For a
//! syntax error it finds the nearest keywords.

use std::collections::HashSet;

use read::{ReadError, Reader};
use types::{ErrorCode, Failure, nearest};

use crate::error_position::{IdentifierAt, is_name_letter, name_at, quoted_in, word_before, words};
use crate::names::CatalogNames;
use crate::queries::{
    ColumnName, Keyword, TableName, column_names, enum_labels, function_signatures, keywords, type_names,
};

/// The maximum number of words in a query that are looked up as tables, and of columns in a hint.
const MAX_WORDS: usize = 2_000;
const MAX_COLUMNS: usize = 40;
const MAX_FUNCTIONS: usize = 20;

const UNTYPED: &str = "Write the parameter's type, as in $1::text, and use every number from $1 on.";

/// A hint, if there is one. It is based on PostgreSQL's error, in any language of the message.
pub(crate) async fn suggestion(
    names: &CatalogNames,
    query: &str,
    failure: &Failure,
) -> Result<Option<String>, ReadError> {
    let reader = names.reader();
    // An error about a parameter has only PostgreSQL's message, without SQLSTATE and position.
    if failure.code == ErrorCode::InvalidParams {
        return unknown_label(reader, failure).await;
    }
    let Some(sqlstate) = failure.sqlstate.as_deref() else { return Ok(None) };
    let identifier = failure.position.map(|position| name_at(query, position)).unwrap_or_default();
    let message_names = |name: &str| failure.message.contains(name);
    match (sqlstate, identifier.parts.last(), &failure.hint) {
        ("42P01", Some(_), None) => unknown_table(names, &identifier.parts, failure).await,
        ("42703", Some(last), None) if message_names(last) => unknown_column(names, query, last, &identifier).await,
        // PostgreSQL's own hint omits the quotes that a name needs.
        ("42703", Some(last), Some(_)) if message_names(last) => {
            Ok(unknown_column(names, query, last, &identifier).await?.filter(|hint| hint.contains('"')))
        }
        // The error has no position (JOIN .. USING), or points to a word beside the name. Only the message has the
        // name.
        ("42703", _, None) => match quoted_in(&failure.message) {
            Some(name) => column_to_join(names, query, name).await,
            None => Ok(None),
        },
        ("42702", Some(last), None) if message_names(last) => ambiguous_column(names, query, last).await,
        // PostgreSQL always adds a hint, but it is about the arguments.
        ("42883", Some(last), _) if message_names(last) => unknown_function(names, last).await,
        ("42704", Some(last), None) if message_names(last) => unknown_type(reader, last).await,
        ("22P02", _, None) => unknown_label(reader, failure).await,
        ("42501", ..) if failure.code == ErrorCode::NotPermitted => readable_columns(names, query, failure).await,
        ("42P18", _, None) => Ok(Some(UNTYPED.to_owned())),
        ("42601", _, None) => misspelt_or_quoted(names, query, failure).await,
        _ => Ok(None),
    }
}

async fn unknown_table(names: &CatalogNames, name: &[String], failure: &Failure) -> Result<Option<String>, ReadError> {
    // The message quotes the whole name of a table that does not exist. For a column `x.id` whose `x` is not in FROM,
    // it quotes only `x`.
    let wanted = match name {
        [alias @ .., _] if !alias.is_empty() && !failure.message.contains(&name.join(".")) => alias,
        name => name,
    };
    let (schema, table) = match wanted {
        [.., schema, table] => (Some(schema.as_str()), table),
        [table] => (None, table),
        [] => return Ok(None),
    };
    let existing = names.tables(table).await?;
    let near = nearest_tables(schema, table, &existing);
    Ok(listed("The nearest tables that exist", near.into_iter().map(|table| table.shown.clone())))
}

/// Tables with a similar name; among equally similar ones, those in `schema` come first.
pub(crate) fn nearest_tables<'a>(schema: Option<&str>, table: &str, existing: &'a [TableName]) -> Vec<&'a TableName> {
    let mut ordered: Vec<&TableName> = existing.iter().collect();
    ordered.sort_by_key(|it| schema.is_some_and(|schema| it.schema_name != schema));
    nearest(table, &ordered, |it| &it.name).into_iter().copied().collect()
}

/// The tables that a query uses. PostgreSQL does not report them, so words that are names of tables are taken for
/// them, except the name at `except`, which does not exist.
async fn tables_of(names: &CatalogNames, query: &str, except: &IdentifierAt) -> Result<Vec<TableName>, ReadError> {
    let words: HashSet<String> = words(query, except).take(MAX_WORDS).collect();
    names.mentioned_tables(&words).await
}

async fn unknown_column(
    names: &CatalogNames,
    query: &str,
    column: &str,
    identifier: &IdentifierAt,
) -> Result<Option<String>, ReadError> {
    let tables = tables_of(names, query, identifier).await?;
    let columns = column_names(names.reader(), &tables).await?;
    Ok(nearest_columns(column, &columns))
}

/// A column that is missing on one side of JOIN .. USING. The other side may have it.
async fn column_to_join(names: &CatalogNames, query: &str, column: &str) -> Result<Option<String>, ReadError> {
    let tables = tables_of(names, query, &IdentifierAt::default()).await?;
    let columns = column_names(names.reader(), &tables).await?;
    let with_it: HashSet<String> = columns.iter().filter(|it| it.name == column).map(|it| it.table.clone()).collect();
    let others: Vec<ColumnName> = columns.into_iter().filter(|it| !with_it.contains(&it.table)).collect();
    Ok(nearest_columns(column, &others))
}

/// Columns with a similar name, or else all columns.
fn nearest_columns(column: &str, columns: &[ColumnName]) -> Option<String> {
    let near = nearest(column, columns, |it| &it.name);
    if !near.is_empty() {
        let near = near.into_iter().map(|it| format!("{} (in {})", it.shown, it.table));
        return listed("The nearest columns that exist", near);
    }
    let some = columns.get(..MAX_COLUMNS).unwrap_or(columns);
    let tables = some.chunk_by(|one, next| one.table == next.table);
    let lists = tables.filter_map(|of_table| {
        listed(&format!("{} has", of_table.first()?.table), of_table.iter().map(|it| it.shown.clone()))
    });
    Some(lists.collect::<Vec<String>>().join(" ")).filter(|lists| !lists.is_empty())
}

async fn ambiguous_column(names: &CatalogNames, query: &str, column: &str) -> Result<Option<String>, ReadError> {
    let tables = tables_of(names, query, &IdentifierAt::default()).await?;
    let columns = column_names(names.reader(), &tables).await?;
    let having = columns.iter().filter(|it| it.name == column).map(|it| it.table.clone());
    let having = listed("It is in", having);
    Ok(having.map(|having| format!("{having} Write the table's name or alias in front of it.")))
}

async fn unknown_function(names: &CatalogNames, function: &str) -> Result<Option<String>, ReadError> {
    let same = function_signatures(names.reader(), function).await?;
    if !same.is_empty() {
        return Ok(listed("It exists as", same.into_iter().map(|it| it.shown).take(MAX_FUNCTIONS)));
    }
    let existing = names.functions(function).await?;
    let near = nearest(function, &existing, |it| &it.name);
    Ok(listed("The nearest functions that exist", near.into_iter().map(|it| it.shown.clone())))
}

async fn unknown_type(reader: &Reader, wanted: &str) -> Result<Option<String>, ReadError> {
    let existing = type_names(reader, wanted).await?;
    let near = nearest(wanted, &existing, |it| &it.name);
    let mut shown: Vec<String> = near.into_iter().map(|it| it.shown.clone()).collect();
    // `int4` and `integer` are both names of one type.
    shown.dedup();
    Ok(listed("The nearest types that exist", shown.into_iter()))
}

async fn unknown_label(reader: &Reader, failure: &Failure) -> Result<Option<String>, ReadError> {
    let Some(found) = enum_labels(reader, &failure.message).await? else { return Ok(None) };
    Ok(listed(&format!("{} takes", found.name), found.labels.iter().map(|label| format!("'{label}'"))))
}

/// The readable columns of a table of which the login may read only some: of the table in the message, if it names
/// one.
async fn readable_columns(names: &CatalogNames, query: &str, failure: &Failure) -> Result<Option<String>, ReadError> {
    let mut tables = tables_of(names, query, &IdentifierAt::default()).await?;
    tables.retain(|table| table.partly && failure.message.contains(&table.name));
    let columns = column_names(names.reader(), &tables).await?;
    let of_tables = columns.chunk_by(|one, next| one.table == next.table);
    let lists = of_tables.filter_map(|of_table| {
        let some = of_table.iter().take(MAX_COLUMNS).map(|it| it.shown.clone());
        listed(&format!("Of {} only these columns may be read", of_table.first()?.table), some)
    });
    Ok(Some(lists.collect::<Vec<String>>().join(" ")).filter(|lists| !lists.is_empty()))
}

/// `What: a, b.`; `None` for an empty list.
pub(crate) fn listed(what: &str, names: impl Iterator<Item = String>) -> Option<String> {
    let names: Vec<String> = names.collect();
    (!names.is_empty()).then(|| format!("{what}: {}.", names.join(", ")))
}

/// Shorter words are similar to too many other words.
const MIN_LETTERS: usize = 3;
const MAX_SHOWN: usize = 3;

/// A hint for a syntax error: a keyword that needs quotes as a name, or a misspelt keyword.
async fn misspelt_or_quoted(names: &CatalogNames, query: &str, failure: &Failure) -> Result<Option<String>, ReadError> {
    let Some(position) = failure.position else { return Ok(None) };
    let word = name_at(query, position).parts.into_iter().next().unwrap_or_default();
    let before = word_before(query, position);
    let keywords = keywords(names.reader()).await?;
    let tables = tables_of(names, query, &IdentifierAt::default()).await?;
    let columns = column_names(names.reader(), &tables).await?;
    let is_keyword = keywords.iter().any(|it| it.word == word);
    if is_keyword && let Some(hint) = to_be_quoted(&word, &tables, &columns) {
        return Ok(Some(hint));
    }
    // `select 1 fro t` fails at `t`, because `fro` can be an alias of the column.
    let misspelt = [word, before].into_iter().find_map(|word| {
        let is_name = tables.iter().any(|it| it.name == word) || columns.iter().any(|it| it.name == word);
        if is_name { None } else { nearest_keywords(&word, &keywords) }
    });
    Ok(misspelt)
}

/// A table or a column of this name, which is a keyword and needs quotes.
fn to_be_quoted(word: &str, tables: &[TableName], columns: &[ColumnName]) -> Option<String> {
    let is_it = |name: &str| name.to_lowercase() == word;
    let tables = tables.iter().filter(|it| is_it(&it.name)).map(|it| format!("{} is a table", it.shown));
    let columns = columns.iter().filter(|it| is_it(&it.name));
    let columns = columns.map(|it| format!("{} has a column \"{}\"", it.table, it.name.replace('"', "\"\"")));
    let found: Vec<String> = columns.chain(tables).take(MAX_SHOWN).collect();
    (!found.is_empty()).then(|| format!("{}: a keyword is a name only in double quotes.", found.join(", ")))
}

fn nearest_keywords(word: &str, keywords: &[Keyword]) -> Option<String> {
    let is_plain = word.chars().count() >= MIN_LETTERS && word.chars().all(is_name_letter);
    if !is_plain || keywords.iter().any(|it| it.word == word) {
        return None;
    }
    let most = if word.len() > 6 { 2 } else { 1 };
    let mut near: Vec<(usize, bool, &Keyword)> = keywords
        .iter()
        .map(|it| (strsim::osa_distance(word, &it.word), !it.reserved, it))
        .filter(|(distance, ..)| *distance <= most)
        .collect();
    // Reserved keywords, which determine the structure of a statement, come first.
    near.sort_by_key(|(distance, unreserved, near)| (*unreserved, *distance, near.word.len() != word.len()));
    let reserved = near.iter().any(|(_, unreserved, _)| !unreserved);
    let near = near.into_iter().filter(|(_, unreserved, _)| !(reserved && *unreserved));
    let near = near.take(MAX_SHOWN).map(|(_, _, near)| near.shown.clone());
    listed(&format!("\"{word}\" is no keyword. The nearest are"), near)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keyword_misspelt_is_found_and_an_ordinary_word_is_not() {
        let word = |(word, reserved): (&str, bool)| Keyword {
            word: word.to_owned(),
            shown: word.to_ascii_uppercase(),
            reserved,
        };
        let all =
            [("select", true), ("from", true), ("for", true), ("where", true), ("when", true), ("partition", false)];
        let all: Vec<Keyword> = all.into_iter().chain([("form", false)]).map(word).collect();
        let found = |word: &str| nearest_keywords(word, &all).unwrap_or_default();
        assert_eq!(found("selec"), "\"selec\" is no keyword. The nearest are: SELECT.");
        assert_eq!(found("wher"), "\"wher\" is no keyword. The nearest are: WHEN, WHERE.");
        assert_eq!(found("frm"), "\"frm\" is no keyword. The nearest are: FROM.");
        assert_eq!(found("partitoin"), "\"partitoin\" is no keyword. The nearest are: PARTITION.");
        for none in ["select", "id", "", "tweet", "größe", "\"from"] {
            assert_eq!(found(none), "", "{none}");
        }
    }
}
