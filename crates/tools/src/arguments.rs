//! Validates arguments against a tool's schema, and computes the effective parameters.

use jsonschema::error::ValidationErrorKind;
use jsonschema::{ValidationError, Validator};
use ledger::canonical_json;
use manifest::{Param, ParamSource, ToolSpec};
use serde_json::{Map, Number, Value};
use types::{ErrorCode, Failure, PgType, Principal, REDACTED, Redaction, Scalar, TypeKind};

pub(crate) struct ArgumentValidator {
    schema: Value,
    validator: Validator,
    known: Vec<String>,
    required: Vec<String>,
    sensitive: Vec<String>,
    empty: EmptyValues,
}

/// The meaning of an empty value for an optional argument. Clients that treat every argument as required send an
/// empty value for an argument that the agent omitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EmptyValues {
    /// The argument is absent.
    Absent,
    /// The argument is empty, or absent if its schema does not accept the value. An empty text may be the value to
    /// store.
    AbsentIfRefused,
}

impl ArgumentValidator {
    /// Compiles a schema. Messages never quote the values of `sensitive` arguments.
    pub(crate) fn new(schema: &Map<String, Value>, sensitive: &[String], empty: EmptyValues) -> Result<Self, String> {
        let listed = Value::Object(schema.clone());
        let mut enforced = manifest::enforced(&listed);
        if let Some(enforced) = enforced.as_object_mut() {
            enforced.insert("additionalProperties".to_owned(), false.into());
        }
        let validator = manifest::validator(&enforced).map_err(|error| error.to_string())?;
        let properties = schema.get("properties").and_then(Value::as_object);
        let known = properties.map(|map| map.keys().cloned().collect()).unwrap_or_default();
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        let required = required.filter_map(Value::as_str).map(str::to_owned).collect();
        Ok(Self { schema: listed, validator, known, required, sensitive: sensitive.to_vec(), empty })
    }

    /// Returns the arguments without those that the client only filled in.
    ///
    /// # Errors
    /// One message with every mistake, each with the name of the argument and what was expected.
    pub(crate) fn check(&self, tool: &str, mut arguments: Map<String, Value>) -> Result<Map<String, Value>, Failure> {
        for (name, value) in &mut arguments {
            read_as_asked(value, manifest::property(&self.schema, name));
        }
        arguments.retain(|name, value| !self.is_filled_in(name, value));
        let mut instance = self.instance(&arguments);
        if arguments.iter().any(|(name, value)| self.is_optional(name) && is_empty(value)) {
            let refused: Vec<String> =
                self.validator.iter_errors(&instance).filter_map(|error| argument(&error)).collect();
            arguments.retain(|name, value| !(self.is_optional(name) && is_empty(value) && refused.contains(name)));
            instance = self.instance(&arguments);
        }
        let changed = manifest::unsafe_numbers(&Value::Object(arguments.clone()), &self.schema);
        let unsafe_numbers = changed.iter().map(|name| {
            format!("argument \"{name}\": a number with more digits than every client keeps, who may have changed it")
        });
        let wrong = self.validator.iter_errors(&instance).map(|error| self.describe(&error));
        let mistakes: Vec<String> = unsafe_numbers.chain(wrong).collect();
        if mistakes.is_empty() {
            return Ok(arguments);
        }
        let hint = if !changed.is_empty() {
            DIGITS_AS_TEXT.to_owned()
        } else if self.known.is_empty() {
            format!("{tool} takes no arguments.")
        } else {
            format!("{tool} takes: {}.", self.known.join(", "))
        };
        Err(Failure::new(ErrorCode::InvalidParams, format!("{tool}: {}", mistakes.join("; "))).hint(hint))
    }

    fn instance(&self, arguments: &Map<String, Value>) -> Value {
        manifest::with_numbers(&Value::Object(arguments.clone()), &self.schema)
    }

    fn is_optional(&self, name: &str) -> bool {
        self.known.iter().any(|known| known == name) && !self.required.iter().any(|required| required == name)
    }

    /// Whether the value stands for an omitted argument. Null always does, since no optional argument accepts null.
    fn is_filled_in(&self, name: &str, value: &Value) -> bool {
        self.is_optional(name) && (value.is_null() || (self.empty == EmptyValues::Absent && is_empty(value)))
    }

    fn describe(&self, error: &ValidationError<'_>) -> String {
        let name = place(error);
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
            // The message of the `jsonschema` crate cuts the list.
            ValidationErrorKind::Enum { options } => {
                format!("argument \"{name}\": {} is not one of {}", error.instance(), all(options))
            }
            ValidationErrorKind::Format { format } => {
                format!("argument \"{name}\": {} is no {}", error.instance(), form(format))
            }
            // The error concerns the arguments as a whole.
            _ if name.is_empty() => error.masked().to_string(),
            _ => format!("argument \"{name}\": {error}"),
        }
    }
}

