//! Checks the JSON Schema that a manifest gives a parameter: it must be valid, and clients must accept it.

use serde_json::{Map, Value};

/// Keywords of alternatives and references, which clients reject in the schema of a tool.
const REFUSED: [&str; 12] = [
    "$ref",
    "$dynamicRef",
    "$defs",
    "definitions",
    "anyOf",
    "oneOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
];

/// Keywords whose value is a schema, an array of schemas, or an object of schemas.
const SCHEMAS: [&str; 5] = ["items", "prefixItems", "contains", "additionalProperties", "propertyNames"];
const NAMED_SCHEMAS: [&str; 2] = ["properties", "patternProperties"];

pub(super) fn problem(schema: &Map<String, Value>) -> Option<String> {
    let whole = Value::Object(schema.clone());
    let invalid = jsonschema::meta::validate(&whole).err().map(|error| format!("schema is no JSON Schema: {error}"));
    invalid.or_else(|| refused(schema, "schema"))
}

/// The first keyword that clients reject, with its path.
fn refused(schema: &Map<String, Value>, place: &str) -> Option<String> {
    if let Some(keyword) = REFUSED.iter().find(|keyword| schema.contains_key(**keyword)) {
        return Some(format!("{place} has {keyword}, which clients refuse"));
    }
    if schema.get("type").is_some_and(|kind| !kind.is_string()) {
        return Some(format!("{place} has several types, and clients take one"));
    }
    let inner = SCHEMAS.iter().filter_map(|key| Some((format!("{place}.{key}"), schema.get(*key)?)));
    let of_properties = NAMED_SCHEMAS.iter().filter_map(|key| Some((key, schema.get(*key)?.as_object()?)));
    let properties = of_properties
        .flat_map(|(key, all)| all.iter().map(move |(name, property)| (format!("{place}.{key}.{name}"), property)));
    inner.chain(properties).find_map(|(place, part)| match part {
        Value::Object(part) => refused(part, &place),
        Value::Array(parts) => parts.iter().filter_map(Value::as_object).find_map(|part| refused(part, &place)),
        Value::Bool(_) if place.ends_with(".additionalProperties") => None,
        _ => Some(format!("{place} is no object, and clients refuse that")),
    })
}
