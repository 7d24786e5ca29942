//! The transaction of a write, which the gate opens and an executor uses.

use std::time::Duration;

use pg::{PipelineError, PipelineStatement, PooledSession, ServerError, StatementResult, WriterPool};
use serde_json::{Map, Value};
use tokio::time::Instant;
use types::{Column, CorrelationId, Effects, Principal};

use crate::evidence::effects;
use crate::evidence::values::as_object;
use crate::write::caller_part::{self, CallerPart, Rights};
use crate::write::error_hints::HintQuery;
use crate::write::failures::{ExecutorError, FENCED, statement_failure, too_large, transaction_ended};
use crate::write::intent::Intent;
use crate::write::loss::LOST;
use crate::write::policy::{NOT_LET_RUN, PolicyStatement};

/// The result of a statement.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    /// The result columns.
    pub columns: Vec<Column>,
    /// The rows as objects, with columns in order.
    pub rows: Vec<Map<String, Value>>,
    /// The number of rows in the command tag.
    pub rows_affected: u64,
}

/// The transaction of one claimed attempt, between its savepoint and the recording of its outcome.
#[derive(Debug)]
pub struct WriteTx<'a> {
    pub(crate) lease: &'a mut PooledSession,
    pub(crate) writer: &'a WriterPool,
    /// The time limit that `countersign.enter_write` sets for statements and locks.
    pub(crate) timeout_ms: String,
    /// The id of the write under which its effects are recorded, also in a preview.
    pub(crate) id: CorrelationId,
    is_preview: bool,
    /// The setting by which the ledger's functions find the attempt after it was claimed.
    pub(crate) hint: Option<String>,
    /// `countersign.incarnation` of a write that was not admitted first.
    incarnation: Option<String>,
    pub(crate) account: String,
    /// The role and the claims of the caller, if it has any.
    pub(crate) caller: Option<CallerPart>,
    /// The opening of the transaction, which is sent together with the first statements to save a round trip.
    opening: Option<TransactionOpening<'a>>,
    unopened: Option<Unopened>,
    /// Whether statements of the caller have run. If so, the server's prepared statements are gone, and settings may
    /// have changed.
    pub(crate) runs_own: bool,
    /// The query for a hint about the last error, which runs after the rollback.
    pub(crate) hint_query: Option<HintQuery>,
    /// Whether the transaction has ended. No statement may run on this session any more, because it would commit by
    /// itself.
    is_ended: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum TransactionOpening<'a> {
    /// A write, and what the ledger must have: [`crate::write::history::History::comparison`].
    Write(&'a Intent, WriteStart<'a>, Option<String>),
    /// A preview, whose attempt exists only in its own transaction. `is_open`: whether that transaction has begun.
    Preview { is_open: bool },
}

/// How a write begins.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WriteStart<'a> {
    /// The attempt is inserted and claimed in the transaction of the write.
    Begin,
    /// The attempt is admitted in a transaction of its own, and claimed in the next one.
    Admit {
        /// Whether the COMMIT of the admission waits for the disk.
        is_durable: bool,
        /// Applies the policy of the tool, if it has one.
        policy: Option<&'a PolicyStatement>,
    },
    /// The ledger has admitted the attempt already.
    Claim,
}

/// The state of a transaction after its executor.
pub(crate) struct TxState<T> {
    /// The result of the executor, if the transaction was opened.
    pub(crate) work: Result<T, ExecutorError>,
    pub(crate) unopened: Option<Unopened>,
    /// The query for a hint about the last error.
    pub(crate) hint_query: Option<HintQuery>,
    /// Where it was written, and found all that its server knew ([`crate::write::history`]).
    pub(crate) incarnation: Option<String>,
}

/// The reason why a transaction could not be opened. No statement of the executor has run.
#[derive(Debug)]
pub(crate) enum Unopened {
    /// The attempt was not admitted, its policy does not let it run, or its claim was refused. The ledger has the
    /// reason.
    Refused,
    /// The ledger lacks acknowledged writes, so nothing is written.
    AfterLoss,
    /// The policy of the tool cannot be applied. The attempt was not admitted.
    Policy(Box<ServerError>),
    /// The connection was lost. The attempt may have been admitted.
    Lost(pg::Error),
    /// The ledger cannot be written. The attempt was not admitted.
    Failed(pg::Error),
    /// The attempt was admitted but cannot be claimed.
    Unclaimed(pg::Error),
}

