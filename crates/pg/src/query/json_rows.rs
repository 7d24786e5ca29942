//! The rows of a result as JSON text, up to a number of bytes.
//!
//! The limit applies to the JSON text: with a column name of 63 bytes before each value, rows of 1 MiB in
//! PostgreSQL's form become 14 MiB of JSON, more than clients accept in one message.

use postgres_protocol::message::backend::DataRowBody;
use serde::de::DeserializeOwned;
use serde_json::Value;
use types::JsonText;

use crate::client::error::Error;
use crate::query::row_writer::RowWriter;

/// Rows as JSON text: objects by column name, or arrays in column order.
#[derive(Debug, Default)]
pub struct JsonRows {
    /// The rows as a JSON array without its closing bracket: `[` or `,` precedes each row.
    open_array: String,
    /// The end of each row in `open_array`.
    ends: Vec<usize>,
}

impl JsonRows {
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The number of bytes of all rows.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.open_array.len() - self.ends.len()
    }

    /// The text of each row.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// The rows as values of a type.
    pub fn deserialize<T: DeserializeOwned>(&self) -> serde_json::Result<Vec<T>> {
        self.iter().map(serde_json::from_str).collect()
    }

    /// The text of the first row.
    #[must_use]
    pub fn first(&self) -> Option<&str> {
        self.get(0)
    }

    /// The text of the last row.
    #[must_use]
    pub fn last(&self) -> Option<&str> {
        self.get(self.len().checked_sub(1)?)
    }

    fn get(&self, index: usize) -> Option<&str> {
        let start = match index.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        self.open_array.get(start + 1..*self.ends.get(index)?)
    }

    /// The rows as a JSON array.
    #[must_use]
    pub fn into_array(self) -> JsonText {
        let Self { open_array: mut array, ends } = self;
        array.push_str(if ends.is_empty() { "[]" } else { "]" });
        JsonText::from_unchecked(array)
    }
}

/// Collects rows as they arrive.
#[derive(Debug)]
pub(crate) struct JsonRowsBuilder {
    writer: RowWriter,
    max_bytes: usize,
    /// The bytes after which only a first row is taken.
    enough_bytes: usize,
    /// The bytes of the rows so far, including a row that did not fit.
    bytes: usize,
    open_array: Vec<u8>,
    ends: Vec<usize>,
}

impl JsonRowsBuilder {
    /// A builder for at most `max_bytes` of JSON text.
    pub(crate) fn new(writer: RowWriter, max_bytes: usize) -> Self {
        Self { writer, max_bytes, enough_bytes: max_bytes, bytes: 0, open_array: Vec::new(), ends: Vec::new() }
    }

    /// Takes at most `bytes` of JSON text, but a first row up to the limit.
    pub(crate) fn with_enough(self, bytes: usize) -> Self {
        Self { enough_bytes: bytes, ..self }
    }

    /// Appends a row in PostgreSQL's text form, as it arrives. Returns `false` if it does not fit after the earlier
    /// rows.
    ///
    /// # Errors
    /// [`Error::MessageTooLarge`] or [`Error::TooManyValues`] for a row that exceeds the limit on its own.
    pub(crate) fn take(&mut self, body: &DataRowBody) -> Result<bool, Error> {
        let max_bytes = self.max_bytes;
        self.push(|writer, out| writer.write(out, body, max_bytes))
    }

    /// Appends a row that is split into texts.
    pub(crate) fn take_texts<T: AsRef<str>>(&mut self, row: &[Option<T>]) -> Result<bool, Error> {
        let max_bytes = self.max_bytes;
        self.push(|writer, out| writer.write_texts(out, row, max_bytes))
    }

    /// Appends a row of JSON values.
    pub(crate) fn take_values(&mut self, row: &[Value]) -> Result<bool, Error> {
        self.push(|writer, out| writer.write_values(out, row))
    }

    fn push(&mut self, write: impl FnOnce(&RowWriter, &mut Vec<u8>) -> Result<(), Error>) -> Result<bool, Error> {
        let start = self.open_array.len();
        self.open_array.push(if self.ends.is_empty() { b'[' } else { b',' });
        let written = write(&self.writer, &mut self.open_array);
        let size = self.open_array.len() - start - 1;
        self.bytes += size;
        let most = if self.ends.is_empty() { self.max_bytes } else { self.max_bytes.min(self.enough_bytes) };
        if written.is_ok() && self.bytes <= most {
            self.ends.push(self.open_array.len());
            return Ok(true);
        }
        self.open_array.truncate(start);
        written?;
        if self.ends.is_empty() { Err(Error::MessageTooLarge { size, limit: self.max_bytes }) } else { Ok(false) }
    }

    /// The rows, and their writer.
    pub(crate) fn finish(self) -> (JsonRows, RowWriter) {
        // The bytes are UTF-8: texts of PostgreSQL were checked, and serde_json writes only UTF-8.
        let mut open_array = String::from_utf8(self.open_array)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        // Releases the memory of a row that did not fit.
        open_array.shrink_to_fit();
        (JsonRows { open_array, ends: self.ends }, self.writer)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use types::{Column, PgType, RowFormat, Scalar, TypeKind};

    use super::*;

    fn builder(max_bytes: usize) -> JsonRowsBuilder {
        let ty = Arc::new(PgType { oid: 25, name: "text".to_owned(), kind: TypeKind::Scalar(Scalar::Text) });
        let columns = vec![Column { name: "a".to_owned(), ty, not_null: false }];
        JsonRowsBuilder::new(RowWriter::new(columns, RowFormat::Object), max_bytes)
    }

    #[test]
    fn a_row_that_does_not_fit_leaves_no_trace() {
        let mut rows = builder(30);
        assert!(rows.take_texts(&[Some("x")]).unwrap() && rows.take_texts(&[None::<&str>]).unwrap());
        assert!(!rows.take_texts(&[Some("a text that is too long")]).unwrap());
        let (rows, _) = rows.finish();
        let (first, last) = (r#"{"a":"x"}"#, r#"{"a":null}"#);
        assert_eq!((rows.first(), rows.last(), rows.len()), (Some(first), Some(last), 2));
        assert_eq!(rows.bytes(), first.len() + last.len());
        assert_eq!(serde_json::to_string(&rows.into_array()).unwrap(), format!("[{first},{last}]"));
    }

    #[test]
    fn a_first_row_that_does_not_fit_is_an_error() {
        let mut rows = builder(10);
        let refused = rows.take_texts(&[Some("too long")]);
        assert!(matches!(refused, Err(Error::MessageTooLarge { size: 16, limit: 10 })), "{refused:?}");
        assert_eq!(serde_json::to_string(&rows.finish().0.into_array()).unwrap(), "[]");
    }
}
