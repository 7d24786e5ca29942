//! Writes rows as JSON text, one at a time.
//!
//! A row is kept as the text that will be sent, never as a tree of values: for 210,000 values of one digit each, the
//! text takes 2 MB and the tree 50 MB.

use std::io;

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::DataRowBody;
use serde::ser::{Serialize, Serializer};
use serde_json::Value;
use types::{Column, Mask, MaskKey, PgType, RowFormat, Scalar, TypeKind};

use crate::client::error::{Error, utf8};
use crate::client::wire::row_texts;
use crate::query::value;

/// The bytes of an answer's limit that each value counts as. During the conversion of its row, a value takes a
/// hundred bytes of memory, however short its text is.
const BYTES_A_VALUE: usize = 8;

/// The mask of each column of a result, `None` for most.
#[derive(Debug, Clone)]
pub(crate) struct ColumnMasks {
    pub(crate) columns: Vec<Option<Mask>>,
    pub(crate) key: MaskKey,
}

/// Writes rows as JSON. Column names are escaped once.
#[derive(Debug)]
pub(crate) struct RowWriter {
    columns: Vec<Column>,
    /// The text before each value: for an object `{"id":`, then `,"text":`; for an array `[`, then `,`.
    before_values: Vec<Vec<u8>>,
    /// The text after the last value, or the whole row if it has no columns.
    end: &'static [u8],
    masks: Option<ColumnMasks>,
    has_nested: bool,
}

impl RowWriter {
    pub(crate) fn new(columns: Vec<Column>, format: RowFormat) -> Self {
        let before_value = |(index, column): (usize, &Column)| match (format, index) {
            (RowFormat::Object, 0) => format!("{{{}:", Value::from(column.name.as_str())).into_bytes(),
            (RowFormat::Object, _) => format!(",{}:", Value::from(column.name.as_str())).into_bytes(),
            (RowFormat::Array, 0) => b"[".to_vec(),
            (RowFormat::Array, _) => b",".to_vec(),
        };
        let end: &[u8] = match (format, columns.is_empty()) {
            (RowFormat::Object, false) => b"}",
            (RowFormat::Object, true) => b"{}",
            (RowFormat::Array, false) => b"]",
            (RowFormat::Array, true) => b"[]",
        };
        Self {
            before_values: columns.iter().enumerate().map(before_value).collect(),
            end,
            masks: None,
            has_nested: columns.iter().any(|column| is_nested(&column.ty.kind)),
            columns,
        }
    }

    /// Masks values before they are written.
    pub(crate) fn with_masks(self, masks: Option<ColumnMasks>) -> Self {
        Self { masks, ..self }
    }

    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The columns, and their masks if the writer has any.
    pub(crate) fn into_columns(self) -> (Vec<Column>, Option<ColumnMasks>) {
        (self.columns, self.masks)
    }

    /// Appends a row, as it arrives in PostgreSQL's text form, to `out`.
    ///
    /// # Errors
    /// [`Error::TooManyValues`] for a row with more values than `max_bytes` allows.
    pub(crate) fn write(&self, out: &mut Vec<u8>, body: &DataRowBody, max_bytes: usize) -> Result<(), Error> {
        if self.has_nested {
            check_size(&row_texts(body)?, &self.columns, max_bytes)?;
        }
        let mut cells = body.ranges();
        self.write_values_with(out, |out, column, mask| {
            let text = cells.next()?.flatten().map(|range| utf8(body.buffer().get(range).unwrap_or_default()));
            self.write_text(out, text.transpose()?, column, mask)
        })
    }

    /// Appends a row that is split into texts.
    pub(crate) fn write_texts<T: AsRef<str>>(
        &self,
        out: &mut Vec<u8>,
        row: &[Option<T>],
        max_bytes: usize,
    ) -> Result<(), Error> {
        if self.has_nested {
            check_size(row, &self.columns, max_bytes)?;
        }
        let mut cells = row.iter();
        self.write_values_with(out, |out, column, mask| {
            let text = cells.next().and_then(Option::as_ref).map(AsRef::as_ref);
            self.write_text(out, text, column, mask)
        })
    }

