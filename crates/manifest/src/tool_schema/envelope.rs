//! The output schema of a tool: the envelope of its answers. It is short, since every client reads the schemas of all
//! tools.

use serde_json::{Map, Value, json};
use types::Column;

use super::object;
use super::types::column;
use crate::{Access, RowExpectation};

/// The envelope around these result columns.
pub(crate) fn output_schema(access: Access, rows: RowExpectation, columns: &[Column]) -> Map<String, Value> {
    envelope_schema(data(access, rows, columns))
}

/// The envelope around `data`, for any tool. It omits the parts that all answers have in common. The server's
/// instructions describe these once, and a schema need not repeat them for clients that validate answers.
#[must_use]
pub fn envelope_schema(data: Map<String, Value>) -> Map<String, Value> {
    object(json!({
        "type": "object",
        "properties": {"data": data},
        "required": ["success", "meta"],
    }))
}

/// The schema of an object, reduced to the type of each property.
#[must_use]
pub fn outline(schema: &Map<String, Value>) -> Map<String, Value> {
    let kind = |property: &Value| property.get("type").map_or_else(|| json!({}), |kind| json!({"type": kind}));
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let properties: Map<String, Value> = properties.map(|(name, property)| (name.clone(), kind(property))).collect();
    object(json!({"type": "object", "properties": properties}))
}

/// The keys that the answer of a write can have instead of its result columns, if it is a duplicate or a proposal.
const INSTEAD: [&str; 6] =
    ["duplicate", "original_correlation_id", "cached_result", "message", "requires_approval", "proposal"];

fn data(access: Access, rows: RowExpectation, columns: &[Column]) -> Map<String, Value> {
    let row: Map<String, Value> = columns.iter().map(|it| (it.name.clone(), Value::Object(column(it)))).collect();
    let mut properties = if rows.is_single() {
        row
    } else {
        object(json!({
            "rows": {"type": "array", "items": {"type": "object", "properties": row}},
            "row_count": {"type": "integer"},
        }))
    };
    if access.writes() {
        // If a column has the name of such a key, its schema accepts any value.
        for (_, schema) in properties.iter_mut().filter(|(name, _)| INSTEAD.contains(&name.as_str())) {
            *schema = json!({});
        }
    }
    object(json!({"type": "object", "properties": properties}))
}

#[cfg(test)]
mod tests {
    use types::Scalar;

    use super::*;
    use crate::tool_schema::examples::scalar;

    fn columns(names: &[&str]) -> Vec<Column> {
        let ty = scalar(Scalar::Int4);
        names.iter().map(|&name| Column { name: name.into(), ty: ty.clone(), not_null: true }).collect()
    }

    #[test]
    fn a_single_row_is_the_data_itself_and_others_are_listed() {
        let one = output_schema(Access::Read, RowExpectation::One, &columns(&["id"]));
        assert_eq!(one["properties"]["data"]["properties"]["id"]["type"], "integer");
        let any = output_schema(Access::Read, RowExpectation::Any, &columns(&["id"]));
        let data = &any["properties"]["data"]["properties"];
        assert_eq!(data["rows"]["items"]["properties"]["id"]["type"], "integer");
        assert_eq!(data["row_count"]["type"], "integer");
    }

    #[test]
    fn an_outline_has_the_types_of_the_properties_and_nothing_of_their_insides() {
        let schema = json!({"type": "object", "required": ["rows"], "properties": {
            "rows": {"type": "array", "items": {"type": "object"}, "description": "All."}, "any": {"description": "Any."}}});
        assert_eq!(
            Value::Object(outline(schema.as_object().unwrap())),
            json!({"type": "object", "properties": {"rows": {"type": "array"}, "any": {}}})
        );
    }

    #[test]
    fn a_column_with_a_name_of_ours_has_no_type() {
        let schema = output_schema(Access::Write, RowExpectation::One, &columns(&["message"]));
        assert_eq!(schema["properties"]["data"]["properties"]["message"].get("type"), None);
    }

    /// Fails for what clients reject: several types, boolean schemas, references, alternatives.
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
        for rows in [RowExpectation::One, RowExpectation::Any] {
            let schema = output_schema(Access::Write, rows, &columns(&["id", "message"]));
            assert_accepted_by_clients(&Value::Object(schema), "$");
        }
    }
}
