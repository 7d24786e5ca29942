//! Operators undo the writes of any account, with a login that has the role `countersign_operator`. No server has
//! this role.
//!
//! ```text
//! admit_undo | BEGIN, claim, undo | SET CONSTRAINTS ALL IMMEDIATE, finish, COMMIT
//!                                 | or, with conflicts: ROLLBACK, fail
//! ```
//! `parts` undoes many writes by a plan (`crate::undo::plans`).

mod parts;

use std::collections::BTreeMap;
use std::time::Duration;

use pg::{PipelineError, PipelineStatement, PooledSession, ServerError, Session, WriterPool};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use types::{Conflict, ConflictKind, CorrelationId, Effects, ErrorCode, Rollback, UNDO_TOOL};

pub use parts::UndoProgress;

use crate::evidence::conflicts::{refused_inverse, stored, undo_failure};
use crate::evidence::effects;
use crate::evidence::records::Records;
use crate::evidence::values::array;
use crate::evidence::values::summary;
use crate::fingerprint::sha256_hex;
use crate::undo::plans::{PlanError, Plans, SelectionError, is_of_the_rows};
use crate::undo::{NotRestored, SetAgain, UndoReport};
use crate::write::lock_wait;
use crate::write::renewals::{self, Renewals};

/// The time limit of one undo, which may restore thousands of rows.
const TIMEOUT: Duration = Duration::from_secs(600);

/// How long to wait for another undo of the same writes, and to look up the outcome after a lost connection.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause between two checks whether another undo of the same writes has ended.
const PAUSE: Duration = Duration::from_millis(100);

const ADMIT_SQL: &str = "select verdict, original, call_slot from countersign.admit_undo($1, $2::pg_catalog.uuid[], $3, $4, $5, $6, $7, $8)";
const CLAIM_SQL: &str = "select countersign.claim_attempt($1, $2, $3, true)";
const PREVIEW_SQL: &str = "select countersign.claim_preview(pg_catalog.gen_random_uuid(), \
    (select pg_catalog.max(r.account_id) from countersign.record r where r.correlation_id operator(pg_catalog.=) any ($1::pg_catalog.uuid[])), $2, $3, $4)";
const UNDO_SQL: &str = "select countersign.undo($1::pg_catalog.uuid[])";
const TRY_PART_SQL: &str = "select countersign.try_part($1::pg_catalog.uuid[])";
const TRIAL_SQL: &str = "select countersign.trial_conflicts($1::pg_catalog.uuid[])";
const FINISH_SQL: &str = "select countersign.finish($1, $2, $3, $4, null, null, $5)";
const FAIL_SQL: &str = "select countersign.fail($1, $2, $3, null, $4, $5)";
const RESOLVE_SQL: &str = "select final_status, final_code, final_message from countersign.resolve($1, $2, $3)";

/// Undo by operators.
#[derive(Debug, Clone)]
pub struct Operator {
    writer: WriterPool,
    plans: Plans,
}

/// The result of an undo.
#[derive(Debug, Clone, PartialEq)]
pub enum UndoOutcome {
    /// The rows were restored.
    Undone {
        /// The correlation id of the undo, which can be undone, too.
        correlation_id: CorrelationId,
        /// The number of restored rows.
        rows: u64,
        /// The effects of the undo, if they can be read.
        effects: Option<Effects>,
        /// What triggers changed in the restored rows. Also `None` if the answer of the undo was lost.
        set_again: Option<SetAgain>,
        /// The tables whose rows stay.
        not_restored: Vec<NotRestored>,
    },
    /// The dry run succeeded and was rolled back.
    WouldUndo {
        /// The number of rows that the undo would restore.
        rows: u64,
        /// The tables whose rows would stay.
        not_restored: Vec<NotRestored>,
        /// The columns that triggers would set again, by table.
        set_again: BTreeMap<String, Vec<String>>,
    },
    /// The undo was refused, and nothing was changed.
    Conflicts {
        /// The correlation id of the attempt; `None` for a trial.
        correlation_id: Option<CorrelationId>,
        /// The conflicts.
        conflicts: Vec<Conflict>,
        /// The number of rows of the undo.
        rows: u64,
    },
}

/// The reason why an undo failed, or why its outcome is unknown.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    #[error("an undo of the same writes is running: {0}")]
    InFlight(String),
    #[error(
        "the connection was lost while the undo was being committed, and whether it was is not known: look for {0} with `countersign audit show`"
    )]
    Unknown(CorrelationId),
    #[error("the undo was not made: {0}")]
    Failed(String),
    /// The selection of the plan cannot match any write.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// A query failed.
    #[error(transparent)]
    Database(#[from] pg::Error),
}

