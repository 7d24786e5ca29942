//! Columns whose text alone does not determine their JSON: anonymous records, and types with a cast to json
//! (`hstore`).
//!
//! A record is requested in binary form, which contains the types of its fields. Values that only the server can
//! convert are sent back to it in one more round trip, in the same transaction: `values (to_json($1)), (to_json($2)),
//! ..`, each parameter with its own type. So the settings are those of the query, and no part of the agent's
//! statement runs twice.
//!
//! Rows with such columns come in portions: the answer is truncated between portions, and the session remains usable.

use std::ops::ControlFlow;

use bytes::Bytes;
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::DataRowBody;
use serde_json::Value;
use types::{Column, Scalar};

use crate::client::error::{Error, ServerError, utf8};
use crate::client::session::Session;
use crate::client::wire::{Event, EventConsumer, Failure, Purpose, owned_row};
use crate::query::value::{BinaryDecodeError, PartialJson, Unresolved, draft_binary, draft_text};

const LEAVES_AT_ONCE: usize = 512;

/// The maximum number of rows in a portion. Rows beyond the byte limit are received for nothing, so a portion is
/// small.
pub(super) const MAX_PORTION: usize = 512;

const CAST_IT: &str = "Cast it to text in the query (value::text), or leave it out.";
const CAST_FIELDS: &str =
    "A record is read field by field. Cast that field to text in the query, or select the fields as columns.";

/// The conversions of each column.
#[derive(Debug)]
pub(crate) struct ServerJson {
    columns: Vec<Need>,
    formats: Vec<i16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// The text form is enough.
    Nothing,
    /// The value contains a type with a cast to json.
    Cast,
    /// An anonymous record, or an array of such records.
    Binary,
}

impl ServerJson {
    /// `None` if the text form of every column is enough, as for almost every statement.
    pub(super) fn of(columns: &[Column]) -> Option<Self> {
        let needs = columns.iter().map(|column| {
            if column.ty.contains(Scalar::Record) {
                Need::Binary
            } else if column.ty.contains(Scalar::JsonCast) {
                Need::Cast
            } else {
                Need::Nothing
            }
        });
        let columns: Vec<Need> = needs.collect();
        let formats = columns.iter().map(|need| i16::from(*need == Need::Binary)).collect();
        columns.iter().any(|need| *need != Need::Nothing).then_some(Self { columns, formats })
    }

    /// The format of each column, for Bind.
    pub(super) fn formats(&self) -> &[i16] {
        &self.formats
    }

    /// Whether a column is requested in binary form. Then the number of columns must be as described, so the
    /// description cannot be kept for later calls.
    pub(super) fn has_binary(&self) -> bool {
        self.columns.contains(&Need::Binary)
    }

    /// Parses one row as it arrived.
    pub(crate) fn draft(&self, body: &DataRowBody, columns: &[Column]) -> Result<PartialRow, Error> {
        let mut row = PartialRow { bytes: body.buffer().len(), ..PartialRow::default() };
        let mut ranges = body.ranges();
        for (need, column) in self.columns.iter().zip(columns) {
            let bytes: Option<Bytes> = ranges.next()?.flatten().map(|range| body.buffer_bytes().slice(range));
            let value = if *need == Need::Binary {
                draft_binary(bytes, column.ty.oid, &mut row.leaves).map_err(|refused| not_taken(refused, column))?
            } else {
                let text = bytes.as_deref().map(utf8).transpose()?;
                draft_text(text, &column.ty, &mut row.leaves)
            };
            row.values.push(value);
        }
        Ok(row)
    }
}

/// A row that has parts which the server must convert to JSON.
#[derive(Debug, Default)]
pub(crate) struct PartialRow {
    values: Vec<PartialJson>,
    leaves: Vec<Unresolved>,
    /// The length of the row as it arrived, in bytes.
    pub(crate) bytes: usize,
}

/// The error if such rows exceed the memory limit.
pub(crate) fn too_many_drafts(limit: usize) -> Error {
    // program_limit_exceeded
    unexpected("54000", format!("the rows with records take more than {limit} bytes at once"), Some(CAST_FIELDS))
}

/// The converted rows of a portion.
#[derive(Debug, Default)]
pub(super) struct ConvertedRows {
    pub(super) rows: Vec<Vec<Value>>,
    /// Whether the converted rows exceed the limit: `rows` are those before, and more rows exist.
    pub(super) is_cut: bool,
}

/// Queues the conversions of these rows; [`receive`] reads the answer. False if there is nothing to convert.
pub(super) fn push(session: &mut Session, rows: &[PartialRow]) -> Result<bool, Error> {
    let leaves: Vec<&Unresolved> = rows.iter().flat_map(|row| &row.leaves).collect();
    for some in leaves.chunks(LEAVES_AT_ONCE) {
        let calls: Vec<String> = (1..=some.len()).map(|number| format!("(pg_catalog.to_json(${number}))")).collect();
        let types: Vec<u32> = some.iter().map(|leaf| leaf.type_oid).collect();
        let formats: Vec<i16> = some.iter().map(|leaf| leaf.format).collect();
        let params: Vec<Option<&[u8]>> = some.iter().map(|leaf| Some(leaf.bytes.as_ref())).collect();
        session.connection.next_statement();
        session.connection.push_parse("", &format!("values {}", calls.join(", ")), &types)?;
        session.connection.push_bind_as("", "", (&formats, &params), &[])?;
        session.connection.push_execute("", 0)?;
    }
    if !leaves.is_empty() {
        session.connection.push_sync(Purpose::Call);
    }
    Ok(!leaves.is_empty())
}

