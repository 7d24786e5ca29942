//! Exports a log as a bundle (docs/reference/log-format.md).

use std::path::Path;

use pg::{RowRetention, Session};
use tlog::{BundleError, BundleWriter, Checkpoint, Entry, Hash};

use super::checkpoints::load_newest;
use super::tree::LogState;
use super::{Audit, TIMEOUT, begin_snapshot, unreadable};
use crate::baseline::{ERASED_ENTRY, EVENT_ENTRY, RECORD_ENTRY};

/// Whether the parts of entries are exported. They contain what was written, and by which call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parts {
    /// All parts that the ledger still has.
    Included,
    /// No parts. The entries still have the digests of them.
    Withheld,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    pub checkpoint: Checkpoint,
    pub parts: u64,
}

/// The reason why nothing was exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Database(#[from] pg::Error),
    /// A file cannot be written.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error("the log has no signed checkpoint yet: `countersign audit seal` signs one, where the signing key is")]
    Unsigned,
    #[error("{0}: `countersign audit verify` names what is wrong. The bundle is incomplete")]
    Damaged(String),
}

const NOTE_SQL: &str = "select countersign.note_export($1::bigint, $2, $3)";

/// The name of the statement that reads entries.
const STATEMENT: &str = "countersign_export";

/// The maximum number of entries in one query.
const BATCH: u64 = 1024;

/// The maximum size of the parts in one query, in bytes, unless they belong to a single entry.
const BATCH_BYTES: usize = 4 << 20;

/// No limit of our own. PostgreSQL limits a row to 1 GiB, and everything that the ledger has accepted can be
/// exported.
const ALL_ROWS: RowRetention = RowRetention { rows: usize::MAX, bytes: i32::MAX as usize };

impl Audit {
    /// Writes the log up to its newest checkpoint into an empty folder, or continues an interrupted export in its
    /// folder. The log gets an event about the export. `extra` are additional files, by name.
    pub async fn export(
        &self,
        dir: &Path,
        parts: Parts,
        extra: &[(&str, &[u8])],
        person: &str,
    ) -> Result<Exported, ExportError> {
        let mut writer = BundleWriter::create(dir)?;
        for (name, content) in extra {
            writer.extra(name, content)?;
        }
        let mut lease = self.acquire().await?;
        let session = lease.session();
        begin_snapshot(session).await?;
        let log = LogState::load(session).await?;
        let (note, checkpoint) = load_newest(session, log.log_no).await?.ok_or(ExportError::Unsigned)?;
        let count = write_entries(session, &mut writer, log.log_no, checkpoint.size, parts).await?;
        session.batch_execute("commit").await?;
        if writer.root() != checkpoint.root {
            return Err(ExportError::Damaged("the entries are not those of the newest checkpoint".to_owned()));
        }
        // The event comes first, so that every complete bundle is known to the ledger.
        self.note_export(checkpoint.size, parts, person).await?;
        writer.finish(&note)?;
        Ok(Exported { checkpoint, parts: count })
    }

    /// Adds an event about the export to the log. A login that may only read can export without one.
    async fn note_export(&self, size: u64, parts: Parts, person: &str) -> Result<(), pg::Error> {
        let parts = match parts {
            Parts::Included => "included",
            Parts::Withheld => "withheld",
        };
        let params = [size.to_string(), parts.to_owned(), person.to_owned()].map(Some);
        match self.ask(NOTE_SQL, &params).await {
            Err(error) if super::may_only_read(&error) => {
                tracing::info!(%error, "the export is not logged: this login may only read");
                Ok(())
            }
            answer => answer.map(drop),
        }
    }
}

async fn write_entries(
    session: &mut Session,
    writer: &mut BundleWriter,
    log_no: i64,
    size: u64,
    parts: Parts,
) -> Result<u64, ExportError> {
    let sql = match parts {
        Parts::Included => include_str!("export.sql")
            .replace("{record_entry}", RECORD_ENTRY)
            .replace("{event_entry}", EVENT_ENTRY)
            .replace("{erased_entry}", ERASED_ENTRY),
        Parts::Withheld => "select l.entry, null from countersign.leaf l \
            where l.log_no = $1::integer and l.leaf_index >= $2::bigint and l.leaf_index < $3::bigint and $4::bigint > 0 and $5::bigint > 0 \
            order by l.leaf_index"
            .to_owned(),
    };
    session.describe(STATEMENT, &sql, &[]).await?;
    let (mut count, mut batch) = (0, BATCH);
    while writer.size() < size {
        let first = writer.size();
        let behind = first.saturating_add(batch).min(size);
        let params =
            [log_no.to_string(), first.to_string(), behind.to_string(), BATCH_BYTES.to_string(), size.to_string()];
        let params = params.map(Some);
        let rows = tokio::time::timeout(TIMEOUT, session.run_to_completion(STATEMENT, &params, ALL_ROWS))
            .await
            .map_err(|_| pg::Error::Deadline)??
            .outcome
            .rows;
        if rows.is_empty() {
            return Err(ExportError::Damaged(format!("entry {first} of the log is missing")));
        }
        // The query returns fewer entries than requested if their parts are too large. The next query asks only for
        // as many as this one returned.
        batch = if first + (rows.len() as u64) < behind { rows.len() as u64 } else { (2 * batch).min(BATCH) };
        for row in rows {
            let mut row = row.into_iter();
            let entry = row.next().flatten().ok_or_else(unreadable)?;
            writer.entry(entry.as_bytes())?;
            let entry_left = row.next().flatten().unwrap_or_default();
            count += write_parts(writer, &entry_left, row)?;
        }
    }
    Ok(count)
}

/// Writes the parts of an entry, as the newest erasure has left them: first the seed of their salts, then the contents
/// in the order of `NAMES`.
fn write_parts(
    writer: &mut BundleWriter,
    entry: &str,
    mut row: impl Iterator<Item = Option<String>>,
) -> Result<u64, ExportError> {
    const NAMES: [&str; 5] = ["params", "result", "effects", "context", "details"];
    let Some(seed) = row.next().flatten() else { return Ok(0) };
    let seed = uuid::Uuid::parse_str(&seed).map_err(|_| unreadable())?;
    let mut count = 0;
    for (name, content) in NAMES.into_iter().zip(row) {
        let Some(content) = content else { continue };
        let salt = Hash::of(&[seed.as_bytes(), name.as_bytes()]);
        let Some((salt, _)) = salt.as_bytes().split_first_chunk::<16>() else { continue };
        let digest = writer.part(salt, content.as_bytes())?;
        let named = Entry::parse(entry.as_bytes()).ok();
        if named.is_none_or(|named| !named.parts().any(|part| part == digest)) {
            let id = entry.lines().nth(2).unwrap_or_default().to_owned();
            return Err(ExportError::Damaged(format!("a record or event was altered after it was sealed ({id})")));
        }
        count += 1;
    }
    Ok(count)
}
