//! Carries a change out in the login of a person: its steps in order, up to the first error.
//!
//! ```text
//! session lock of the change, `applying` on record
//! in a transaction    the statements, tracking renewed, one more ended step on record: COMMIT makes all of it, or nothing
//! alone               the statement; one more ended step on record
//! `applied` or `failed` on record
//! ```
//! So a step in a transaction has happened exactly if it is on record. A statement that ran alone, and whose end is not
//! on record, may have: a person looks.

use std::time::Duration;

use pg::WriterPool;
use schema_change::{SchemaChangeError, SchemaChangeStep, SchemaChangeText};
use tokio::time::Instant;
use types::Failure;

use super::step::{Interrupt, StepError, TIMEOUT, WorkSession};
use super::{SchemaChange, SchemaChanges, refused};
use crate::SchemaError;
use crate::setup::schema;

#[derive(Debug, Clone)]
pub struct ApplyOptions {
    /// How long a statement waits for a lock. Others wait behind it meanwhile.
    pub lock_timeout: Duration,
    /// How often a step is tried while it does not get its locks.
    pub tries: u32,
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
    /// A step failed, and the change with it. The steps before it have ended, and stay.
    Failed { step: u32, line: u32, message: String },
}

/// Why the change has no end on record.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// After the begin, it is not known how far it came: [`SchemaChange::without_end`].
    #[error(transparent)]
    Database(#[from] pg::Error),
    #[error(transparent)]
    Setup(#[from] SchemaError),
    #[error(transparent)]
    Text(#[from] SchemaChangeError),
    /// The ledger refuses it; nothing was done.
    #[error("{}", .0.message)]
    Refused(Failure),
}

const LOCK_SQL: &str = "select pg_try_advisory_lock(countersign.schema_change_lock($1))";
const BEGIN_SQL: &str = "select countersign.begin_schema_change($1, $2, $3, $4)";
const NOTE_SQL: &str = "select countersign.note_schema_step($1, $2)";
const END_SQL: &str = "select countersign.end_schema_change($1, $2, $3, $4)";
const INVALID_SQL: &str = "select format('%I.%I', n.nspname, c.relname) from pg_index i join pg_class c on c.oid = i.indexrelid \
    join pg_namespace n on n.oid = c.relnamespace where not i.indisvalid and c.relkind = 'i' order by 1";

/// The end of a try of a step.
enum Tried {
    Ended {
        tracked: Vec<String>,
        not_renewed: Option<String>,
    },
    Failed {
        line: u32,
        message: String,
        /// It did not get a lock: another try may succeed.
        is_locked: bool,
    },
}

impl SchemaChanges {
    /// Carries a change out that was shown. `who` is the user of the operating system.
    ///
    /// # Errors
    /// [`ApplyError`]
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
            return Err(ApplyError::Refused(refused("busy")));
        }
        let nonce = self.begin_decision(change.change_id).await.map_err(ApplyError::Refused)?;
        let params = [id.clone(), Some(who.to_owned()), Some(change.digest.clone()), Some(nonce.expose().to_owned())];
        let verdict = own(&self.writer, BEGIN_SQL, &params).await?.into_value().unwrap_or_default();
        if verdict != "done" {
            return Err(ApplyError::Refused(refused(&verdict)));
        }
        let mut run = Run { id: id.clone(), writer: &self.writer, options, work };
        let outcome = run.steps(text.steps(), &mut report).await?;
        let (status, message) = match &outcome {
            ApplyOutcome::Applied => ("applied", None),
            ApplyOutcome::Failed { line, message, .. } => ("failed", Some(format!("line {line}: {message}"))),
        };
        own(&self.writer, END_SQL, &[id, Some(who.to_owned()), Some(status.to_owned()), message]).await?;
        run.work.setup.session.close().await;
        Ok(outcome)
    }
}

async fn own(writer: &WriterPool, sql: &str, params: &[Option<String>]) -> Result<pg::StatementResult, pg::Error> {
    writer.run_one(sql, params, Instant::now() + TIMEOUT).await
}

/// A change that is being carried out.
struct Run<'a> {
    id: Option<String>,
    writer: &'a WriterPool,
    options: &'a ApplyOptions,
    work: WorkSession<'a>,
}

