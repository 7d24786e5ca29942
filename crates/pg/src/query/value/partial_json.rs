//! Values that have parts which the server must still convert to JSON.
//!
//! This concerns two kinds of types. For some types, only a cast to `json` determines the JSON (`hstore`). And the
//! text of an anonymous record does not contain the types of its fields, while its binary form does (`record_send`:
//! each field's type oid and value in binary form).
//!
//! A draft has all other parts converted, and lists the [`Unresolved`] parts in order.

use bytes::{Buf, Bytes};
use postgres_types::Type;
use serde_json::{Map, Value};
use types::{PgType, Scalar, TypeKind};

use super::decode::{MAX_DEPTH, decode, json_text};

/// The JSON of a value, except for some parts.
#[derive(Debug)]
pub(crate) enum PartialJson {
    Done(Value),
    /// The next unresolved part.
    Unresolved,
    Array(Vec<PartialJson>),
    Object(Vec<(String, PartialJson)>),
}

/// A value that the server must convert to JSON.
#[derive(Debug)]
pub(crate) struct Unresolved {
    pub(crate) type_oid: u32,
    /// The form of `bytes`: 0 is text, 1 is binary.
    pub(crate) format: i16,
    pub(crate) bytes: Bytes,
}

/// The reason why a binary value was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BinaryDecodeError {
    /// The bytes do not have the format of PostgreSQL's send functions.
    Malformed,
    /// Records are nested deeper than JSON parsers accept.
    TooDeep,
}

/// PostgreSQL's own limit (`MAXDIM`).
const MAX_DIMENSIONS: usize = 6;

/// The draft of a value in text form. Values with a cast to json become leaves.
pub(crate) fn draft_text(text: Option<&str>, ty: &PgType, leaves: &mut Vec<Unresolved>) -> PartialJson {
    part(decode(text, ty), ty, leaves)
}

fn part(value: Value, ty: &PgType, leaves: &mut Vec<Unresolved>) -> PartialJson {
    if !ty.contains(Scalar::JsonCast) {
        return PartialJson::Done(value);
    }
    let base = ty.base();
    match (value, &base.kind) {
        (Value::String(text), TypeKind::Scalar(Scalar::JsonCast)) => {
            leaves.push(Unresolved { type_oid: base.oid, format: 0, bytes: text.into() });
            PartialJson::Unresolved
        }
        (Value::Array(items), TypeKind::Array { element, .. }) => {
            let elements = items.into_iter().map(|item| match item {
                // The item is a further dimension, unless the elements are arrays themselves (a domain may be one).
                item @ Value::Array(_) if !matches!(element.base().kind, TypeKind::Array { .. }) => {
                    part(item, base, leaves)
                }
                item => part(item, element, leaves),
            });
            PartialJson::Array(elements.collect())
        }
        (Value::Object(object), TypeKind::Composite(fields)) => {
            let fields = object.into_iter().zip(fields);
            PartialJson::Object(fields.map(|((name, value), field)| (name, part(value, &field.ty, leaves))).collect())
        }
        // NULL, or a text that is not valid for its type.
        (value, _) => PartialJson::Done(value),
    }
}

/// The draft of a value in binary form; `None` is SQL NULL.
pub(crate) fn draft_binary(
    bytes: Option<Bytes>,
    type_oid: u32,
    leaves: &mut Vec<Unresolved>,
) -> Result<PartialJson, BinaryDecodeError> {
    draft(bytes, type_oid, 0, leaves)
}

fn draft(
    bytes: Option<Bytes>,
    type_oid: u32,
    depth: usize,
    leaves: &mut Vec<Unresolved>,
) -> Result<PartialJson, BinaryDecodeError> {
    let Some(bytes) = bytes else { return Ok(PartialJson::Done(Value::Null)) };
    let room = MAX_DEPTH.checked_sub(depth).ok_or(BinaryDecodeError::TooDeep)?;
    let known = Type::from_oid(type_oid);
    let text = || str::from_utf8(&bytes).map(str::to_owned).map_err(malformed);
    Ok(match known {
        Some(Type::RECORD) => record(bytes, depth, leaves)?,
        // PostgreSQL sends empty vectors and tsqueries, but does not accept them in binary form (`int2vectorrecv`,
        // `tsqueryrecv`). So the server is not asked.
        Some(
            Type::RECORD_ARRAY | Type::ANYARRAY | Type::INT2_VECTOR | Type::OID_VECTOR | Type::INT2_VECTOR_ARRAY
            | Type::OID_VECTOR_ARRAY | Type::TSQUERY_ARRAY,
        ) => array(bytes, depth, leaves)?,
        Some(Type::TSQUERY) if bytes.iter().all(|byte| *byte == 0) => PartialJson::Done(Value::from("")),
        // The binary form of these types is their text. `unknown`, `cstring` and `void` are not possible types of
        // parameters.
        Some(
            Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN | Type::CSTRING | Type::VOID
            // The input functions of these types accept no value.
            | Type::PG_NODE_TREE,
        ) => PartialJson::Done(Value::from(text()?)),
        Some(ty @ (Type::BOOL | Type::INT2 | Type::INT4 | Type::INT8 | Type::JSON | Type::JSONB)) => {
            PartialJson::Done(scalar(&ty, bytes, room)?)
        }
        _ => {
            leaves.push(Unresolved { type_oid, format: 1, bytes });
            PartialJson::Unresolved
        }
    })
}

