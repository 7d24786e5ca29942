//! Reads the ledger for a person whose login may not see every column.

use ledger::TimeRangeError;
use ledger::audit::{
    Audit, LedgerNames, LogKey, PlannedWrite, ProveError, Record, RecordFilter, RecordList, RowError, SessionActivity,
    SignatureState, TrackedRow, WitnessState,
};
use ledger::proposals::{Proposal, Proposals};
use ledger::read::Error;
use serde_json::Value;
use types::{
    CellMasks, Conflict, CorrelationId, Effects, ErrorCode, Failure, MaskKey, MaskedColumn, Masks, Moment,
    RowHistoryEntry, TimeRange, shown_conflicts,
};

use crate::masks::RowMasks;
use crate::since::Since;

/// Reads the records of a ledger. It returns rows only with the masks of its login, so that no page or command can
/// forget to apply them.
#[derive(Debug, Clone)]
pub struct RecordReader {
    audit: Audit,
    /// The columns that have a mask for any caller, and the key of hashes.
    masked: Option<(Vec<MaskedColumn>, MaskKey)>,
}

/// The masks for the columns that a login may not select in their own tables.
#[derive(Debug)]
pub struct LoginMasks(Option<Masks>);

impl RecordReader {
    /// Reads this ledger. `masked` are the columns to mask if the login may not select them.
    #[must_use]
    pub const fn new(audit: Audit, masked: Option<(Vec<MaskedColumn>, MaskKey)>) -> Self {
        Self { audit, masked }
    }

    /// The masks of the login, for rows from other sources.
    pub async fn masks(&self) -> Result<LoginMasks, Error> {
        let Some((columns, key)) = &self.masked else { return Ok(LoginMasks(None)) };
        let columns = self.audit.unreadable(columns).await?;
        let masks = Masks::new(columns, key.clone());
        Ok(LoginMasks((!masks.columns.is_empty()).then_some(masks)))
    }

    pub async fn show(&self, id: CorrelationId) -> Result<Option<Record>, Error> {
        let (record, masks) = (self.audit.show(id).await?, self.masks().await?);
        Ok(match &masks.0 {
            Some(masks) => record.map(|record| RowMasks::record(masks, record)),
            None => record,
        })
    }

    pub async fn list(&self, filter: &RecordFilter) -> Result<RecordList, Error> {
        let (mut list, masks) = (self.audit.list(filter).await?, self.masks().await?);
        if let Some(masks) = &masks.0 {
            list.records = list.records.into_iter().map(|line| RowMasks::record_line(masks, line)).collect();
        }
        Ok(list)
    }

    pub async fn some(&self, ids: &[CorrelationId]) -> Result<Vec<PlannedWrite>, Error> {
        let (writes, masks) = (self.audit.some(ids).await?, self.masks().await?);
        Ok(match &masks.0 {
            Some(masks) => writes.into_iter().map(|write| RowMasks::planned_write(masks, write)).collect(),
            None => writes,
        })
    }

    pub async fn row(&self, row: &TrackedRow, limit: u32) -> Result<Vec<RowHistoryEntry<Value>>, Error> {
        let (changes, masks) = (self.audit.row(row, limit).await?, self.masks().await?);
        Ok(masks.changes(changes))
    }

    pub async fn tracked_row(&self, table: &str, key: &[(Option<String>, String)]) -> Result<TrackedRow, RowError> {
        self.audit.tracked_row(table, key).await
    }

    pub async fn time_range(&self, from: Option<Moment>, to: Option<Moment>) -> Result<TimeRange, TimeRangeError> {
        self.audit.time_range(from, to).await
    }

    /// What has changed since a proposal was made; `None` if nothing is known to have. The proposal loses the labels of
    /// its rows that are values of masked columns: unlike what changes, people need not see them.
    pub async fn since(&self, proposals: &Proposals, proposal: &mut Proposal) -> Result<Option<Since>, Failure> {
        let masks = self.masks().await.map_err(|error| Failure::new(ErrorCode::DbError, error.to_string()))?;
        let found = proposal.check.as_mut().and_then(|check| check.found.as_mut());
        for label in std::iter::once(&mut proposal.preview).chain(found).flat_map(|preview| &mut preview.labels) {
            label.take_if(|[column, _]| masks.cells().masks_column(column));
        }
        Ok(Since::new(proposal, &masks.changes(proposals.row_changes(proposal).await?)))
    }

    /// As [`Audit::names`]. A login with masks gets no accounts and actors, which may be values of masked columns.
    pub async fn names(&self) -> Result<LedgerNames, Error> {
        let (names, masks) = (self.audit.names().await?, self.masks().await?);
        Ok(match masks.0 {
            Some(_) => LedgerNames { accounts: Vec::new(), actors: Vec::new(), ..names },
            None => names,
        })
    }

    /// As [`Audit::activity`]. The result contains no rows.
    pub async fn activity(&self) -> Result<Vec<SessionActivity>, Error> {
        self.audit.activity().await
    }

    /// The proof of [`Audit::prove`] as text. It contains only hashes of the record's parts.
    pub async fn prove(&self, id: CorrelationId) -> Result<String, ProveError> {
        self.audit.prove(id).await.map(|proof| proof.to_string())
    }

    /// The note of [`Audit::newest_checkpoint`] as text.
    pub async fn newest_checkpoint(&self) -> Result<Option<String>, Error> {
        Ok(self.audit.newest_checkpoint().await?.map(|note| note.to_string()))
    }

    pub async fn signatures(&self) -> Result<SignatureState, Error> {
        self.audit.signatures().await
    }

    pub async fn witness_states(&self) -> Result<Vec<WitnessState>, Error> {
        self.audit.witness_states().await
    }

    pub async fn ledger_id(&self) -> Result<String, Error> {
        self.audit.ledger_id().await
    }

    pub async fn keys(&self) -> Result<Vec<LogKey>, Error> {
        self.audit.keys().await
    }
}

impl LoginMasks {
    /// Masks the rows in conflicts of an undo.
    #[must_use]
    pub fn conflicts(&self, conflicts: Vec<Conflict>) -> Vec<Conflict<Value>> {
        shown_conflicts(self.0.as_ref(), conflicts)
    }

    /// Masks the rows in the effects of writes.
    #[must_use]
    pub fn effects(&self, effects: Effects) -> Effects<Value> {
        let mut cells = self.cells();
        let effects = effects.shown(&mut cells);
        effects.redacted(&cells.redaction())
    }

    /// Masks the rows in changes that were made since a proposal.
    #[must_use]
    pub fn changes(&self, changes: Vec<RowHistoryEntry>) -> Vec<RowHistoryEntry<Value>> {
        changes.into_iter().map(|change| change.shown(self.cells())).collect()
    }

    fn cells(&self) -> CellMasks<'_> {
        CellMasks::new(self.0.as_ref())
    }
}
