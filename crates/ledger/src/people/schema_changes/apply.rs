//! Carries a change out, step by step, in the login of a person.
//!
//! ```text
//! session lock of the change, `begun` on record
//! in a transaction    the statements, tracking renewed, the step on record: COMMIT makes all of it, or nothing
//! alone               begin on record; the statement; end on record
//! `applied` or `failed` on record
//! ```
//! So a step in a transaction has happened exactly if it is on record. A statement that ran alone, and whose end is not
//! on record, may have: a person says which.

use std::time::{Duration, SystemTime};

use pg::WriterPool;
use schema_change::{SchemaChangeError, SchemaChangeStep, SchemaChangeText};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::Instant;
use types::Failure;

use super::step::{Interrupt, StepError, TIMEOUT, WorkSession};
use super::{SchemaChange, SchemaChanges, SchemaStep, refused};
use crate::SchemaError;
use crate::fingerprint::sha256_hex;
use crate::setup::schema;

/// What a person has found out about a step whose end is not on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfinished {
    /// The step with this number is done.
    Done(u32),
    /// The step with this number is not done, and is repeated.
    Repeat(u32),
}

#[derive(Debug, Clone)]
pub struct ApplyOptions {
    /// How long a statement waits for a lock. Others wait behind it meanwhile.
    pub lock_timeout: Duration,
    /// How often a step is tried while it does not get its locks.
    pub tries: u32,
    pub unfinished: Option<Unfinished>,
}

impl Default for ApplyOptions {
    fn default() -> Self {
        Self { lock_timeout: Duration::from_secs(2), tries: 10, unfinished: None }
    }
}

/// What happens while a change is carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyEvent<'a> {
    /// A step begins.
    Begins(&'a SchemaChangeStep),
    /// The step was rolled back, since it did not get a lock, and is tried again after the pause.
    Waits { step: u32, attempt: u32, pause: Duration, message: String },
    /// A step has ended. `tracked`: the tables whose tracking was renewed. `not_renewed`: why the tracking of changed
    /// tables was not.
    Ended { step: u32, tracked: Vec<String>, not_renewed: Option<String> },
}

/// How the work ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyOutcome {
    /// Every step has ended.
    Applied,
    /// A step failed, and the change with it. `steps` ended before.
    Failed { step: u32, line: u32, message: String, steps: u32, invalid_indexes: Vec<String> },
    /// The work can go on: the step was interrupted, or did not get its locks.
    Unfinished { step: u32, message: String, steps: u32, invalid_indexes: Vec<String> },
}

/// Why nothing was carried out.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error(transparent)]
    Database(#[from] pg::Error),
    #[error(transparent)]
    Setup(#[from] SchemaError),
    #[error(transparent)]
    Text(#[from] SchemaChangeError),
    /// The ledger refuses it.
    #[error("{}", .0.message)]
    Refused(Failure),
    #[error("the schema change is being carried out by another process; nothing was done here")]
    Busy,
    #[error(
        "step {number} (line {line}: {sql}) had begun at {began_at}, and its end is not on record: look whether the database \
         has what it makes{}. Then go on with --done {number}, or run it again with --repeat {number}",
        if invalid_indexes.is_empty() { String::new() } else { format!("; {}", drop_hint(invalid_indexes)) }
    )]
    StepUnknown { number: u32, line: u32, sql: String, began_at: String, invalid_indexes: Vec<String> },
    #[error("step {0} is not one whose end is unknown: leave --done and --repeat out")]
    StepKnown(u32),
    #[error("step {0} is on record with another text than this version of countersign makes of the change")]
    StepDiffers(u32),
}

/// What to do about indexes that a failed statement has left.
#[must_use]
pub fn drop_hint(indexes: &[String]) -> String {
    let drops: Vec<String> = indexes.iter().map(|index| format!("drop index concurrently {index};")).collect();
    format!("an INVALID index is left, which is removed by: {}", drops.join(" "))
}