impl From<PlanError> for UndoError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Selection(error) => error.into(),
            PlanError::Database(error) => error.into(),
        }
    }
}

/// The result in the record of an undo.
#[derive(Debug, Serialize)]
struct UndoneData<'a> {
    undone: Vec<String>,
    rows: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    set_again: Option<&'a SetAgain>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    not_restored: &'a [NotRestored],
}

struct AdmittedUndo {
    correlation_id: CorrelationId,
    slot: Option<String>,
}

impl Operator {
    pub(crate) fn new(writer: WriterPool, records: Records) -> Self {
        Self { plans: Plans::new(writer.clone(), records), writer }
    }

    /// Undoes one write of any account. The record names `who`, the user of the operating system.
    ///
    /// # Errors
    /// [`UndoError`]; with SQLSTATE 42501 if the login lacks the role `countersign_operator`.
    pub async fn undo(&self, write: CorrelationId, who: &str) -> Result<UndoOutcome, UndoError> {
        self.undo_all(&[write], who, UNDO_TOOL, &json!({"correlation_id": write.to_string()}), None).await
    }

    /// Tries to undo these writes together, in a transaction that is rolled back.
    pub async fn try_undo(&self, writes: &[CorrelationId], who: &str) -> Result<UndoOutcome, UndoError> {
        self.try_parts(&[writes], who).await
    }

    /// Tries to undo sets of writes, one set after another, in a transaction that is rolled back.
    async fn try_parts(&self, parts: &[&[CorrelationId]], who: &str) -> Result<UndoOutcome, UndoError> {
        let mut renewals = Renewals::default();
        let tried = loop {
            let mut lease = self.acquire().await?;
            let pid = lock_wait::backend_pid(&mut lease);
            let (tried, wait) = lock_wait::watched(&self.writer, pid, try_parts(lease.session(), parts, who)).await;
            let tried = tried.map_err(|error| wait.explain_error(error));
            // Also rolls back.
            let is_renewed = renewals::is_renewed(&mut lease).await?;
            if tried.is_ok() || !is_renewed || !renewals.begin(&self.writer) {
                break tried;
            }
        };
        let UndoReport { rows, conflicts, set_again, not_restored } = match tried {
            Ok(answer) => answer,
            Err(pg::Error::Server(error)) if is_of_the_rows(&error.sqlstate) => {
                UndoReport { conflicts: vec![constraint_conflict(&error)], ..UndoReport::default() }
            }
            Err(error) => return Err(error.into()),
        };
        if conflicts.is_empty() {
            let set_again = set_again.map(|set_again| set_again.columns).unwrap_or_default();
            return Ok(UndoOutcome::WouldUndo { rows, not_restored, set_again });
        }
        Ok(UndoOutcome::Conflicts { correlation_id: None, conflicts, rows })
    }

    async fn undo_all(
        &self,
        writes: &[CorrelationId],
        who: &str,
        tool: &str,
        arguments: &Value,
        plan_digest: Option<&str>,
    ) -> Result<UndoOutcome, UndoError> {
        // After a migration, the functions that record and restore the rows of its tables may be outdated.
        let mut lease = self.acquire().await?;
        if renewals::is_renewed(&mut lease).await? {
            self.writer.retire_all();
            lease = self.acquire().await?;
        }
        let admitted = admit(&mut lease, writes, who, tool, arguments, plan_digest).await?;
        let id = Some(admitted.correlation_id.to_string());
        let claim = [id.clone(), admitted.slot.clone(), Some(timeout_ms())];
        let undo = [Some(array(writes))];
        let steps = [step(CLAIM_SQL, &claim), step(UNDO_SQL, &undo)];
        let pid = lock_wait::backend_pid(&mut lease);
        let (begun, wait) = lock_wait::watched(&self.writer, pid, lease.session().begin(None, &steps)).await;
        let answer = match begun {
            Ok(outcomes) => answer(outcomes.into_iter().nth(1).unwrap_or_default().rows),
            Err(failed) => return self.failed(lease, &admitted, wait.explain_error(error(failed)), 0).await,
        };
        if !answer.conflicts.is_empty() {
            return refuse(&mut lease, &admitted, answer.conflicts, answer.rows).await;
        }
        let undone = writes.iter().map(ToString::to_string).collect();
        let (set_again, not_restored) = (answer.set_again.as_ref(), answer.not_restored.as_slice());
        let data = UndoneData { undone, rows: answer.rows, set_again, not_restored };
        let data = serde_json::to_string(&data).map_err(|error| UndoError::Failed(error.to_string()))?;
        let rollback = Rollback::by_effects().of_write(&admitted.correlation_id.to_string());
        let rollback = serde_json::to_string(&rollback).map_err(|error| UndoError::Failed(error.to_string()))?;
        let finish = [id, Some(data.clone()), Some(summary(&data)), Some(answer.rows.to_string()), Some(rollback)];
        let steps = [
            PipelineStatement::without_params("set constraints all immediate"),
            step(FINISH_SQL, &finish),
            PipelineStatement::without_params("commit"),
        ];
        match lease.session().run(&steps).await {
            Ok(outcomes) if outcomes.last().is_some_and(|last| last.tag == "COMMIT") => {}
            Ok(_) => return self.resolve(&admitted, answer.rows).await,
            Err(PipelineError { error: pg::Error::Server(error), .. }) => match refused_inverse(&error) {
                Some(failure) => {
                    let undone = || vec![Conflict::new(ConflictKind::AlreadyReversed).with_message(failure.message)];
                    let conflicts = failure.conflicts.and_then(|conflicts| conflicts.found()).unwrap_or_else(undone);
                    return refuse(&mut lease, &admitted, conflicts, answer.rows).await;
                }
                None => return self.failed(lease, &admitted, pg::Error::Server(error), answer.rows).await,
            },
            Err(failed) => return self.failed(lease, &admitted, failed.error, answer.rows).await,
        }
        self.undone(admitted.correlation_id, answer).await
    }

