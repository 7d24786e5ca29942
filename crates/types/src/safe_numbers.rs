//! Numbers that clients would change: JavaScript, and every bridge written in it, reads a JSON number as a double
//! (I-2).
//!
//! A client sent `9007199254740992` for the key `9007199254740993`, and the server changed another row. Fingerprints
//! compare numbers by value: `1`, `1.0` and `1e0` are one amount, which must not be paid twice. Text content has
//! numbers, except for what clients send back: `undo_params`, `undo_calls` and `next.after`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Column, PgType, RowFormat, Scalar, TypeKind};

/// 2^53. A double holds every non-negative integer below it.
const SAFE_END: f64 = 9_007_199_254_740_992.0;

/// Every number of at most this many decimal digits survives a conversion to a double and back.
const SAFE_DIGITS: usize = 15;

/// Whether a double holds this integer exactly.
#[must_use]
pub fn is_safe_integer(number: &str) -> bool {
    number.parse::<f64>().is_ok_and(|double| double.abs() < SAFE_END)
}

/// Whether a double keeps all significant digits of this number.
#[must_use]
pub fn is_safe_decimal(number: &str) -> bool {
    Digits::of(number).significant().len() <= SAFE_DIGITS
}

/// Whether the number is written as an integer, without a point and an exponent.
#[must_use]
pub fn is_plain_integer(number: &str) -> bool {
    !number.contains(['.', 'e', 'E'])
}

/// Arguments for a later call, with numbers as text where a client would change them. JSON documents stay as they
/// are, since text instead of a number would change the document.
#[must_use]
pub fn with_digits_as_text(argument: Value) -> Value {
    match argument {
        Value::Number(number) if !is_kept(&number.to_string(), None) => Value::String(number.to_string()),
        Value::Array(items) if !items.iter().any(Value::is_object) => {
            items.into_iter().map(with_digits_as_text).collect()
        }
        other => other,
    }
}

/// The kind of a field, which decides how its numbers are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum FieldKind {
    /// Inside a JSON document. Numbers are compared by value: `1.10` is the number 1.1.
    Document,
    /// Of type `numeric`. Its numbers are always sent as text, so that all values of a column have the same form.
    Numeric,
}

/// The fields of an answer that contain numbers of type `numeric`, or JSON documents.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberFields {
    /// By name; the name is escaped as in JSON.
    names: BTreeMap<String, FieldKind>,
    /// By position, for rows that are arrays.
    positions: Vec<Option<FieldKind>>,
}

impl NumberFields {
    /// The fields of rows with these columns.
    #[must_use]
    pub fn of_columns<'a>(columns: impl IntoIterator<Item = &'a Column>, format: RowFormat) -> Self {
        let mut fields = Self::default();
        for column in columns {
            match format {
                RowFormat::Object => fields.insert(&column.name, &column.ty),
                RowFormat::Array => fields.positions.push(field_kind(&column.ty)),
            }
        }
        fields
    }

    /// A single field that is a JSON document.
    #[must_use]
    pub fn of_document(name: &str) -> Self {
        let names = BTreeMap::from([(Value::from(name).to_string(), FieldKind::Document)]);
        Self { names, positions: Vec::new() }
    }

    /// Adds a field of this type; for a composite type, its fields.
    pub fn insert(&mut self, name: &str, ty: &PgType) {
        match &ty.base().kind {
            TypeKind::Composite(inner) => inner.iter().for_each(|field| self.insert(&field.name, &field.ty)),
            TypeKind::Array { element, .. } => self.insert(name, element),
            _ => {
                if let Some(kind) = field_kind(ty) {
                    let known = self.names.entry(Value::from(name).to_string()).or_insert(kind);
                    *known = kind.max(*known);
                }
            }
        }
    }

    /// Converts the numbers that a double does not hold to text, and leaves all other bytes unchanged. `json` is the
    /// whole answer of a tool.
    #[must_use]
    pub fn double_safe(&self, json: &str) -> String {
        let mut safe = String::with_capacity(json.len() + json.len() / 16);
        let mut copied = 0;
        let mut scanner = Scanner { json, at: 0, open_containers: Vec::new() };
        while let Some((start, kind)) = scanner.next_number(self) {
            let number = json.get(start..scanner.at).unwrap_or_default();
            if !is_kept(number, kind) {
                safe.push_str(json.get(copied..start).unwrap_or_default());
                safe.extend(["\"", number, "\""]);
                copied = scanner.at;
            }
        }
        safe.push_str(json.get(copied..).unwrap_or_default());
        safe
    }
}