    pub(crate) fn write_values(&self, out: &mut Vec<u8>, row: &[Value]) -> Result<(), Error> {
        let mut cells = row.iter();
        self.write_values_with(out, |out, _, mask| match (cells.next(), mask) {
            (Some(value), Some((mask, key))) => write_json(out, &key.masked_json(mask, value)),
            (value, _) => write_json(out, &value),
        })
    }

    fn write_text(
        &self,
        out: &mut Vec<u8>,
        text: Option<&str>,
        column: &Column,
        mask: Option<(Mask, &MaskKey)>,
    ) -> Result<(), Error> {
        match mask {
            None => write_json(out, &Cell { text, ty: &column.ty }),
            Some((mask, key)) => write_json(out, &text.and_then(|text| key.masked(mask, text))),
        }
    }

    /// Appends a row whose values `write` appends.
    fn write_values_with(
        &self,
        out: &mut Vec<u8>,
        mut write: impl FnMut(&mut Vec<u8>, &Column, Option<(Mask, &MaskKey)>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for (index, (before, column)) in self.before_values.iter().zip(&self.columns).enumerate() {
            out.extend_from_slice(before);
            let mask = self.masks.as_ref().and_then(|masks| Some(((*masks.columns.get(index)?)?, &masks.key)));
            write(out, column, mask)?;
        }
        out.extend_from_slice(self.end);
        Ok(())
    }
}

fn write_json(out: &mut Vec<u8>, value: &impl Serialize) -> Result<(), Error> {
    Ok(serde_json::to_writer(out, value).map_err(io::Error::other)?)
}

/// Whether a row in text form may be converted. Refuses rows with too many values, at any depth.
fn check_size<T: AsRef<str>>(row: &[Option<T>], columns: &[Column], max_bytes: usize) -> Result<(), Error> {
    let limit = max_bytes / BYTES_A_VALUE;
    let nested = row.iter().zip(columns).filter(|(_, column)| is_nested(&column.ty.kind));
    let count: usize = nested.filter_map(|(cell, _)| cell.as_ref()).map(|text| values_in(text.as_ref())).sum();
    if count > limit { Err(Error::TooManyValues { limit }) } else { Ok(()) }
}

fn is_nested(kind: &TypeKind) -> bool {
    match kind {
        TypeKind::Scalar(scalar) => *scalar == Scalar::Json,
        TypeKind::Enum(_) => false,
        TypeKind::Domain(base) => is_nested(&base.kind),
        TypeKind::Array { .. } | TypeKind::Composite(_) => true,
    }
}

/// An upper bound of the number of values in the text of an array, a composite or JSON. An object counts as several
/// values, since its index takes memory too.
fn values_in(text: &str) -> usize {
    let weight = |byte| match byte {
        b'{' => 4,
        b',' | b';' | b'[' | b'(' => 1,
        _ => 0,
    };
    text.bytes().map(weight).sum()
}

/// One value in text form. Most types are written directly from text to text, without an intermediate value.
struct Cell<'a> {
    text: Option<&'a str>,
    ty: &'a PgType,
}

impl Serialize for Cell<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(text) = self.text else { return serializer.serialize_none() };
        match &self.ty.kind {
            TypeKind::Scalar(Scalar::Text | Scalar::Uuid | Scalar::Date) | TypeKind::Enum(_) => {
                serializer.serialize_str(text)
            }
            TypeKind::Scalar(Scalar::Int2 | Scalar::Int4 | Scalar::Int8) => match text.parse::<i64>() {
                Ok(number) => serializer.serialize_i64(number),
                Err(_) => serializer.serialize_str(text),
            },
            _ => value::decode(Some(text), self.ty).serialize(serializer),
        }
    }
}