const LOCK_SQL: &str = "select pg_try_advisory_lock(countersign.schema_change_lock($1))";
const BEGIN_SQL: &str = "select countersign.begin_schema_change($1, $2, $3, $4)";
const NOTE_SQL: &str = "select countersign.note_schema_step($1, $2, $3, $4, $5, $6, $7)";
const END_STEP_SQL: &str = "select countersign.end_schema_step($1, $2, $3)";
const END_SQL: &str = "select countersign.end_schema_change($1, $2, $3, $4)";
const INVALID_SQL: &str = "select format('%I.%I', n.nspname, c.relname) from pg_index i join pg_class c on c.oid = i.indexrelid \
    join pg_namespace n on n.oid = c.relnamespace where not i.indisvalid and c.relkind = 'i' order by 1";

/// The end of a try of a step.
enum Tried {
    Ended {
        tracked: Vec<String>,
        not_renewed: Option<String>,
    },
    /// Another try may succeed.
    Locked(String),
    Interrupted(String),
    Failed {
        line: u32,
        message: String,
    },
}

impl SchemaChanges {
    /// Carries a change out that was shown, or goes on with it. `who` is the user of the operating system.
    ///
    /// # Errors
    /// [`ApplyError`]: nothing was done now, or the connection was lost; the same call goes on.
    pub async fn apply(
        &self,
        change: &SchemaChange,
        who: &str,
        options: &ApplyOptions,
        interrupt: Interrupt<'_>,
        mut report: impl FnMut(&ApplyEvent<'_>),
    ) -> Result<ApplyOutcome, ApplyError> {
        let target = self.writer.target();
        schema::refuse_pooler(target)?;
        let text = SchemaChangeText::parse(&change.sql)?;
        let id = Some(change.change_id.to_string());
        let mut work = WorkSession::open(target, &self.writer, interrupt).await?;
        if work.own(LOCK_SQL, std::slice::from_ref(&id)).await?.into_value().as_deref() != Some("t") {
            return Err(ApplyError::Busy);
        }
        let nonce = self.begin_decision(change.change_id).await.map_err(ApplyError::Refused)?;
        let params = [id.clone(), Some(who.to_owned()), Some(change.digest.clone()), Some(nonce.expose().to_owned())];
        let verdict = self.own(BEGIN_SQL, &params).await?.into_value().unwrap_or_default();
        if !matches!(verdict.as_str(), "done" | "again") {
            return Err(ApplyError::Refused(refused(&verdict)));
        }
        let change = self.get(None, change.change_id).await.map_err(ApplyError::Refused)?;
        let change = change.ok_or_else(|| ApplyError::Refused(super::not_found()))?;
        let mut run = Run { changes: self, change: &change, options, work };
        let outcome = run.steps(text.steps(), &mut report).await?;
        let ending = match &outcome {
            ApplyOutcome::Applied => Some(("applied", None)),
            ApplyOutcome::Failed { message, .. } => Some(("failed", Some(message.clone()))),
            ApplyOutcome::Unfinished { .. } => None,
        };
        if let Some((status, message)) = ending {
            let params = [id, Some(who.to_owned()), Some(status.to_owned()), message];
            self.own(END_SQL, &params).await?;
        }
        run.work.setup.session.close().await;
        Ok(outcome)
    }

    async fn own(&self, sql: &str, params: &[Option<String>]) -> Result<pg::StatementResult, pg::Error> {
        own(&self.writer, sql, params).await
    }
}

async fn own(writer: &WriterPool, sql: &str, params: &[Option<String>]) -> Result<pg::StatementResult, pg::Error> {
    writer.run_one(sql, params, Instant::now() + TIMEOUT).await
}

/// A change that is being carried out.
struct Run<'a> {
    changes: &'a SchemaChanges,
    change: &'a SchemaChange,
    options: &'a ApplyOptions,
    work: WorkSession<'a>,
}

