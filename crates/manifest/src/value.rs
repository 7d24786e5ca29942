//! Checks JSON values of a manifest against parameters, and converts TOML values to JSON.
//!
//! The JSON Schema of a parameter validates both the arguments of agents and the values in the manifest. Only
//! PostgreSQL can decide whether `"Feb 30"` is an interval.

use jsonschema::{ValidationError, Validator};
use serde_json::{Map, Number, Value, json};
use types::{PgType, Scalar, TypeKind};

use crate::timestamp::is_timestamp;

/// Whether the text is a regular expression that JSON Schema validators support.
pub(crate) fn is_pattern(text: &str) -> bool {
    validator(&json!({"pattern": text})).is_ok()
}

/// The reason why the schema rejects the value; `None` if it accepts it. An invalid schema is reported elsewhere.
pub(crate) fn validate(value: &Value, schema: Map<String, Value>) -> Option<String> {
    validate_with(value, closed(schema))
}

/// Validates against a schema of the operator, which is used unchanged.
pub(crate) fn validate_with(value: &Value, schema: Map<String, Value>) -> Option<String> {
    let schema = crate::tool_schema::enforced(&Value::Object(schema));
    let validator = validator(&schema).ok()?;
    let errors: Vec<String> = validator.iter_errors(value).map(|error| error.to_string()).collect();
    (!errors.is_empty()).then(|| errors.join("; "))
}

/// Builds a validator for arguments and for values in the manifest. It also accepts dates and times as PostgreSQL
/// prints them.
pub fn validator(schema: &Value) -> Result<Validator, ValidationError<'static>> {
    jsonschema::options().should_validate_formats(true).with_format("date-time", is_timestamp).build(schema)
}

/// The schema, with objects that reject additional properties. For arguments, PostgreSQL's row types enforce this;
/// clients reject schemas that say it below the root.
fn closed(mut schema: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::Object(items)) = schema.get_mut("items") {
        *items = closed(std::mem::take(items));
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for property in properties.values_mut().filter_map(Value::as_object_mut) {
            *property = closed(std::mem::take(property));
        }
        schema.insert("additionalProperties".to_owned(), false.into());
    }
    schema
}

/// The type to which a limit applies: the type below domains, or the element type of an array.
pub(crate) fn limited(ty: &PgType) -> &PgType {
    match &ty.base().kind {
        TypeKind::Array { element, .. } => limited(element),
        _ => ty.base(),
    }
}

pub(crate) fn is_json(ty: &PgType) -> bool {
    matches!(limited(ty).kind, TypeKind::Scalar(Scalar::Json))
}

pub(crate) fn is_number(ty: &PgType) -> bool {
    matches!(
        limited(ty).kind,
        TypeKind::Scalar(Scalar::Int2 | Scalar::Int4 | Scalar::Int8 | Scalar::Float | Scalar::Numeric)
    )
}

/// Whether values of this type are exact decimal numbers.
pub(crate) fn is_numeric(ty: &PgType) -> bool {
    matches!(limited(ty).kind, TypeKind::Scalar(Scalar::Numeric))
}

/// Whether values of this type are free text in JSON.
pub(crate) fn is_text(ty: &PgType) -> bool {
    matches!(
        limited(ty).kind,
        TypeKind::Scalar(
            Scalar::Text
                | Scalar::JsonCast
                | Scalar::Date
                | Scalar::Timestamp
                | Scalar::Timestamptz
                | Scalar::Uuid
                | Scalar::Vector
        )
    )
}

/// Converts TOML to JSON. Dates, times, and numbers that JSON lacks become text.
pub(crate) fn json(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::from(text.as_str()),
        toml::Value::Integer(number) => Value::from(*number),
        toml::Value::Float(number) => {
            Number::from_f64(*number).map_or_else(|| number.to_string().into(), Value::Number)
        }
        toml::Value::Boolean(flag) => Value::from(*flag),
        toml::Value::Datetime(time) => Value::from(time.to_string()),
        toml::Value::Array(items) => items.iter().map(json).collect(),
        toml::Value::Table(table) => Value::Object(json_object(table)),
    }
}

