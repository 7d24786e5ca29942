//! The envelope of a tool's answers (design.md section 6), as an output schema.

use contract::Column;
use serde_json::{Map, Value, json};

use super::object;
use super::types::column;
use crate::{Access, RowsRule, Tier};

/// The envelope around these result columns.
pub(crate) fn output_schema(access: Access, tier: Tier, rows: RowsRule, columns: &[Column]) -> Map<String, Value> {
    envelope_schema(data(access, tier, rows, columns), access.writes())
}

/// The envelope around `data`, for any tool; `writes` adds what only the answer of a write has.
#[must_use]
pub fn envelope_schema(data: Value, writes: bool) -> Map<String, Value> {
    object(json!({
        "type": "object",
        "properties": {
            "success": {"type": "boolean", "description": "Whether the tool did what it was asked."},
            "data": data,
            "error": error(),
            "meta": meta(writes),
        },
        "required": ["success", "meta"],
    }))
}

fn data(access: Access, tier: Tier, rows: RowsRule, columns: &[Column]) -> Value {
    let row: Map<String, Value> = columns.iter().map(|it| (it.name.clone(), Value::Object(column(it)))).collect();
    let mut properties = if rows.is_single() {
        row
    } else {
        object(json!({
            "rows": {"type": "array", "items": {"type": "object", "properties": row}},
            "row_count": {"type": "integer", "minimum": 0, "description": "How many rows there are."},
        }))
    };
    if access.writes() {
        add(&mut properties, duplicate());
    }
    if access.writes() && tier > Tier::Auto {
        add(&mut properties, proposal());
    }
    json!({"type": "object", "description": "The result; only if success is true.", "properties": properties})
}

/// A result column may have the same name as a key of ours; then nothing is known but that.
fn add(properties: &mut Map<String, Value>, more: Value) {
    for (key, schema) in object(more) {
        let taken = properties.contains_key(&key);
        let schema = if taken { json!({"description": format!("The result column {key}, or ours.")}) } else { schema };
        properties.insert(key, schema);
    }
}

/// The properties of `data` when an identical call had succeeded before; for any tool that writes.
#[must_use]
pub fn duplicate() -> Value {
    json!({
        "duplicate": {
            "type": "boolean",
            "description": "True if an identical call had already succeeded, and nothing was written now.",
        },
        "original_correlation_id": {"type": "string", "description": "The correlation_id of that call."},
        "cached_result": {"type": "object", "description": "The data of that call."},
        "message": {"type": "string", "description": "What happened instead of a write."},
    })
}

/// The properties of `data` when nothing was written yet; for any tool above tier `auto`.
#[must_use]
pub fn proposal() -> Value {
    json!({
        "requires_approval": {"type": "boolean", "description": "True if nothing was written yet: see proposal."},
        "proposal": {
            "type": "object",
            "description": "What will be written once it is agreed to, with a preview, as get_proposal shows it.",
        },
        "message": {"type": "string", "description": "What happened instead of a write."},
    })
}

/// A write that waits for somebody to agree, or did.
#[must_use]
pub fn proposal_schema() -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    json!({
        "type": "object",
        "description": "What will be written once it is agreed to, with a preview.",
        "properties": {
            "proposal_id": text("What the other tools name it by."),
            "action": text("The tool that was called."),
            "tier": text("Who has to agree: confirm (the user of this account) or approve (somebody else, outside of the conversation)."),
            "status": text("pending, confirmed, rejected, expired, executed, failed or stale."),
            "description": text("For people: what would happen."),
            "params": {"type": "object", "description": "Every parameter that the write has."},
            "preview": preview(),
            "digest": text("What is agreed to, in 64 digits: confirm_proposal needs it."),
            "created_at": text("When it was proposed."),
            "expires_at": text("Until when it can be agreed to."),
            "proposed_by": text("The label of whoever proposed it."),
            "decided_by": text("Who decided."),
            "decided_via": text("How they told."),
            "decided_at": text("When."),
            "reason": text("Why it was rejected."),
            "correlation_id": text("The receipt of the write."),
            "error_code": text("Why it failed."),
            "error_message": text("The same in a sentence."),
            "completed_at": text("When it ended."),
        },
    })
}

fn preview() -> Value {
    json!({
        "type": "object",
        "description": "What the write did when it was tried and rolled back.",
        "properties": {
            "rows_affected": {"type": "integer", "minimum": 0, "description": "How many rows it would touch; absent if it was not tried."},
            "result": {"type": "object", "description": "What it would answer."},
            "before": {"type": "array", "description": "The rows before it.", "items": {"type": "object"}},
            "after": {"type": "array", "description": "The same rows after it.", "items": {"type": "object"}},
            "generated": {
                "type": "array",
                "description": "Values that the database makes when it is written; null here.",
                "items": {"type": "string"},
            },
            "rollback": {"type": "object", "description": "Whether and how it could be undone."},
            "warnings": {"type": "array", "description": "What a person should look at.", "items": {"type": "string"}},
        },
    })
}

