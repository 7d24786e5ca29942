//! The input schema of a tool.

use std::cmp::Ordering;

use serde_json::{Map, Number, Value, json};
use types::PgType;

use super::object;
use super::types::{KEY_PATTERN, argument, argument_words, is_obvious, with_limits};
use crate::{Access, Limits, Param, ParamSource};

/// The argument that every write tool has in addition to its own.
pub(crate) const IDEMPOTENCY_KEY: &str = "idempotency_key";

/// The schema of the parameters that the agent gives. It does not say that other properties are refused, because some
/// clients' converters fail on that; the server enforces it.
pub(crate) fn input_schema(access: Access, params: &[Param]) -> Map<String, Value> {
    let arguments = || params.iter().filter(|param| param.source == ParamSource::Argument);
    let mut properties: Map<String, Value> =
        arguments().map(|param| (param.name.clone(), Value::Object(property(param)))).collect();
    if access.writes() {
        properties.insert(IDEMPOTENCY_KEY.to_owned(), idempotency_key());
    }
    let required: Vec<&str> = arguments().filter(|param| param.required).map(|param| param.name.as_str()).collect();
    object(json!({"type": "object", "properties": properties, "required": required}))
}

/// The schema of the argument `idempotency_key`, which every write tool has.
#[must_use]
pub fn idempotency_key() -> Value {
    json!({
        "type": "string",
        "pattern": KEY_PATTERN,
        "maxLength": 255,
        "description": "See instructions.",
    })
}

/// How to write a value of the parameter, in words; `None` if its JSON Schema says it already.
#[must_use]
pub fn form(param: &Param) -> Option<String> {
    (!is_obvious(&param.ty)).then(|| argument_words(&param.ty))
}

fn property(param: &Param) -> Map<String, Value> {
    let mut schema = allowed(&param.ty, &param.limits);
    let description = match form(param) {
        Some(form) => format!("{} ({form})", param.description),
        None => param.description.clone(),
    };
    let description = match param.limits.scale {
        Some(scale) => format!("{description} At most {scale} digits after the decimal point."),
        None => description,
    };
    schema.insert("description".to_owned(), description.into());
    if let Some(default) = &param.default {
        schema.insert("default".to_owned(), default.clone());
    }
    schema
}

/// The schema of the values that a parameter may have.
pub(crate) fn allowed(ty: &PgType, limits: &Limits) -> Map<String, Value> {
    narrowed(argument(ty), limits)
}

/// The schema with the limits applied; for an array, to its elements.
fn narrowed(mut schema: Map<String, Value>, limits: &Limits) -> Map<String, Value> {
    if let Some(Value::Object(items)) = schema.get_mut("items") {
        *items = narrowed(std::mem::take(items), limits);
        return schema;
    }
    // A schema of the operator is for JSON values, and replaces the general one.
    with_limits(limits.schema.clone().unwrap_or(schema), |schema| within(schema, limits))
}

fn within(mut schema: Map<String, Value>, limits: &Limits) -> Map<String, Value> {
    if !limits.one_of.is_empty() {
        schema.insert("enum".to_owned(), limits.one_of.clone().into());
    }
    for (key, limit, replaced_when) in
        [("minimum", &limits.minimum, Ordering::Less), ("maximum", &limits.maximum, Ordering::Greater)]
    {
        let Some(limit) = limit else { continue };
        let own = schema.get(key).and_then(Value::as_number);
        if own.is_none_or(|own| is_narrower(own, limit, replaced_when)) {
            schema.insert(key.to_owned(), Value::Number(limit.clone()));
        }
    }
    if let Some(max_length) = limits.max_length {
        schema.insert("maxLength".to_owned(), max_length.into());
    }
    if let Some(pattern) = &limits.pattern {
        schema.insert("pattern".to_owned(), pattern.as_str().into());
    }
    schema
}

/// Compares two numbers; integers are compared exactly.
pub(crate) fn compare(a: &Number, b: &Number) -> Option<Ordering> {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

fn is_narrower(own: &Number, limit: &Number, replaced_when: Ordering) -> bool {
    compare(own, limit) == Some(replaced_when)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use types::Scalar;

    use super::*;
    use crate::tool_schema::examples::{array, named, scalar};

    fn param(name: &str, ty: Arc<PgType>, limits: Limits) -> Param {
        let source = ParamSource::Argument;
        let description = "It.".to_owned();
        Param { name: name.into(), description, source, ty, required: true, default: None, sensitive: false, limits }
    }

    fn only_property(param: Param) -> String {
        input_schema(Access::Read, &[param])["properties"]["x"].to_string()
    }

    #[test]
    fn a_read_has_its_own_arguments_and_a_write_an_idempotency_key_too() {
        let x = param("x", scalar(Scalar::Text), Limits::default());
        assert_eq!(
            Value::Object(input_schema(Access::Read, std::slice::from_ref(&x))).to_string(),
            r#"{"type":"object","properties":{"x":{"type":"string","description":"It."}},"required":["x"]}"#
        );
        let write = input_schema(Access::Write, &[x]);
        assert_eq!(write["properties"]["idempotency_key"]["pattern"], "^[!-~]+$");
        assert_eq!(write["properties"]["idempotency_key"]["maxLength"], 255);
        assert_eq!(write["required"], json!(["x"]));
    }

    #[test]
    fn what_the_server_fills_is_not_in_the_schema() {
        let account = Param {
            source: ParamSource::Principal("account_id".into()),
            ..param("x", scalar(Scalar::Text), Limits::default())
        };
        assert_eq!(input_schema(Access::Read, &[account])["properties"], json!({}));
    }

    #[test]
    fn limits_narrow_the_type_and_never_widen_it() {
        let limits = Limits { minimum: Some(1.into()), maximum: Some(99_999.into()), ..Limits::default() };
        assert_eq!(
            only_property(param("x", scalar(Scalar::Int2), limits)),
            r#"{"type":"integer","minimum":1,"maximum":32767,"description":"It."}"#
        );
        let limits = Limits { minimum: Some(1.into()), ..Limits::default() };
        assert_eq!(
            only_property(param("x", scalar(Scalar::Int8), limits)),
            r#"{"anyOf":[{"type":"integer","minimum":1},{"type":"string","pattern":"^-?[0-9]+$"}],"description":"It."}"#
        );
    }

    #[test]
    fn limits_of_an_array_are_its_elements() {
        let limits = Limits { max_length: Some(280), pattern: Some(r"\S".into()), ..Limits::default() };
        assert_eq!(
            only_property(param("x", array(scalar(Scalar::Text)), limits)),
            r#"{"type":"array","items":{"type":"string","maxLength":280,"pattern":"\\S"},"description":"It."}"#
        );
    }

    #[test]
    fn a_type_that_json_does_not_show_is_named_in_the_description() {
        let bytes = param("x", named("inet", 869, Scalar::Text), Limits::default());
        assert_eq!(
            only_property(bytes),
            r#"{"type":"string","description":"It. (text form of PostgreSQL type inet)"}"#
        );
    }

    #[test]
    fn a_default_is_shown() {
        let x = Param {
            required: false,
            default: Some(json!(false)),
            ..param("x", scalar(Scalar::Bool), Limits::default())
        };
        let schema = input_schema(Access::Read, &[x]);
        assert_eq!(schema["properties"]["x"]["default"], json!(false));
        assert_eq!(schema["required"], json!([]));
    }
}