pub(crate) fn json_object(table: &toml::Table) -> Map<String, Value> {
    table.iter().map(|(key, value)| (key.clone(), json(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::tool_schema::allowed;
    use crate::tool_schema::examples::{array, composite, domain, enumeration, scalar};

    fn check_type(value: &Value, ty: &PgType, limits: &Limits) -> Option<String> {
        validate(value, allowed(ty, limits))
    }

    #[test]
    fn a_value_fits_its_type_by_shape() {
        let mood = enumeration("mood", &["sad", "glad"]);
        let point = composite("point2", &[("x", scalar(Scalar::Int4)), ("y", scalar(Scalar::Int4))]);
        for (value, ty) in [
            (json!(true), scalar(Scalar::Bool)),
            (json!(32767), scalar(Scalar::Int2)),
            (json!(i64::MAX), scalar(Scalar::Int8)),
            (json!(1.5), scalar(Scalar::Numeric)),
            (json!({"a": [1]}), scalar(Scalar::Json)),
            (json!("2026-01-31"), scalar(Scalar::Date)),
            (json!("glad"), mood.clone()),
            (json!(["a", "b"]), array(scalar(Scalar::Text))),
            (json!({"x": 1}), point.clone()),
            (json!(5), domain("positive", scalar(Scalar::Int4))),
        ] {
            assert_eq!(check_type(&value, &ty, &Limits::default()), None, "{value} {}", ty.name);
        }
        for (value, ty) in [
            (json!("true"), scalar(Scalar::Bool)),
            (json!(32768), scalar(Scalar::Int2)),
            (json!(1.5), scalar(Scalar::Int4)),
            (json!("1"), scalar(Scalar::Float)),
            (json!(1), scalar(Scalar::Text)),
            (json!("2026-13-01"), scalar(Scalar::Date)),
            (json!("angry"), mood),
            (json!(["a", 1]), array(scalar(Scalar::Text))),
            (json!("a"), array(scalar(Scalar::Text))),
            (json!({"z": 1}), point.clone()),
            (json!([{"z": 1}]), array(point)),
            (json!("x"), domain("positive", scalar(Scalar::Int4))),
        ] {
            assert!(check_type(&value, &ty, &Limits::default()).is_some(), "{value} {}", ty.name);
        }
    }

    #[test]
    fn a_limit_on_an_array_holds_for_each_element() {
        let limits = Limits { max_length: Some(2), pattern: Some("^[a-z]*$".into()), ..Limits::default() };
        let texts = array(scalar(Scalar::Text));
        assert_eq!(check_type(&json!(["ab", "c"]), &texts, &limits), None);
        assert!(check_type(&json!(["abc"]), &texts, &limits).is_some());
        assert!(check_type(&json!(["ab", "C"]), &texts, &limits).is_some());
        assert!(is_text(&texts));
    }

    #[test]
    fn limits_are_inclusive_and_exact_beyond_53_bits() {
        let limits = Limits { maximum: Some(Number::from(i64::MAX - 1)), ..Limits::default() };
        assert_eq!(check_type(&json!(i64::MAX - 1), &scalar(Scalar::Int8), &limits), None);
        assert!(check_type(&json!(i64::MAX), &scalar(Scalar::Int8), &limits).is_some());
    }

    #[test]
    fn a_pattern_is_a_regular_expression_of_json_schema() {
        for pattern in [r"\S", "^[a-z]+$", r"^\p{L}+$", "^(?!admin)", ""] {
            assert!(is_pattern(pattern), "{pattern}");
        }
        for pattern in ["[", "(", "a{2,1}", "*", r"\"] {
            assert!(!is_pattern(pattern), "{pattern}");
        }
    }

    #[test]
    fn toml_dates_and_infinities_become_text() {
        let table: toml::Table = "day = 2026-01-31\nend = inf\nlist = [1, 2.5]".parse().unwrap();
        assert_eq!(Value::Object(json_object(&table)), json!({"day": "2026-01-31", "end": "inf", "list": [1, 2.5]}));
    }
}
