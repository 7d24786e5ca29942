//! The audited write path. Whoever wants to write brings an [`WriteExecutor`] to the [`Gate`]; nobody gets a transaction
//! that writes in any other way.
//!
//! ```text
//! T1  admit    the intent is recorded and committed; is this call the same as another one?
//! T2  execute  claim the record, do the work, record the outcome: one transaction, so both happen or neither
//!     resolve  after a lost connection: the record's row lock arbitrates, the record says the truth
//! ```
//!
//! Where things are: `gate` is the protocol's order; `dedup_cache` knows the calls of the last half minute and `existing_write` asks
//! whether they still count; `intent`, `admit`, `execute` and `resolve` are its steps (their SQL is in
//! `migrations/baseline/20_admission.sql`); `executor` is what a write tool implements, `executor_registry` finds one by its name; `proposals` are writes that
//! wait for somebody to agree; `adhoc_sql` runs a text that is the caller's own; `preview` shows
//! a write without making it, `definitions` what it depends on; `fingerprint` decides which calls are the same; `records` reads the ledger, `audit` is for
//! people: every account's records, seals over them, pruning; `doctor` asks what is stuck; `gauges` counts what is
//! open, for monitoring; `freezes` stop the writes of an account; `tracking` says whether a write's changes are all recorded; `sweep` ends what killed servers left pending; `setup` is `init`: the
//! schema, its roles and grants; `schema` checks the ledger, `identity` whether it was made for this database; `roles` are its owner and the servers' login, `reader_role` is the
//! login of the read path, `login_settings` what they are set to; `state_keys` seal what clients carry; `read` is the read path of
//! `pg`, handed on.
//!
//! This crate must never know what a tool or a manifest is, nor MCP.

mod adhoc_sql;
mod admit;
mod attempt;
pub mod audit;
mod baseline;
mod conflicts;
mod dedup_cache;
mod definitions;
mod doctor;
mod effects;
mod execute;
mod executor;
mod executor_registry;
mod existing_write;
mod failures;
mod fingerprint;
mod freezes;
mod gate;
mod gauges;
mod identity;
mod intent;
mod login_settings;
pub mod operator;
mod options;
pub mod plans;
mod preview;
pub mod proposals;
mod reader_role;
mod records;
mod resolve;
mod roles;
mod schema;
mod setup;
mod state_keys;
mod sweep;
mod tracking;
pub mod undo;
mod values;
mod write_tx;

pub use adhoc_sql::{AdhocError, AdhocPlan, AdhocResult};
pub use attempt::{WriteAttempt, WriteOutcome};
pub use baseline::{BASELINE, BASELINE_GRANTS};
pub use definitions::Definition;
pub use doctor::{Doctor, MOST_FOUND};
pub use executor::{DEDUP_WINDOW, WriteExecutor, WriteFuture, WriteOutput, WritePrecondition, WriteRequest};
pub use executor_registry::{DuplicateExecutor, ExecutorRegistry};
pub use failures::{ExecutorError, WriteError, outdated};
pub use fingerprint::{Fingerprint, Fingerprints, canonical_json};
pub use freezes::{FreezeScope, Freezes};
pub use gate::Gate;
pub use gauges::{LedgerCounts, LedgerGauges};
pub use identity::{Fork, check_identity, fork};
pub use intent::undone_by;
pub use options::LedgerOptions;
pub use reader_role::{ReaderRoleError, check_reader, reader_login};
pub use records::{RecordStatus, Records, Undoable};
pub use roles::{
    APPROVER, DEFAULT_WRITER, ExcessPrivileges, OPERATOR, OWNER, check_all_server_roles, check_login, check_server_role,
};
pub use schema::{SchemaError, check, exists};
pub use setup::{
    Deviation, InitOptions, InitReport, ReaderTables, RoleReport, SkippedRelation, TableNames, TrackOptions,
    TrackReport, TrackedTable, deviations, examine_roles, init, load_once, track, untrack,
};
pub use state_keys::{StateKey, StateKeys};
pub use tracking::{Coverage, CoveredTable, Tracking};
pub use write_tx::{Rows, Statement, WriteTx};

pub use login_settings::{LoginSetting, unexpected_settings};
use pg::WriterPool;
pub use pg::{
    ConnectEnvironment, ConnectOptions, ConnectOptionsError, Conninfo, DEFAULT_CONNECT_TIMEOUT, Pooler, PoolerReport,
    RowRetention, probe_pooler,
};
use tokio::time::Instant;
use types::{DescribeError, DescribeStatement, StatementShape};

use crate::proposals::Proposals;

