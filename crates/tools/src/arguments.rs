//! Validation of arguments against a tool's schema, and the effective parameters that result.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use ledger::canonical_json;
use manifest::{ParamSource, ToolSpec};
use serde_json::{Map, Number, Value};
use types::{ErrorCode, Failure, PgType, Principal, REDACTED, Redaction, Scalar, TypeKind};

/// A compiled schema.
pub(crate) struct ArgumentValidator {
    schema: Value,
    validator: Validator,
    known: Vec<String>,
    sensitive: Vec<String>,
}

impl ArgumentValidator {
    /// Compiles a schema. Messages never quote the values of `sensitive` arguments.
    pub(crate) fn new(schema: &Map<String, Value>, sensitive: &[String]) -> Result<Self, String> {
        let listed = Value::Object(schema.clone());
        let validator = jsonschema::options()
            .should_validate_formats(true)
            .build(&manifest::enforced(&listed))
            .map_err(|error| error.to_string())?;
        let properties = schema.get("properties").and_then(Value::as_object);
        let known = properties.map(|map| map.keys().cloned().collect()).unwrap_or_default();
        Ok(Self { schema: listed, validator, known, sensitive: sensitive.to_vec() })
    }

    /// Every mistake in one message, each with the parameter's name and what was expected.
    pub(crate) fn check(&self, tool: &str, arguments: &Map<String, Value>) -> Result<(), Failure> {
        let instance = manifest::with_numbers(&Value::Object(arguments.clone()), &self.schema);
        let mistakes: Vec<String> = self.validator.iter_errors(&instance).map(|error| self.describe(&error)).collect();
        if mistakes.is_empty() {
            return Ok(());
        }
        let hint = if self.known.is_empty() {
            format!("{tool} takes no arguments.")
        } else {
            format!("{tool} takes: {}.", self.known.join(", "))
        };
        Err(Failure::new(ErrorCode::InvalidParams, format!("{tool}: {}", mistakes.join("; "))).hint(hint))
    }

    fn describe(&self, error: &ValidationError<'_>) -> String {
        let path = error.instance_path().to_string();
        let name = path.trim_start_matches('/').replace('/', ".");
        let argument = name.split('.').next().unwrap_or_default();
        if self.sensitive.iter().any(|sensitive| sensitive == argument) {
            return format!("argument \"{argument}\": {}", error.masked_with(REDACTED));
        }
        match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                let names: Vec<String> = unexpected.iter().map(|name| format!("\"{name}\"")).collect();
                format!("unknown argument {}", names.join(", "))
            }
            ValidationErrorKind::Required { property } => {
                format!("missing argument \"{}\"", property.as_str().unwrap_or_default())
            }
            // The error concerns the arguments as a whole.
            _ if name.is_empty() => error.masked().to_string(),
            _ => format!("argument \"{name}\": {error}"),
        }
    }
}

/// Every parameter by name, in the manifest's order: the agent's value, else the default, else null. The server fills
/// in the values of the principal. Equal values have one spelling, because the fingerprint is computed from this.
pub(crate) fn effective_params(
    spec: &ToolSpec,
    arguments: &Map<String, Value>,
    principal: &Principal,
) -> Map<String, Value> {
    spec.params
        .iter()
        .map(|param| {
            let value = match &param.source {
                ParamSource::Principal(field) => principal.field(field).map(Value::from),
                ParamSource::Argument => {
                    arguments.get(&param.name).filter(|value| !value.is_null()).or(param.default.as_ref()).cloned()
                }
            };
            (param.name.clone(), value.map_or(Value::Null, |value| one_spelling(value, &param.ty)))
        })
        .collect()
}

/// The effective parameters that must not be stored.
pub(crate) fn redaction(spec: &ToolSpec, params: &Map<String, Value>) -> Redaction {
    let columns = spec.before.iter().chain(&spec.statements).chain(&spec.after);
    let columns = columns.flat_map(|statement| statement.shape.columns.iter().flatten());
    Redaction::new(spec.sensitive_params().map(|param| param.name.as_str()), params)
        .keeping_keys(columns.map(|column| column.name.as_str()).chain(spec.undo.param_names()).chain(KEYS_OF_OURS))
}

