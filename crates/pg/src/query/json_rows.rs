//! Rows as JSON text, one at a time.
//!
//! A row is kept as the text that will be sent, never as a tree of values: of 210,000 cells with one digit each the text
//! takes 2 MB and the tree 50 MB. And it is the text that is bounded: with a name of 63 bytes before each cell, rows of
//! 1 MiB as PostgreSQL sends them are 14 MiB of JSON, more than clients take in one message.

use std::io;

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::DataRowBody;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use types::{Column, Mask, MaskKey, PgType, RowFormat, Scalar, TypeKind};

use crate::client::error::{Error, utf8};
use crate::client::wire::row_texts;
use crate::query::value;

/// A value takes a hundred bytes while its row is converted, however short its text is: so each counts as many of the
/// bytes that an answer may have.
const BYTES_A_VALUE: usize = 8;

/// The mask of each column of a result, `None` for most.
#[derive(Debug, Clone)]
pub(crate) struct ColumnMasks {
    pub(crate) columns: Vec<Option<Mask>>,
    pub(crate) key: MaskKey,
}

/// Rows that are ready to be sent.
#[derive(Debug)]
pub(crate) struct JsonRows {
    format: RowFormat,
    max_bytes: usize,
    bytes: usize,
    rows: Vec<Box<RawValue>>,
    masks: Option<ColumnMasks>,
}

impl JsonRows {
    /// `max_bytes` of JSON text at the most.
    pub(crate) fn new(format: RowFormat, max_bytes: usize) -> Self {
        Self { format, max_bytes, bytes: 0, rows: Vec::new(), masks: None }
    }

    /// Rows whose values are masked before they are kept.
    pub(crate) fn with_masks(self, masks: Option<ColumnMasks>) -> Self {
        Self { masks, ..self }
    }

    /// The mask of each column; empty if there are no masks.
    pub(crate) fn masks(&self) -> Vec<Option<Mask>> {
        self.masks.as_ref().map(|masks| masks.columns.clone()).unwrap_or_default()
    }

    /// Takes one row as it arrives, in PostgreSQL's text form. Returns `false` if it does not fit after the earlier
    /// ones.
    ///
    /// # Errors
    /// [`Error::MessageTooLarge`] or [`Error::TooManyValues`] for a row that is too large alone.
    pub(crate) fn take(&mut self, body: &DataRowBody, columns: &[Column]) -> Result<bool, Error> {
        self.take_texts(&row_texts(body)?, columns)
    }

    /// Takes a row that is split into texts.
    ///
    /// # Errors
    /// As [`JsonRows::take`].
    pub(crate) fn take_texts<T: AsRef<str>>(&mut self, row: &[Option<T>], columns: &[Column]) -> Result<bool, Error> {
        check_size(row, columns, self.max_bytes)?;
        match &self.masks {
            None => self.push(cells(row, columns), columns),
            Some(masks) => {
                let row: Vec<MaskedCell<'_>> = masks.cells(cells(row, columns)).collect();
                self.push(row.iter(), columns)
            }
        }
    }

    /// Takes a row of JSON values.
    ///
    /// # Errors
    /// As [`JsonRows::take`].
    pub(crate) fn take_values(&mut self, row: Vec<Value>, columns: &[Column]) -> Result<bool, Error> {
        let row = match &self.masks {
            None => row,
            Some(masks) => masks.values(row),
        };
        self.push(row.iter(), columns)
    }

    fn push<C: Serialize>(
        &mut self,
        cells: impl ExactSizeIterator<Item = C> + Clone,
        columns: &[Column],
    ) -> Result<bool, Error> {
        let row = to_raw_value(&Row { format: self.format, cells, columns }).map_err(io::Error::other)?;
        let size = row.get().len();
        self.bytes += size;
        if self.bytes <= self.max_bytes {
            self.rows.push(row);
            return Ok(true);
        }
        if self.rows.is_empty() {
            return Err(Error::MessageTooLarge { size, limit: self.max_bytes });
        }
        Ok(false)
    }

    /// The rows that were taken.
    pub(crate) fn into_rows(self) -> Vec<Box<RawValue>> {
        self.rows
    }
}

impl ColumnMasks {
    fn cells<'a>(&self, cells: impl Iterator<Item = Cell<'a>>) -> impl Iterator<Item = MaskedCell<'a>> {
        cells.zip(self.columns.iter().copied().chain(std::iter::repeat(None))).map(|(cell, mask)| match mask {
            None => MaskedCell::Plain(cell),
            Some(mask) => MaskedCell::Masked(cell.text.and_then(|text| self.key.masked(mask, text))),
        })
    }

    fn values(&self, row: Vec<Value>) -> Vec<Value> {
        let masks = self.columns.iter().copied().chain(std::iter::repeat(None));
        let masked = |(value, mask): (Value, Option<Mask>)| match mask {
            None => value,
            Some(mask) => self.key.masked_json(mask, &value),
        };
        row.into_iter().zip(masks).map(masked).collect()
    }
}