/// The rows with the server's JSON in place. They take at most `max_bytes`, like rows that need no conversion.
///
/// # Errors
/// [`Error::Server`] for a value that cannot be converted to JSON, [`Error::MessageTooLarge`] if even the first row
/// does not fit.
pub(super) async fn receive(
    session: &mut Session,
    rows: Vec<PartialRow>,
    was_asked: bool,
    max_bytes: usize,
) -> Result<ConvertedRows, Error> {
    let mut weights = Vec::new();
    let mut bytes = 0;
    for row in &rows {
        bytes += row.bytes;
        weights.extend(row.leaves.iter().map(|leaf| (std::mem::take(&mut bytes), leaf.bytes.len())));
    }
    let mut texts = LeafTexts { texts: Vec::new(), weights: weights.into_iter(), bytes: 0, max_bytes };
    if was_asked && let Some(failure) = session.connection.converse(&mut texts).await? {
        return Err(not_converted(failure));
    }
    let (bytes, is_cut) = (texts.bytes, texts.bytes > max_bytes);
    let mut texts = texts.texts.into_iter();
    let mut converted = ConvertedRows { rows: Vec::with_capacity(rows.len()), is_cut };
    for row in rows {
        let leaves = row.leaves.len();
        let mut own = texts.by_ref().take(leaves).collect::<Vec<_>>().into_iter();
        if own.len() < leaves && is_cut {
            break;
        }
        let values = row.values.into_iter().map(|value| value.fill(&mut own)).collect::<Option<Vec<_>>>();
        converted.rows.push(values.ok_or_else(missing)?);
    }
    if is_cut && converted.rows.is_empty() {
        return Err(Error::MessageTooLarge { size: bytes, limit: max_bytes });
    }
    Ok(converted)
}

/// The JSON texts of the leaves, one per row of the answer.
struct LeafTexts {
    texts: Vec<String>,
    /// For each leaf, the bytes of rows since the previous leaf, its own row included, and the bytes of the leaf
    /// itself.
    weights: std::vec::IntoIter<(usize, usize)>,
    /// The rows so far, with the texts in place of their leaves.
    bytes: usize,
    max_bytes: usize,
}

impl EventConsumer for LeafTexts {
    async fn take(&mut self, event: Event) -> Result<ControlFlow<()>, Error> {
        if let Event::Row(_, body) = event {
            let text = owned_row(&body)?.into_iter().next().flatten().unwrap_or_else(|| "null".to_owned());
            let (rows, leaf) = self.weights.next().unwrap_or_default();
            self.bytes = (self.bytes + rows).saturating_sub(leaf) + text.len();
            if self.bytes > self.max_bytes {
                return Ok(ControlFlow::Break(()));
            }
            self.texts.push(text);
        }
        Ok(ControlFlow::Continue(()))
    }
}

fn not_converted(failure: Failure) -> Error {
    let mut error = failure.error;
    // The position refers to a text of the server.
    error.position = None;
    error.message = format!("a value could not be made JSON: {}", error.message);
    error.hint = Some(CAST_IT.to_owned());
    Error::Server(error)
}

fn missing() -> Error {
    unexpected("08P01", "the server did not send all values".to_owned(), None)
}

/// An error that this server reports in PostgreSQL's form. It is not reported as a lost connection, which would cause
/// a retry.
fn unexpected(sqlstate: &str, message: String, hint: Option<&str>) -> Error {
    Error::Server(Box::new(ServerError { hint: hint.map(str::to_owned), ..ServerError::synthetic(sqlstate, message) }))
}

fn not_taken(refused: BinaryDecodeError, column: &Column) -> Error {
    let name = &column.name;
    match refused {
        // protocol_violation
        BinaryDecodeError::Malformed => {
            unexpected("08P01", format!("the record in column \"{name}\" cannot be read"), Some(CAST_IT))
        }
        // statement_too_complex
        BinaryDecodeError::TooDeep => {
            unexpected("54001", format!("the record in column \"{name}\" is nested too deep for JSON"), Some(CAST_IT))
        }
    }
}

/// Explains SQLSTATE 42883 while rows are sent: a field of a record has a type without a binary send function.
pub(super) fn explained(mut error: ServerError, conversion: Option<&ServerJson>) -> ServerError {
    let is_sending = error.sqlstate == "42883" && error.position.is_none() && error.context.is_none();
    if is_sending && conversion.is_some_and(ServerJson::has_binary) {
        error.hint.get_or_insert_with(|| CAST_FIELDS.to_owned());
    }
    error
}