impl Run<'_> {
    async fn steps(
        &mut self,
        steps: &[SchemaChangeStep],
        report: &mut impl FnMut(&ApplyEvent<'_>),
    ) -> Result<ApplyOutcome, ApplyError> {
        for step in steps {
            report(&ApplyEvent::Begins(step));
            match self.until_locked(step, report).await? {
                Tried::Ended { tracked, not_renewed } => {
                    report(&ApplyEvent::Ended { step: step.number, tracked, not_renewed });
                }
                Tried::Failed { line, message, .. } => {
                    return Ok(ApplyOutcome::Failed { step: step.number, line, message });
                }
            }
        }
        Ok(ApplyOutcome::Applied)
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
                let message = "it was interrupted".to_owned();
                return Ok(Tried::Failed { line: step.line(), message, is_locked: false });
            }
            let tried = match step.is_alone {
                true => self.alone(step).await?,
                false => self.in_transaction(step).await?,
            };
            match tried {
                Tried::Failed { message, is_locked: true, .. } if attempt < self.options.tries => {
                    let pause = Duration::from_millis(500).saturating_mul(1 << attempt.min(6));
                    report(&ApplyEvent::Waits { step: step.number, attempt, pause, message });
                    self.work.pause(pause).await;
                    attempt += 1;
                }
                tried => return Ok(tried),
            }
        }
    }

    async fn in_transaction(&mut self, step: &SchemaChangeStep) -> Result<Tried, ApplyError> {
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
        match self.finish(step).await {
            Ok(tried) => Ok(tried),
            Err(SchemaError::Database(error)) => self.taken_back(error.into(), step.line()).await,
            Err(error) => self.taken_back(StepError::Boundary(error.to_string()), step.line()).await,
        }
    }

    /// Rolls back a step of which a part failed or went too far.
    async fn taken_back(&mut self, error: StepError, line: u32) -> Result<Tried, ApplyError> {
        let tried = match error {
            StepError::Database(error) => self.failed(error, line)?,
            StepError::Boundary(message) => Tried::Failed { line, message, is_locked: false },
        };
        self.work.rollback().await?;
        Ok(tried)
    }

    /// Renews the tracking of what the step has changed, puts the end on record and commits both with it.
    async fn finish(&mut self, step: &SchemaChangeStep) -> Result<Tried, SchemaError> {
        let (tracked, not_renewed) = self.work.setup.renew_changed().await?;
        self.work.own(NOTE_SQL, &self.note_params(step)).await?;
        self.work.setup.session.batch_execute("commit").await?;
        Ok(Tried::Ended { tracked, not_renewed })
    }

    async fn alone(&mut self, step: &SchemaChangeStep) -> Result<Tried, ApplyError> {
        // CREATE INDEX CONCURRENTLY waits for older transactions without holding up anybody.
        let wait = if step.is_concurrent() { Duration::ZERO } else { self.options.lock_timeout };
        self.work.setup.session.batch_execute(&format!("set lock_timeout = {}", wait.as_millis())).await?;
        let before = self.invalid_indexes().await?;
        if let Err(error) = self.work.run(&step.sql()).await {
            let tried = self.failed(error, step.line())?;
            let mut left = self.invalid_indexes().await?;
            left.retain(|index| !before.contains(index));
            return Ok(match tried {
                Tried::Failed { line, message, .. } if !left.is_empty() => {
                    let drops: Vec<String> =
                        left.iter().map(|index| format!("drop index concurrently {index};")).collect();
                    let message =
                        format!("{message}; an INVALID index is left, which is removed by: {}", drops.join(" "));
                    Tried::Failed { line, message, is_locked: false }
                }
                tried => tried,
            });
        }
        own(self.writer, NOTE_SQL, &self.note_params(step)).await?;
        Ok(Tried::Ended { tracked: Vec::new(), not_renewed: None })
    }

    /// What the error of a statement means for the step.
    fn failed(&self, error: pg::Error, line: u32) -> Result<Tried, ApplyError> {
        let pg::Error::Server(error) = error else { return Err(error.into()) };
        // lock_not_available, deadlock_detected
        let is_locked = matches!(error.sqlstate.as_str(), "55P03" | "40P01");
        let message = match self.work.is_interrupted {
            true if !is_locked => "it was interrupted".to_owned(),
            _ => error.to_string(),
        };
        Ok(Tried::Failed { line, message, is_locked })
    }

    fn note_params(&self, step: &SchemaChangeStep) -> [Option<String>; 2] {
        [self.id.clone(), Some(step.number.to_string())]
    }

    async fn invalid_indexes(&self) -> Result<Vec<String>, pg::Error> {
        let answer = own(self.writer, INVALID_SQL, &[]).await?;
        Ok(answer.rows.into_iter().flatten().flatten().collect())
    }
}
