//! JSON Schemas of a PostgreSQL type: as an argument, and as a result column.

use serde_json::{Map, Number, Value, json};
use types::{Column, PgType, Scalar, TypeKind};

use super::object;

pub(crate) fn argument(ty: &PgType) -> Map<String, Value> {
    match &ty.kind {
        TypeKind::Domain(base) => argument(base),
        TypeKind::Scalar(scalar) => scalar_argument(*scalar),
        TypeKind::Enum(labels) => object(json!({"type": "string", "enum": labels})),
        TypeKind::Array { element, .. } => object(json!({"type": "array", "items": described(element)})),
        TypeKind::Composite(fields) => {
            let properties: Map<String, Value> =
                fields.iter().map(|field| (field.name.clone(), described(&field.ty))).collect();
            object(json!({"type": "object", "properties": properties}))
        }
    }
}

/// The schema of an argument, with the type in words if the schema alone does not say how to write a value.
fn described(ty: &PgType) -> Value {
    let mut schema = argument(ty);
    if !is_obvious(ty) {
        schema.insert("description".to_owned(), argument_words(ty).into());
    }
    Value::Object(schema)
}

/// The type of an argument in words, for a model.
pub(crate) fn argument_words(ty: &PgType) -> String {
    let or_digits = if ty.contains(Scalar::Numeric) { ", or a string of its digits" } else { "" };
    format!("{}{or_digits}", words(ty))
}

/// The pattern for an integer as text.
const INTEGER: &str = "^-?[0-9]+$";

/// The pattern for a `numeric` as text.
const DECIMAL: &str = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$";

/// The pattern of an idempotency key. Its length is limited by a separate keyword: within the pattern, each character
/// would be a state of the regular expression, in every write tool.
pub(super) const KEY_PATTERN: &str = "^[!-~]+$";

/// A number, or its digits as text, since clients change some numbers.
fn number_or_digits(kind: &str, digits: &str) -> Value {
    json!({"anyOf": [{"type": kind}, {"type": "string", "pattern": digits}]})
}

/// Any JSON value. Clients' converters need a type everywhere and accept no list of types. The schema does not
/// describe the elements and properties of the value, which may be anything.
#[must_use]
pub fn any_value() -> Value {
    let all: Vec<Value> = scalars().into_iter().chain([json!({"type": "object"}), array_of_scalars()]).collect();
    json!({"anyOf": all})
}

/// Any JSON value that is rarely an object. Objects are not listed, but accepted: if they are listed, LangChain.js
/// refuses all other values, and OpenAI's strict schemas have no objects without known fields.
#[must_use]
pub fn any_parameter() -> Value {
    let all: Vec<Value> = scalars().into_iter().chain([array_of_scalars()]).collect();
    json!({"anyOf": all})
}

/// Any JSON value that is usually a scalar. The list of alternatives is shorter.
#[must_use]
pub fn any_scalar() -> Value {
    json!({"anyOf": scalars()})
}

fn array_of_scalars() -> Value {
    json!({"type": "array", "items": any_scalar()})
}

fn scalars() -> [Value; 4] {
    ["string", "number", "boolean", "null"].map(|kind| json!({"type": kind}))
}

/// The schema that the server enforces: a number where the listed schema accepts its digits, and any JSON value where
/// it lists alternatives.
#[must_use]
pub fn enforced(schema: &Value) -> Value {
    match schema {
        Value::Object(schema) => {
            if let Some((number, _)) = digits(schema) {
                return Value::Object(number.clone());
            }
            let is_listed = |key: &str| key != "anyOf" || !is_any(schema);
            let parts = schema.iter().filter(|(key, _)| is_listed(key));
            parts.map(|(key, part)| (key.clone(), enforced(part))).collect()
        }
        other => other.clone(),
    }
}

/// The value with digits replaced by numbers, where its schema accepts both.
#[must_use]
pub fn with_numbers(value: &Value, schema: &Value) -> Value {
    match (value, schema) {
        (Value::String(text), Value::Object(schema)) => {
            let number = digits(schema).and_then(|(_, form)| number(text, form == INTEGER));
            number.map_or_else(|| value.clone(), Value::Number)
        }
        (Value::Array(items), _) => items.iter().map(|item| with_numbers(item, element(schema))).collect(),
        (Value::Object(fields), _) => {
            fields.iter().map(|(name, field)| (name.clone(), with_numbers(field, property(schema, name)))).collect()
        }
        _ => value.clone(),
    }
}

