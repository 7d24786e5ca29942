//! Every error code there is. `docs/errors.md` says of each what causes it and what the agent should do.

use serde::{Serialize, Serializer};

/// `error.code` of a failed envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// An argument is missing, unknown, or not what the schema or PostgreSQL's type takes.
    InvalidParams,
    /// The read tool was given something that is not a read.
    NotReadOnly,
    /// PostgreSQL refused the statement: see `sqlstate`.
    SqlError,
    /// A write touched another number of rows than its manifest allows, and was rolled back.
    RowCountMismatch,
    /// The database has changed since the server started, and the tool's statements no longer fit it.
    ToolOutdated,
    /// No such record in this account, or no such table or schema for this login.
    NotFound,
    /// The `idempotency_key` is bound to other arguments.
    IdempotencyKeyReused,
    /// An identical write is still running, and did not finish within the deadline.
    DuplicateInFlight,
    /// An identical call has written, and its effect no longer stands.
    Superseded,
    /// An undo found its rows, or what depends on them, not as the write left them.
    UndoConflict,
    /// The write was undone before.
    AlreadyReversed,
    /// The operator has stopped the writes of this account or actor.
    AccountFrozen,
    /// The connection was lost before the write committed; it is certain that nothing was written.
    InDoubtAborted,
    /// The connection was lost at COMMIT and the outcome could not be read yet.
    CommitOutcomeUnknown,
    /// What was agreed to is not what is stored: the digest is another one.
    DigestMismatch,
    /// Nobody agreed in time.
    ProposalExpired,
    /// Somebody said no.
    ProposalRejected,
    /// The rows, or the tool, are not what they were when the write was proposed.
    ProposalStale,
    /// The proposal is in a state in which this cannot be done with it.
    ProposalClosed,
    /// The ledger could not be read or written; nothing was written.
    DbError,
    /// No connection to the database could be had.
    DatabaseUnavailable,
    /// A value or row is larger than an answer may be.
    ResultTooLarge,
    /// The deadline passed.
    Timeout,
    /// The operator's configuration does not allow it.
    NotPermitted,
    /// A defect of the server; the log has the rest.
    InternalError,
}

impl ErrorCode {
    /// All of them, in the order of the page.
    pub const ALL: [Self; 25] = [
        Self::InvalidParams,
        Self::NotReadOnly,
        Self::SqlError,
        Self::RowCountMismatch,
        Self::ToolOutdated,
        Self::NotFound,
        Self::IdempotencyKeyReused,
        Self::DuplicateInFlight,
        Self::Superseded,
        Self::UndoConflict,
        Self::AlreadyReversed,
        Self::AccountFrozen,
        Self::InDoubtAborted,
        Self::CommitOutcomeUnknown,
        Self::DigestMismatch,
        Self::ProposalExpired,
        Self::ProposalRejected,
        Self::ProposalStale,
        Self::ProposalClosed,
        Self::DbError,
        Self::DatabaseUnavailable,
        Self::ResultTooLarge,
        Self::Timeout,
        Self::NotPermitted,
        Self::InternalError,
    ];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidParams => "invalid_params",
            Self::NotReadOnly => "not_read_only",
            Self::SqlError => "sql_error",
            Self::RowCountMismatch => "row_count_mismatch",
            Self::ToolOutdated => "tool_outdated",
            Self::NotFound => "not_found",
            Self::IdempotencyKeyReused => "idempotency_key_reused",
            Self::DuplicateInFlight => "duplicate_in_flight",
            Self::Superseded => "superseded",
            Self::UndoConflict => "undo_conflict",
            Self::AlreadyReversed => "already_reversed",
            Self::AccountFrozen => "account_frozen",
            Self::InDoubtAborted => "in_doubt_aborted",
            Self::CommitOutcomeUnknown => "commit_outcome_unknown",
            Self::DigestMismatch => "digest_mismatch",
            Self::ProposalExpired => "proposal_expired",
            Self::ProposalRejected => "proposal_rejected",
            Self::ProposalStale => "proposal_stale",
            Self::ProposalClosed => "proposal_closed",
            Self::DbError => "db_error",
            Self::DatabaseUnavailable => "database_unavailable",
            Self::ResultTooLarge => "result_too_large",
            Self::Timeout => "timeout",
            Self::NotPermitted => "not_permitted",
            Self::InternalError => "internal_error",
        }
    }

    /// Whether the same call may succeed later. [`ErrorCode::SqlError`] is decided by its SQLSTATE instead.
    #[must_use]
    pub const fn retryable(self) -> bool {
        match self {
            Self::DuplicateInFlight
            | Self::InDoubtAborted
            | Self::CommitOutcomeUnknown
            | Self::DbError
            | Self::DatabaseUnavailable
            | Self::Timeout => true,
            Self::InvalidParams
            | Self::NotReadOnly
            | Self::SqlError
            | Self::RowCountMismatch
            | Self::ToolOutdated
            | Self::NotFound
            | Self::IdempotencyKeyReused
            | Self::Superseded
            | Self::UndoConflict
            | Self::AlreadyReversed
            | Self::AccountFrozen
            | Self::DigestMismatch
            | Self::ProposalExpired
            | Self::ProposalRejected
            | Self::ProposalStale
            | Self::ProposalClosed
            | Self::ResultTooLarge
            | Self::NotPermitted
            | Self::InternalError => false,
        }
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_error_codes_lists_every_code_and_no_other() {
        // A3-02, X-12: this is the published list.
        let page = include_str!("../../../docs/errors.md");
        let listed: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("## `"))
            .filter_map(|line| line.strip_suffix('`'))
            .collect();
        let known: Vec<&str> = ErrorCode::ALL.into_iter().map(ErrorCode::as_str).collect();
        assert_eq!(listed, known);
    }
}
