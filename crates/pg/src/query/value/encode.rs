//! Converts JSON to the text form of a parameter, according to the type that the prepared statement reports.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use types::{CompositeField, PgType, Scalar, TypeKind, is_safe_decimal, is_safe_integer};

use super::composite::push_row;
use crate::client::literal::push_quoted;

/// The reason why a JSON value cannot be a parameter of a type: the end of a sentence that begins with the
/// parameter's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EncodeError(String);

impl EncodeError {
    /// The error for a wrong number of parameters: a whole sentence.
    pub(crate) fn of_count(takes: usize, got: usize) -> Self {
        Self(format!("the query takes {takes} parameter(s) and {got} were given in params"))
    }
}

fn expected(what: &str, ty: &PgType, got: &Value) -> EncodeError {
    EncodeError(format!("is {} here and takes {what}, not {}", ty.name, kind_of(got)))
}

fn kind_of(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "a boolean".to_owned(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// The text form of `value` as a parameter of type `ty`; `None` is SQL NULL.
///
/// A string is accepted for every type except JSON's own: PostgreSQL parses it like a literal in quotes, and reports
/// an error if it is invalid.
///
/// # Errors
/// [`EncodeError`] if the JSON value has the wrong form for the type, or contains U+0000, which PostgreSQL cannot
/// store.
pub fn encode(value: &Value, ty: &PgType) -> Result<Option<String>, EncodeError> {
    let base = ty.base();
    if let (TypeKind::Scalar(Scalar::Json), false) = (&base.kind, value.is_null()) {
        return no_nul(value).map(|()| Some(value.to_string()));
    }
    Ok(Some(match (value, &base.kind) {
        (Value::Null, _) => return Ok(None),
        (Value::String(text), _) => no_nul(value).map(|()| text.clone())?,
        (Value::Array(items), TypeKind::Array { element, delimiter }) => encode_array(items, element, *delimiter)?,
        (Value::Object(object), TypeKind::Composite(fields)) => encode_row(object, fields, ty)?,
        (Value::Array(items), TypeKind::Scalar(Scalar::Vector)) => encode_vector(items, ty, value)?,
        (_, TypeKind::Array { .. }) => return Err(expected("an array", ty, value)),
        (_, TypeKind::Composite(_)) => return Err(expected("an object", ty, value)),
        (_, TypeKind::Enum(_)) => return Err(expected("one of its labels as a string", ty, value)),
        (_, TypeKind::Scalar(scalar)) => encode_scalar(value, *scalar, ty)?,
        (_, TypeKind::Domain(_)) => return Err(expected("a string", ty, value)),
    }))
}

/// The values of `$1`, `$2`, ... in text form, one for each type.
///
/// # Errors
/// [`EncodeError`] as a whole sentence. A number whose digits a client may have changed is an error too.
pub fn encode_all(given: &[Value], types: &[Arc<PgType>]) -> Result<Vec<Option<String>>, EncodeError> {
    encode_each(given, types, encode_safe)
}

/// Like [`encode`], but a number with more digits than every client preserves is an error: JavaScript sends
/// 9007199254740992 for 9007199254740993.
pub(crate) fn encode_safe(value: &Value, ty: &PgType) -> Result<Option<String>, EncodeError> {
    if is_safe(value, ty) {
        return encode(value, ty);
    }
    let digits =
        "has a number with more digits than every client keeps, who may have changed it: send its digits as text";
    Err(EncodeError(format!("is {} here and {digits}", ty.name)))
}

/// Whether every client sends the numbers in this value unchanged. Numbers in JSON documents are not checked.
fn is_safe(value: &Value, ty: &PgType) -> bool {
    match (value, &ty.base().kind) {
        (Value::Number(number), TypeKind::Scalar(Scalar::Int8)) => is_safe_integer(&number.to_string()),
        (Value::Number(number), TypeKind::Scalar(Scalar::Numeric)) => is_safe_decimal(&number.to_string()),
        (Value::Array(items), TypeKind::Array { element, .. }) => items.iter().all(|item| match item {
            Value::Array(_) if !takes_array(element) => is_safe(item, ty),
            _ => is_safe(item, element),
        }),
        (Value::Object(object), TypeKind::Composite(fields)) => {
            fields.iter().all(|field| object.get(&field.name).is_none_or(|value| is_safe(value, &field.ty)))
        }
        _ => true,
    }
}

/// Encodes parameters whose strings are already in PostgreSQL's text form, including those of JSON types.
pub fn encode_texts(given: &[Value], types: &[Arc<PgType>]) -> Result<Vec<Option<String>>, EncodeError> {
    encode_each(given, types, |value, ty| match value {
        Value::String(text) => no_nul(value).map(|()| Some(text.clone())),
        other => encode(other, ty),
    })
}

/// Encodes parameters. A value that is not a string becomes its JSON text if the type accepts only strings: `[123]`
/// for a `text` becomes `123`.
pub fn encode_with_json_texts(given: &[Value], types: &[Arc<PgType>]) -> Result<Vec<Option<String>>, EncodeError> {
    encode_each(given, types, |value, ty| encode(&with_json_texts(value, ty), ty))
}

fn with_json_texts<'v>(value: &'v Value, ty: &PgType) -> Cow<'v, Value> {
    match (value, &ty.base().kind) {
        (Value::Null | Value::String(_), _) => Cow::Borrowed(value),
        (_, TypeKind::Scalar(Scalar::Text)) => Cow::Owned(Value::from(value.to_string())),
        (Value::Array(items), TypeKind::Array { element, .. }) => {
            let of_element = |item: &Value| match item {
                // The item is a further dimension of the array, as in `encode_array`.
                Value::Array(_) if !takes_array(element) => with_json_texts(item, ty).into_owned(),
                item => with_json_texts(item, element).into_owned(),
            };
            Cow::Owned(Value::Array(items.iter().map(of_element).collect()))
        }
        _ => Cow::Borrowed(value),
    }
}

