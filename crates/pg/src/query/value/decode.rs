//! Converts PostgreSQL's text form to JSON, as `to_jsonb` would.

use serde_json::{Map, Number, Value};
use types::{PgType, Scalar, TypeKind};

use super::composite::parse_row;
use crate::client::literal::{Element, parse_array};

/// The maximum nesting of a value. JSON parsers reject a whole message with more than 128 (serde_json) or a few
/// hundred levels, and the answer around the value has some levels too.
pub(crate) const MAX_DEPTH: usize = 100;

/// The prefix of the keys that serde_json uses for numbers of arbitrary precision: it parses an object with only such
/// a key as a number.
const RESERVED_KEY: &str = "$serde_json::private::";

/// The JSON of a value in PostgreSQL's text form; `None` is SQL NULL.
///
/// Never fails: a text that is not valid for its type (a query may change `DateStyle` for itself) becomes a string.
#[must_use]
pub fn decode(text: Option<&str>, ty: &PgType) -> Value {
    text.map_or(Value::Null, |text| decode_in(text, ty, MAX_DEPTH))
}

/// The JSON in this text, with at most `room` levels of nesting. If the text is nested deeper or is not strict JSON
/// (a lone surrogate), the result is a string with the text.
pub(crate) fn json_text(text: &str, room: usize) -> Value {
    let value = serde_json::from_str(text).ok().filter(|value| is_within(value, room));
    value.filter(|_| !text.contains(RESERVED_KEY)).unwrap_or_else(|| Value::from(text))
}

fn is_within(value: &Value, room: usize) -> bool {
    match value {
        Value::Array(items) => room > 0 && items.iter().all(|item| is_within(item, room - 1)),
        Value::Object(object) => room > 0 && object.values().all(|value| is_within(value, room - 1)),
        _ => true,
    }
}

/// `room` is the number of levels that are left.
fn decode_in(text: &str, ty: &PgType, room: usize) -> Value {
    let inner = room.saturating_sub(1);
    match &ty.kind {
        // `to_jsonb` writes an oid as text, both alone and in an `oidvector`.
        TypeKind::Scalar(Scalar::Vector) if ty.name == "oidvector" => parts(text).map(Value::from).collect(),
        TypeKind::Scalar(Scalar::Json) => json_text(text, room),
        TypeKind::Scalar(scalar) => decode_scalar(text, *scalar),
        TypeKind::Enum(_) => Value::from(text),
        TypeKind::Domain(base) => decode_in(text, base, room),
        TypeKind::Array { element, delimiter } => parse_array(text, *delimiter)
            .map_or_else(|| Value::from(text), |elements| decode_elements(elements, element, inner)),
        TypeKind::Composite(fields) => match parse_row(text) {
            // `()` is also the text of a row with one NULL field.
            Some(_) if fields.is_empty() && text == "()" => Map::new().into(),
            Some(values) if values.len() == fields.len() => fields
                .iter()
                .zip(values)
                .map(|(field, value)| {
                    let value = value.map_or(Value::Null, |value| decode_in(&value, &field.ty, inner));
                    (field.name.clone(), value)
                })
                .collect::<Map<_, _>>()
                .into(),
            _ => Value::from(text),
        },
    }
}

fn decode_elements(elements: Vec<Element>, ty: &PgType, room: usize) -> Value {
    elements
        .into_iter()
        .map(|element| match element {
            Element::Null => Value::Null,
            Element::Text(text) => decode_in(&text, ty, room),
            Element::Array(inner) => decode_elements(inner, ty, room.saturating_sub(1)),
        })
        .collect()
}

fn decode_scalar(text: &str, scalar: Scalar) -> Value {
    match scalar {
        Scalar::Bool => match text {
            "t" => Value::Bool(true),
            "f" => Value::Bool(false),
            _ => Value::from(text),
        },
        // NaN and the infinities are not JSON numbers and become strings.
        Scalar::Int2 | Scalar::Int4 | Scalar::Int8 | Scalar::Float | Scalar::Numeric => {
            text.parse::<Number>().map_or_else(|_| Value::from(text), Value::Number)
        }
        Scalar::Json => json_text(text, MAX_DEPTH),
        Scalar::Timestamp | Scalar::Timestamptz => Value::from(iso8601(text)),
        Scalar::Vector => parts(text).map(|part| decode_scalar(part, Scalar::Int2)).collect(),
        // The last two are normally converted by the server (`read/server_json.rs`). This is the fallback.
        Scalar::Date | Scalar::Uuid | Scalar::Text | Scalar::JsonCast | Scalar::Record => Value::from(text),
    }
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(' ').filter(|part| !part.is_empty())
}