/// The paths of numbers that a client may have changed before it sent them: `name`, `name.0`.
#[must_use]
pub fn unsafe_numbers(value: &Value, schema: &Value) -> Vec<String> {
    let inner = |name: &str, part: &Value, schema: &Value| -> Vec<String> {
        let places = unsafe_numbers(part, schema).into_iter();
        places.map(|place| if place.is_empty() { name.to_owned() } else { format!("{name}.{place}") }).collect()
    };
    match value {
        Value::Number(number) if is_unsafe(&number.to_string(), schema) => vec![String::new()],
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.flat_map(|(index, item)| inner(&index.to_string(), item, element(schema))).collect()
        }
        Value::Object(fields) => {
            fields.iter().flat_map(|(name, field)| inner(name, field, property(schema, name))).collect()
        }
        _ => Vec::new(),
    }
}

fn is_unsafe(number: &str, schema: &Value) -> bool {
    match schema.as_object().and_then(digits) {
        Some((_, INTEGER)) => !types::is_safe_integer(number),
        Some(_) => !types::is_safe_decimal(number),
        // A `float8` is a double in any case.
        None if schema.get("type").is_some_and(|kind| kind == "number") => false,
        None => types::is_plain_integer(number) && !types::is_safe_integer(number),
    }
}

/// The schema of the elements of an array.
#[must_use]
pub fn element(schema: &Value) -> &Value {
    schema.get("items").unwrap_or(&Value::Null)
}

/// The schema of a member of an object.
#[must_use]
pub fn property<'s>(schema: &'s Value, name: &str) -> &'s Value {
    schema.get("properties").and_then(|all| all.get(name)).unwrap_or(&Value::Null)
}

/// Parses digits to an integer.
#[must_use]
pub fn integer(digits: &str) -> Option<Number> {
    number(digits, true)
}

/// Parses digits to a number without changing them.
#[must_use]
pub fn decimal(digits: &str) -> Option<Number> {
    number(digits, false)
}

fn number(digits: &str, is_whole: bool) -> Option<Number> {
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-' || (byte == b'.' && !is_whole));
    digits.parse().ok().filter(|_| is_plain)
}

/// The alternatives of a schema that accepts a number or its digits: the schema of the number, and the pattern of the
/// digits.
pub(super) fn digits(schema: &Map<String, Value>) -> Option<(&Map<String, Value>, &str)> {
    let [number, text] = schema.get("anyOf")?.as_array()?.as_slice() else { return None };
    let form = text.get("pattern")?.as_str().filter(|form| [INTEGER, DECIMAL].contains(form))?;
    Some((number.as_object()?, form))
}

/// Applies `limit` to the schema of the number, if the schema accepts a number or its digits; otherwise to the whole
/// schema.
pub(super) fn with_limits(
    mut schema: Map<String, Value>,
    limit: impl FnOnce(Map<String, Value>) -> Map<String, Value>,
) -> Map<String, Value> {
    let has_digits = digits(&schema).is_some();
    let number = schema.get_mut("anyOf").filter(|_| has_digits).and_then(|either| either.get_mut(0));
    let Some(Value::Object(number)) = number else { return limit(schema) };
    *number = limit(std::mem::take(number));
    schema
}

fn is_any(schema: &Map<String, Value>) -> bool {
    let listed = schema.get("anyOf");
    listed.is_some() && [any_value(), any_parameter(), any_scalar()].iter().any(|any| any.get("anyOf") == listed)
}

fn scalar_argument(scalar: Scalar) -> Map<String, Value> {
    object(match scalar {
        Scalar::Bool => json!({"type": "boolean"}),
        Scalar::Int2 => json!({"type": "integer", "minimum": i16::MIN, "maximum": i16::MAX}),
        Scalar::Int4 => json!({"type": "integer", "minimum": i32::MIN, "maximum": i32::MAX}),
        // No minimum and maximum: many clients cannot parse the bounds of an int8. Values beyond them have no text
        // form.
        Scalar::Int8 => number_or_digits("integer", INTEGER),
        Scalar::Float => json!({"type": "number"}),
        Scalar::Numeric => number_or_digits("number", DECIMAL),
        Scalar::Json => any_value(),
        Scalar::Uuid => json!({"type": "string", "format": "uuid"}),
        Scalar::Date => json!({"type": "string", "format": "date"}),
        Scalar::Timestamptz => json!({"type": "string", "format": "date-time"}),
        Scalar::Timestamp | Scalar::Vector | Scalar::JsonCast | Scalar::Record | Scalar::Text => {
            json!({"type": "string"})
        }
    })
}

