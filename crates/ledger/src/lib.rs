//! The audited write path. A write is a [`WriteExecutor`] that is given to the [`Gate`]; there is no other way to
//! a transaction that writes.
//!
//! ```text
//! T1  admit    the intent is recorded and committed; is this call the same as another one?
//! T2  execute  claim the record, do the work, record the outcome: one transaction, so both happen or neither
//!     resolve  after a lost connection: the record's row lock arbitrates, the record has the outcome
//! ```
//!
//! - The protocol: `gate` has the order of its steps, which are `intent`, `admit`, `execute` and `resolve`; their SQL
//!   is in `migrations/baseline/20_admission.sql`. `dedup_cache` knows the calls of the last half minute, and
//!   `standing` asks whether they are still in force. `fingerprint` decides which calls are the same. `sweep` ends
//!   records that killed servers left pending.
//! - Executors: `executor` is the trait of write tools, `executor_registry` finds one by its name, `write_tx` is their
//!   transaction, `adhoc_sql` runs a statement of the caller, `preview` runs a write without keeping it, `definitions`
//!   are the objects that it depends on.
//! - `proposals` are writes that wait for an approval; `freezes` stop the writes of an account; `tracking` says
//!   whether all changes of a write are recorded.
//! - Readers: `records` is for agents, `audit` for people (all records, seals, pruning), `doctor` reports stuck work,
//!   `gauges` counts open work.
//! - Set-up: `setup` is `init`, `schema` checks the ledger, `identity` the database that it was made for. `roles` are
//!   its owner and the servers' login, `reader_role` the login of the read path, `login_settings` their settings,
//!   `state_keys` seal data that clients keep.
//! - `read` re-exports the read path of `pg`.
//!
//! This crate must not depend on tools, manifests or MCP.

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
pub mod read;
mod reader_role;
mod records;
mod resolve;
mod roles;
mod schema;
mod setup;
mod standing;
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

/// The schema that the ledger lives in.
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

    /// Uses the role's own search path, for statements that a person writes.
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

    /// Whether the database answers before `deadline` and accepts writes.
    ///
    /// # Errors
    /// The reason why not, for an operator.
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

    /// The proposals.
    #[must_use]
    pub fn proposals(&self) -> Proposals {
        Proposals::new(self.writer.clone(), self.gate.clone(), self.records(), &self.settings)
    }

    /// The keys that seal what clients carry.
    #[must_use]
    pub fn state_keys(&self) -> StateKeys {
        StateKeys::new(self.writer.clone())
    }

    /// The counts for monitoring.
    #[must_use]
    pub fn states(&self) -> LedgerGauges {
        self.states.clone()
    }

    /// The freezes.
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

    /// The checks of `doctor`.
    #[must_use]
    pub fn doctor(&self) -> Doctor {
        Doctor::new(self.records(), &self.settings)
    }

    /// The records.
    #[must_use]
    pub fn records(&self) -> Records {
        Records::new(self.writer.clone(), self.settings.call_deadline)
    }
}

/// Whether a server answers at the database's address and accepts the login.
///
/// # Errors
/// The reason why not.
pub async fn can_connect(target: &ConnectOptions) -> Result<(), pg::ConnectError> {
    pg::Session::connect(target, &pg::SessionSettings::default()).await?.close().await;
    Ok(())
}

impl DescribeStatement for Ledger {
    async fn describe(&self, sql: &str, param_types: &[u32]) -> Result<StatementShape, DescribeError> {
        self.writer.describe(sql, param_types).await
    }
}
