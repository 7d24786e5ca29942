//! The parts of an INSERT, UPDATE or DELETE that a tool needs: its table, its condition, and the columns that its
//! values belong to.

use std::ops::Range;

use crate::statement::{StatementToken, TokenKind};

/// The parts, as ranges of tokens.
#[derive(Debug)]
pub(crate) struct Shape {
    /// insert, update or delete.
    pub(crate) verb: &'static str,
    pub(crate) table: Range<usize>,
    /// The table with ONLY and its alias.
    pub(crate) target: Range<usize>,
    /// WHERE and what follows; empty without one.
    pub(crate) condition: Range<usize>,
    /// Whether it has RETURNING.
    pub(crate) returns: bool,
}

impl Shape {
    /// `None` if the statement has another form.
    pub(crate) fn of(tokens: &[StatementToken<'_>]) -> Option<Self> {
        let outer = outer_words(tokens);
        let first = |word: &str| outer.iter().copied().find(|at| tokens.get(*at).is_some_and(|token| token.is(word)));
        let is = |at: usize, word: &str| tokens.get(at).is_some_and(|token| token.is(word));
        let (verb, start) = match tokens.first()? {
            token if token.is("insert") && is(1, "into") => ("insert", 2),
            token if token.is("update") => ("update", 1),
            token if token.is("delete") && is(1, "from") => ("delete", 2),
            _ => return None,
        };
        let returning = first("returning");
        let end = returning.unwrap_or(tokens.len());
        let condition = first("where").filter(|at| *at < end).map_or(end..end, |at| at..end);
        let has_more = match verb {
            "insert" => first("conflict").is_some(),
            "update" => first("from").is_some_and(|at| at < condition.start),
            _ => first("using").is_some(),
        };
        if has_more {
            return None;
        }
        let behind = match verb {
            "update" => first("set")?,
            "delete" => condition.start,
            _ => tokens.len(),
        };
        let name = start + usize::from(is(start, "only"));
        let mut name_end = name + 1;
        while is(name_end, ".") {
            name_end += 2;
        }
        let target = if verb == "insert" { start..name_end } else { start..behind };
        (name_end <= tokens.len()).then_some(Self {
            verb,
            table: name..name_end,
            target,
            condition,
            returns: returning.is_some(),
        })
    }

    /// The beginning of a sentence.
    pub(crate) fn summary(&self, table: &str) -> String {
        match self.verb {
            "insert" => format!("Insert into {table}"),
            "update" => format!("Update {table}"),
            _ => format!("Delete from {table}"),
        }
    }

    /// The name of the table without its schema.
    pub(crate) fn noun(&self, tokens: &[StatementToken<'_>]) -> String {
        tokens.get(self.table.end - 1).map(name).unwrap_or_default()
    }

    /// The column that a slot is compared with, assigned to, or inserted into.
    pub(crate) fn column_of(&self, tokens: &[StatementToken<'_>], at: usize) -> Option<String> {
        if self.verb == "insert" {
            return self.inserted_column(tokens, at);
        }
        // `column = ?`, `column + ?`, `column like ?`, `column in (?, ?`
        let mut before = tokens.get(..at)?.iter().rev().skip_while(|token| {
            token.is_slot()
                || token.kind == TokenKind::Symbol && !token.is(")") && !token.is(".")
                || ["like", "ilike", "in", "any", "between", "not"].iter().any(|word| token.is(word))
        });
        before.next().filter(|token| token.kind == TokenKind::Word && !is_keyword(token)).map(name)
    }

    /// `insert into t (a, b) values (?, ?)`
    fn inserted_column(&self, tokens: &[StatementToken<'_>], at: usize) -> Option<String> {
        let values = tokens.iter().position(|token| token.is("values"))?;
        let mut columns = tokens.get(self.table.end + 1..values)?.iter().take_while(|token| !token.is(")"));
        let (mut depth, mut column) = (0_usize, 0);
        for token in tokens.get(values + 1..at)? {
            match token.text {
                "(" | "[" => {
                    depth += 1;
                    if depth == 1 {
                        column = 0;
                    }
                }
                ")" | "]" => depth = depth.saturating_sub(1),
                "," if depth == 1 => column += 1,
                _ => {}
            }
        }
        columns.by_ref().filter(|token| token.kind == TokenKind::Word).nth(column).map(name)
    }
}

/// The places of the words that are not in parentheses.
fn outer_words(tokens: &[StatementToken<'_>]) -> Vec<usize> {
    let mut depth = 0_usize;
    let mut places = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "(" | "[" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            _ if depth == 0 && token.kind == TokenKind::Word => places.push(at),
            _ => {}
        }
    }
    places
}

/// A word that stands before a value and is no column.
fn is_keyword(token: &StatementToken<'_>) -> bool {
    const KEYWORDS: [&str; 14] = [
        "set", "where", "and", "or", "when", "then", "else", "values", "select", "limit", "offset", "return", "case",
        "interval",
    ];
    KEYWORDS.iter().any(|word| token.is(word))
}

/// A name without its quotes.
fn name(token: &StatementToken<'_>) -> String {
    match token.text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => token.text.to_lowercase(),
    }
}