    async fn undone(&self, correlation_id: CorrelationId, answer: UndoReport) -> Result<UndoOutcome, UndoError> {
        let UndoReport { rows, set_again, not_restored, .. } = answer;
        // The undo is committed, even if its effects cannot be read.
        let effects = effects::of_write(&self.writer, correlation_id, Instant::now() + RESOLVE_TIMEOUT).await;
        Ok(UndoOutcome::Undone { correlation_id, rows, effects: effects.ok().flatten(), set_again, not_restored })
    }

    /// After an error of PostgreSQL, records the failure. After a lost connection, looks up the outcome.
    async fn failed(
        &self,
        mut lease: PooledSession,
        admitted: &AdmittedUndo,
        error: pg::Error,
        rows: u64,
    ) -> Result<UndoOutcome, UndoError> {
        let pg::Error::Server(server) = &error else {
            lease.discard();
            return self.resolve(admitted, rows).await;
        };
        fail(&mut lease, admitted, ErrorCode::SqlError, &server.message, None).await?;
        Err(UndoError::Failed(server.message.clone()))
    }

    /// The outcome of an attempt whose connection was lost. `rows` is its number of rows.
    async fn resolve(&self, admitted: &AdmittedUndo, rows: u64) -> Result<UndoOutcome, UndoError> {
        self.writer.retire_all();
        let id = admitted.correlation_id;
        let wait_ms = Some(RESOLVE_TIMEOUT.as_millis().to_string());
        let params = [Some(id.to_string()), admitted.slot.clone(), wait_ms];
        let asked = self.writer.run_one(RESOLVE_SQL, &params, Instant::now() + RESOLVE_TIMEOUT).await;
        match asked.map_err(|_| UndoError::Unknown(id))?.into_row::<3>() {
            Some([Some(status), ..]) if status == "success" => {
                self.undone(id, UndoReport { rows, ..UndoReport::default() }).await
            }
            Some([_, _, message]) => Err(UndoError::Failed(message.unwrap_or_default())),
            None => Err(UndoError::Unknown(id)),
        }
    }

    async fn acquire(&self) -> Result<PooledSession, pg::Error> {
        self.writer.acquire(Instant::now() + RESOLVE_TIMEOUT).await
    }
}

