//! The facts of a write, and those that a face lacks.

use serde_json::Value;

use super::oracle::{Change, Done};

/// A text that tells of a proposal, and who reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Face {
    /// The agent's answer.
    Agent,
    Description,
    Question,
    Terminal,
    Page,
    List,
    Inbox,
}

/// A fact of a write, in the words that every face has to have on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fact {
    /// The rows of a table that change in one way: `delete 3 rows of s.line`.
    Rows { words: String, rows: u64 },
    /// A column, or all sensitive ones, of updated rows of a table.
    Column { table: String, column: String },
    /// A column of updated rows that the caller sees masked: that it changes would tell its value.
    Masked { table: String, column: String },
    /// A danger, or a part of the receipt.
    Words(Vec<String>),
    /// A value that is not usual: agents do not learn what is usual.
    Unusual(String),
    /// What a list has in place of all these.
    Mark(String),
}

impl Fact {
    /// Whether a face has to tell it, or how much of it is not shown.
    pub(super) fn concerns(&self, face: Face) -> bool {
        let is_list = matches!(face, Face::List | Face::Inbox);
        match self {
            Self::Rows { .. } | Self::Words(_) => !is_list,
            Self::Column { .. } => !is_list && face != Face::Description,
            Self::Masked { .. } => matches!(face, Face::Question | Face::Terminal | Face::Page),
            Self::Unusual(_) => matches!(face, Face::Terminal | Face::Page),
            Self::Mark(_) => is_list,
        }
    }

    const fn rows(&self) -> Option<u64> {
        if let Self::Rows { rows, .. } = self { Some(*rows) } else { None }
    }

    pub(super) fn is_in(&self, line: &str) -> bool {
        match self {
            Self::Rows { words, .. } | Self::Mark(words) => says(line, words),
            Self::Column { table, column } | Self::Masked { table, column } => says(line, table) && says(line, column),
            Self::Words(words) => words.iter().all(|words| says(line, words)),
            Self::Unusual(words) => says(line, words) && says(line, "statistics"),
        }
    }
}

/// Whether a line has these words, and not as a part of others.
fn says(line: &str, words: &str) -> bool {
    let (line, words) = (line.to_lowercase(), words.to_lowercase());
    let is_free = |next: Option<char>| next.is_none_or(|next| !next.is_alphanumeric() && next != '_');
    line.match_indices(&words)
        .any(|(at, found)| is_free(line[..at].chars().next_back()) && is_free(line[at + found.len()..].chars().next()))
}

pub(super) fn rows(count: u64) -> String {
    format!("{count} row{}", if count == 1 { "" } else { "s" })
}

/// The facts of a write: rows and columns by the database itself, risks and the receipt by what was stored.
/// `masked` is the table and the column that the caller sees masked.
pub(super) fn facts(done: &Done, preview: &Value, masked: Option<(&str, &str)>) -> Vec<Fact> {
    let list = |of: &Value| of.as_array().cloned().unwrap_or_default();
    let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
    let mut facts = Vec::new();
    let (mut all, mut unlisted) = (0, 0);
    for Change { table, change, rows: count, unlisted: more, columns, is_sensitive } in &done.changes {
        (all, unlisted) = (all + count, unlisted + more);
        facts.push(Fact::Rows { words: format!("{change} {} of {table}", rows(*count)), rows: *count });
        let hidden = is_sensitive.then(|| "sensitive columns".to_owned());
        let columns = columns.iter().cloned().chain(hidden);
        facts.extend(columns.map(|column| match (table.clone(), masked) {
            (table, Some(masked)) if masked == (&table, &column) => Fact::Masked { table, column },
            (table, _) => Fact::Column { table, column },
        }));
    }
    let further = all.saturating_sub(done.affected);
    let words = |words: &[&str]| Fact::Words(words.iter().map(|&words| words.to_owned()).collect());
    let (rollback, warnings) = (&preview["rollback"], list(&preview["warnings"]));
    let (unfiltered, unusual) = (list(&preview["unfiltered"]), list(&preview["unusual"]));
    let is_final = rollback["reversible"] == false;
    facts.extend((unlisted > 0).then(|| words(&[&format!("{} that it would change", rows(unlisted))])));
    facts.extend(unfiltered.iter().map(|table| words(&[&text(table), "it changes every row of the table"])));
    facts.extend(warnings.iter().map(|warning| words(&[&text(warning)])));
    facts.push(words(&[if is_final { "cannot be undone" } else { "can be undone" }]));
    let note = text(&rollback["note"])
        .replace("Call undo_mutation to take it back, as long as its rows are as it left them.", "");
    facts.extend(Some(note.trim()).filter(|note| !note.is_empty()).map(|note| words(&[note])));
    facts.extend(list(&rollback["not_restored"]).iter().map(|table| words(&["undo", &text(table)])));
    for (table, columns) in rollback["set_by_triggers"].as_object().into_iter().flatten() {
        facts.extend(list(columns).iter().map(|column| words(&["triggers set again", table, &text(column)])));
    }
    let place = |of: &Value| Fact::Unusual(format!("{} of {}", text(&of["column"]), text(&of["table"])));
    facts.extend(unusual.iter().map(place));
    let count = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let marks = [
        Some(rows(done.affected)),
        (further > 0).then(|| format!("{further} more row{}", if further == 1 { "" } else { "s" })),
        (unlisted > 0).then(|| format!("{} not shown", rows(unlisted))),
        (!unfiltered.is_empty()).then(|| "every row of a table".to_owned()),
        is_final.then(|| "cannot be undone".to_owned()),
        (!warnings.is_empty()).then(|| count(warnings.len(), "warning")),
        (!unusual.is_empty()).then(|| count(unusual.len(), "unusual value")),
    ];
    facts.extend(marks.into_iter().flatten().map(Fact::Mark));
    facts
}

/// The facts that a face neither tells nor counts as not shown.
pub(super) fn missing(face: Face, lines: &[String], facts: &[Fact]) -> Vec<Fact> {
    let is_told = |fact: &&Fact| lines.iter().any(|line| fact.is_in(line));
    let (told, absent): (Vec<&Fact>, Vec<&Fact>) = facts.iter().filter(|fact| fact.concerns(face)).partition(is_told);
    let listed: u64 = told.iter().filter_map(|fact| fact.rows()).sum();
    let counted = |count: u64, what: &str| {
        let some = [format!("{count} more {what}"), format!("{count} more {what}s")];
        lines.iter().any(|line| some.iter().any(|some| says(line, some)))
    };
    let is_counted = |fact: &Fact| match fact {
        // A line names the tables of the statement, and counts the rows of others.
        Fact::Rows { .. } => {
            let all: u64 = absent.iter().filter_map(|fact| fact.rows()).sum();
            let is_all = lines.iter().any(|line| says(line, &format!("it would change {}", rows(all))));
            face == Face::Description && (counted(all, "row") || is_all && listed == 0)
        }
        // An answer has a bounded number of columns.
        Fact::Column { .. } => {
            let columns = absent.iter().filter(|fact| matches!(fact, Fact::Column { .. })).count();
            face == Face::Agent && counted(columns as u64, "column")
        }
        _ => false,
    };
    absent.iter().filter(|fact| !is_counted(fact)).map(|fact| (*fact).clone()).collect()
}
