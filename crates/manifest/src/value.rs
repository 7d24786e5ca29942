//! Whether a JSON value of a manifest is one that a parameter takes, and TOML values as JSON.
//!
//! Only the shape is judged: whether `"2026-13-01"` is a date is PostgreSQL's to say.

use std::cmp::Ordering;

use contract::{PgType, Scalar, TypeKind};
use serde_json::{Map, Number, Value};

use crate::Limits;
use crate::schema::{integer_range, words};

/// Why the value is none of this type; `None` if it is.
pub(crate) fn misfit(value: &Value, ty: &PgType) -> Option<String> {
    let fits = match &ty.kind {
        TypeKind::Domain(base) => return misfit(value, base),
        TypeKind::Scalar(scalar) => fits_scalar(value, *scalar),
        TypeKind::Enum(labels) => {
            let fits = value.as_str().is_some_and(|text| labels.iter().any(|label| label == text));
            return (!fits).then(|| format!("{value} is not one of {}", labels.join(", ")));
        }
        TypeKind::Array { element, .. } => match value {
            Value::Array(items) => return items.iter().find_map(|item| misfit(item, element)),
            _ => false,
        },
        TypeKind::Composite(fields) => match value {
            Value::Object(values) => {
                return values.iter().find_map(|(name, value)| {
                    let Some(field) = fields.iter().find(|field| field.name == *name) else {
                        return Some(format!("{} has no field {name}", ty.name));
                    };
                    misfit(value, &field.ty).map(|why| format!("{name}: {why}"))
                });
            }
            _ => false,
        },
    };
    (!fits).then(|| format!("{value} does not fit {} ({})", ty.name, words(ty)))
}

fn fits_scalar(value: &Value, scalar: Scalar) -> bool {
    match scalar {
        Scalar::Json => true,
        Scalar::Bool => value.is_boolean(),
        Scalar::Float | Scalar::Numeric => value.is_number(),
        Scalar::Int2 | Scalar::Int4 | Scalar::Int8 => {
            let range = integer_range(scalar);
            value
                .as_number()
                .and_then(Number::as_i64)
                .is_some_and(|n| range.is_some_and(|(low, high)| low <= n && n <= high))
        }
        Scalar::Date | Scalar::Timestamp | Scalar::Timestamptz | Scalar::Uuid | Scalar::Vector | Scalar::Text => {
            value.is_string()
        }
    }
}

/// Why the value is outside the limits; `None` if it is within. The pattern is not tried.
pub(crate) fn outside(value: &Value, limits: &Limits) -> Option<String> {
    if let Value::Array(items) = value {
        return items.iter().find_map(|item| outside(item, limits));
    }
    if !limits.one_of.is_empty() && !limits.one_of.contains(value) {
        return Some(format!("{value} is not in the enum"));
    }
    if let Value::Number(number) = value {
        if limits.minimum.as_ref().is_some_and(|minimum| compare(number, minimum) == Some(Ordering::Less)) {
            return Some(format!("{value} is below the minimum"));
        }
        if limits.maximum.as_ref().is_some_and(|maximum| compare(number, maximum) == Some(Ordering::Greater)) {
            return Some(format!("{value} is above the maximum"));
        }
    }
    let length = value.as_str().map(|text| text.chars().count() as u64);
    (length > limits.max_length && limits.max_length.is_some()).then(|| format!("{value} is longer than max_length"))
}

/// Which number is larger. Exact between integers.
pub(crate) fn compare(a: &Number, b: &Number) -> Option<Ordering> {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

/// The type whose values a limit is about: the type below domains, and of an array its element.
pub(crate) fn limited(ty: &PgType) -> &PgType {
    match &ty.base().kind {
        TypeKind::Array { element, .. } => limited(element),
        _ => ty.base(),
    }
}

/// Whether JSON has a number for values of this type.
pub(crate) fn is_number(ty: &PgType) -> bool {
    matches!(
        limited(ty).kind,
        TypeKind::Scalar(Scalar::Int2 | Scalar::Int4 | Scalar::Int8 | Scalar::Float | Scalar::Numeric)
    )
}

/// Whether JSON has free text for values of this type.
pub(crate) fn is_text(ty: &PgType) -> bool {
    matches!(
        limited(ty).kind,
        TypeKind::Scalar(
            Scalar::Text | Scalar::Date | Scalar::Timestamp | Scalar::Timestamptz | Scalar::Uuid | Scalar::Vector
        )
    )
}

/// TOML as JSON: dates and times, and the numbers that JSON lacks, are their text.
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

/// The same for a table.
pub(crate) fn json_object(table: &toml::Table) -> Map<String, Value> {
    table.iter().map(|(key, value)| (key.clone(), json(value))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::schema::examples::{array, composite, domain, enumeration, scalar};

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
            assert_eq!(misfit(&value, &ty), None, "{value} {}", ty.name);
        }
        for (value, ty) in [
            (json!("true"), scalar(Scalar::Bool)),
            (json!(32768), scalar(Scalar::Int2)),
            (json!(1.5), scalar(Scalar::Int4)),
            (json!("1"), scalar(Scalar::Float)),
            (json!(1), scalar(Scalar::Text)),
            (json!("angry"), mood),
            (json!(["a", 1]), array(scalar(Scalar::Text))),
            (json!("a"), array(scalar(Scalar::Text))),
            (json!({"z": 1}), point),
            (json!("x"), domain("positive", scalar(Scalar::Int4))),
        ] {
            assert!(misfit(&value, &ty).is_some(), "{value} {}", ty.name);
        }
    }

    #[test]
    fn a_limit_on_an_array_holds_for_each_element() {
        let limits = Limits { max_length: Some(2), ..Limits::default() };
        assert_eq!(outside(&json!(["ab", "c"]), &limits), None);
        assert!(outside(&json!(["abc"]), &limits).is_some());
        assert!(is_text(&array(Arc::clone(&scalar(Scalar::Text)))));
    }

    #[test]
    fn limits_are_inclusive_and_exact_beyond_53_bits() {
        let limits = Limits { maximum: Some(Number::from(i64::MAX - 1)), ..Limits::default() };
        assert_eq!(outside(&json!(i64::MAX - 1), &limits), None);
        assert!(outside(&json!(i64::MAX), &limits).is_some());
    }

    #[test]
    fn toml_dates_and_infinities_become_text() {
        let table: toml::Table = "day = 2026-01-31\nend = inf\nlist = [1, 2.5]".parse().unwrap();
        assert_eq!(Value::Object(json_object(&table)), json!({"day": "2026-01-31", "end": "inf", "list": [1, 2.5]}));
    }
}