const BEGIN_SQL: &str = "select countersign.begin_write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $18, $17, $19)";
const TAKE_SLOT_SQL: &str = "select countersign.take_slot($1, $2, $3)";
/// Before the claim of an attempt that was admitted earlier.
const COMPARE_SQL: &str = "select countersign.refuse_after_loss($1)";
const ADMISSION_SQL: &str = "insert into countersign.admission (slot, correlation_id, account_id, actor, session_id, client_name, \
    client_version, trace_id, reason, tool_name, fingerprint, idempotency_key, params, params_summary, undo_of, proposal_id, \
    caller_context) values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)";
const CLAIM_SQL: &str = "select countersign.claim_attempt($1, $2, $3, $4)";
const CHANGES_NOTHING_SQL: &str = "select countersign.changes_nothing($1, $2)";
/// Makes the attempt of a preview in the preview's transaction, with which it is rolled back.
const PREVIEW_SQL: &str = "select countersign.claim_preview($3, $2, null, 'preview', $1)";

impl<'a> WriteTx<'a> {
    pub(crate) fn new(
        lease: &'a mut PooledSession,
        writer: &'a WriterPool,
        (id, principal): (CorrelationId, &Principal),
        deadline: Instant,
        opening: TransactionOpening<'a>,
    ) -> Self {
        Self {
            lease,
            writer,
            timeout_ms: timeout_ms(deadline),
            id,
            is_preview: matches!(opening, TransactionOpening::Preview { .. }),
            hint: None,
            incarnation: None,
            account: principal.account_id.as_str().to_owned(),
            caller: CallerPart::of(&principal.context),
            opening: Some(opening),
            unopened: None,
            runs_own: false,
            hint_query: None,
            is_ended: false,
        }
    }

    /// The correlation id of the attempt; `None` for a preview.
    #[must_use]
    pub fn correlation_id(&self) -> Option<CorrelationId> {
        (!self.is_preview).then_some(self.id)
    }

    /// Ends the executor's part of the transaction. An executor that ran no statement must still claim its attempt.
    pub(crate) async fn close<T>(mut self, work: Result<T, ExecutorError>) -> TxState<T> {
        let work = match work {
            Ok(work) => self.open().await.map(|()| work),
            Err(ExecutorError::Rejected(failure)) if !self.is_preview => self.open().await.and(Err(failure.into())),
            failed => failed,
        };
        TxState { work, unopened: self.unopened, hint_query: self.hint_query, incarnation: self.incarnation }
    }

    /// Opens the transaction, unless a statement has done so.
    pub(crate) async fn open(&mut self) -> Result<(), ExecutorError> {
        self.run_with(Rights::Login, &[]).await.map(drop)
    }

