//! Executes approved proposals that no server executes: approvals by people, and those of a server that went away.
//! Ends proposals that have expired.

use std::sync::Arc;

use tokio::time::Instant;
use types::{CorrelationId, ErrorCode, Failure, ProposalId};

use super::{ExecutedProposal, Proposals, tool_definitions};
use crate::write::executor_registry::ExecutorRegistry;
use crate::write::failures::{WriteError, ledger_failure};

/// What this server can execute, or end because it was altered; and what no server has taken up for a minute.
const CONFIRMED_SQL: &str = "select proposal_id, is_intact, is_overdue from (select p.*, \
        countersign.proposal_digest(p) = p.digest as is_intact, \
        p.error_code is null and p.decided_at < clock_timestamp() - interval '1 minute' as is_overdue \
    from countersign.proposal p \
    where p.status = 'confirmed' and p.attempt_until <= clock_timestamp() and p.tool_name = any ($1::text[])) p \
    where not is_intact or is_overdue or (tool_name, definition) in (select * from unnest($1::text[], $2::text[])) \
    order by decided_at limit 100";
const TAKE_SQL: &str = "select countersign.claim_proposal($1, $2, make_interval(secs => $3::double precision))";
const SWEEP_SQL: &str = "select ended, was from countersign.sweep_proposals($1)";
const MAX_ENDED: u32 = 1000;

fn interrupted() -> Failure {
    let message = "The server stopped while it executed the proposal. Nothing was written; effects outside the database are \
        unknown.";
    Failure::new(ErrorCode::InDoubtAborted, message)
}

impl Proposals {
    /// Starts to execute approved proposals that no server is executing, if `executors` has the tools that were proposed:
    /// approvals by people, and those of a server that went away. Several servers may call this concurrently and
    /// repeatedly: the server that starts an execution owns the proposal for a while, and the execution continues in a task.
    pub async fn recover(&self, executors: &Arc<ExecutorRegistry>) -> Result<(), Failure> {
        let deadline = Instant::now() + self.call_deadline;
        let open = self.writer.run_one(CONFIRMED_SQL, &tool_definitions(executors), deadline).await;
        self.absence.note(&self.writer.target().dbname, &open);
        let open = open.map_err(|error| ledger_failure(&error))?;
        for row in &open.rows {
            let [Some(id), is_intact, is_overdue] = row.as_slice() else { continue };
            let Some(id) = ProposalId::parse(id) else { continue };
            let [is_intact, is_overdue] = [is_intact, is_overdue].map(|it| it.as_deref() == Some("t"));
            // The remaining proposals are left for the next call.
            let Ok(permit) = Arc::clone(&self.executing).try_acquire_owned() else { break };
            let (this, executors) = (self.clone(), Arc::clone(executors));
            self.gate.begin(async move {
                match this.take_up(id, is_intact, is_overdue, &executors).await {
                    Some(Ok(_)) => tracing::info!(proposal_id = %id, "executed the approved proposal"),
                    Some(Err(stopped)) => {
                        // The message may quote values, so it is not logged. Those who may see it find it in the
                        // proposal.
                        let failure = &stopped.failure;
                        tracing::warn!(proposal_id = %id, code = %failure.code, sqlstate = failure.sqlstate, "the approved proposal was not executed");
                    }
                    None => {}
                }
                drop(permit);
            });
        }
        Ok(())
    }

    /// Executes the proposal, unless another server has claimed it. A proposal that this server cannot execute is left to
    /// others; if it is overdue, the reason is stored. The ledger ends one that is not intact.
    async fn take_up(
        &self,
        id: ProposalId,
        is_intact: bool,
        is_overdue: bool,
        executors: &ExecutorRegistry,
    ) -> Option<Result<ExecutedProposal, WriteError>> {
        let proposal = self.get(None, id).await.ok()??;
        let executor = executors.get(&proposal.tool_name);
        if is_intact && let Err(failure) = self.fitting(&proposal, executor) {
            if is_overdue {
                self.release(id, None, &failure).await;
            }
            return None;
        }
        let deadline = Instant::now() + self.call_deadline;
        let attempt = CorrelationId::new();
        let lease = Some(self.attempt_lease().as_secs_f64().to_string());
        let params = vec![Some(id.to_string()), Some(attempt.to_string()), lease];
        let verdict = match self.ask_words(TAKE_SQL, params, deadline).await {
            Ok(verdict) => verdict.into_iter().next().unwrap_or_default(),
            Err(failure) => {
                tracing::warn!(proposal_id = %id, "a confirmed proposal cannot be taken up: {}", failure.message);
                return None;
            }
        };
        if !["done", "again"].contains(&verdict.as_str()) {
            return None;
        }
        // A part of this work is outside of the database, so it is unknown how much of an earlier execution has
        // happened.
        if verdict == "again" && executor.is_some_and(|executor| !executor.preview_is_binding()) {
            let failure = interrupted();
            let ended = self.end(id, attempt, &failure, deadline).await;
            return Some(Err(ended.err().unwrap_or(failure).into()));
        }
        Some(self.execute_claimed(&proposal, executor, attempt, deadline).await)
    }

    /// Ends expired proposals and removes old ones. Returns how many were ended, and how many of these had been
    /// approved.
    pub async fn sweep(&self) -> Result<(usize, usize), Failure> {
        let deadline = Instant::now() + self.call_deadline;
        let params = [Some(MAX_ENDED.to_string())];
        let answer = self.writer.run_one(SWEEP_SQL, &params, deadline).await.map_err(|error| ledger_failure(&error))?;
        let confirmed =
            answer.rows.iter().filter(|row| row.last().is_some_and(|was| was.as_deref() == Some("confirmed")));
        Ok((answer.rows.len(), confirmed.count()))
    }
}