/// The keys of what is kept and shown of a write, beside its parameters and columns.
const KEYS_OF_OURS: [&str; 12] = [
    "rows",
    "row_count",
    "reversible",
    "undo_tool",
    "undo_params",
    "undo_calls",
    "tool",
    "params",
    "checked",
    "note",
    "idempotency_key",
    "correlation_id",
];

/// `7.0` and `0.7e1` are the integer 7 in JSON Schema, so they are valid for an integer parameter. `"1.50"` is the
/// number 1.50 for a numeric parameter.
fn one_spelling(value: Value, ty: &PgType) -> Value {
    match (value, &ty.base().kind) {
        (Value::Number(number), TypeKind::Scalar(Scalar::Int2 | Scalar::Int4 | Scalar::Int8)) => {
            let text = canonical_json(&Value::Number(number.clone()));
            let whole = match text.split_once('.') {
                Some((whole, fraction)) if fraction.bytes().all(|digit| digit == b'0') => whole,
                _ => &text,
            };
            whole.parse::<Number>().map_or(Value::Number(number), Value::Number)
        }
        (Value::String(text), TypeKind::Scalar(Scalar::Numeric)) => {
            manifest::decimal(&text).map_or(Value::String(text), Value::Number)
        }
        (Value::Array(items), TypeKind::Array { element, .. }) => {
            items.into_iter().map(|item| one_spelling(item, element)).collect()
        }
        (Value::Object(fields), TypeKind::Composite(types)) => fields
            .into_iter()
            .map(|(name, field)| match types.iter().find(|ty| ty.name == name) {
                Some(ty) => (name, one_spelling(field, &ty.ty)),
                None => (name, field),
            })
            .collect(),
        (value, _) => value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checker() -> ArgumentValidator {
        let schema = json!({
            "type": "object",
            "properties": {"tweet_id": {"type": "integer", "maximum": 9_223_372_036_854_775_807_u64}, "note": {"type": "string"},
                "pin": {"type": "array", "maxItems": 2, "items": {"type": "string", "pattern": "^[0-9]+$"}}},
            "required": ["tweet_id"],
            "additionalProperties": false,
        });
        ArgumentValidator::new(schema.as_object().unwrap(), &["pin".to_owned()]).unwrap()
    }

    fn message(arguments: &str) -> String {
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        checker().check("like_tweet", arguments.as_object().unwrap()).unwrap_err().message
    }

    #[test]
    fn every_mistake_is_named_with_its_argument() {
        let said = message(r#"{"tweet": 1, "note": 2}"#);
        assert!(said.contains("unknown argument \"tweet\""), "{said}");
        assert!(said.contains("missing argument \"tweet_id\""), "{said}");
        assert!(said.contains("argument \"note\": 2 is not of type \"string\""), "{said}");
    }

    #[test]
    fn a_mistake_in_a_sensitive_argument_is_told_without_its_value() {
        for wrong in [r#"["hunter2"]"#, r#""hunter2""#, r#"{"hunter2": 1}"#, r#"["1", "2", "hunter2"]"#] {
            let said = message(&format!(r#"{{"tweet_id": 1, "pin": {wrong}}}"#));
            assert!(said.contains("argument \"pin\"") && !said.contains("hunter2"), "{said}");
        }
    }

    #[test]
    fn a_fraction_and_a_number_beyond_the_type_are_refused_and_the_largest_one_is_not() {
        assert!(message(r#"{"tweet_id": 1.5}"#).contains("1.5 is not of type \"integer\""));
        assert!(message(r#"{"tweet_id": 9223372036854775808}"#).contains("tweet_id"));
        assert!(message(r#"{"tweet_id": 1e400}"#).contains("tweet_id"));
        let largest: Value = serde_json::from_str(r#"{"tweet_id": 9223372036854775807}"#).unwrap();
        assert_eq!(checker().check("like_tweet", largest.as_object().unwrap()), Ok(()));
    }
}
