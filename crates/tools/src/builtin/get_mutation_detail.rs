//! `get_mutation_detail`: the ledger's full record of one write.

use std::collections::HashMap;

use ledger::Records;
use manifest::Access;
use serde_json::{Map, Value, json};

use super::undo::MutationArguments;
use super::{Builtin, correlation_id, no_write};
use crate::schema::builtin_info;
use crate::tool::{Call, Tool, ToolOutput, ToolResult};
use catalog::ledger_failure;

pub(super) const NAME: &str = "get_mutation_detail";

const DESCRIPTION: &str = "Look up one write of this account by the correlation_id that its answer carried: parameters, \
    result, how to undo it, what reversed it, why it failed. Repeated long texts are {\"same_as\": place}.";

pub(super) fn tool(records: Records) -> Box<dyn Tool> {
    let info =
        builtin_info::<MutationArguments, Map<String, Value>>(NAME, "Look up a write", DESCRIPTION, Access::Write);
    Builtin::boxed(info, records, |records, given, call| Box::pin(detail(records, given, call)))
}

/// Shorter texts are never replaced; the length is in bytes.
const LONG_TEXT: usize = 256;

/// The parts of a record in which a long text is kept first. An agent that undoes a write copies the arguments from
/// there.
const FIRST_PARTS: [&str; 3] = ["rollback_action", "params", "effects"];

/// Replaces repeated long texts in a record by the path of their first occurrence. A write of a long text has it in
/// its parameters, its result, its images and its effects.
fn with_long_texts_once(mut record: Map<String, Value>) -> Map<String, Value> {
    let mut texts = HashMap::new();
    for name in FIRST_PARTS {
        if let Some(part) = record.get_mut(name) {
            note_long_texts(part, name, &mut texts, name != "rollback_action");
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

async fn detail(records: &Records, given: MutationArguments, call: Call) -> ToolResult {
    let id = correlation_id(NAME, &given.correlation_id)?;
    let found = records.detail(&call.principal.account_id, id).await;
    match found.map_err(|error| ledger_failure(&error))? {
        // Masking learns the values to hide from the columns of the record, so the texts must stay in place.
        Some(record) if call.masks.is_some() => ToolOutput::read(&record),
        Some(record) => ToolOutput::read(&with_long_texts_once(record)),
        None => Err(no_write(&id.to_string()).into()),
    }
}