fn field_kind(ty: &PgType) -> Option<FieldKind> {
    match &ty.base().kind {
        TypeKind::Scalar(Scalar::Numeric) => Some(FieldKind::Numeric),
        TypeKind::Scalar(Scalar::Json | Scalar::JsonCast) => Some(FieldKind::Document),
        TypeKind::Array { element, .. } => field_kind(element),
        _ => None,
    }
}

/// Whether a client that reads the number as a double and writes it again keeps its digits.
fn is_kept(number: &str, kind: Option<FieldKind>) -> bool {
    if kind == Some(FieldKind::Numeric) {
        return false;
    }
    if is_plain_integer(number) {
        return is_safe_integer(number);
    }
    let Ok(double) = number.parse::<f64>() else { return false };
    let (given, read) = (Digits::of(number), format!("{double:e}"));
    let read = Digits::of(&read);
    double.is_finite()
        && given.significant() == read.significant()
        && given.exponent == read.exponent
        && (kind.is_some() || given.zeros_at_end() == 0)
}

struct Digits {
    /// All digits from the first nonzero one, without the decimal point.
    text: String,
    /// The power of ten of the first digit.
    exponent: i64,
}

impl Digits {
    fn of(number: &str) -> Self {
        let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let whole = whole.trim_start_matches('-');
        let all = format!("{whole}{fraction}");
        let text = all.trim_start_matches('0').to_owned();
        // Zero has no digits here, whatever its sign and exponent.
        let exponent = if text.is_empty() {
            0
        } else {
            let zeros = all.len() - text.len();
            exponent.trim_start_matches('+').parse::<i64>().unwrap_or(i64::from(i32::MAX)) + whole.len() as i64
                - zeros as i64
        };
        Self { text, exponent }
    }

    fn significant(&self) -> &str {
        self.text.trim_end_matches('0')
    }

    fn zeros_at_end(&self) -> usize {
        self.text.len() - self.significant().len()
    }
}

/// An object or array that is not closed yet.
struct OpenContainer {
    is_array: bool,
    /// The kind of all numbers in it, if it is known.
    kind: Option<FieldKind>,
    /// The kind of the value that the scanner has reached, if it is known.
    next: Option<FieldKind>,
    /// The position in a row that is an array.
    position: Option<usize>,
    expects_key: bool,
}

/// Finds the numbers of a valid JSON text. It does not recurse, so that deep nesting cannot overflow the stack.
struct Scanner<'a> {
    json: &'a str,
    at: usize,
    open_containers: Vec<OpenContainer>,
}

/// The nesting depth of a row: inside the answer, `data` and `rows`.
const AROUND_A_ROW: usize = 3;

