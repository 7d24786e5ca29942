//! Texts that all front ends share.

use std::collections::BTreeMap;

use ledger::audit::Record;
use ledger::proposals::UnusualValue;
use ledger::{AppliedRule, RecordStatus};
use serde_json::Value;
use types::{
    CallerContext, Conflict, ErrorCode, Failure, Rollback, RowChanger, UNDO_NOTE, UNDO_TOOL, in_sentence, visible,
};

/// The length of an id in a list, in characters.
const SHORT_ID_CHARS: usize = 8;

/// The maximum length of a value in a sentence, in characters.
const MAX_VALUE_CHARS: usize = 60;

/// What changes rows that the number of rows of a statement does not count.
pub(crate) const BESIDES: &str = "through triggers, foreign keys or other parts of the statement";

/// Explains why an old proposal may be missing.
pub const PROPOSAL_REMOVED: &str = "what was rejected or has expired is removed after 7 days";

/// The reason why a decision was refused, for the person who decided. Most hints tell an agent which tool to call
/// next, so they are omitted; only hints about privileges are for people.
#[must_use]
pub fn refused_decision(failure: &Failure) -> String {
    match failure.code {
        ErrorCode::NotFound => format!("there is no such proposal: {PROPOSAL_REMOVED}"),
        _ => refused_change(failure),
    }
}

/// The message of a failure, with what a person can do about it.
#[must_use]
pub fn refused_change(failure: &Failure) -> String {
    match (&failure.hint, failure.code) {
        (Some(hint), ErrorCode::NotPermitted) => format!("{}. {hint}", failure.message),
        _ => failure.message.clone(),
    }
}

/// What the statements of a write run with: `It runs as the role "app_eu", with the claims tenant = "acme".`
#[must_use]
pub fn runs_as(context: &CallerContext) -> Option<String> {
    let role = context.role.as_ref().map(|role| format!("as the role {role}"));
    let claims = context.claims_text().map(|claims| format!("with the claims {claims}"));
    let parts: Vec<String> = role.into_iter().chain(claims).collect();
    (!parts.is_empty()).then(|| format!("It runs {}.", parts.join(", ")))
}

/// The first characters of an id, for lists.
#[must_use]
pub fn short_id(id: &str) -> String {
    id.chars().take(SHORT_ID_CHARS).collect()
}

/// The number in words: `1 row`, `3 rows`.
#[must_use]
pub fn rows(count: u64) -> String {
    self::count(count, "row")
}

/// The number and the noun in words: `2 approvals`.
#[must_use]
pub fn count(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The text with a capital letter.
#[must_use]
pub fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().into_iter().flat_map(char::to_uppercase).chain(characters).collect()
}

/// The rule of a tool that requires an approval. `condition` formats the condition.
#[must_use]
pub fn rule(rule: &AppliedRule, condition: impl Fn(&str) -> String) -> String {
    let message = rule.message.as_ref().map(|message| format!(": {}", visible(message))).unwrap_or_default();
    let condition = condition(&visible(&rule.when));
    format!("Rule {} of the tool requires approval (if {condition}){message}", rule.number)
}

/// The rows that change besides those of the write's own statements.
#[must_use]
pub fn further(rows: &str) -> String {
    format!("It would also {rows}, {BESIDES}.")
}

/// The changed rows that a preview counts and does not list.
#[must_use]
pub fn unlisted(count: u64) -> String {
    let (rows, verb) = (rows(count), if count == 1 { "is" } else { "are" });
    format!("{} that it would change {verb} not shown: only the first ones are listed.", capitalized(&rows))
}

/// The value that a column does not usually have, the number of other such values of it, and how that is known.
#[must_use]
pub fn unusual(unusual: &UnusualValue, others: u64) -> String {
    let UnusualValue { table, column, value, listed, analyzed } = unusual;
    let [table, column] = [table, column].map(|name| visible(name));
    let value = in_sentence(&Value::from(value.as_str()), MAX_VALUE_CHARS);
    let differs = match listed {
        Some(count) => format!("none of the {count} values of this column"),
        None => "far outside of the values of this column".to_owned(),
    };
    let by = match analyzed {
        Some(day) => format!("the statistics of {}", visible(day)),
        None => "PostgreSQL's statistics".to_owned(),
    };
    let others = if others == 0 { String::new() } else { format!(" (and {} like it)", count(others, "other value")) };
    format!("{column} of {table} becomes {value}{others}: it is {differs}, by {by}.")
}