fn encode_each(
    given: &[Value],
    types: &[Arc<PgType>],
    encode: impl Fn(&Value, &PgType) -> Result<Option<String>, EncodeError>,
) -> Result<Vec<Option<String>>, EncodeError> {
    if types.len() != given.len() {
        return Err(EncodeError::of_count(types.len(), given.len()));
    }
    let encoded = types.iter().zip(given).enumerate().map(|(index, (ty, json))| {
        encode(json, ty).map_err(|EncodeError(why)| EncodeError(format!("parameter ${} {why}", index + 1)))
    });
    encoded.collect()
}

fn encode_scalar(value: &Value, scalar: Scalar, ty: &PgType) -> Result<String, EncodeError> {
    match (value, scalar) {
        (Value::Bool(truth), Scalar::Bool) => Ok(truth.to_string()),
        (Value::Number(number), Scalar::Int2 | Scalar::Int4 | Scalar::Int8) => {
            let whole = whole(&number.to_string()).ok_or_else(|| expected("a whole number", ty, value))?;
            // The error is PostgreSQL's if the number exceeds the range of a smaller type.
            whole.parse::<i64>().map(|_| whole).map_err(|_| expected("a whole number of 64 bits", ty, value))
        }
        (Value::Number(number), Scalar::Float | Scalar::Numeric) => Ok(number.to_string()),
        (_, Scalar::Bool) => Err(expected("true or false", ty, value)),
        (_, Scalar::Int2 | Scalar::Int4 | Scalar::Int8) => Err(expected("a whole number", ty, value)),
        (_, Scalar::Float | Scalar::Numeric) => Err(expected("a number", ty, value)),
        (_, Scalar::Vector) => Err(expected("an array of whole numbers", ty, value)),
        (_, Scalar::JsonCast) => Err(expected("its text form as a string", ty, value)),
        (Value::Number(number), Scalar::Text) if ty.name == "oid" => Ok(number.to_string()),
        _ => Err(expected("a string", ty, value)),
    }
}