/// The schema of a value in this result column: its JSON type if there is one, otherwise the name of its PostgreSQL
/// type.
///
/// Clients validate answers against this schema, so it must hold for every value. Elements and fields may be NULL
/// whatever the column is. Numbers that clients would change are text, and so are `NaN` and `Infinity`. `infinity` is
/// a valid date in PostgreSQL but not in the format `date`.
pub(crate) fn column(column: &Column) -> Map<String, Value> {
    let name = column.ty.sql_name();
    if !column.not_null {
        return object(json!({"description": format!("{name} or null")}));
    }
    object(match &column.ty.base().kind {
        TypeKind::Scalar(Scalar::Bool) => json!({"type": "boolean"}),
        TypeKind::Scalar(Scalar::Int2 | Scalar::Int4) => json!({"type": "integer"}),
        TypeKind::Scalar(Scalar::Numeric) => json!({"type": "string", "description": name}),
        TypeKind::Scalar(Scalar::Date | Scalar::Timestamp | Scalar::Timestamptz | Scalar::Uuid | Scalar::Text) => {
            json!({"type": "string"})
        }
        TypeKind::Enum(labels) => json!({"type": "string", "enum": labels}),
        TypeKind::Array { .. } => json!({"type": "array"}),
        TypeKind::Composite(_) => json!({"type": "object"}),
        // A bigint beyond 2^53-1 is sent as text.
        TypeKind::Scalar(_) | TypeKind::Domain(_) => json!({"description": name}),
    })
}

/// Whether the JSON Schema alone says how to write a value.
pub(crate) fn is_obvious(ty: &PgType) -> bool {
    match &ty.base().kind {
        TypeKind::Scalar(Scalar::Text) => matches!(ty.base().name.as_str(), "text" | "varchar" | "bpchar" | "name"),
        TypeKind::Scalar(scalar) => {
            matches!(
                scalar,
                Scalar::Bool | Scalar::Int2 | Scalar::Int4 | Scalar::Int8 | Scalar::Float | Scalar::Date | Scalar::Uuid
            )
        }
        TypeKind::Array { .. } | TypeKind::Enum(_) | TypeKind::Composite(_) | TypeKind::Domain(_) => true,
    }
}

fn words(ty: &PgType) -> String {
    match &ty.base().kind {
        TypeKind::Scalar(scalar) => scalar_words(*scalar, &ty.base().name),
        TypeKind::Enum(labels) => format!("one of {}", labels.join(", ")),
        TypeKind::Array { element, .. } => format!("array of {}", words(element)),
        TypeKind::Composite(_) | TypeKind::Domain(_) => format!("{} object", ty.base().name),
    }
}

pub(super) fn scalar_words(scalar: Scalar, name: &str) -> String {
    match scalar {
        Scalar::Bool => "boolean",
        Scalar::Int2 | Scalar::Int4 | Scalar::Int8 => "integer",
        Scalar::Float => "number",
        Scalar::Numeric => "exact decimal number",
        Scalar::Json => "any JSON value",
        Scalar::Date => "date such as 2026-01-31",
        Scalar::Timestamp => "date and time without time zone, such as 2026-01-31T13:45:00",
        Scalar::Timestamptz => "date and time with time zone, such as 2026-01-31T13:45:00+00:00",
        Scalar::Uuid => "UUID",
        Scalar::Vector => "integers separated by spaces",
        Scalar::JsonCast => return format!("PostgreSQL type {name}, an argument as its text form, a result as JSON"),
        Scalar::Record => "record",
        Scalar::Text => match name {
            "text" | "varchar" | "bpchar" | "name" => "text",
            "bytea" => "bytes, written as \\x and two hexadecimal digits for each",
            "interval" => "interval such as 1 day 02:30:00",
            "time" => "time of day such as 13:45:00",
            "timetz" => "time of day with time zone, such as 13:45:00+00",
            "int4range" | "int8range" | "numrange" => "range such as [1,10), without 10",
            "daterange" => "range such as [2026-01-31,2026-02-28), without the last day",
            "tsrange" => "range such as [2026-01-31 13:45,2026-01-31 14:45), without the end",
            "tstzrange" => "range such as [2026-01-31 13:45+00,2026-01-31 14:45+00), without the end",
            other => return format!("text form of PostgreSQL type {other}"),
        },
    }
    .to_owned()
}