/// The read path of `pg`. Other crates read through it and do not depend on `pg`, so they cannot name a session that
/// writes.
pub mod read {
    pub use pg::value::{EncodeError, encode};
    pub use pg::{
        ConnectError, Error, PoolStatus, ReadError, ReadLimits, ReadRequest, Reader, ResponsePermit, ResultSet,
        RowFormat, SearchPath, TruncatedBy, UntrustedSchema,
    };
}

/// Schema of the ledger.
pub const SCHEMA: &str = "countersign";

/// The ledger of one database: the only owner of sessions that may write.
#[derive(Debug, Clone)]
pub struct Ledger {
    writer: WriterPool,
    gate: Gate,
    states: LedgerGauges,
    settings: LedgerOptions,
}

impl Ledger {
    /// The ledger in this database. Opens no connection yet; see [`check`] for whether it is there.
    #[must_use]
    pub fn new(target: ConnectOptions, settings: LedgerOptions) -> Self {
        let states = LedgerGauges::new(target.clone());
        let writer = WriterPool::new(target, settings.sessions);
        Self { states, gate: Gate::new(writer.clone(), settings.clone()), writer, settings }
    }

    /// The same for statements that a person writes down: they are read with the role's own search path.
    #[must_use]
    pub fn interactive(target: ConnectOptions, settings: LedgerOptions) -> Self {
        let states = LedgerGauges::new(target.clone());
        let writer = WriterPool::interactive(target, settings.sessions);
        Self { states, gate: Gate::new(writer.clone(), settings.clone()), writer, settings }
    }

    /// The way to write.
    #[must_use]
    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }

    /// Whether the database answers before `deadline`, and can be written to.
    ///
    /// # Errors
    /// Why not, for an operator.
    pub async fn ping(&self, deadline: Instant) -> Result<(), String> {
        match self.writer.run_one("select pg_catalog.pg_is_in_recovery()", &[], deadline).await {
            Ok(answer) if answer.rows.first().and_then(|row| row.first()) == Some(&Some("t".to_owned())) => {
                Err("the database is a standby: nothing can be written".to_owned())
            }
            // Every session is at work.
            Ok(_) | Err(pg::Error::PoolTimeout { .. }) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Lends no session of before again: what is prepared in them is needed no more.
    pub fn forget_idle_sessions(&self) {
        self.writer.invalidate_idle();
    }

    /// The ledger as evidence, for people: all accounts.
    #[must_use]
    pub fn audit(&self) -> audit::Audit {
        audit::Audit::new(self.writer.clone(), self.records())
    }

    /// The writes that wait for somebody to agree.
    #[must_use]
    pub fn proposals(&self) -> Proposals {
        Proposals::new(self.writer.clone(), self.gate.clone(), self.records(), &self.settings)
    }

    /// The keys that seal what clients carry.
    #[must_use]
    pub fn state_keys(&self) -> StateKeys {
        StateKeys::new(self.writer.clone())
    }

    /// How many records and proposals are in the states that matter: for monitoring.
    #[must_use]
    pub fn states(&self) -> LedgerGauges {
        self.states.clone()
    }

    /// Whose writes are refused.
    #[must_use]
    pub fn freezes(&self) -> Freezes {
        Freezes::new(self.writer.clone(), self.records())
    }

    /// Undo by people.
    #[must_use]
    pub fn operator(&self) -> operator::Operator {
        operator::Operator::new(self.writer.clone(), self.records())
    }

    /// Undo of many writes.
    #[must_use]
    pub fn plans(&self) -> plans::Plans {
        plans::Plans::new(self.writer.clone(), self.records())
    }

    /// Which changes are recorded.
    #[must_use]
    pub fn tracking(&self) -> Tracking {
        Tracking::new(self.records())
    }

    /// What is stuck in it.
    #[must_use]
    pub fn doctor(&self) -> Doctor {
        Doctor::new(self.records(), &self.settings)
    }

    /// What was written.
    #[must_use]
    pub fn records(&self) -> Records {
        Records::new(self.writer.clone(), self.settings.call_deadline)
    }
}

/// Whether anything answers at the database's address, and would let us in.
///
/// # Errors
/// Why not.
pub async fn can_connect(target: &ConnectOptions) -> Result<(), pg::ConnectError> {
    pg::Session::connect(target, &pg::SessionSettings::default()).await?.close().await;
    Ok(())
}

impl DescribeStatement for Ledger {
    async fn describe(&self, sql: &str, param_types: &[u32]) -> Result<StatementShape, DescribeError> {
        self.writer.describe(sql, param_types).await
    }
}
