//! The audited write path. A caller that writes passes a [`WriteExecutor`] to the [`Gate`], which is the only source
//! of a transaction that may write. [`Ledger`] has the gate and all else of one database. This crate must not depend on
//! tools, manifests or MCP.
//!
//! ```text
//! write     `gate` runs a write in these steps (SQL: `migrations/baseline/20_admission.sql`):
//!             `dedup_cache`  the calls of the last half minute, which an identical call (`fingerprint`) finds
//!             `execute`      one transaction runs the work (`executor`, found by `executor_registry`; `adhoc_sql` is
//!                            the caller's own text) and records its outcome, unless the call is identical to an
//!                            earlier one; `policy` has rules and limits of the tool, `existing_write` says whether
//!                            an identical write is still in force
//!             `admit`        the verdict on an identical call, and attempts committed before their writes begin
//!             `resolve`      after a lost connection: the lock of the record's row arbitrates
//!           `preview` runs a write and rolls it back; `definitions` lists the objects that a write depends on
//! evidence  a write's record, for one account (`records`), its effects, and conflicts of its undo; `tracking`: whether
//!           all its changes are recorded
//! undo      undo of writes: by agents' tools, by people (`operator`), of many (`plans`)
//! people    `proposals` wait for agreement; `schema_changes` people carry out themselves; `freezes` stop an account's writes; `console`; `notices`
//! audit     the records of all accounts: read, sealed in the log, signed, proved, verified, pruned
//! reads     `read_log`, which servers write asynchronously; `reader_role` checks the login of the read path
//! watch     `doctor` finds what is stuck, `gauges` counts what is open, `sweep` ends what stopped servers left
//! setup     `init`: schema, roles, grants, of the SQL in `baseline`; `roles` checks the owner and the servers' login,
//!           `identity` that the ledger was made for this database, `login_settings` the settings of its logins
//! others    `options`; `state_keys` seal what clients keep
//! ```

pub mod audit;
mod baseline;
mod evidence;
mod people;
mod reads;
mod watch;
mod write;
pub use people::{console, proposals, schema_changes};
pub use undo::{operator, plans};
mod fingerprint;
mod options;
mod roles;
mod setup;
mod state_keys;
pub mod undo;

pub use baseline::{BASELINE, BASELINE_GRANTS};
pub use evidence::catalog_version::{CatalogVersion, WatchedTables};
pub use evidence::records::{RecentRecords, RecordStatus, Records, Undoable, UndoneTool};
pub use evidence::time_range::TimeRangeError;
pub use evidence::tracking::{Coverage, CoveredTable, Gap, Tracking, TrackingProblem};
pub use fingerprint::{Fingerprint, Fingerprints, canonical_json};
pub use options::LedgerOptions;
pub use people::freezes::{Freeze, FreezeScope, Freezes};
pub use people::notices::{Notice, NoticeData, Notices};
pub use reads::read_log::{ReadEntry, ReadLog, ReadLogDetail, ReadLogStatus};
pub use reads::reader_role::{ReaderRoleError, changeable_table, check_reader, reachable_without_role};
pub use roles::{APPROVER, CONSOLE, DEFAULT_WRITER, ExcessPrivileges, OPERATOR, OWNER};
pub use setup::identity::Fork;
pub use setup::schema::SchemaError;
pub use setup::{
    Deviation, GrantedObjects, InitOptions, InitReport, OwnerStatements, Progress, ReaderTables, RemovalReport,
    RoleReport, SchemaReport, SkippedRelation, TableNames, TrackOptions, TrackReport, TrackedTable, deviations,
    examine_roles, init, load_once, remove, track, track_new, untrack,
};
pub use state_keys::{StateKey, StateKeys};
pub use watch::doctor::{
    AbandonedRecord, Doctor, MAX_FOUND, ReplicationFacts, ServerFacts, StuckProposal, UnsealedRecords, WaitingProposals,
};
pub use watch::gauges::{LedgerCounts, LedgerGauges};
pub use write::adhoc_sql::{AdhocError, AdhocPlan, AdhocResult};
pub use write::attempt::{WriteCall, WriteOutcome};
pub use write::definitions::Definition;
pub use write::executor::{DEDUP_WINDOW, WriteExecutor, WriteFuture, WriteOutput, WriteRequest};
pub use write::executor_registry::{DuplicateExecutor, ExecutorRegistry};
pub use write::failures::{ExecutorError, WriteError, outdated};
pub use write::gate::Gate;
pub use write::intent::undone_by;
pub use write::modify_rows::{ModificationLimits, ModificationResult, TablePattern};
pub use write::obstacle::{LedgerObstacle, Loss};
pub use write::policy::{AppliedPolicy, AppliedRule, PolicyCall, ToolPolicy};
pub use write::write_tx::{Rows, WriteTx};