#[cfg(test)]
pub(crate) mod examples {
    use std::sync::Arc;

    use types::{CompositeField, PgType, Scalar, TypeKind};

    pub(crate) fn named(name: &str, oid: u32, scalar: Scalar) -> Arc<PgType> {
        Arc::new(PgType { oid, name: name.to_owned(), kind: TypeKind::Scalar(scalar) })
    }

    pub(crate) fn scalar(scalar: Scalar) -> Arc<PgType> {
        let (name, oid) = match scalar {
            Scalar::Bool => ("bool", 16),
            Scalar::Int2 => ("int2", 21),
            Scalar::Int4 => ("int4", 23),
            Scalar::Int8 => ("int8", 20),
            Scalar::Float => ("float8", 701),
            Scalar::Numeric => ("numeric", 1700),
            Scalar::Json => ("jsonb", 3802),
            Scalar::Date => ("date", 1082),
            Scalar::Timestamp => ("timestamp", 1114),
            Scalar::Timestamptz => ("timestamptz", 1184),
            Scalar::Uuid => ("uuid", 2950),
            Scalar::Vector => ("int2vector", 22),
            Scalar::JsonCast => ("hstore", 90_001),
            Scalar::Record => ("record", 2249),
            Scalar::Text => ("text", 25),
        };
        named(name, oid, scalar)
    }

    fn compound(name: &str, kind: TypeKind) -> Arc<PgType> {
        Arc::new(PgType { oid: 90_000, name: name.to_owned(), kind })
    }

    pub(crate) fn enumeration(name: &str, labels: &[&str]) -> Arc<PgType> {
        compound(name, TypeKind::Enum(labels.iter().map(|&label| label.to_owned()).collect()))
    }

    pub(crate) fn array(element: Arc<PgType>) -> Arc<PgType> {
        compound(&format!("{}[]", element.name), TypeKind::Array { element, delimiter: ',' })
    }

    pub(crate) fn composite(name: &str, fields: &[(&str, Arc<PgType>)]) -> Arc<PgType> {
        let fields =
            fields.iter().map(|(name, ty)| CompositeField { name: (*name).to_owned(), ty: Arc::clone(ty) }).collect();
        compound(name, TypeKind::Composite(fields))
    }