fn error() -> Value {
    json!({
        "type": "object",
        "description": "Why it failed; only if success is false.",
        "properties": {
            "code": {"type": "string", "description": "The kind of failure."},
            "message": {"type": "string", "description": "What was wrong and what to do."},
            "retryable": {"type": "boolean", "description": "Whether the same call may succeed later."},
            "sqlstate": {"type": "string", "description": "PostgreSQL's error code."},
            "detail": {"type": "string", "description": "PostgreSQL's DETAIL."},
            "hint": {"type": "string", "description": "How to correct it."},
            "position": {"type": "integer", "description": "Where in the SQL, in characters from 1."},
        },
    })
}

fn meta(writes: bool) -> Value {
    let mut properties = object(json!({
        "tool_version": {"type": "string", "description": "The version of the tool."},
        "elapsed_ms": {"type": "integer", "description": "Milliseconds taken."},
    }));
    if writes {
        properties.extend(object(json!({
            "correlation_id": {"type": "string", "description": "The receipt of this write."},
            "rows_affected": {"type": "integer", "minimum": 0, "description": "How many rows the write touched."},
            "rollback": rollback(),
        })));
    }
    json!({"type": "object", "properties": properties})
}

fn rollback() -> Value {
    json!({
        "type": "object",
        "description": "How to undo this write.",
        "properties": {
            "reversible": {"type": "boolean", "description": "Whether a tool undoes it."},
            "undo_tool": {"type": "string", "description": "The tool to call (first)."},
            "undo_params": {"type": "object", "description": "The arguments of that call."},
            "undo_calls": {
                "type": "array",
                "description": "Every call in order, if one is not enough.",
                "items": {
                    "type": "object",
                    "properties": {"tool": {"type": "string"}, "params": {"type": "object"}},
                },
            },
            "note": {"type": "string", "description": "The same in a sentence."},
        },
    })
}

#[cfg(test)]
mod tests {
    use contract::Scalar;

    use super::*;
    use crate::schema::examples::scalar;

    fn columns(names: &[&str]) -> Vec<Column> {
        let ty = scalar(Scalar::Int8);
        names.iter().map(|&name| Column { name: name.into(), ty: ty.clone(), not_null: true }).collect()
    }

    #[test]
    fn a_single_row_is_the_data_itself_and_others_are_listed() {
        let one = output_schema(Access::Read, Tier::Auto, RowsRule::One, &columns(&["id"]));
        assert_eq!(one["properties"]["data"]["properties"]["id"]["type"], "integer");
        let any = output_schema(Access::Read, Tier::Auto, RowsRule::Any, &columns(&["id"]));
        let data = &any["properties"]["data"]["properties"];
        assert_eq!(data["rows"]["items"]["properties"]["id"]["type"], "integer");
        assert_eq!(data["row_count"]["type"], "integer");
    }

    #[test]
    fn a_read_has_none_of_the_keys_of_a_write() {
        let read = Value::Object(output_schema(Access::Read, Tier::Auto, RowsRule::One, &columns(&["id"]))).to_string();
        let write =
            Value::Object(output_schema(Access::Write, Tier::Auto, RowsRule::One, &columns(&["id"]))).to_string();
        for key in ["correlation_id", "rollback", "rows_affected", "duplicate", "cached_result"] {
            let key = format!("\"{key}\":");
            assert!(!read.contains(&key) && write.contains(&key), "{key}");
        }
        assert!(!write.contains("requires_approval"));
    }

    #[test]
    fn a_tool_that_needs_agreement_may_answer_with_a_proposal() {
        let schema = output_schema(Access::Write, Tier::Confirm, RowsRule::One, &columns(&["id"]));
        assert_eq!(schema["properties"]["data"]["properties"]["requires_approval"]["type"], "boolean");
    }

    #[test]
    fn a_column_with_a_name_of_ours_has_no_type() {
        let schema = output_schema(Access::Write, Tier::Auto, RowsRule::One, &columns(&["message"]));
        assert_eq!(schema["properties"]["data"]["properties"]["message"].get("type"), None);
    }

    /// What clients reject: several types, boolean schemas, references, alternatives.
    fn assert_accepted_by_clients(schema: &Value, path: &str) {
        let schema = schema.as_object().unwrap_or_else(|| panic!("{path} is no object"));
        for key in ["$ref", "anyOf", "oneOf", "allOf"] {
            assert!(!schema.contains_key(key), "{path} has {key}");
        }
        assert!(schema.get("type").is_none_or(Value::is_string), "{path} has several types");
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            assert_accepted_by_clients(property, &format!("{path}.{name}"));
        }
        if let Some(items) = schema.get("items") {
            assert_accepted_by_clients(items, &format!("{path}[]"));
        }
    }

    #[test]
    fn every_part_is_one_that_clients_accept() {
        for rows in [RowsRule::One, RowsRule::Any] {
            let schema = output_schema(Access::Write, Tier::Approve, rows, &columns(&["id", "message"]));
            assert_accepted_by_clients(&Value::Object(schema), "$");
        }
    }
}