/// `2026-01-02 03:04:05+05` becomes `2026-01-02T03:04:05+05:00`. Other forms are unchanged.
fn iso8601(text: &str) -> String {
    let (moment, era) = text.strip_suffix(" BC").map_or((text, ""), |moment| (moment, " BC"));
    let Some((date, time)) = moment.split_once(' ') else { return text.to_owned() };
    let is_iso = date.bytes().all(|b| b.is_ascii_digit() || b == b'-')
        && time.bytes().all(|b| b.is_ascii_digit() || b":.+-".contains(&b));
    if !is_iso {
        return text.to_owned();
    }
    let minutes = match time.rfind(['+', '-']) {
        Some(sign) if time.len() - sign == 3 => ":00",
        _ => "",
    };
    format!("{date}T{time}{minutes}{era}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(scalar: Scalar) -> PgType {
        PgType { oid: 0, name: "x".into(), kind: TypeKind::Scalar(scalar) }
    }

    fn json(text: &str, kind: Scalar) -> String {
        decode(Some(text), &scalar(kind)).to_string()
    }

    #[test]
    fn every_digit_of_a_number_is_kept() {
        assert_eq!(json("9007199254740993", Scalar::Int8), "9007199254740993");
        assert_eq!(json("1.10", Scalar::Numeric), "1.10");
        assert_eq!(json("123456789012345678901234567890.123456789", Scalar::Numeric).len(), 40);
        assert_eq!(json("NaN", Scalar::Numeric), r#""NaN""#);
        assert_eq!(json("-Infinity", Scalar::Float), r#""-Infinity""#);
    }

    #[test]
    fn moments_are_iso_8601() {
        assert_eq!(json("2026-01-02 03:04:05.6+00", Scalar::Timestamptz), r#""2026-01-02T03:04:05.6+00:00""#);
        assert_eq!(json("2026-01-02 03:04:05-03:30", Scalar::Timestamptz), r#""2026-01-02T03:04:05-03:30""#);
        assert_eq!(json("2026-01-02 03:04:05", Scalar::Timestamp), r#""2026-01-02T03:04:05""#);
        assert_eq!(json("0044-03-15 00:00:00+00 BC", Scalar::Timestamptz), r#""0044-03-15T00:00:00+00:00 BC""#);
        assert_eq!(json("infinity", Scalar::Timestamptz), r#""infinity""#);
        assert_eq!(json("Fri 02 Jan 03:04:05 2026", Scalar::Timestamp), r#""Fri 02 Jan 03:04:05 2026""#);
    }

    #[test]
    fn json_too_deep_for_a_reader_stays_text_wherever_it_is() {
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let json = std::sync::Arc::new(scalar(Scalar::Json));
        assert!(decode(Some(&deep(MAX_DEPTH)), &json).is_array());
        assert!(decode(Some(&deep(MAX_DEPTH + 1)), &json).is_string());
        assert!(decode(Some(&deep(1000)), &json).is_string());
        let array = PgType { oid: 0, name: "json[]".into(), kind: TypeKind::Array { element: json, delimiter: ',' } };
        assert!(decode(Some(&format!("{{{}}}", deep(MAX_DEPTH - 1))), &array)[0].is_array());
        assert!(decode(Some(&format!("{{{}}}", deep(MAX_DEPTH))), &array)[0].is_string());
        assert!(decode(Some(&format!("{{{{{}}}}}", deep(MAX_DEPTH - 1))), &array)[0][0].is_string());
    }

    #[test]
    fn an_object_with_the_key_that_serde_json_keeps_for_numbers_is_no_number() {
        let text = r#"{"$serde_json::private::Number": "12"}"#;
        assert_eq!(decode(Some(text), &scalar(Scalar::Json)), Value::from(text));
    }
}
