//! Every error code of an answer. The doc comment of a variant is its entry in `docs/reference/errors.md`: the cause, and
//! after `Do:` what the agent should do. `UPDATE_GOLDEN=1 cargo test -p countersign reference` writes that page.

use serde::{Serialize, Serializer};

/// `error.code` of a failed envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// An argument is missing, unknown, or not accepted by the schema or by PostgreSQL's type. The message
    /// names each argument and what was expected. There is no record, unless PostgreSQL itself refused a value
    /// (class 22) or the call was of `execute_sql`: both are known only after the write has started. Nor is there
    /// one, or a proposal, if a write that needs agreement changes other rows each time that it is tried.
    ///
    /// Do: correct the arguments and call again.
    InvalidParams,
    /// `query_database` or `explain_query` was given a statement that returns no rows, or one that would have
    /// written (`sqlstate` 25006, or `detail` names what the plan would write).
    ///
    /// Do: read with SELECT, WITH, EXPLAIN, SHOW, VALUES or TABLE; write with one of the write tools.
    NotReadOnly,
    /// PostgreSQL refused the statement: see `sqlstate` (PostgreSQL manual, appendix A). An error that COMMIT
    /// raises, as a deferred trigger may, has this code too. Retryable are lost connections, as that of a function
    /// to another server (class 08), serialization failures and deadlocks (40; on a standby also conflicts with
    /// changes of the primary), unavailable locks (55P03), lack of resources (53) and a server that shuts down (57,
    /// 58): a write was rolled back, and the same call, with its `idempotency_key`, is safe.
    ///
    /// Do: read the message, the hint and the position, and correct the query. For an unknown table, column,
    /// function or type the hint has the closest existing names, for a syntax error the closest keywords. Where
    /// PostgreSQL gives no detail, `detail` is the line with a caret below the position. If a write violated a
    /// constraint, the hint has its table and definition.
    SqlError,
    /// A write touched another number of rows than its manifest allows (`rows`, `max_rows`), and was rolled
    /// back. Usually the row does not exist, or it belongs to another account.
    ///
    /// Do: read the current state first.
    RowCountMismatch,
    /// The tool does not fit the database as it is now; the message says what does not. A table or column that
    /// its statements use is missing or has another type, a privilege is missing, its undo is not available, or
    /// the result would have other columns than the tool's schema says. The call changed nothing. The tool is
    /// not listed, unless the database has changed within the last minute.
    ///
    /// Do: tell the operator, who repairs the manifest or the database (docs/topics/migrations.md); the server
    /// picks a repaired tool up by itself. Until then the tool cannot be used; other tools still work.
    ToolOutdated,
    /// This account has no record with that `correlation_id`, or there is no readable table, schema or resource
    /// of that name. For a resource it is MCP's own error: -32002, or -32602 in protocol 2026-07-28.
    ///
    /// Do: look the record up with `get_recent_mutations`; use one of the names in the hint, or list what
    /// exists with `describe_database` without arguments.
    NotFound,
    /// The `idempotency_key` was used with other arguments within the last 24 hours.
    ///
    /// Do: repeat the call with exactly the same arguments, or choose a new key for a new write.
    IdempotencyKeyReused,
    /// An identical write is still running and did not finish within this call's deadline.
    ///
    /// Do: repeat exactly the same call; it will be answered with that write's result.
    DuplicateInFlight,
    /// An identical call has written before, and its effect is no longer in force: the write was undone, or
    /// something changed its rows since. `message` names what changed the rows.
    ///
    /// Do: to write again, repeat the call with a new `idempotency_key`.
    Superseded,
    /// An undo would overwrite or lose later changes, or cannot restore its rows exactly.
    /// `conflicts` has an object for each of the first 20 rows: `code` (docs/internals/ledger.md lists them),
    /// `table`, `key`, `columns` with the value to restore, the value that the write left and the current
    /// value, and `changed_by`.
    ///
    /// Do: undo the later change first, or write what the rows should be now. Where `code` is `image_missing`,
    /// call the undo tool that `meta.rollback` of the write names.
    UndoConflict,
    /// The write was undone before; `message` names the undo.
    ///
    /// Do: to restore the write, undo that undo.
    AlreadyReversed,
    /// The operator has stopped the writes of this account or actor (`countersign freeze`).
    ///
    /// Do: ask the operator, who resumes them with `countersign unfreeze`.
    AccountFrozen,
    /// A rule of the tool refuses calls with these arguments; the message names the rule and has its text.
    /// There is no record.
    ///
    /// Do: choose other arguments, or tell the user why the call is refused.
    RuleDenied,
    /// The account or the actor has used up its calls of this tool, or the rows that they may change, for now; the
    /// message says when the next one is possible. A call too many has no record; a write with too many rows
    /// has one.
    ///
    /// Do: repeat the call after that time.
    LimitReached,
    /// The connection to the database was lost before the write committed, or the server that executed it was
    /// killed. The record proves that nothing was written.
    ///
    /// Do: repeat the call.
    InDoubtAborted,
    /// The connection was lost during COMMIT, and the database cannot be asked for the outcome. The write may
    /// have happened.
    ///
    /// Do: repeat the call only after `get_mutation_detail` with the answer's `correlation_id` has shown that
    /// nothing was written. Exactly the same call is safe too, because a write that did happen makes it a
    /// duplicate.
    CommitOutcomeUnknown,
    /// `confirm_proposal` was given another digest than the proposal has, or the stored proposal was altered.
    ///
    /// Do: read the proposal again with `get_proposal`, show it again, and send its digest.
    DigestMismatch,
    /// No agreement before `expires_at`.
    ///
    /// Do: call the tool again for a new proposal.
    ProposalExpired,
    /// The user or a reviewer rejected the proposal; the message has the reason, if one was given.
    ///
    /// Do: propose the same again only if the user asks for it.
    ProposalRejected,
    /// Since the proposal was made the rows have changed, an identical write was executed, or the tool itself
    /// has changed: the write would no longer do what was agreed to. If there is no proposal yet,
    /// other writes are changing these rows at this moment (`retryable`).
    ///
    /// Do: call the tool again, and show the new proposal.
    ProposalStale,
    /// The proposal is closed: it was executed, or it failed (the message says why).
    ///
    /// Do: call the tool again for a new proposal.
    ProposalClosed,
    /// The ledger cannot be read or written (a full disk, a read-only server, a missing privilege). A write
    /// whose intent cannot be recorded is not started, and a write whose outcome cannot be recorded is rolled
    /// back. Not retryable if the ledger lacks what was acknowledged or signed, as after a failover: then nothing is
    /// written until the operator has decided how to go on, and reads go on.
    ///
    /// Do: tell the operator if it persists; the server's log has the cause.
    DbError,
    /// There is no connection: PostgreSQL is unreachable until the deadline or refuses the login, all
    /// connections are in use until the deadline, the account already runs as many reads as it may, or the
    /// connection of a read was lost twice. Not retryable if the login, the password or the database name is
    /// wrong, or if a pooler answered that the configuration does not name: the operator must correct that.
    ///
    /// Do: try again later, with fewer calls at once if the message says that all connections were in use.
    DatabaseUnavailable,
    /// A value or row is larger than an answer may be. The limits: one row (1 MiB
    /// unless configured); the result of a write (8 MiB); the result with images and undo calls, as recorded (4
    /// MiB); the images of a write, its tool's `before` and `after` together (1 MiB); the plan of a query,
    /// which is inspected before it runs (8 MiB, or more than PostgreSQL itself can show, with `sqlstate`
    /// 54000). A plan contains the constants that PostgreSQL computes beforehand.
    ///
    /// Do: select fewer or shorter columns, for example with `left(column, 200)`; write fewer rows in one call;
    /// pass large values as parameters, or compute them from a column.
    ResultTooLarge,
    /// The call did not finish within its time (30 seconds unless configured) and was stopped; a write was
    /// rolled back. A write is retryable. A read is not, because the same query would take as long again.
    ///
    /// Do: make the query cheaper (`explain_query` shows its plan), or write less in one call.
    Timeout,
    /// The reader's login may not read that (`sqlstate` 42501), or the query calls a function that acts beyond
    /// a read: one that stops other sessions, reaches other servers or files, runs SQL given as text, or is not
    /// granted to everybody (docs/topics/security-model.md).
    ///
    /// Do: read something else (`describe_database` lists what may be read), or ask the operator for the
    /// privilege.
    NotPermitted,
    /// A defect of the server.
    ///
    /// Do: report it with the `correlation_id`, if there is one; the server's log has the details.
    InternalError,
}

impl ErrorCode {
    /// All codes, in the order of the page.
    pub const ALL: [Self; 27] = [
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
        Self::RuleDenied,
        Self::LimitReached,
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
            Self::RuleDenied => "rule_denied",
            Self::LimitReached => "limit_reached",
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
            | Self::LimitReached
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
            | Self::RuleDenied
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