/// The whole number in a text: `7`, `7.0` and `7.00` are 7, as in JSON Schema. `7.5` and `1e3` are not accepted.
fn whole(number: &str) -> Option<String> {
    let (digits, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_whole =
        digits.trim_start_matches('-').bytes().all(|b| b.is_ascii_digit()) && fraction.bytes().all(|b| b == b'0');
    is_whole.then(|| digits.to_owned())
}

/// A vector, such as `1 2 3`. The oids of an `oidvector` are strings in results, so strings are accepted here.
fn encode_vector(items: &[Value], ty: &PgType, value: &Value) -> Result<String, EncodeError> {
    let parts = items.iter().map(|item| match item {
        Value::Number(number) => whole(&number.to_string()),
        Value::String(text) => whole(text).filter(|digits| digits == text && !digits.is_empty()),
        _ => None,
    });
    let parts: Option<Vec<String>> = parts.collect();
    parts.map(|parts| parts.join(" ")).ok_or_else(|| expected("an array of whole numbers", ty, value))
}

fn encode_array(items: &[Value], element: &PgType, delimiter: char) -> Result<String, EncodeError> {
    let mut out = String::from("{");
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(delimiter);
        }
        match item {
            // An inner array is a further dimension, unless the element type itself accepts arrays.
            Value::Array(inner) if !takes_array(element) => out.push_str(&encode_array(inner, element, delimiter)?),
            _ => match encode(item, element).map_err(|EncodeError(why)| in_element(&why))? {
                Some(text) => push_quoted(&mut out, &text),
                None => out.push_str("NULL"),
            },
        }
    }
    out.push('}');
    Ok(out)
}

/// Whether a JSON array can be a single value of the type: JSON, a vector, or a domain over an array.
fn takes_array(ty: &PgType) -> bool {
    matches!(ty.base().kind, TypeKind::Scalar(Scalar::Json | Scalar::Vector) | TypeKind::Array { .. })
}

fn in_element(why: &str) -> EncodeError {
    EncodeError(format!("has an element that {why}"))
}