impl Run<'_> {
    async fn steps(
        &mut self,
        steps: &[SchemaChangeStep],
        report: &mut impl FnMut(&ApplyEvent<'_>),
    ) -> Result<ApplyOutcome, ApplyError> {
        let is_known = |number| {
            !self
                .change
                .steps
                .iter()
                .any(|step| step.number == number && step.ended_at.is_none() && step.error.is_none())
        };
        if let Some(Unfinished::Done(number) | Unfinished::Repeat(number)) = self.options.unfinished
            && is_known(number)
        {
            return Err(ApplyError::StepKnown(number));
        }
        for step in steps {
            let ended = step.number - 1;
            if let Some(record) = self.change.steps.iter().find(|record| record.number == step.number) {
                if record.sql_digest != digest(step) {
                    return Err(ApplyError::StepDiffers(step.number));
                }
                if record.ended_at.is_some() || self.is_done(step, record).await? {
                    continue;
                }
            }
            report(&ApplyEvent::Begins(step));
            let before = self.invalid_indexes().await?;
            let tried = self.until_locked(step, report).await?;
            let mut invalid_indexes = Vec::new();
            if !matches!(tried, Tried::Ended { .. }) {
                invalid_indexes = self.invalid_indexes().await?;
                invalid_indexes.retain(|index| !before.contains(index));
            }
            let (number, steps) = (step.number, ended);
            match tried {
                Tried::Ended { tracked, not_renewed } => {
                    report(&ApplyEvent::Ended { step: number, tracked, not_renewed });
                }
                Tried::Locked(message) | Tried::Interrupted(message) => {
                    return Ok(ApplyOutcome::Unfinished { step: number, message, steps, invalid_indexes });
                }
                Tried::Failed { line, message } => {
                    return Ok(ApplyOutcome::Failed { step: number, line, message, steps, invalid_indexes });
                }
            }
        }
        Ok(ApplyOutcome::Applied)
    }

    /// Whether a step that is on record without an end is done, as the person says.
    async fn is_done(&self, step: &SchemaChangeStep, record: &SchemaStep) -> Result<bool, ApplyError> {
        match self.options.unfinished {
            _ if record.error.is_some() => Ok(false),
            Some(Unfinished::Repeat(number)) if number == step.number => Ok(false),
            Some(Unfinished::Done(number)) if number == step.number => {
                self.changes.own(END_STEP_SQL, &self.end_params(step, None)).await?;
                Ok(true)
            }
            _ => Err(ApplyError::StepUnknown {
                number: step.number,
                line: step.line(),
                sql: step.sql(),
                began_at: record.began_at.clone(),
                invalid_indexes: self.invalid_indexes().await?,
            }),
        }
    }

    /// Tries a step until it gets its locks, with growing pauses.
    async fn until_locked(
        &mut self,
        step: &SchemaChangeStep,
        report: &mut impl FnMut(&ApplyEvent<'_>),
    ) -> Result<Tried, ApplyError> {
        let mut attempt = 1;
        loop {
            if self.work.is_interrupted {
                return Ok(Tried::Interrupted("it was interrupted".to_owned()));
            }
            let tried = match step.is_alone {
                true => self.alone(step).await?,
                false => self.in_transaction(step, attempt).await?,
            };
            match tried {
                Tried::Locked(message) if attempt < self.options.tries => {
                    let pause = Duration::from_millis(500).saturating_mul(1 << attempt.min(6));
                    report(&ApplyEvent::Waits { step: step.number, attempt, pause, message });
                    self.work.pause(pause).await;
                    attempt += 1;
                }
                tried => return Ok(tried),
            }
        }
    }

    async fn in_transaction(&mut self, step: &SchemaChangeStep, attempt: u32) -> Result<Tried, ApplyError> {
        let began_at = now();
        self.work.begin(self.options.lock_timeout).await?;
        self.work.enter_text().await?;
        for statement in &step.statements {
            if let Err(error) = self.work.run_within(&statement.sql).await {
                return self.taken_back(error, statement.line).await;
            }
        }
        self.work.leave_text().await?;
        if let Err(error) = self.work.check_ledger().await {
            return self.taken_back(error, step.line()).await;
        }
        match self.finish(step, attempt, began_at).await {
            Ok(tried) => Ok(tried),
            Err(ApplyError::Database(error)) => self.taken_back(error.into(), step.line()).await,
            Err(ApplyError::Setup(error)) => {
                self.work.rollback().await?;
                Ok(Tried::Failed { line: step.line(), message: error.to_string() })
            }
            Err(error) => Err(error),
        }
    }

    /// Rolls back a step of which a part failed or went too far.
    async fn taken_back(&mut self, error: StepError, line: u32) -> Result<Tried, ApplyError> {
        let tried = match error {
            StepError::Database(error) => self.failed(error, line)?,
            StepError::Boundary(message) => Tried::Failed { line, message },
        };
        self.work.rollback().await?;
        Ok(tried)
    }

    /// Renews the tracking of what the step has changed, puts the step on record and commits both with it.
    async fn finish(&mut self, step: &SchemaChangeStep, attempt: u32, began_at: String) -> Result<Tried, ApplyError> {
        let (tracked, not_renewed) = self.work.setup.renew_changed().await?;
        let params = self.note_params(step, attempt, began_at, true);
        self.work.own(NOTE_SQL, &params).await?;
        self.work.setup.session.batch_execute("commit").await?;
        Ok(Tried::Ended { tracked, not_renewed })
    }

    async fn alone(&mut self, step: &SchemaChangeStep) -> Result<Tried, ApplyError> {
        self.changes.own(NOTE_SQL, &self.note_params(step, 1, now(), false)).await?;
        // CREATE INDEX CONCURRENTLY waits for older transactions without holding up anybody.
        let wait = if step.is_concurrent() { Duration::ZERO } else { self.options.lock_timeout };
        self.work.setup.session.batch_execute(&format!("set lock_timeout = {}", wait.as_millis())).await?;
        let ended = self.work.run(&step.sql()).await;
        let tried = match ended {
            Ok(_) => Tried::Ended { tracked: Vec::new(), not_renewed: None },
            Err(error) => self.failed(error, step.line())?,
        };
        let message = match &tried {
            Tried::Ended { .. } => None,
            Tried::Locked(message) | Tried::Interrupted(message) | Tried::Failed { message, .. } => {
                Some(message.clone())
            }
        };
        self.changes.own(END_STEP_SQL, &self.end_params(step, message)).await?;
        Ok(tried)
    }

    /// What the error of a statement means for the step.
    fn failed(&self, error: pg::Error, line: u32) -> Result<Tried, ApplyError> {
        let pg::Error::Server(error) = error else { return Err(error.into()) };
        let message = error.to_string();
        Ok(match error.sqlstate.as_str() {
            // lock_not_available, deadlock_detected
            "55P03" | "40P01" => Tried::Locked(message),
            _ if self.work.is_interrupted => Tried::Interrupted("it was interrupted".to_owned()),
            // query_canceled: by somebody else, or a time limit of the login.
            "57014" => Tried::Interrupted(message),
            _ => Tried::Failed { line, message },
        })
    }

    fn note_params(
        &self,
        step: &SchemaChangeStep,
        attempts: u32,
        began_at: String,
        ended: bool,
    ) -> [Option<String>; 7] {
        [
            self.change.change_id.to_string(),
            step.number.to_string(),
            digest(step),
            step.is_alone.to_string(),
            attempts.to_string(),
            began_at,
            ended.to_string(),
        ]
        .map(Some)
    }

    fn end_params(&self, step: &SchemaChangeStep, message: Option<String>) -> [Option<String>; 3] {
        [Some(self.change.change_id.to_string()), Some(step.number.to_string()), message]
    }

    async fn invalid_indexes(&self) -> Result<Vec<String>, pg::Error> {
        let answer = self.changes.own(INVALID_SQL, &[]).await?;
        Ok(answer.rows.into_iter().flatten().flatten().collect())
    }
}

fn digest(step: &SchemaChangeStep) -> String {
    sha256_hex(&step.sql())
}

fn now() -> String {
    OffsetDateTime::from(SystemTime::now()).format(&Rfc3339).unwrap_or_default()
}