    /// Runs the statements of a tool in order, in one round trip, as the role of the caller if it has one. After an
    /// error the remaining ones are skipped.
    pub async fn run(&mut self, statements: &[PipelineStatement<'_>]) -> Result<Vec<Rows>, ExecutorError> {
        self.run_with(Rights::Caller, statements).await
    }

    /// As [`WriteTx::run`], with these rights.
    pub(crate) async fn run_with(
        &mut self,
        rights: Rights,
        statements: &[PipelineStatement<'_>],
    ) -> Result<Vec<Rows>, ExecutorError> {
        if self.is_ended {
            return Err(transaction_ended());
        }
        let outcome = self.run_in_transaction(rights, statements).await;
        self.is_ended = matches!(outcome, Err(ExecutorError::ConnectionLost(_)));
        outcome
    }

    /// The effects of the work so far, as [`effects::of_write`] returns them. Runs deferred triggers first.
    pub(crate) async fn effects(&mut self) -> Result<Option<Effects>, ExecutorError> {
        let params = effects::params(self.id, effects::MAX_SHOWN);
        Ok(effects::parse_effects(self.after_triggers(effects::step(&params)).await?.rows))
    }

    /// Whether the work so far, which counts this many rows, changes nothing. Runs deferred triggers first.
    pub(crate) async fn changes_nothing(&mut self, rows_affected: u64) -> Result<bool, ExecutorError> {
        let params = [Some(self.id.to_string()), Some(rows_affected.to_string())];
        let answer = self.after_triggers(PipelineStatement::new(CHANGES_NOTHING_SQL, &params)).await?;
        Ok(answer.into_value().as_deref() == Some("t"))
    }

    /// Runs deferred triggers, and then this question to the ledger.
    async fn after_triggers(&mut self, question: PipelineStatement<'_>) -> Result<StatementResult, ExecutorError> {
        self.open().await?;
        let login = self.caller.as_mut().map(|caller| caller.enter(Rights::Login));
        let mut steps = vec![PipelineStatement::without_params("set constraints all immediate")];
        steps.extend(caller_part::steps(login.as_ref()));
        steps.push(question);
        match self.lease.session().run(&steps).await {
            Ok(outcomes) => Ok(outcomes.into_iter().next_back().unwrap_or_default()),
            Err(PipelineError { error: pg::Error::Server(error), .. }) => {
                self.hint_query = HintQuery::of(&error);
                Err(statement_failure(&error).into())
            }
            Err(failed) => {
                self.is_ended = true;
                Err(ExecutorError::ConnectionLost(failed.error))
            }
        }
    }

    async fn run_in_transaction(
        &mut self,
        rights: Rights,
        statements: &[PipelineStatement<'_>],
    ) -> Result<Vec<Rows>, ExecutorError> {
        let opening = self.opening.take();
        let is_opening = opening.is_some();
        if !is_opening && statements.is_empty() && rights == Rights::Login {
            return Ok(Vec::new());
        }
        let entered = self.caller.as_mut().map(|caller| caller.enter(rights));
        let steps = [caller_part::steps(entered.as_ref()).as_slice(), statements].concat();
        let (opened, outcome) = match opening {
            Some(opening) => self.open_and_run(opening, &steps).await,
            None if steps.is_empty() => return Ok(Vec::new()),
            None => (0, self.lease.session().run(&steps).await),
        };
        let first_own = opened + steps.len() - statements.len();
        let mut outcomes = match outcome {
            Ok(outcomes) => outcomes,
            Err(failed) => {
                return Err(match failed.error {
                    // One of the earlier statements has ended the transaction.
                    pg::Error::Server(_) if failed.step >= opened && self.lease.session().is_idle() => {
                        transaction_ended()
                    }
                    pg::Error::Server(error) if (opened..first_own).contains(&failed.step) => {
                        let refused = self.caller.as_ref().and_then(CallerPart::refused);
                        refused.unwrap_or_else(|| statement_failure(&error)).into()
                    }
                    pg::Error::Server(error) if failed.step >= opened => {
                        // A hint about a missing privilege names the login, and not the role.
                        let is_of_role = error.sqlstate == "42501" && self.caller.is_some();
                        self.hint_query = HintQuery::of(&error).filter(|_| !is_of_role);
                        statement_failure(&error).into()
                    }
                    // The whole answer was read, so the transaction can be rolled back.
                    pg::Error::MessageTooLarge { .. } if self.lease.session().in_transaction() => too_large().into(),
                    error => ExecutorError::ConnectionLost(error),
                });
            }
        };
        // The first result of an opening is that of the claim. A preview has no attempt to claim.
        let first = outcomes.drain(..outcomes.len().saturating_sub(statements.len())).next();
        if is_opening && !self.is_preview {
            let opened = first.and_then(StatementResult::into_value);
            (self.hint, self.incarnation) = match opened.as_deref().and_then(|opened| opened.split_once(' ')) {
                Some((hint, incarnation)) => (Some(hint.to_owned()), Some(incarnation.to_owned())),
                None => (opened, None),
            };
        }
        if !self.lease.session().in_transaction() {
            // The compiler refuses statements in manifests that end the transaction, but a native executor could run
            // one.
            return Err(transaction_ended());
        }
        let mut rows = Vec::with_capacity(statements.len());
        for outcome in outcomes {
            let columns = self
                .writer
                .resolve_columns(self.lease, &outcome.columns)
                .await
                .map_err(ExecutorError::ConnectionLost)?;
            let objects = outcome.rows.iter().map(|row| as_object(row, &columns)).collect();
            rows.push(Rows { rows_affected: outcome.rows_affected(), rows: objects, columns });
        }
        Ok(rows)
    }
}

impl WriteTx<'_> {
    /// Opens the transaction and runs the steps in it. Returns the number of steps of the opening, and the outcomes,
    /// beginning with that of the opening's last step.
    async fn open_and_run(
        &mut self,
        opening: TransactionOpening<'_>,
        steps: &[PipelineStatement<'_>],
    ) -> (usize, Result<Vec<StatementResult>, PipelineError>) {
        let session = self.lease.session();
        let timeout_ms = Some(self.timeout_ms.clone());
        let with_steps = |first| std::iter::once(first).chain(steps.iter().copied()).collect::<Vec<_>>();
        let mut policy_at = None;
        let is_begun = matches!(opening, TransactionOpening::Write(_, WriteStart::Begin, _));
        let (before, outcome) = match opening {
            TransactionOpening::Write(intent, WriteStart::Begin, known) => {
                let mut params = intent.columns.to_vec();
                params.extend([timeout_ms, known]);
                let begin = PipelineStatement::new(BEGIN_SQL, &params);
                (1, session.begin(None, &with_steps(begin)).await)
            }
            TransactionOpening::Write(intent, WriteStart::Admit { is_durable, policy }, known) => {
                let claim = claim_params(intent, timeout_ms, false);
                let claim = PipelineStatement::new(CLAIM_SQL, &claim);
                let take = [Some(intent.slot.clone()), Some(is_durable.to_string()), known];
                let take = PipelineStatement::new(TAKE_SLOT_SQL, &take);
                let admission = PipelineStatement::new(ADMISSION_SQL, &intent.columns);
                let mut first = vec![take, admission];
                first.extend(policy.map(PolicyStatement::step));
                policy_at = policy.map(|_| first.len() - 1);
                (first.len() + 2, session.commit_and_begin(&first, &with_steps(claim)).await)
            }
            TransactionOpening::Write(intent, WriteStart::Claim, known) => {
                let claim = claim_params(intent, timeout_ms, true);
                let known = [known];
                let mut all = vec![PipelineStatement::new(COMPARE_SQL, &known)];
                all.extend(with_steps(PipelineStatement::new(CLAIM_SQL, &claim)));
                let compared = session.begin(None, &all).await;
                (2, compared.map(|outcomes| outcomes.into_iter().skip(1).collect()))
            }
            TransactionOpening::Preview { is_open } => {
                let params = [timeout_ms, Some(self.account.clone()), Some(self.id.to_string())];
                let all = with_steps(PipelineStatement::new(PREVIEW_SQL, &params));
                let outcome = if is_open { session.run(&all).await } else { session.begin(None, &all).await };
                (1, outcome)
            }
        };
        if let Err(PipelineError { step, error }) = &outcome
            && !self.is_preview
            // A lost connection may have committed an admission, which the ledger can tell. But a write that has
            // begun must not be started again.
            && (*step < before || !is_begun && !matches!(error, pg::Error::Server(_) | pg::Error::MessageTooLarge { .. }))
        {
            self.unopened = Some(match error {
                pg::Error::Server(error) if is_contended(error) || error.sqlstate == NOT_LET_RUN => Unopened::Refused,
                pg::Error::Server(error) if error.sqlstate == LOST => Unopened::AfterLoss,
                pg::Error::Server(error) if Some(*step) == policy_at => Unopened::Policy(error.clone()),
                pg::Error::Server(error) if *step + 1 == before && !is_begun => {
                    Unopened::Unclaimed(pg::Error::Server(error.clone()))
                }
                pg::Error::Server(error) => Unopened::Failed(pg::Error::Server(error.clone())),
                error => Unopened::Lost(pg::Error::Lost(std::io::Error::other(error.to_string()))),
            });
        }
        (before, outcome)
    }
}

/// The time that is left, in milliseconds, for a limit of PostgreSQL.
pub(crate) fn timeout_ms(deadline: Instant) -> String {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    left.as_millis().min(i32::MAX as u128).to_string()
}

/// The arguments of `countersign.claim`.
fn claim_params(intent: &Intent, timeout_ms: Option<String>, even_if_held: bool) -> [Option<String>; 4] {
    let (correlation_id, slot) = (intent.correlation_id.to_string(), intent.slot.clone());
    [Some(correlation_id), Some(slot), timeout_ms, Some(even_if_held.to_string())]
}

/// Whether an identical call holds the slot, or the claim was refused. [`crate::write::admit`] finds out which.
fn is_contended(error: &ServerError) -> bool {
    error.sqlstate == FENCED || error.sqlstate == "23505" && error.constraint.as_deref() == Some("attempt_pkey")
}
