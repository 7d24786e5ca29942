//! `get_mutation_detail`: the ledger's record of one write.

use std::collections::HashMap;

use catalog::ledger_failure;
use ledger::Records;
use manifest::Access;
use review::RowMasks;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use types::{Effects, Masks, Rollback};

use super::{Builtin, correlation_id, no_write};
use crate::bounded::{MAX_BYTES, RowLists, cut_texts, left_out, size};
use crate::schema::{builtin_info, one_of};
use crate::tool::{Call, Tool, ToolOutput, ToolResult};

pub(super) const NAME: &str = "get_mutation_detail";

const DESCRIPTION: &str = "Look up one write of this account by the correlation_id that its answer carried: parameters, \
    result, how to undo it, what reversed it, why it failed. Repeated long texts are {\"same_as\": place}.";

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// meta.correlation_id of the write's answer: a UUID.
    correlation_id: String,
    /// all: every row, and long texts whole, in pages.
    #[schemars(schema_with = "shown_rows", default)]
    rows: Option<String>,
    /// With rows: next_after of the page before.
    #[serde(default)]
    after: usize,
}

pub(super) fn shown_rows(_: &mut SchemaGenerator) -> Schema {
    one_of(&["all"])
}

pub(super) fn tool(records: Records) -> Box<dyn Tool> {
    let info = builtin_info::<Arguments, Map<String, Value>>(NAME, "Look up a write", DESCRIPTION, Access::Write);
    Builtin::boxed(info, records, |records, given, call| Box::pin(detail(records, given, call)))
}

/// Shorter texts are never replaced; the length is in bytes.
const LONG_TEXT: usize = 256;

/// The parts of a record in which a long text is kept first. An agent that undoes a write copies the arguments from
/// there.
const FIRST_PARTS: [&str; 3] = [ROLLBACK, "params", "effects"];

/// The part of a record that says how the write is undone.
const ROLLBACK: &str = "rollback_action";

/// Replaces repeated long texts in a record by the path of their first occurrence. A write of a long text has it in
/// its parameters, its result, its images and its effects.
fn with_long_texts_once(mut record: Map<String, Value>) -> Map<String, Value> {
    let mut texts = HashMap::new();
    for name in FIRST_PARTS {
        if let Some(part) = record.get_mut(name) {
            note_long_texts(part, name, &mut texts, name != ROLLBACK);
        }
    }
    for (name, part) in record.iter_mut().filter(|(name, _)| !FIRST_PARTS.contains(&name.as_str())) {
        note_long_texts(part, name, &mut texts, true);
    }
    record
}

/// Notes the paths of long texts; if `is_replaced`, replaces the texts that have a path already.
fn note_long_texts(value: &mut Value, place: &str, texts: &mut HashMap<String, String>, is_replaced: bool) {
    match value {
        Value::String(text) if text.len() >= LONG_TEXT => match texts.get(text) {
            Some(first) if is_replaced => *value = json!({"same_as": first}),
            Some(_) => {}
            None => {
                texts.insert(text.clone(), place.to_owned());
            }
        },
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                note_long_texts(item, &format!("{place}.{index}"), texts, is_replaced);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                note_long_texts(field, &format!("{place}.{name}"), texts, is_replaced);
            }
        }
        _ => {}
    }
}

/// The record with the masks of the caller.
fn masked(record: Map<String, Value>, masks: &Masks) -> Map<String, Value> {
    let mut rows = RowMasks::new(Some(masks));
    let mut data = Value::Object(record);
    rows.mask(&mut data, false);
    match rows.redaction().value(&data) {
        Value::Object(record) => record,
        _ => Map::new(),
    }
}

/// The parts that an agent needs whole, however large they are.
const WHOLE: [&str; 2] = [ROLLBACK, "correlation_id"];

fn taken(record: &mut Map<String, Value>) -> RowLists {
    // What is not in this form stays in the record.
    let effects = record.get("effects").and_then(|effects| Effects::deserialize(effects).ok());
    if effects.is_some() {
        record.remove("effects");
    }
    RowLists::new(effects, record.remove("before_image"), record.remove("after_image"))
}

fn put(rows: RowLists, record: &mut Map<String, Value>, start: usize, end: usize) {
    let (effects, before, after) = rows.part(&(start..end));
    let parts = [("effects", effects.map(|effects| json!(effects))), ("before_image", before), ("after_image", after)];
    record.extend(parts.into_iter().filter_map(|(name, part)| Some((name.to_owned(), part?))));
}

/// The record without the rows and the ends of texts that do not fit.
fn cut(mut record: Map<String, Value>) -> Map<String, Value> {
    let mut rows = taken(&mut record);
    rows.cut();
    record.iter_mut().filter(|(name, _)| !WHOLE.contains(&name.as_str())).for_each(|(_, part)| cut_texts(part));
    record.insert("left_out".to_owned(), left_out(NAME).into());
    for part in ["result", "params"] {
        if size(&record) > MAX_BYTES {
            record.remove(part);
        }
    }
    let end = rows.fitting(0, MAX_BYTES.saturating_sub(size(&record)));
    put(rows, &mut record, 0, end);
    record
}

/// The record with a page of its rows, after the first `start` ones.
fn page(mut record: Map<String, Value>, start: usize) -> Map<String, Value> {
    let rows = taken(&mut record);
    let end = rows.page_end(start);
    if start > 0 {
        record.retain(|name, _| WHOLE.contains(&name.as_str()));
    }
    if end < rows.count() {
        record.insert("next_after".to_owned(), end.into());
    }
    put(rows, &mut record, start, end);
    record
}

async fn detail(records: &Records, given: Arguments, call: Call) -> ToolResult {
    let id = correlation_id(NAME, &given.correlation_id)?;
    let found = records.detail(&call.principal, id).await;
    let mut record = found.map_err(|error| ledger_failure(&error))?.ok_or_else(|| no_write(&id.to_string()))?;
    if let Some(database) = &call.database
        && let Some(rollback) = record.get_mut(ROLLBACK)
        && let Ok(receipt) = Rollback::deserialize(&*rollback)
    {
        *rollback = json!(database.rollback(receipt));
    }
    // Masking learns the values to hide from the columns of the record, so nothing may be cut before.
    let (record, short): (_, fn(_) -> _) = match &call.masks {
        Some(masks) => (masked(record, masks), std::convert::identity),
        None => (record, with_long_texts_once),
    };
    let record = if given.rows.is_some() {
        short(page(record, given.after))
    } else if size(&record) <= MAX_BYTES {
        short(record)
    } else {
        let whole = short(record.clone());
        if size(&whole) > MAX_BYTES { cut(record) } else { whole }
    };
    ToolOutput::read(&record).map(|output| ToolOutput { is_masked: true, ..output })
}