/// A value, or what is in place of a masked one.
enum MaskedCell<'a> {
    Plain(Cell<'a>),
    Masked(Option<String>),
}

impl Serialize for MaskedCell<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Plain(cell) => cell.serialize(serializer),
            Self::Masked(text) => text.serialize(serializer),
        }
    }
}

fn cells<'a, T: AsRef<str>>(
    row: &'a [Option<T>],
    columns: &'a [Column],
) -> impl ExactSizeIterator<Item = Cell<'a>> + Clone {
    row.iter().zip(columns).map(|(text, column)| Cell { text: text.as_ref().map(AsRef::as_ref), ty: &column.ty })
}

/// Writes rows as JSON objects, one after the other. The names of their columns are escaped once.
#[derive(Debug)]
pub(crate) struct RowWriter {
    columns: Vec<Column>,
    /// The text before each value: `{"id":`, then `,"text":`.
    keys: Vec<Vec<u8>>,
    has_nested: bool,
}

impl RowWriter {
    pub(crate) fn new(columns: &[Column]) -> serde_json::Result<Self> {
        let key = |(index, column): (usize, &Column)| {
            let mut key = vec![if index == 0 { b'{' } else { b',' }];
            serde_json::to_writer(&mut key, &column.name)?;
            key.push(b':');
            Ok(key)
        };
        let keys = columns.iter().enumerate().map(key).collect::<serde_json::Result<_>>()?;
        let has_nested = columns.iter().any(|column| is_nested(&column.ty.kind));
        Ok(Self { columns: columns.to_vec(), keys, has_nested })
    }

    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Appends a row, as it arrives in PostgreSQL's text form, to `out`.
    ///
    /// # Errors
    /// [`Error::TooManyValues`], see [`check_size`].
    pub(crate) fn write(&self, out: &mut Vec<u8>, body: &DataRowBody, max_bytes: usize) -> Result<(), Error> {
        if self.has_nested {
            check_size(&row_texts(body)?, &self.columns, max_bytes)?;
        }
        let mut cells = body.ranges();
        self.write_cells(out, |out, column| {
            let text = cells.next()?.flatten().map(|range| utf8(body.buffer().get(range).unwrap_or_default()));
            let text = text.transpose()?;
            Ok(serde_json::to_writer(out, &Cell { text, ty: &column.ty }).map_err(io::Error::other)?)
        })
    }

    /// Appends a row of JSON values to `out`.
    pub(crate) fn write_values(&self, out: &mut Vec<u8>, row: &[Value]) -> Result<(), Error> {
        let mut cells = row.iter();
        self.write_cells(out, |out, _| Ok(serde_json::to_writer(out, &cells.next()).map_err(io::Error::other)?))
    }

    fn write_cells(
        &self,
        out: &mut Vec<u8>,
        mut write: impl FnMut(&mut Vec<u8>, &Column) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for (key, column) in self.keys.iter().zip(&self.columns) {
            out.extend_from_slice(key);
            write(out, column)?;
        }
        out.extend_from_slice(if self.keys.is_empty() { b"{}" } else { b"}" });
        Ok(())
    }
}

/// Whether a row in text form may be converted: not if it is made of too many values, at any depth.
///
/// # Errors
/// [`Error::TooManyValues`].
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

/// At least as many as there are values in the text of an array, a composite or JSON. An object counts as several, since
/// its index takes room as well.
fn values_in(text: &str) -> usize {
    let weight = |byte| match byte {
        b'{' => 4,
        b',' | b';' | b'[' | b'(' => 1,
        _ => 0,
    };
    text.bytes().map(weight).sum()
}

/// One value in text form. What it is made of is not kept: most types go straight from text to text.
#[derive(Clone)]
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

struct Row<'a, I> {
    format: RowFormat,
    cells: I,
    columns: &'a [Column],
}

impl<C: Serialize, I: ExactSizeIterator<Item = C> + Clone> Serialize for Row<'_, I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.format {
            RowFormat::Array => serializer.collect_seq(self.cells.clone()),
            RowFormat::Object => {
                let mut row = serializer.serialize_map(Some(self.cells.len()))?;
                for (column, cell) in self.columns.iter().zip(self.cells.clone()) {
                    row.serialize_entry(&column.name, &cell)?;
                }
                row.end()
            }
        }
    }
}