/// Undoes the parts in a transaction that stays open. The deferred checks of each part run before the next part, as
/// if it were committed.
async fn try_parts(session: &mut Session, parts: &[&[CorrelationId]], who: &str) -> Result<UndoReport, pg::Error> {
    let all = Some(array(&parts.concat()));
    let preview = [all.clone(), Some(who.to_owned()), Some(UNDO_TOOL.to_owned()), Some(timeout_ms())];
    session.begin(None, &[step(PREVIEW_SQL, &preview)]).await.map_err(error)?;
    let mut sum = UndoReport::default();
    for part in parts {
        let undo = [Some(array(part))];
        let sql = if parts.len() == 1 { UNDO_SQL } else { TRY_PART_SQL };
        let outcomes = session.run(&[step(sql, &undo)]).await.map_err(error)?;
        let UndoReport { rows, conflicts, set_again, not_restored } =
            answer(outcomes.into_iter().next().unwrap_or_default().rows);
        sum.rows += rows;
        for (table, columns) in set_again.into_iter().flat_map(|set_again| set_again.columns) {
            let known = sum.set_again.get_or_insert_default().columns.entry(table).or_default();
            known.extend(columns);
            known.sort_unstable();
            known.dedup();
        }
        for kept in not_restored {
            match sum.not_restored.iter_mut().find(|other| other.table == kept.table) {
                Some(other) => (other.left, other.added) = (other.left + kept.left, other.added + kept.added),
                None => sum.not_restored.push(kept),
            }
        }
        if !conflicts.is_empty() {
            return Ok(UndoReport { conflicts, ..sum });
        }
        let checks = ["set constraints all immediate", "set constraints all deferred"];
        session.run(&checks.map(PipelineStatement::without_params)).await.map_err(error)?;
    }
    let proved = session.run(&[step(TRIAL_SQL, &[all])]).await.map_err(error)?;
    let found = proved.into_iter().next().unwrap_or_default().rows.into_iter().flatten().flatten().next();
    sum.conflicts = found.and_then(|found| serde_json::from_str(&found).ok()).unwrap_or_default();
    Ok(sum)
}

fn constraint_conflict(error: &ServerError) -> Conflict {
    let conflict = Conflict::new(ConflictKind::Constraint).with_message(&error.message);
    Conflict { constraint: error.constraint.clone().into(), ..conflict }
}

async fn admit(
    lease: &mut PooledSession,
    writes: &[CorrelationId],
    who: &str,
    tool: &str,
    arguments: &Value,
    plan_digest: Option<&str>,
) -> Result<AdmittedUndo, UndoError> {
    let correlation_id = CorrelationId::new();
    let arguments = arguments.to_string();
    let names: Vec<String> = writes.iter().map(ToString::to_string).collect();
    let params = [
        Some(correlation_id.to_string()),
        Some(array(writes)),
        Some(who.to_owned()),
        Some(tool.to_owned()),
        Some(arguments.clone()),
        Some(summary(&arguments)),
        Some(sha256_hex(&format!("undo {}", names.join(" ")))),
        plan_digest.map(str::to_owned),
    ];
    let end = Instant::now() + RESOLVE_TIMEOUT;
    loop {
        let answer = lease.run_one(ADMIT_SQL, &params, end).await?;
        let row = answer.into_row::<3>();
        let [verdict, original, slot] = row.unwrap_or_default();
        if verdict.as_deref() == Some("run") {
            return Ok(AdmittedUndo { correlation_id, slot });
        }
        // Another process is undoing these writes, or has died while it did; the ledger detects the latter after a
        // second.
        if Instant::now() + PAUSE >= end {
            return Err(UndoError::InFlight(original.unwrap_or_default()));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn refuse(
    lease: &mut PooledSession,
    admitted: &AdmittedUndo,
    conflicts: Vec<Conflict>,
    rows: u64,
) -> Result<UndoOutcome, UndoError> {
    let failure = undo_failure(conflicts.clone());
    let detail = Some(stored(&conflicts).to_string());
    fail(lease, admitted, failure.code, &failure.message, detail).await?;
    Ok(UndoOutcome::Conflicts { correlation_id: Some(admitted.correlation_id), conflicts, rows })
}

/// Rolls back and records the failure.
async fn fail(
    lease: &mut PooledSession,
    admitted: &AdmittedUndo,
    code: ErrorCode,
    message: &str,
    detail: Option<String>,
) -> Result<(), UndoError> {
    let params = [
        Some(admitted.correlation_id.to_string()),
        admitted.slot.clone(),
        Some(code.as_str().to_owned()),
        Some(message.to_owned()),
        detail,
    ];
    lease
        .session()
        .run(&[PipelineStatement::without_params("rollback"), step(FAIL_SQL, &params)])
        .await
        .map_err(error)?;
    Ok(())
}

fn answer(rows: Vec<Vec<Option<String>>>) -> UndoReport {
    let text = rows.into_iter().flatten().flatten().next();
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

fn step<'a>(sql: &'a str, params: &'a [Option<String>]) -> PipelineStatement<'a> {
    PipelineStatement::new(sql, params)
}

fn error(failed: PipelineError) -> pg::Error {
    failed.error
}

fn timeout_ms() -> String {
    TIMEOUT.as_millis().to_string()
}
