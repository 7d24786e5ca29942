//! Checks whether a proposal still says what would happen: a server tries its write once more and rolls it back. The
//! rules are in `migrations/baseline/66_checks.sql`.

use std::collections::BTreeSet;
use std::sync::Arc;

use pg::outage;
use pg::value::text_array;
use serde_json::Value;
use tokio::time::Instant;
use types::{Failure, Principal, ProposalId, RowHistoryEntry};

use super::execute::PAUSE;
use super::human_decision::may_not_decide;
use super::preview::Preview;
use super::state::not_found;
use super::{LINE_SQL, MAX_PREVIEW_BYTES, Proposal, ProposalSummary, Proposals, tool_definitions};
use crate::evidence::row_history::{self, HistoryQuery};
use crate::write::executor::WriteExecutor;
use crate::write::executor_registry::ExecutorRegistry;
use crate::write::failures::ledger_failure;
use crate::write::preview::Trials;

/// The maximum number of recorded changes that are read for a proposal.
const MAX_CHANGES: u32 = 1000;

/// The changes that were recorded since the proposal was made, of the rows that its preview lists and that meet a condition.
macro_rules! changes_sql {
    ($condition:literal) => {
        concat!(
            "\
select e.* from countersign.proposal p cross join lateral ( \
    select distinct t.relation, (o.row -> 'key')::jsonb::text as key from ( \
        select a.value as row from json_array_elements(p.preview #> '{effects,rows}') a \
        union all select a.value from countersign.proposal_rows f cross join lateral json_array_elements(f.rows -> 'rows') a \
        where f.proposal_id = p.proposal_id) o \
    join countersign.tracked t on t.is_current and t.name = o.row ->> 'table' where ",
            $condition,
            ") k cross join lateral ( \
    select * from countersign.effect a \
    where a.relation = k.relation and a.key = k.key and hashtextextended(a.key, 0) = hashtextextended(k.key, 0) \
    union select * from countersign.effect a \
    where a.relation = k.relation and a.key_before = k.key and hashtextextended(a.key_before, 0) = hashtextextended(k.key, 0)) e \
left join countersign.record w on w.correlation_id = e.correlation_id \
where p.proposal_id = $1::uuid and e.op <> 'N' and (p.correlation_id is null or e.correlation_id is distinct from p.correlation_id) \
    and coalesce(w.completed_at, e.changed_at) > greatest(p.created_at, $2::text::timestamptz)"
        )
    };
}
const CHANGES_SQL: &str = changes_sql!("true");
const SEEN_CHANGES_SQL: &str = changes_sql!("o.row -> 'is_unseen' is null");
/// The number of the tables of these names of which no policy hides a row.
const OPEN_TABLES_SQL: &str = "\
select count(distinct t.name) from countersign.tracked t join pg_class c on c.oid = t.relation \
where t.is_current and t.name = any ($1::text[]) and not row_security_active(t.relation)";
const REQUEST_SQL: &str = "select countersign.request_check($1)";
const UNCHECKED_SQL: &str = "where p.proposal_id = $1::uuid \
    and exists (select from countersign.proposal_check c where c.proposal_id = p.proposal_id and c.checked_at is null)";
const TAKE_SQL: &str = "select countersign.take_checks($1::text::text[], $2::text::text[], make_interval(secs => $3::double precision), 10)";
const STORE_SQL: &str = "select countersign.store_check($1, $2, $3)";

/// What has changed since a proposal was made, for its caller.
#[derive(Debug, Default)]
pub struct CallerChanges {
    pub changes: Vec<RowHistoryEntry>,
    /// The number of changed rows that the caller cannot read now.
    pub unread: u64,
    /// Whether the caller may see the rows that the newest check found.
    pub is_check_shown: bool,
}

impl Proposals {
    /// Asks the servers to check a pending or stale proposal, and waits for the answer until the deadline. Needs a login
    /// of a reviewer or of the console.
    pub async fn request_check(&self, id: ProposalId, deadline: Instant) -> Result<Proposal, Failure> {
        let answer = self.writer.run_one(REQUEST_SQL, &[Some(id.to_string())], deadline).await;
        answer.map_err(|error| may_not_decide(&error).unwrap_or_else(|| ledger_failure(&error)))?;
        // Without the parameters and rows, which may be large.
        let is_open = async || {
            let line: Vec<ProposalSummary> = self.read(LINE_SQL, UNCHECKED_SQL, &[Some(id.to_string())]).await?;
            Ok::<bool, Failure>(!line.is_empty())
        };
        while is_open().await? && Instant::now() + PAUSE < deadline {
            tokio::time::sleep(PAUSE).await;
        }
        self.get(None, id).await?.ok_or_else(not_found)
    }

    /// The recorded changes of the rows of a proposal that its preview and its newest check do not show, newest first;
    /// for a check that found a difference, also those before the check, which explain it.
    pub async fn row_changes(&self, proposal: &Proposal) -> Result<Vec<RowHistoryEntry>, Failure> {
        match changes_query(proposal, CHANGES_SQL) {
            Some(query) => row_history::newest(&self.records, query).await.map_err(|error| unknown_changes(&error)),
            None => Ok(Vec::new()),
        }
    }