    pub(crate) fn domain(name: &str, base: Arc<PgType>) -> Arc<PgType> {
        compound(name, TypeKind::Domain(base))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::examples::{array, composite, domain, enumeration, named, scalar};
    use super::*;

    fn shown(schema: Map<String, Value>) -> String {
        Value::Object(schema).to_string()
    }

    /// I-2: a number or its digits is a number where the schema is enforced, and has its limits.
    #[test]
    fn digits_are_a_number_before_they_are_checked() {
        let id = Value::Object(argument(&scalar(Scalar::Int8)));
        let price = Value::Object(argument(&scalar(Scalar::Numeric)));
        let any = Value::Object(argument(&scalar(Scalar::Json)));
        assert_eq!(enforced(&id), json!({"type": "integer"}));
        assert_eq!(
            enforced(&json!({"type": "array", "items": price})),
            json!({"type": "array", "items": {"type": "number"}})
        );
        assert_eq!(enforced(&any), json!({}));
        for (text, schema, number) in [
            ("9007199254740993", &id, true),
            ("1.5", &id, false),
            ("x", &id, false),
            ("1.50", &price, true),
            ("1e3", &price, false),
        ] {
            assert_eq!(with_numbers(&text.into(), schema).is_number(), number, "{text}");
        }
    }

    /// I-2: a number that a client may have changed is found wherever it is.
    #[test]
    fn an_unsafe_number_is_found_with_its_place() {
        let schema = json!({"properties": {
            "id": argument(&scalar(Scalar::Int8)), "price": argument(&scalar(Scalar::Numeric)),
            "f": argument(&scalar(Scalar::Float)), "ids": argument(&array(scalar(Scalar::Int8))),
            "doc": argument(&scalar(Scalar::Json)),
        }});
        for (arguments, places) in [
            (
                r#"{"id": 9007199254740991, "price": 123456789012.345, "f": 0.30000000000000004, "doc": {"a": 0.30000000000000004}}"#,
                &[][..],
            ),
            (r#"{"id": "9007199254740993", "f": 1e300, "price": "0.1234567890123456"}"#, &[]),
            (r#"{"id": 9007199254740992, "price": 0.1234567890123456}"#, &["id", "price"]),
            (r#"{"id": 9.007199254740993e15, "ids": [1, -9007199254740993]}"#, &["id", "ids.1"]),
            (r#"{"doc": {"a": [{"b": 9007199254740993}]}}"#, &["doc.a.0.b"]),
        ] {
            assert_eq!(unsafe_numbers(&serde_json::from_str(arguments).unwrap(), &schema), places, "{arguments}");
        }
    }

    #[test]
    fn every_kind_of_argument_has_its_schema() {
        let point = composite("point2", &[("x", scalar(Scalar::Int2)), ("note", scalar(Scalar::Text))]);
        for (ty, schema) in [
            (scalar(Scalar::Bool), r#"{"type":"boolean"}"#),
            (scalar(Scalar::Int2), r#"{"type":"integer","minimum":-32768,"maximum":32767}"#),
            (scalar(Scalar::Int4), r#"{"type":"integer","minimum":-2147483648,"maximum":2147483647}"#),
            (scalar(Scalar::Int8), r#"{"anyOf":[{"type":"integer"},{"type":"string","pattern":"^-?[0-9]+$"}]}"#),
            (scalar(Scalar::Float), r#"{"type":"number"}"#),
            (
                scalar(Scalar::Numeric),
                r#"{"anyOf":[{"type":"number"},{"type":"string","pattern":"^-?(0|[1-9][0-9]*)(\\.[0-9]+)?$"}]}"#,
            ),
            (scalar(Scalar::Json), &any_value().to_string()),
            (scalar(Scalar::Uuid), r#"{"type":"string","format":"uuid"}"#),
            (scalar(Scalar::Date), r#"{"type":"string","format":"date"}"#),
            (scalar(Scalar::Timestamp), r#"{"type":"string"}"#),
            (scalar(Scalar::Timestamptz), r#"{"type":"string","format":"date-time"}"#),
            (scalar(Scalar::Text), r#"{"type":"string"}"#),
            (named("inet", 869, Scalar::Text), r#"{"type":"string"}"#),
            (enumeration("mood", &["sad", "glad"]), r#"{"type":"string","enum":["sad","glad"]}"#),
            (domain("flag", scalar(Scalar::Bool)), r#"{"type":"boolean"}"#),
            (array(scalar(Scalar::Text)), r#"{"type":"array","items":{"type":"string"}}"#),
            (
                point,
                r#"{"type":"object","properties":{"x":{"type":"integer","minimum":-32768,"maximum":32767},"note":{"type":"string"}}}"#,
            ),
        ] {
            assert_eq!(shown(argument(&ty)), schema, "{}", ty.name);
        }
    }

    #[test]
    fn a_column_that_may_be_null_has_no_type() {
        let nullable = Column { name: "id".into(), ty: scalar(Scalar::Int8), not_null: false };
        assert_eq!(shown(column(&nullable)), r#"{"description":"bigint or null"}"#);
    }

    #[test]
    fn a_column_that_is_never_null_has_the_type_that_all_its_values_have() {
        for (ty, schema) in [
            (scalar(Scalar::Bool), r#"{"type":"boolean"}"#),
            (scalar(Scalar::Text), r#"{"type":"string"}"#),
            (scalar(Scalar::Date), r#"{"type":"string"}"#),
            (scalar(Scalar::Int8), r#"{"description":"bigint"}"#),
            (scalar(Scalar::Numeric), r#"{"type":"string","description":"numeric"}"#),
            (scalar(Scalar::Json), r#"{"description":"jsonb"}"#),
            (array(scalar(Scalar::Int4)), r#"{"type":"array"}"#),
            (composite("pair", &[("a", scalar(Scalar::Text))]), r#"{"type":"object"}"#),
            (enumeration("mood", &["sad", "glad"]), r#"{"type":"string","enum":["sad","glad"]}"#),
            (named("bytea", 17, Scalar::Text), r#"{"type":"string"}"#),
            (domain("posint", scalar(Scalar::Int4)), r#"{"type":"integer"}"#),
        ] {
            let never_null = Column { name: "c".into(), ty: Arc::clone(&ty), not_null: true };
            assert_eq!(shown(column(&never_null)), schema, "{}", ty.name);
        }
    }
}
