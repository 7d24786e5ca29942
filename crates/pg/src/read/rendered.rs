//! Rows as JSON text, one at a time.
//!
//! A row is kept as the text that will be sent, never as a tree of values: of 210,000 cells with one digit each the text
//! takes 2 MB and the tree 50 MB. And it is the text that is bounded: with a name of 63 bytes before each cell, rows of
//! 1 MiB as PostgreSQL sends them are 14 MiB of JSON, more than clients take in one message.

use contract::{Column, Scalar, TypeKind};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::ResultSet;
use crate::error::Error;
use crate::value;

/// What a row looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowForm {
    /// An object by column name.
    Object,
    /// An array in column order.
    Array,
}

/// A value takes a hundred bytes while its row is converted, however short its text is: so each counts as many of the
/// bytes that an answer may have.
const BYTES_A_VALUE: usize = 8;

/// Rows that are ready to be sent.
#[derive(Debug)]
pub(crate) struct Rendered {
    form: RowForm,
    max_bytes: usize,
    bytes: usize,
    rows: Vec<Box<RawValue>>,
}

impl Rendered {
    /// `max_bytes` of JSON text at the most.
    pub(crate) fn new(form: RowForm, max_bytes: usize) -> Self {
        Self { form, max_bytes, bytes: 0, rows: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Takes one row in PostgreSQL's text form; `false` if it does not fit behind those before it.
    ///
    /// # Errors
    /// [`Error::MessageTooLarge`] or [`Error::TooManyValues`] for a row that is too large alone.
    pub(crate) fn take(&mut self, row: &[Option<String>], columns: &[Column]) -> Result<bool, Error> {
        check_size(row, columns, self.max_bytes)?;
        let cells = row.iter().zip(columns).map(|(text, column)| value::decode(text.as_deref(), &column.ty)).collect();
        let row = to_raw_value(&Row { form: self.form, cells, columns }).map_err(std::io::Error::other)?;
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

    /// An answer of these rows.
    pub(crate) fn finish(self, columns: Vec<Column>, truncated: bool) -> ResultSet {
        ResultSet { columns, rows: self.rows, truncated, room: None }
    }
}

impl ResultSet {
    /// What of these rows fits into `max_bytes` of JSON text.
    #[must_use]
    pub fn fitting(columns: Vec<Column>, rows: &[Vec<Option<String>>], max_bytes: usize, truncated: bool) -> Self {
        let mut rendered = Rendered::new(RowForm::Object, max_bytes);
        let is_whole = rows.iter().all(|row| rendered.take(row, &columns).unwrap_or_default());
        rendered.finish(columns, truncated || !is_whole)
    }
}

/// Whether a row in text form may be converted: not if it is made of too many values, at any depth.
///
/// # Errors
/// [`Error::TooManyValues`].
fn check_size(row: &[Option<String>], columns: &[Column], max_bytes: usize) -> Result<(), Error> {
    let limit = max_bytes / BYTES_A_VALUE;
    let nested = row.iter().zip(columns).filter(|(_, column)| is_nested(&column.ty.kind));
    let count: usize = nested.filter_map(|(cell, _)| cell.as_deref()).map(values_in).sum();
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

struct Row<'a> {
    form: RowForm,
    cells: Vec<Value>,
    columns: &'a [Column],
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.form {
            RowForm::Array => self.cells.serialize(serializer),
            RowForm::Object => {
                let mut row = serializer.serialize_map(Some(self.cells.len()))?;
                for (column, cell) in self.columns.iter().zip(&self.cells) {
                    row.serialize_entry(&column.name, cell)?;
                }
                row.end()
            }
        }
    }
}