/// The warning about an UPDATE or DELETE without a condition.
#[must_use]
pub fn unfiltered(table: &str) -> String {
    format!("It changes every row of the table {}.", visible(table))
}

/// The columns that an undo does not restore, by table: `But for what triggers set again: shop.orders updated_at`. `None`
/// if there are none.
#[must_use]
pub fn set_again(columns: &BTreeMap<String, Vec<String>>) -> Option<String> {
    let of_table = |(table, columns): (&String, &Vec<String>)| visible(&format!("{table} {}", columns.join(", ")));
    let tables = columns.iter().map(of_table).collect::<Vec<_>>().join("; ");
    (!columns.is_empty()).then(|| format!("But for what triggers set again: {tables}"))
}

/// How a recorded write can be undone now, according to the ledger.
#[must_use]
pub fn undo(record: &Record) -> String {
    if record.status != RecordStatus::Success.as_str() {
        return "It has written nothing.".to_owned();
    }
    if record.undo_calls.iter().flatten().any(|call| call.reversed_by.is_some()) {
        return "It was undone.".to_owned();
    }
    let Some(rollback) = record.rollback() else { return "It cannot be undone.".to_owned() };
    match record.undo_obstacles.as_deref() {
        Some([first, others @ ..]) if rollback.reversible => {
            let more =
                if others.is_empty() { String::new() } else { format!(", and {} more in its way", others.len()) };
            format!("It cannot be undone now: {}{more}. To do: {}.", obstacle(first), first.kind.remedy())
        }
        _ => whole_receipt(&rollback),
    }
}

/// How a write could be undone that was previewed, or only proposed.
#[must_use]
pub fn undo_of_preview(rollback: &Rollback, is_tried: bool) -> String {
    if !is_tried && rollback.reversible && rollback.undo_tool.is_some() && rollback.checked.is_none() {
        // Whether its tables are tracked is unknown.
        return "Its receipt will say whether it can be undone: changes of tracked tables can.".to_owned();
    }
    whole_receipt(rollback)
}

/// The receipt with its note, and with what an undo leaves otherwise than it was.
fn whole_receipt(rollback: &Rollback) -> String {
    let (receipt, note) = (receipt(rollback), visible(rollback.note.trim_start_matches(UNDO_NOTE).trim()));
    // A note of the ledger may be the whole receipt.
    let receipt = Some(receipt).filter(|receipt| !note.starts_with(receipt.trim_end_matches('.')));
    let others: Vec<String> =
        rollback.not_restored.iter().map(|table| visible(table)).filter(|table| !note.contains(table)).collect();
    let stays = (!others.is_empty()).then(|| format!("An undo does not restore {}.", others.join(", ")));
    let again = set_again(&rollback.set_by_triggers).map(|columns| format!("{columns}."));
    let note = Some(note).filter(|note| !note.is_empty());
    receipt.into_iter().chain(note).chain(stays).chain(again).collect::<Vec<_>>().join(" ")
}

/// How a write can be undone, according to its receipt alone.
fn receipt(rollback: &Rollback) -> String {
    match (rollback.undo_tool.as_deref().map(visible), rollback.reversible) {
        (Some(tool), true) if rollback.checked == Some(false) => {
            format!("Whether it can be undone with {tool} was not checked: the undo may be refused.")
        }
        (Some(tool), true) if tool == UNDO_TOOL => {
            "It can be undone, as long as its rows are as it left them.".to_owned()
        }
        (Some(tool), true) => format!("It can be undone with {tool}."),
        (None, true) => "There is nothing to undo.".to_owned(),
        (_, false) => "It cannot be undone.".to_owned(),
    }
}

/// The conflict in words: `shop.orders has rows needed by later writes (304511b1 set_status)`.
fn obstacle(conflict: &Conflict<Value>) -> String {
    let table = conflict.table.get().map(|table| visible(table));
    let by = conflict.changed_by.get().and_then(|by| match by {
        RowChanger::Write(by) => {
            let tool = by.tool_name.get().map(|tool| format!(" {}", visible(tool))).unwrap_or_default();
            Some(format!(" ({}{tool})", short_id(&by.correlation_id.to_string())))
        }
        RowChanger::Outside { outside, .. } => {
            outside.as_ref().map(|origin| format!(" (outside countersign, {})", visible(origin.trim())))
        }
    });
    let subject = table.map_or_else(|| "it is a write".to_owned(), |table| format!("{table} has rows"));
    format!("{subject} {}{}", conflict.kind.words(), by.unwrap_or_default())
}
