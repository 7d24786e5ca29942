//! JSON Schemas of the arguments and answers of built-in tools, from their Rust types.

use std::sync::Arc;

use manifest::Access;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};
use types::{ErrorCode, Failure, TOOL_VERSION};

use crate::tool::{Annotations, ToolInfo};

/// The description of a built-in tool without a tier, with the hints of a read tool. The schemas come from the types
/// of the arguments and of `data`.
pub(crate) fn builtin_info<A: schemars::JsonSchema, D: schemars::JsonSchema>(
    name: &str,
    title: &str,
    description: &str,
    access: Access,
) -> ToolInfo {
    ToolInfo {
        name: name.to_owned(),
        title: Some(title.to_owned()),
        description: description.to_owned(),
        version: TOOL_VERSION.to_owned(),
        access,
        tier: None,
        reason: None,
        rules: Vec::new(),
        limit: None,
        input_schema: Arc::new(schema_of::<A>()),
        output_schema: Arc::new(answer_schema::<D>()),
        hints: Annotations { read_only: true, destructive: false, idempotent: true },
        sensitive: Vec::new(),
        meta: Map::new(),
    }
}

/// The schema of the envelope around `data` of this type.
pub(crate) fn answer_schema<D: schemars::JsonSchema>() -> Map<String, Value> {
    manifest::envelope_schema(manifest::outline(&schema_of::<D>()))
}

/// Deserializes the arguments. The registry has validated them against the schema of the type, so an error here is a
/// defect of the schema.
///
/// # Errors
/// [`ErrorCode::InvalidParams`], also for U+0000, which PostgreSQL cannot store and JSON Schema cannot easily
/// exclude.
pub(crate) fn arguments<A: serde::de::DeserializeOwned>(tool: &str, given: Map<String, Value>) -> Result<A, Failure> {
    if let Some((name, _)) = given.iter().find(|(_, value)| value.as_str().is_some_and(|text| text.contains('\0'))) {
        return Err(Failure::new(ErrorCode::InvalidParams, format!("{tool}: {name} holds U+0000")));
    }
    parsed(tool, given)
}

/// Deserializes the parameters of a write, as a record or a proposal stores them.
pub(crate) fn parsed<A: serde::de::DeserializeOwned>(tool: &str, params: Map<String, Value>) -> Result<A, Failure> {
    serde_json::from_value(Value::Object(params))
        .map_err(|error| Failure::new(ErrorCode::InvalidParams, format!("{tool}: {error}")))
}

pub(crate) fn to_json(data: &impl serde::Serialize) -> Result<Value, Failure> {
    serde_json::to_value(data).map_err(|error| Failure::new(ErrorCode::InternalError, error.to_string()))
}

/// The schema of a type in the subset that clients support: an object at the root, and no references.
pub(crate) fn schema_of<T: schemars::JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = match settings.into_generator().into_root_schema_for::<T>().to_value() {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    schema.remove("title");
    schema.remove("description");
    simplify(&mut schema);
    schema
}

/// Removes keywords that `schemars` adds and clients reject: formats such as `uint32`, defaults that are null, and
/// `additionalProperties`. The server still rejects unknown arguments.
fn simplify(schema: &mut Map<String, Value>) {
    if schema.get("format").and_then(Value::as_str).is_some_and(|format| format.starts_with("uint")) {
        schema.remove("format");
    }
    schema.retain(|key, value| key != "default" || !value.is_null());
    schema.remove("additionalProperties");
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for property in properties.into_iter().flat_map(|properties| properties.iter_mut().map(|(_, property)| property)) {
        property.as_object_mut().into_iter().for_each(simplify);
    }
    schema.get_mut("items").and_then(Value::as_object_mut).into_iter().for_each(simplify);
}

pub(crate) fn one_of(names: &[&str]) -> schemars::Schema {
    schemars::json_schema!({"type": "string", "enum": names})
}

pub(crate) const fn default_list_limit() -> u32 {
    20
}

/// The schema of a JSON value that is usually a scalar.
pub(crate) struct AnyScalar;

impl JsonSchema for AnyScalar {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AnyScalar".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        manifest::any_scalar().try_into().unwrap_or_default()
    }
}

/// The schema of a query parameter: a JSON value that is rarely an object.
pub(crate) struct AnyParameter;

impl JsonSchema for AnyParameter {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AnyParameter".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        manifest::any_parameter().try_into().unwrap_or_default()
    }
}

pub(crate) struct AnyJson;

impl JsonSchema for AnyJson {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AnyJson".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        manifest::any_value().try_into().unwrap_or_default()
    }
}