/// Decodes most types of fields without a round trip.
fn scalar(ty: &Type, mut bytes: Bytes, room: usize) -> Result<Value, BinaryDecodeError> {
    let number = match *ty {
        Type::BOOL => return Ok(Value::Bool(bytes.try_get_u8().map_err(malformed)? != 0)),
        Type::INT2 => bytes.try_get_i16().map_err(malformed)?.into(),
        Type::INT4 => bytes.try_get_i32().map_err(malformed)?.into(),
        Type::INT8 => bytes.try_get_i64().map_err(malformed)?,
        _ => {
            // The version of jsonb's binary form. The text follows.
            if *ty == Type::JSONB && bytes.try_get_u8().map_err(malformed)? != 1 {
                return Err(BinaryDecodeError::Malformed);
            }
            return Ok(json_text(str::from_utf8(&bytes).map_err(malformed)?, room));
        }
    };
    Ok(Value::from(number))
}

fn record(mut bytes: Bytes, depth: usize, leaves: &mut Vec<Unresolved>) -> Result<PartialJson, BinaryDecodeError> {
    let count = bytes.try_get_u32().map_err(malformed)?;
    let mut fields = Vec::new();
    // Each iteration consumes bytes or fails. So a wrong count ends the loop early, and no memory is reserved for it.
    for number in 1..=count {
        let type_oid = bytes.try_get_u32().map_err(malformed)?;
        let field = draft(counted(&mut bytes)?, type_oid, depth + 1, leaves)?;
        // `row(..)` names its fields like this. Names from a subquery are not transmitted.
        fields.push((format!("f{number}"), field));
    }
    Ok(PartialJson::Object(fields))
}

fn array(mut bytes: Bytes, depth: usize, leaves: &mut Vec<Unresolved>) -> Result<PartialJson, BinaryDecodeError> {
    let dimensions = bytes.try_get_u32().map_err(malformed)? as usize;
    let _has_nulls = bytes.try_get_u32().map_err(malformed)?;
    let element = bytes.try_get_u32().map_err(malformed)?;
    if dimensions > MAX_DIMENSIONS {
        return Err(BinaryDecodeError::Malformed);
    }
    let mut lengths = Vec::with_capacity(dimensions);
    for _ in 0..dimensions {
        lengths.push(bytes.try_get_u32().map_err(malformed)?);
        let _lower_bound = bytes.try_get_u32().map_err(malformed)?;
    }
    // There are no dimensions, or one of them is empty.
    if lengths.iter().copied().min().unwrap_or_default() == 0 {
        return Ok(PartialJson::Array(Vec::new()));
    }
    elements(&mut bytes, &lengths, element, depth, leaves)
}

fn elements(
    bytes: &mut Bytes,
    lengths: &[u32],
    element: u32,
    depth: usize,
    leaves: &mut Vec<Unresolved>,
) -> Result<PartialJson, BinaryDecodeError> {
    let Some((length, inner)) = lengths.split_first() else {
        return draft(counted(bytes)?, element, depth + 1, leaves);
    };
    let mut items = Vec::new();
    // Each iteration consumes bytes or fails.
    for _ in 0..*length {
        items.push(elements(bytes, inner, element, depth, leaves)?);
    }
    Ok(PartialJson::Array(items))
}

/// A value with its length before it; -1 is NULL.
fn counted(bytes: &mut Bytes) -> Result<Option<Bytes>, BinaryDecodeError> {
    let length = bytes.try_get_i32().map_err(malformed)?;
    if length == -1 {
        return Ok(None);
    }
    let length =
        usize::try_from(length).ok().filter(|length| *length <= bytes.len()).ok_or(BinaryDecodeError::Malformed)?;
    Ok(Some(bytes.split_to(length)))
}