use std::time::Duration;

use pg::WriterPool;
pub use pg::{
    ConnectEnvironment, ConnectOptions, ConnectOptionsError, Conninfo, DEFAULT_CONNECT_TIMEOUT, PasswordCommand,
    PipelineStatement as Statement, Pooler, PoolerReport, RowRetention, SshTunnel, guard_ssh, probe_pooler,
};
pub use read::{self, LEDGER_SCHEMA as SCHEMA};
pub use setup::login_settings::LoginSetting;
use tokio::time::Instant;
use types::{ConditionShape, DescribeError, DescribeStatement, Requirements, RequirementsCheck, StatementShape};

use crate::people::console::ConsoleSessions;
use crate::people::proposals::Proposals;
use crate::people::schema_changes::SchemaChanges;

/// The time limit for a statement about the set-up of a ledger.
const SETUP_TIMEOUT: Duration = Duration::from_secs(30);

/// The ledger of one database. No other type has sessions that may write.
#[derive(Debug, Clone)]
pub struct Ledger {
    writer: WriterPool,
    gate: Gate,
    gauges: LedgerGauges,
    read_log: ReadLog,
    settings: LedgerOptions,
}

impl Ledger {
    /// The ledger in this database. This opens no connection; [`Ledger::check`] reports whether the ledger exists.
    #[must_use]
    pub fn new(target: ConnectOptions, settings: LedgerOptions) -> Self {
        let gauges = LedgerGauges::new(target.clone());
        let read_log = ReadLog::new(target.clone(), settings.read_log);
        let writer = WriterPool::new(target, &settings.search_path, settings.sessions);
        Self { gauges, read_log, gate: Gate::new(writer.clone(), settings.clone()), writer, settings }
    }

    /// A ledger for statements that a person types. They run with the search path of the login.
    #[must_use]
    pub fn interactive(target: ConnectOptions, settings: LedgerOptions) -> Self {
        let gauges = LedgerGauges::new(target.clone());
        let writer = WriterPool::interactive(target, settings.sessions);
        Self {
            gauges,
            read_log: ReadLog::default(),
            gate: Gate::new(writer.clone(), settings.clone()),
            writer,
            settings,
        }
    }

    /// The people who are logged in to the console.
    #[must_use]
    pub fn console_sessions(&self) -> ConsoleSessions {
        ConsoleSessions::new(self.writer.clone())
    }