/// Reads a value as its schema asks for it: a text that is exactly one JSON value of the kind, since some clients make
/// texts of all arguments, and a whole number with a fraction of zeros, which is an integer in JSON Schema.
fn read_as_asked(value: &mut Value, schema: &Value) {
    let Some(kind) = schema.get("type").and_then(Value::as_str) else { return };
    if let Value::String(text) = value
        && kind != "string"
        && let Ok(read) = serde_json::from_str::<Value>(text)
        && matches!(
            (&read, kind),
            (Value::Array(_), "array")
                | (Value::Object(_), "object")
                | (Value::Bool(_), "boolean")
                | (Value::Number(_), "number" | "integer")
        )
    {
        *value = read;
    }
    match value {
        Value::Number(number) if kind == "integer" => *number = whole(number),
        Value::Array(items) => items.iter_mut().for_each(|item| read_as_asked(item, manifest::element(schema))),
        _ => {}
    }
}

/// The number without a fraction of zeros and without an exponent, if it is whole: in JSON Schema `7.0` and `0.7e1` are
/// the integer 7.
fn whole(number: &Number) -> Number {
    let text = canonical_json(&Value::Number(number.clone()));
    let whole = match text.split_once('.') {
        Some((whole, fraction)) if fraction.bytes().all(|digit| digit == b'0') => whole,
        _ => &text,
    };
    whole.parse().unwrap_or_else(|_| number.clone())
}

/// Maximum number of an enum's values in a message.
const MAX_VALUES: usize = 100;

/// The values of an enum.
fn all(options: &Value) -> String {
    let values = options.as_array().map(Vec::as_slice).unwrap_or_default();
    let shown: Vec<String> = values.iter().take(MAX_VALUES).map(Value::to_string).collect();
    let more = values.len().saturating_sub(MAX_VALUES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

/// Describes texts of this format.
fn form(format: &str) -> &str {
    match format {
        "date-time" => "date and time with time zone, such as 2026-01-31T13:45:00+00:00",
        "date" => "date, such as 2026-01-31",
        "uuid" => "UUID, such as 3f0c1a52-9c1e-4c7e-8a55-0d9f6b1f2a34",
        other => other,
    }
}

const DIGITS_AS_TEXT: &str = "Nothing was executed. Send the digits of the number as text, as the answer shows them that it is \
    from: integers beyond 2^53-1 (9007199254740991), and decimals of more than 15 digits.";

/// The path to the invalid value: `name`, `name.0`.
fn place(error: &ValidationError<'_>) -> String {
    error.instance_path().to_string().trim_start_matches('/').replace('/', ".")
}

fn argument(error: &ValidationError<'_>) -> Option<String> {
    place(error).split('.').next().map(str::to_owned)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Every parameter by name, in the manifest's order: the agent's value, else the default, else null. The server fills
/// in the values of the principal. Equal values get the same spelling, because the fingerprint is computed from the
/// result.
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
                    let given = arguments.get(&param.name).filter(|value| !value.is_null());
                    given
                        .filter(|value| param.required || !is_no_text(value, &param.ty))
                        .or(param.default.as_ref())
                        .cloned()
                }
            };
            (param.name.clone(), value.map_or(Value::Null, |value| one_spelling(value, &param.ty)))
        })
        .collect()
}

/// Whether this is an empty text for a type that has no empty value. A client sends it for an omitted argument.
fn is_no_text(value: &Value, ty: &PgType) -> bool {
    let base = ty.base();
    let is_time = || match base.kind {
        TypeKind::Scalar(Scalar::Timestamp) => true,
        TypeKind::Scalar(Scalar::Text) => ["interval", "time", "timetz"].contains(&base.name.as_str()),
        _ => false,
    };
    value.as_str().is_some_and(str::is_empty) && is_time()
}

/// The value of a parameter in PostgreSQL's text form.
pub(crate) fn encode_param(tool: &str, param: &Param, value: &Value) -> Result<Option<String>, Failure> {
    if let Some(scale) = param.limits.scale.filter(|scale| is_rounded(value, *scale)) {
        let why = format!("has more than {scale} digits after the decimal point: the column would round it");
        return Err(Failure::new(ErrorCode::InvalidParams, format!("{tool}: argument \"{}\" {why}", param.name)));
    }
    ledger::read::encode(value, &param.ty).map_err(|error| {
        let why =
            if param.sensitive { format!("is no {} that can be stored", param.ty.name) } else { error.to_string() };
        Failure::new(ErrorCode::InvalidParams, format!("{tool}: argument \"{}\" {why}", param.name))
    })
}

