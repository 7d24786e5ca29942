//! Parses rows, their columns and command tags.

use std::io;

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{CommandCompleteBody, DataRowBody, RowDescriptionBody};

use crate::client::error::{Error, utf8};

/// A result column as the server describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldDescription {
    /// The name, not necessarily unique.
    pub name: String,
    /// `pg_type.oid`; of the base type for a domain.
    pub type_oid: u32,
    /// The table column that it shows unchanged, if any, as `pg_class.oid` and `pg_attribute.attnum`.
    pub source: Option<(u32, i16)>,
}

/// The longest command tag that is kept, in bytes. PostgreSQL's tags have less than 64 (`COMPLETION_TAG_BUFSIZE`).
const MAX_TAG_BYTES: usize = 128;

pub(super) fn tag(body: &CommandCompleteBody) -> String {
    let tag = body.tag().unwrap_or_default();
    tag.get(..tag.floor_char_boundary(MAX_TAG_BYTES)).unwrap_or_default().to_owned()
}

pub(super) fn field_descriptions(body: &RowDescriptionBody) -> io::Result<Vec<FieldDescription>> {
    body.fields()
        .map(|field| {
            Ok(FieldDescription {
                name: field.name().to_owned(),
                type_oid: field.type_oid(),
                source: (field.table_oid() != 0).then(|| (field.table_oid(), field.column_id())),
            })
        })
        .collect()
}

/// The values of a row in text form.
///
/// # Errors
/// [`Error::Server`] with SQLSTATE 22021 for a value that is not UTF-8.
pub(crate) fn row_texts(body: &DataRowBody) -> Result<Vec<Option<&str>>, Error> {
    let mut ranges = body.ranges();
    let mut texts = Vec::new();
    while let Some(range) = ranges.next()? {
        texts.push(range.map(|range| utf8(body.buffer().get(range).unwrap_or_default())).transpose()?);
    }
    Ok(texts)
}

/// Like [`row_texts`], but the values outlive the message.
pub(crate) fn owned_row(body: &DataRowBody) -> Result<Vec<Option<String>>, Error> {
    Ok(row_texts(body)?.into_iter().map(|text| text.map(str::to_owned)).collect())
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use postgres_protocol::message::backend::Message;

    use super::*;

    /// M4
    #[test]
    fn a_command_tag_is_cut() {
        let mut message = BytesMut::from(&b"C\0\0\x04\x05"[..]);
        message.extend_from_slice(&[b'x'; 1024]);
        message.extend_from_slice(b"\0");
        let Ok(Some(Message::CommandComplete(body))) = Message::parse(&mut message) else { panic!("a message") };
        assert_eq!(tag(&body).len(), MAX_TAG_BYTES, "M4");
    }
}