    /// Like [`Proposals::row_changes`], for the caller that made the proposal: what it cannot read now is only counted.
    pub async fn row_changes_for(
        &self,
        caller: &Principal,
        proposal: &Proposal,
        deadline: Instant,
    ) -> Result<CallerChanges, Failure> {
        let Some(query) = changes_query(proposal, SEEN_CHANGES_SQL) else { return Ok(CallerChanges::default()) };
        let found = row_history::newest_for(&self.records, query, caller, (&self.writer, deadline)).await;
        let (changes, unread) = found.map_err(|error| unknown_changes(&error))?;
        let is_check_shown = proposal.check.is_none() || self.reads_all(caller, proposal, deadline).await?;
        Ok(CallerChanges { changes, unread, is_check_shown })
    }

    /// Whether nothing hides rows of the tables of a proposal and of its check from the caller.
    async fn reads_all(&self, caller: &Principal, proposal: &Proposal, deadline: Instant) -> Result<bool, Failure> {
        if caller.context.role.is_some() {
            return Ok(false);
        }
        let found = proposal.check.as_ref().and_then(|check| check.found.as_ref());
        let effects = [Some(&proposal.preview), found].into_iter().flatten().filter_map(|one| one.effects.as_ref());
        let tables: BTreeSet<&String> = effects.flat_map(|effects| effects.rows.iter().map(|row| &row.table)).collect();
        let tables: Vec<String> = tables.into_iter().cloned().collect();
        let answer = self.writer.run_one(OPEN_TABLES_SQL, &[Some(text_array(&tables))], deadline).await;
        let answer = answer.map_err(|error| unknown_changes(&error))?;
        Ok(answer.into_value().and_then(|count| count.parse().ok()) == Some(tables.len()))
    }

    /// Starts the checks that wait for a server with these tools. Like [`Proposals::recover`], several servers may call
    /// this concurrently and repeatedly.
    pub async fn check_requested(&self, executors: &Arc<ExecutorRegistry>) -> Result<(), Failure> {
        let lease = Some(self.attempt_lease().as_secs_f64().to_string());
        let [names, definitions] = tool_definitions(executors);
        let params = vec![names, definitions, lease];
        let taken = self.ask_words(TAKE_SQL, params, Instant::now() + self.call_deadline);
        for id in taken.await?.iter().filter_map(|id| ProposalId::parse(id)) {
            let (this, executors) = (self.clone(), Arc::clone(executors));
            self.gate.begin(async move {
                if let Err(failure) = this.check(id, &executors).await {
                    // Another server takes it at the end of the lease.
                    tracing::warn!(proposal_id = %id, code = %failure.code, "a proposal was not checked");
                }
            });
        }
        Ok(())
    }

    async fn check(&self, id: ProposalId, executors: &ExecutorRegistry) -> Result<(), Failure> {
        let deadline = Instant::now() + self.call_deadline;
        let Ok(_permit) = self.previewing.acquire().await else { return Ok(()) };
        let Some(proposal) = self.get(None, id).await? else { return Ok(()) };
        let (difference, found) = match self.fitting(&proposal, executors.get(&proposal.tool_name)) {
            Ok(executor) => self.tried(&proposal, executor.as_ref(), deadline).await?,
            Err(failure) => (Some(failure.message), None),
        };
        let found = found.and_then(|found| serde_json::to_string(&found).ok());
        let found = found.filter(|found| found.len() <= MAX_PREVIEW_BYTES);
        self.ask_words(STORE_SQL, vec![Some(id.to_string()), difference, found], deadline).await.map(drop)
    }

    /// What is not as it was shown, and what would happen instead, if the write can be tried.
    async fn tried(
        &self,
        proposal: &Proposal,
        executor: &dyn WriteExecutor,
        deadline: Instant,
    ) -> Result<(Option<String>, Option<Preview>), Failure> {
        let request = proposal.request();
        let trials = Trials { writer: &self.writer, executor, request: &request, deadline };
        let agreed_rows = proposal.preview.agreed_rows.as_ref().map(Value::to_string);
        match trials.once(agreed_rows.as_deref()).await {
            Ok(trial) => Ok(match proposal.preview.difference_of_trial(&trial) {
                None => (None, None),
                difference => (difference, Some(proposal.preview.found(trial))),
            }),
            Err(failure) if failure.retryable => Err(failure),
            Err(failure) => Ok((Some(failure.message), None)),
        }
    }
}

/// The query for the changes of the rows of a proposal, if it can be checked.
fn changes_query(proposal: &Proposal, changes: &'static str) -> Option<HistoryQuery<'static>> {
    let same = proposal.check.as_ref().filter(|check| check.difference.is_none());
    let since = same.and_then(|check| check.checked_at.clone());
    proposal.status.can_be_checked().then(|| HistoryQuery {
        changes,
        params: [Some(proposal.proposal_id.to_string()), since],
        limit: MAX_CHANGES,
        account: None,
        max_bytes: row_history::MAX_BYTES,
    })
}

fn unknown_changes(error: &pg::Error) -> Failure {
    outage::log(error, "the changes of rows cannot be read");
    ledger_failure(error)
}