/// Whether a number, or a number in an array, has more than `scale` digits after the decimal point, not counting
/// trailing zeros.
fn is_rounded(value: &Value, scale: u32) -> bool {
    match value {
        Value::Number(number) => {
            let text = number.to_string().to_ascii_lowercase();
            let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
            let significant = format!("{whole}{fraction}");
            let zeros = significant.len() - significant.trim_end_matches('0').len();
            let is_zero = significant.trim_matches(['0', '-']).is_empty();
            let shift: i64 = exponent.parse().unwrap_or_default();
            let places = fraction.len() as i64 - zeros as i64 - shift;
            !is_zero && places > i64::from(scale)
        }
        Value::Array(items) => items.iter().any(|item| is_rounded(item, scale)),
        _ => false,
    }
}

/// The redaction of the effective parameters that must not be stored.
pub(crate) fn redaction(spec: &ToolSpec, params: &Map<String, Value>) -> Redaction {
    let columns = spec.before.iter().chain(&spec.statements).chain(&spec.after);
    let columns = columns.flat_map(|statement| statement.shape.columns.iter().flatten());
    Redaction::new(spec.sensitive_params().map(|param| param.name.as_str()), params)
        .keeping_keys(columns.map(|column| column.name.as_str()).chain(spec.undo.param_names()).chain(KEYS_OF_OURS))
}

/// The keys of our own in records and answers of writes, besides parameters and columns.
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