fn malformed<E>(_: E) -> BinaryDecodeError {
    BinaryDecodeError::Malformed
}

impl PartialJson {
    /// The value, with the server's JSON in place of its leaves; `None` if there are too few leaves.
    pub(crate) fn fill(self, leaves: &mut impl Iterator<Item = String>) -> Option<Value> {
        self.fill_in(leaves, MAX_DEPTH)
    }

    fn fill_in(self, leaves: &mut impl Iterator<Item = String>, room: usize) -> Option<Value> {
        let inner = room.saturating_sub(1);
        Some(match self {
            Self::Done(value) => value,
            Self::Unresolved => json_text(&leaves.next()?, room),
            Self::Array(items) => {
                items.into_iter().map(|item| item.fill_in(leaves, inner)).collect::<Option<Vec<_>>>()?.into()
            }
            Self::Object(fields) => {
                let filled = fields.into_iter().map(|(name, field)| Some((name, field.fill_in(leaves, inner)?)));
                filled.collect::<Option<Map<_, _>>>()?.into()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A field of a record, as `record_send` writes it.
    fn field(type_oid: u32, value: Option<&[u8]>) -> Vec<u8> {
        let mut bytes = type_oid.to_be_bytes().to_vec();
        bytes.extend(value.map_or(-1, |value| i32::try_from(value.len()).unwrap()).to_be_bytes());
        bytes.extend(value.unwrap_or_default());
        bytes
    }

    fn record_of(fields: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = u32::try_from(fields.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend(fields.concat());
        bytes
    }

    fn read(bytes: Vec<u8>) -> (Result<PartialJson, BinaryDecodeError>, Vec<Unresolved>) {
        let mut leaves = Vec::new();
        (draft_binary(Some(bytes.into()), Type::RECORD.oid(), &mut leaves), leaves)
    }

    #[test]
    fn a_record_has_its_fields_in_place_and_waits_for_those_that_only_the_server_knows() {
        let inner = record_of(&[field(25, Some("é".as_bytes())), field(1082, Some(&[0, 0, 0, 1]))]);
        let outer = record_of(&[field(23, Some(&[0, 0, 0, 7])), field(2249, Some(&inner)), field(16, None)]);
        let (draft, leaves) = read(outer);
        assert_eq!(leaves.iter().map(|leaf| (leaf.type_oid, leaf.format)).collect::<Vec<_>>(), [(1082, 1)]);
        let value = draft.unwrap().fill(&mut ["\"2000-01-02\"".to_owned()].into_iter());
        assert_eq!(value, Some(json!({"f1": 7, "f2": {"f1": "é", "f2": "2000-01-02"}, "f3": null})));
    }

    #[test]
    fn records_that_nest_without_end_are_refused() {
        let mut bytes = record_of(&[]);
        for _ in 0..1000 {
            bytes = record_of(&[field(2249, Some(&bytes))]);
        }
        assert_eq!(read(bytes).0.unwrap_err(), BinaryDecodeError::TooDeep);
    }

    #[test]
    fn a_value_that_lies_about_its_length_is_refused() {
        let whole = record_of(&[field(25, Some(b"abc"))]);
        for length in 0..whole.len() {
            assert_eq!(read(whole[..length].to_vec()).0.unwrap_err(), BinaryDecodeError::Malformed, "{length}");
        }
        // An array of 2^32 - 1 times nothing, and of as many times no elements.
        let array = |words: &[u32]| {
            let bytes = words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
            draft_binary(Some(bytes.into()), Type::RECORD_ARRAY.oid(), &mut Vec::new())
        };
        assert_eq!(array(&[1, 0, 2249, u32::MAX, 1]).unwrap_err(), BinaryDecodeError::Malformed);
        assert!(
            matches!(array(&[2, 0, 2249, u32::MAX, 1, 0, 1, 7]), Ok(PartialJson::Array(items)) if items.is_empty())
        );
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>, oid in proptest::sample::select(vec![2249_u32, 2287, 2277])) {
            let _ = draft_binary(Some(bytes.into()), oid, &mut Vec::new());
        }

        #[test]
        fn nor_do_records_with_broken_insides(
            fields in proptest::collection::vec((proptest::sample::select(vec![16_u32, 20, 21, 23, 25, 114, 2249, 2287, 3802]),
                proptest::option::of(proptest::collection::vec(proptest::num::u8::ANY, 0..40))), 0..6),
        ) {
            let fields: Vec<Vec<u8>> = fields.iter().map(|(oid, bytes)| field(*oid, bytes.as_deref())).collect();
            let _ = read(record_of(&fields));
        }
    }
}