fn encode_row(
    object: &serde_json::Map<String, Value>,
    fields: &[CompositeField],
    ty: &PgType,
) -> Result<String, EncodeError> {
    if let Some(unknown) = object.keys().find(|key| fields.iter().all(|field| field.name != **key)) {
        let known: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        return Err(EncodeError(format!("is {} here, which has no \"{unknown}\", only {}", ty.name, known.join(", "))));
    }
    let values = fields
        .iter()
        .map(|field| match object.get(&field.name) {
            Some(value) => encode(value, &field.ty)
                .map_err(|EncodeError(why)| EncodeError(format!("has a field \"{}\" that {why}", field.name))),
            None => Ok(None),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut out = String::new();
    push_row(&mut out, &values);
    Ok(out)
}

fn no_nul(value: &Value) -> Result<(), EncodeError> {
    let clean = match value {
        Value::String(text) => !text.contains('\0'),
        Value::Array(items) => return items.iter().try_for_each(no_nul),
        Value::Object(object) => {
            object.values().try_for_each(no_nul)?;
            object.keys().all(|key| !key.contains('\0'))
        }
        _ => true,
    };
    if clean { Ok(()) } else { Err(EncodeError("holds U+0000, which PostgreSQL cannot store".to_owned())) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scalar(scalar: Scalar, name: &str) -> PgType {
        PgType { oid: 0, name: name.into(), kind: TypeKind::Scalar(scalar) }
    }

    #[test]
    fn a_whole_number_keeps_every_digit_and_a_fraction_is_refused() {
        let int8 = scalar(Scalar::Int8, "int8");
        assert_eq!(encode(&json!(9_007_199_254_740_993_i64), &int8), Ok(Some("9007199254740993".into())));
        assert_eq!(encode(&serde_json::from_str("7.0").unwrap(), &int8), Ok(Some("7".into())));
        let error = encode(&json!(1.5), &int8).unwrap_err().to_string();
        assert_eq!(error, "is int8 here and takes a whole number, not the number 1.5");
    }

    /// I-2
    #[test]
    fn a_number_that_a_client_may_have_changed_is_refused_and_its_digits_are_taken() {
        let int8 = Arc::new(scalar(Scalar::Int8, "int8"));
        let numeric = Arc::new(scalar(Scalar::Numeric, "numeric"));
        let many = TypeKind::Array { element: Arc::clone(&int8), delimiter: ',' };
        let many = Arc::new(PgType { oid: 0, name: "int8[]".into(), kind: many });
        for (json, ty, is_taken) in [
            ("9007199254740991", &int8, true),
            ("9007199254740993", &int8, false),
            ("9007199254740993.0", &int8, false),
            (r#""9007199254740993""#, &int8, true),
            ("123456789012.345", &numeric, true),
            ("0.1234567890123456", &numeric, false),
            (r#""0.1234567890123456""#, &numeric, true),
            ("[1, [9007199254740993]]", &many, false),
            (r#"["9007199254740993"]"#, &many, true),
        ] {
            let encoded = encode_all(&[serde_json::from_str(json).unwrap()], &[Arc::clone(ty)]);
            assert_eq!(encoded.is_ok(), is_taken, "{json}: {encoded:?}");
        }
    }

    #[test]
    fn arrays_rows_and_json_find_their_text_form() {
        let text = Arc::new(scalar(Scalar::Text, "text"));
        let texts =
            PgType { oid: 0, name: "text[]".into(), kind: TypeKind::Array { element: text.clone(), delimiter: ',' } };
        assert_eq!(encode(&json!(["a,b", null, "\"q\""]), &texts), Ok(Some(r#"{"a,b",NULL,"\"q\""}"#.into())));
        assert_eq!(encode(&json!([["a"], ["b"]]), &texts), Ok(Some(r#"{{"a"},{"b"}}"#.into())));
        let domain = PgType { oid: 0, name: "texts".into(), kind: TypeKind::Domain(Arc::new(texts.clone())) };
        let many = TypeKind::Array { element: Arc::new(domain), delimiter: ',' };
        let many = PgType { oid: 0, name: "texts[]".into(), kind: many };
        assert_eq!(encode(&json!([["a"], []]), &many), Ok(Some(r#"{"{\"a\"}","{}"}"#.into())));
        let error = encode(&json!(["a", 5]), &texts).unwrap_err().to_string();
        assert_eq!(error, "has an element that is text here and takes a string, not the number 5");
        let vector = scalar(Scalar::Vector, "oidvector");
        assert_eq!(encode(&json!([1, "26"]), &vector), Ok(Some("1 26".into())));
        assert!(encode(&json!([1, "2 6"]), &vector).is_err());
        let field = |name: &str| CompositeField { name: name.into(), ty: text.clone() };
        let row = PgType { oid: 0, name: "pair".into(), kind: TypeKind::Composite(vec![field("a"), field("b")]) };
        assert_eq!(encode(&json!({"b": "x"}), &row), Ok(Some(r#"(,"x")"#.into())));
        assert!(encode(&json!({"c": 1}), &row).unwrap_err().to_string().contains("no \"c\", only a, b"));
        let jsonb = scalar(Scalar::Json, "jsonb");
        assert_eq!(encode(&json!("plain"), &jsonb), Ok(Some("\"plain\"".into())));
    }

    #[test]
    fn nul_is_refused_before_it_reaches_the_database() {
        assert!(encode(&json!("a\0b"), &scalar(Scalar::Text, "text")).is_err());
        assert!(encode(&json!({"k": ["\0"]}), &scalar(Scalar::Json, "jsonb")).is_err());
    }
}