/// Normalizes a value. `7.0` is the integer 7. `"1.50"` is the number 1.50 for a numeric parameter. A time with time zone is converted to UTC.
fn one_spelling(value: Value, ty: &PgType) -> Value {
    match (value, &ty.base().kind) {
        (Value::Number(number), TypeKind::Scalar(Scalar::Int2 | Scalar::Int4 | Scalar::Int8)) => {
            Value::Number(whole(&number))
        }
        (Value::String(text), TypeKind::Scalar(Scalar::Int8)) => {
            let number = manifest::integer(&text).map(Value::Number);
            number.map_or(Value::String(text), |number| one_spelling(number, ty))
        }
        (Value::String(text), TypeKind::Scalar(Scalar::Numeric)) => {
            manifest::decimal(&text).map_or(Value::String(text), Value::Number)
        }
        (Value::String(text), TypeKind::Scalar(Scalar::Timestamptz)) => {
            Value::String(manifest::timestamp_in_utc(&text).unwrap_or(text))
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

    fn checker(empty: EmptyValues) -> ArgumentValidator {
        let id = json!({"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^-?[0-9]+$"}]});
        let schema = json!({
            "type": "object",
            "properties": {"tweet_id": id, "note": {"type": "string"}, "key": {"type": "string", "pattern": "^[!-~]+$"},
                "pin": {"type": "array", "maxItems": 2, "items": {"type": "string", "pattern": "^[0-9]+$"}}},
            "required": ["tweet_id"],
        });
        ArgumentValidator::new(schema.as_object().unwrap(), &["pin".to_owned()], empty).unwrap()
    }

    #[test]
    fn a_value_is_read_as_its_schema_asks_for_it() {
        for (given, schema, read) in [
            ("5.0", json!({"type": "integer"}), "5"),
            ("1e1", json!({"type": "integer"}), "10"),
            ("-0.7e1", json!({"type": "integer"}), "-7"),
            ("5.5", json!({"type": "integer"}), "5.5"),
            ("5.0", json!({"type": "number"}), "5.0"),
            ("\"5\"", json!({"type": "integer"}), "5"),
            ("\" 5.0 \"", json!({"type": "integer"}), "5"),
            ("\"true\"", json!({"type": "boolean"}), "true"),
            ("\"[7, \\\"a\\\"]\"", json!({"type": "array"}), "[7,\"a\"]"),
            ("[1.0, \"2\"]", json!({"type": "array", "items": {"type": "integer"}}), "[1,2]"),
            ("\"{\\\"id\\\": 1}\"", json!({"type": "object"}), "{\"id\":1}"),
            // Another kind, more than one value, a text that is asked for, and no kind.
            ("\"[7]\"", json!({"type": "object"}), "\"[7]\""),
            ("\"7 8\"", json!({"type": "integer"}), "\"7 8\""),
            ("\"null\"", json!({"type": "array"}), "\"null\""),
            ("\"7\"", json!({"type": "string"}), "\"7\""),
            ("\"7\"", json!({"anyOf": [{"type": "number"}, {"type": "string"}]}), "\"7\""),
        ] {
            let mut value: Value = serde_json::from_str(given).unwrap();
            read_as_asked(&mut value, &schema);
            assert_eq!(value.to_string(), read, "{given} {schema}");
        }
    }

    fn checked(arguments: &str, empty: EmptyValues) -> Result<String, Failure> {
        let Value::Object(arguments) = serde_json::from_str(arguments).unwrap() else { panic!("{arguments}") };
        checker(empty).check("like_tweet", arguments).map(|arguments| Value::Object(arguments).to_string())
    }

    fn message(arguments: &str) -> String {
        checked(arguments, EmptyValues::AbsentIfRefused).unwrap_err().message
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

    /// I-2: a JavaScript client sends 9007199254740993 as ..992, so neither is accepted as a number.
    #[test]
    fn a_number_that_a_client_may_have_changed_is_refused_and_its_digits_are_taken() {
        assert!(message(r#"{"tweet_id": 1.5}"#).contains("1.5 is not of type \"integer\""));
        for changed in ["9007199254740992", "9007199254740993", "-9007199254740993", "9223372036854775808", "1e400"] {
            let refused = checked(&format!(r#"{{"tweet_id": {changed}}}"#), EmptyValues::Absent).unwrap_err();
            assert!(refused.message.contains("tweet_id") && !refused.message.contains(changed), "{refused:?}");
            assert_eq!(refused.hint.as_deref(), Some(DIGITS_AS_TEXT));
        }
        for kept in ["9007199254740991", r#""9007199254740993""#, r#""9223372036854775807""#] {
            let arguments = format!(r#"{{"tweet_id":{kept}}}"#);
            assert_eq!(checked(&arguments, EmptyValues::Absent).unwrap(), arguments);
        }
        assert!(message(r#"{"tweet_id": "1.5"}"#).contains("tweet_id"));
    }

    /// N-12: the message lists all values of an enum, and shows the form of a date.
    #[test]
    fn a_wrong_value_is_told_with_all_values_or_the_form() {
        let schema = json!({"type": "object", "properties": {
            "status": {"type": "string", "enum": ["planned", "admitted", "moved", "discharged", "cancelled"]},
            "at": {"type": "string", "format": "date-time"}, "day": {"type": "string", "format": "date"}}});
        let checker = ArgumentValidator::new(schema.as_object().unwrap(), &[], EmptyValues::AbsentIfRefused).unwrap();
        let said = |arguments: Value| checker.check("t", arguments.as_object().cloned().unwrap()).unwrap_err().message;
        assert_eq!(
            said(json!({"status": "gone"})),
            "t: argument \"status\": \"gone\" is not one of \"planned\", \"admitted\", \"moved\", \"discharged\", \"cancelled\""
        );
        assert_eq!(
            said(json!({"at": "tomorrow"})),
            "t: argument \"at\": \"tomorrow\" is no date and time with time zone, such as 2026-01-31T13:45:00+00:00"
        );
        assert_eq!(said(json!({"day": "31.1."})), "t: argument \"day\": \"31.1.\" is no date, such as 2026-01-31");
        for at in ["2026-01-31 13:45:00+00", "2026-01-31T13:45:00Z", "infinity"] {
            assert!(checker.check("t", json!({"at": at}).as_object().cloned().unwrap()).is_ok(), "{at}");
        }
    }

    /// N-28
    #[test]
    fn digits_that_a_column_would_round_away_are_counted() {
        for (number, scale, rounded) in [
            ("19.999", 2, true),
            ("19.99", 2, false),
            ("19.990", 2, false),
            ("1999e-2", 2, false),
            ("19999e-3", 2, true),
            ("1.9999e3", 1, false),
            ("1.99999e3", 1, true),
            ("-0.001", 2, true),
            ("0.000", 0, false),
            ("100", 0, false),
            ("0e-9", 0, false),
            ("[1, 0.5]", 0, true),
        ] {
            assert_eq!(is_rounded(&serde_json::from_str(number).unwrap(), scale), rounded, "{number} {scale}");
        }
    }

    /// I-1
    #[test]
    fn null_says_that_an_optional_argument_is_absent() {
        let filled = r#"{"tweet_id":1,"note":null,"key":null,"pin":null}"#;
        assert_eq!(checked(filled, EmptyValues::AbsentIfRefused).unwrap(), r#"{"tweet_id":1}"#);
        assert!(message(r#"{"tweet_id": null}"#).contains("tweet_id"));
        assert!(message(r#"{"tweet_id": 1, "tweet": null}"#).contains("unknown argument"));
    }

    /// I-5: for a tool of a manifest, an empty text may be a value. If the type has no empty value, the argument is
    /// absent.
    #[test]
    fn an_empty_value_says_that_an_optional_argument_is_absent() {
        let filled = r#"{"tweet_id":1,"note":"","key":"","pin":[]}"#;
        assert_eq!(checked(filled, EmptyValues::Absent).unwrap(), r#"{"tweet_id":1}"#);
        assert_eq!(checked(filled, EmptyValues::AbsentIfRefused).unwrap(), r#"{"tweet_id":1,"note":"","pin":[]}"#);
        assert!(message(r#"{"tweet_id": ""}"#).contains("tweet_id"));
    }
}
