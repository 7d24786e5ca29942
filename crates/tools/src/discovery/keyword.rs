//! What a syntax error may be: a name that needs quotes because it is a keyword, or a keyword misspelt.

use ledger::read::{ReadError, Reader};
use types::Failure;

use super::error_position::{IdentifierAt, is_name_letter, name_at, word_before};
use super::suggestion::{listed, tables_of};
use super::{ColumnName, Keyword, TableName, column_names, keywords};

/// Shorter words are like too many others.
const MIN_LETTERS: usize = 3;
const MAX_SHOWN: usize = 3;

pub(super) async fn misspelt_or_quoted(
    reader: &Reader,
    query: &str,
    failure: &Failure,
) -> Result<Option<String>, ReadError> {
    let Some(position) = failure.position else { return Ok(None) };
    let word = name_at(query, position).parts.into_iter().next().unwrap_or_default();
    let before = word_before(query, position);
    let keywords = keywords(reader).await?;
    let tables = tables_of(reader, query, &IdentifierAt::default()).await?;
    let columns = column_names(reader, &tables).await?;
    let is_keyword = keywords.iter().any(|it| it.word == word);
    if is_keyword && let Some(hint) = to_be_quoted(&word, &tables, &columns) {
        return Ok(Some(hint));
    }
    // `select 1 fro t` fails at t: fro may be a name for the column.
    let misspelt = [word, before].into_iter().find_map(|word| {
        let is_name = tables.iter().any(|it| it.name == word) || columns.iter().any(|it| it.name == word);
        if is_name { None } else { nearest_keywords(&word, &keywords) }
    });
    Ok(misspelt)
}

/// A table or a column of that name, which only quotes make a name.
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
    // Those that make up the shape of a statement, before words that are keywords here and there.
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