impl Scanner<'_> {
    /// The start of the next number, and the kind of its field. The number ends at the scanner's position.
    fn next_number(&mut self, fields: &NumberFields) -> Option<(usize, Option<FieldKind>)> {
        loop {
            let byte = *self.json.as_bytes().get(self.at)?;
            match byte {
                b'"' => self.string(fields),
                b'{' | b'[' => self.enter(byte == b'[', fields),
                b'}' | b']' => {
                    self.open_containers.pop();
                    self.at += 1;
                }
                b',' => self.comma(fields),
                b'-' | b'0'..=b'9' => {
                    let start = self.at;
                    let rest = self.json.get(start..).unwrap_or_default();
                    let end = rest.find(|it: char| !matches!(it, '0'..='9' | '+' | '-' | '.' | 'e' | 'E'));
                    self.at += end.unwrap_or(rest.len());
                    return Some((start, self.open_containers.last().and_then(|container| container.next)));
                }
                _ => self.at += 1,
            }
        }
    }

    fn string(&mut self, fields: &NumberFields) {
        let start = self.at;
        self.at += 1;
        while let Some(byte) = self.json.as_bytes().get(self.at) {
            self.at += if *byte == b'\\' { 2 } else { 1 };
            if *byte == b'"' {
                break;
            }
        }
        let Some(container) = self.open_containers.last_mut().filter(|container| container.expects_key) else { return };
        container.expects_key = false;
        // Names inside a document are not names of fields.
        container.next = match container.kind {
            Some(kind) => Some(kind),
            None => self.json.get(start..self.at).and_then(|name| fields.names.get(name)).copied(),
        };
    }

    fn enter(&mut self, is_array: bool, fields: &NumberFields) {
        let outer = self.open_containers.last();
        let kind = outer.and_then(|container| container.next);
        let is_row =
            is_array && self.open_containers.len() == AROUND_A_ROW && outer.is_some_and(|container| container.is_array);
        let position = (is_row && !fields.positions.is_empty()).then_some(0);
        let next = position.map_or(kind, |position| fields.positions.get(position).copied().flatten());
        self.open_containers.push(OpenContainer { is_array, kind, next, position, expects_key: !is_array });
        self.at += 1;
    }

    fn comma(&mut self, fields: &NumberFields) {
        self.at += 1;
        let Some(container) = self.open_containers.last_mut() else { return };
        container.expects_key = !container.is_array;
        if let Some(position) = &mut container.position {
            *position += 1;
            container.next = fields.positions.get(*position).copied().flatten();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn column(name: &str, scalar: Scalar) -> Column {
        let ty = Arc::new(PgType { oid: 0, name: String::new(), kind: TypeKind::Scalar(scalar) });
        Column { name: name.to_owned(), ty, not_null: false }
    }

    /// I-2: a number that a double does not hold becomes text, and all other bytes stay.
    #[test]
    fn a_number_that_a_double_changes_is_text() {
        let safe = |json: &str| NumberFields::default().double_safe(json);
        for kept in [
            "0",
            "-7",
            "9007199254740991",
            "-9007199254740991",
            "1.5",
            "0.1",
            "0.30000000000000004",
            "1e-7",
            "1E+21",
            "1.7976931348623157e308",
            r#""9007199254740993""#,
            r#"{"9007199254740993":"\"1.10"}"#,
            "[true,null,{}]",
        ] {
            assert_eq!(safe(kept), kept);
        }
        for changed in [
            "9007199254740992",
            "9007199254740993",
            "-9223372036854775808",
            "1.10",
            "1.0",
            "1e400",
            "0.1000000000000000055",
            "12345678901234567890.5",
            "100000000000000000000",
        ] {
            assert_eq!(safe(changed), format!("\"{changed}\""));
            assert_eq!(safe(&format!("[1, {changed} ]")), format!("[1, \"{changed}\" ]"));
        }
    }

    /// I-2: all values of a numeric column have the same form. A document keeps its numbers if a double has their
    /// value.
    #[test]
    fn numeric_is_always_text_and_documents_are_compared_by_value() {
        let columns = [column("price", Scalar::Numeric), column("n", Scalar::Float), column("doc", Scalar::Json)];
        let fields = NumberFields::of_columns(&columns, RowFormat::Object);
        assert_eq!(
            fields
                .double_safe(r#"{"data":{"price":5,"n":1.5,"doc":{"price":1.50,"big":9007199254740993},"x":[1.50]}}"#),
            r#"{"data":{"price":"5","n":1.5,"doc":{"price":1.50,"big":"9007199254740993"},"x":["1.50"]}}"#
        );
        let fields = NumberFields::of_columns(&columns, RowFormat::Array);
        assert_eq!(
            fields.double_safe(r#"{"success":true,"data":{"rows":[[5,1.5,[1.0]],[6,2.5,2]],"row_count":2}}"#),
            r#"{"success":true,"data":{"rows":[["5",1.5,[1.0]],["6",2.5,2]],"row_count":2}}"#
        );
    }

    /// I-2
    #[test]
    fn digits_beyond_the_fifteenth_and_integers_from_2_to_the_53_are_unsafe() {
        for (number, is_safe) in [
            ("1.10", true),
            ("999999999999999", true),
            ("0.000123456789012345", true),
            ("1234567890123456", false),
            ("0.1234567890123456", false),
            ("1e300", true),
            ("-123456789012345.6", false),
        ] {
            assert_eq!(is_safe_decimal(number), is_safe, "{number}");
        }
        for (number, is_safe) in [("9007199254740991", true), ("9007199254740992", false), ("-9007199254740992", false)]
        {
            assert_eq!(is_safe_integer(number), is_safe, "{number}");
        }
    }

    /// I-2: the undo arguments in a receipt work as a call, and a document among them stays the same.
    #[test]
    fn arguments_for_a_later_call_are_text_except_in_documents() {
        let given: Value = serde_json::from_str(
            r#"{"id":9007199254740993,"ids":[1,9007199254740993],"price":1.10,"f":0.30000000000000004}"#,
        )
        .unwrap();
        let given = given.as_object().unwrap().values().cloned().map(with_digits_as_text).collect::<Value>();
        assert_eq!(given.to_string(), r#"["9007199254740993",[1,"9007199254740993"],"1.10",0.30000000000000004]"#);
        let document: Value = serde_json::from_str(r#"{"n":9007199254740993}"#).unwrap();
        assert_eq!(with_digits_as_text(document.clone()), document);
    }
}