    /// The gate, which runs writes.
    #[must_use]
    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }

    fn database(&self) -> String {
        self.writer.target().dbname.clone()
    }

    /// The rows of one of the ledger's own statements about its set-up.
    async fn rows(&self, sql: &str, params: &[Option<String>]) -> Result<Vec<Vec<Option<String>>>, pg::Error> {
        Ok(self.writer.run_one(sql, params, Instant::now() + SETUP_TIMEOUT).await?.rows)
    }

    /// Checks that the database answers before `deadline` and, if the server `writes`, that it accepts writes.
    pub async fn ping(&self, deadline: Instant, writes: bool) -> Result<(), String> {
        match self.writer.run_one("select pg_catalog.pg_is_in_recovery()", &[], deadline).await {
            Ok(answer) if writes && answer.rows.first().and_then(|row| row.first()) == Some(&Some("t".to_owned())) => {
                return Err("the database is a standby: nothing can be written".to_owned());
            }
            // The pool is full because every session is in use, so the database does answer.
            Ok(_) | Err(pg::Error::PoolTimeout { .. }) => {}
            Err(error) => return Err(error.to_string()),
        }
        if writes {
            // A server that only waits looks for a loss, too.
            let obstacle = self.gate.obstacle(None).await.map_err(|error| error.to_string())?;
            if let Some(obstacle) = obstacle {
                return Err(obstacle.failure().message);
            }
            let shortage = self.gate.shortage.current();
            return shortage.map_or(Ok(()), |what| Err(format!("the last write failed: {what}")));
        }
        Ok(())
    }

    /// Closes the idle sessions that were not used for this time.
    pub async fn close_unused(&self, time: Duration) {
        self.writer.close_unused(time).await;
        self.gauges.close_unused(time).await;
        self.read_log.close_unused(time).await;
    }

    /// Discards the idle sessions with their prepared statements.
    pub fn forget_idle_sessions(&self) {
        self.writer.retire_all();
    }

    /// The records of all accounts, for people who may see them.
    #[must_use]
    pub fn audit(&self) -> audit::Audit {
        audit::Audit::new(self.writer.clone(), self.records())
    }

    /// The writes that wait for agreement.
    #[must_use]
    pub fn proposals(&self) -> Proposals {
        Proposals::new(self.writer.clone(), self.gate.clone(), self.records(), &self.settings)
    }

    /// The schema changes, which people carry out.
    #[must_use]
    pub fn schema_changes(&self) -> SchemaChanges {
        SchemaChanges::new(self.writer.clone(), self.records(), self.settings.call_deadline)
    }

    /// The notices of proposals that wait to be sent.
    #[must_use]
    pub fn notices(&self) -> Notices {
        Notices::new(self.writer.clone())
    }

    /// The keys that seal values which clients keep.
    #[must_use]
    pub fn state_keys(&self) -> StateKeys {
        StateKeys::new(self.writer.clone())
    }

    /// The numbers of records and proposals by state, for monitoring.
    #[must_use]
    pub fn gauges(&self) -> LedgerGauges {
        self.gauges.clone()
    }

    /// The log of reads.
    #[must_use]
    pub fn read_log(&self) -> ReadLog {
        self.read_log.clone()
    }

    /// The freezes of accounts and actors.
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

    /// The version of the catalog rows that the statements on these tables depend on.
    pub async fn catalog_version(&self, tables: &WatchedTables) -> Result<CatalogVersion, pg::Error> {
        evidence::catalog_version::load(&self.records(), tables).await
    }

    /// Checks what a tool requires whose statements this login runs; `None`: the login of the servers.
    pub async fn check_requirements_of(
        &self,
        requirements: &Requirements,
        login: Option<&str>,
    ) -> Result<RequirementsCheck, DescribeError> {
        self.writer.check_requirements_of(requirements, login).await
    }

    /// The tables whose changes are recorded.
    #[must_use]
    pub fn tracking(&self) -> Tracking {
        Tracking::new(self.records())
    }

    /// Checks for stuck records.
    #[must_use]
    pub fn doctor(&self) -> Doctor {
        Doctor::new(self.records(), &self.settings)
    }

    /// The records of one account.
    #[must_use]
    pub fn records(&self) -> Records {
        Records::new(self.writer.clone(), self.settings.call_deadline)
    }
}

/// Checks that a connection to the database succeeds.
pub async fn can_connect(target: &ConnectOptions) -> Result<(), pg::ConnectError> {
    pg::Session::connect(target, &pg::SessionSettings::default()).await?.close().await;
    Ok(())
}

impl DescribeStatement for Ledger {
    async fn describe(&self, sql: &str, param_types: &[u32]) -> Result<StatementShape, DescribeError> {
        self.writer.describe(sql, param_types).await
    }

    async fn check_requirements(&self, requirements: &Requirements) -> Result<RequirementsCheck, DescribeError> {
        self.check_requirements_of(requirements, None).await
    }

    async fn describe_condition(&self, sql: &str, param_types: &[u32]) -> Result<ConditionShape, DescribeError> {
        self.writer.describe_condition(sql, param_types).await
    }
}
