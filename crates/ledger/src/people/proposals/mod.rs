//! Writes that wait for an approval.
//!
//! ```text
//! propose   the write is tried in transactions that are rolled back; the preview is stored
//! decide    compare and swap from pending: by the proposing account, or by a person outside of the agent
//! execute   through the gate, like every write; compares the work with the preview, ends the proposal with its record
//! check     a server tries a pending or stale write once more, and says what is not as it was shown
//! recover   another server executes approved proposals of a server that went away
//! ```
//! `proposal` is the stored form, `preview` what people see and what is compared, and `state` the states. `decide`
//! and `human_decision` record decisions. `execute` runs approved proposals through the gate, and `confirmed` is its
//! part within the gate's transaction. `check` finds what has changed since. `recover` finds approved proposals that no server is executing.

mod check;
mod confirmed;
mod decide;
mod effect_comparison;
mod execute;
mod further_rows;
mod human_decision;
mod preview;
mod proposal;
mod recover;
mod state;
mod unusual;
mod watch;
mod without_effect;

use std::sync::Arc;
use std::time::Duration;

use pg::value::text_array;
use pg::{WriterPool, outage};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use types::{CorrelationId, ErrorCode, Failure, IdPrefix, Principal, ProposalId};

pub use check::CallerChanges;
pub use decide::{Decision, DecisionChannel, MAX_REASON_CHARS};
pub use effect_comparison::GENERATED;
pub use execute::ExecutedProposal;
pub use further_rows::FurtherRows;
pub use human_decision::{ConsoleDecider, ConsoleDecisionError, DecisionNonce};
pub(crate) use human_decision::{decision_failure, may_not_decide};
pub use preview::Preview;
pub use proposal::{
    Approval, NewProposal, OutlinedProposal, Proposal, ProposalCheck, ProposalFilter, ProposalOutline, ProposalSummary,
    Question, WriteCounts,
};
pub use state::{ProposalStatus, not_found};
pub use unusual::UnusualValue;
pub use watch::ProposalWatch;
pub use without_effect::Previewed;

use crate::evidence::conflicts;
use crate::evidence::records::Records;
use crate::evidence::values::rfc3339;
use crate::fingerprint::{Fingerprint, Fingerprints};
use crate::write::attempt::WriteCall;
use crate::write::executor::{WriteExecutor, WriteRequest};
use crate::write::executor_registry::{ExecutorRegistry, definition};
use crate::write::existing_write::{self, ExistingWrite};
use crate::write::failures::{internal_error, key_reused, ledger_failure, superseded};
use crate::write::gate::Gate;
use crate::write::intent::MAX_PARAMS_BYTES;
use crate::write::policy::{self, AppliedPolicy, PolicyMode};
use crate::write::preview::Trials;

/// The maximum number of waiting proposals of one account, so that an agent cannot hide an important one among many.
const MAX_PENDING: u32 = 100;

/// The maximum number of approved writes that one server executes concurrently.
const AT_ONCE: usize = 4;

/// The maximum number of attempts at a preview while other writes change its rows.
const TRIES: usize = 5;

const SERIALIZATION_FAILURE: &str = "40001";

/// The SQLSTATE with which the settings of a caller refuse a role.
const REFUSED_ROLE: &str = "22P02";

/// The proposals of one ledger.
#[derive(Debug, Clone)]
pub struct Proposals {
    writer: WriterPool,
    gate: Gate,
    records: Records,
    fingerprints: Fingerprints,
    /// How long a proposal waits for a decision.
    lifetime: Duration,
    /// The time limit of an execution.
    call_deadline: Duration,
    /// Bounds the executions for which no caller waits, because the calls of agents need sessions, too.
    executing: Arc<Semaphore>,
    previewing: Arc<Semaphore>,
    absence: outage::Absence,
}

const WHOLE_SQL: &str = concat!(
    "select nullif(json_strip_nulls(json_build_object('name', p.client_name, 'version', p.client_version, \
    'session_id', p.session_id, 'trace_id', p.trace_id))::text, '{}')::json as client, \
    p.caller_context, p.tool_version, p.definition, p.params, p.fingerprint as params_hash, p.idempotency_key, p.preview, \
    p.decision_reason, \
    (select r.rows::text from countersign.proposal_rows r where r.proposal_id = p.proposal_id) as further_rows, \
    (select n.proposal_id from countersign.proposal n where n.account_id = p.account_id and n.id > p.id \
     and n.tool_name = p.tool_name and n.fingerprint = p.fingerprint order by n.id desc limit 1) as newer, ",
    "(select json_build_object('requested_at', ",
    rfc3339!("c.requested_at"),
    ", 'checked_at', ",
    rfc3339!("c.checked_at"),
    ", 'difference', c.difference, 'found', c.found) \
      from countersign.proposal_check c where c.proposal_id = p.proposal_id) as check, "
);
const LINE_SQL: &str = "select ";
const OUTLINE_SQL: &str = "select (select json_build_object('params', coalesce((select json_object_agg(a.key, \
        case when octet_length(a.value::text) > 200 then to_json(left(a.value #>> '{}', 200)) else a.value end) \
        from json_each(p.params) a where json_typeof(a.value) <> 'null' and not exists ( \
            select from json_array_elements_text(p.preview -> 'in_title') t (name) where t.name = a.key)), '{}'), \
    'counts', countersign.counts_of_preview(p.preview))) as outline, ";
const COLUMNS_SQL: &str = concat!(
    "p.proposal_id, p.account_id, p.actor, p.reason, p.tool_name, p.title, p.tier, p.approvals, p.approvers, \
     countersign.approvals_of(p) as approved_by, (select json_agg(json_build_object('asked_by', q.asked_by, \
     'asked_login', q.asked_login, 'asked_via', q.asked_via, 'question', q.question, 'asked_at', ",
    rfc3339!("q.asked_at"),
    ") order by q.number) from countersign.question q where q.proposal_id = p.proposal_id) as questions, \
     p.description, p.digest, ",
    rfc3339!("p.created_at"),
    " as created_at, ",
    rfc3339!("p.expires_at"),
    " as expires_at, case when p.status = 'pending' and p.expires_at <= clock_timestamp() then 'expired' else p.status end as status, \
     p.decided_by, p.decided_login::text as decided_login, p.decided_via, ",
    rfc3339!("p.decided_at"),
    " as decided_at, p.correlation_id, p.error_code, p.error_message, ",
    rfc3339!("p.completed_at"),
    " as completed_at from countersign.proposal p "
);
const ONE_SQL: &str = "where p.proposal_id = $1::uuid and ($2::text is null \
    or p.account_id = $2 and (p.caller_context is null or p.caller_context::text = $3))";
const LIST_SQL: &str = "where ($1::text is null or p.account_id = $1) \
    and ($4::text is null or p.caller_context is null or p.caller_context::text = $4) and ($2::text is null or $2 = \
    case when p.status = 'pending' and p.expires_at <= clock_timestamp() then 'expired' else p.status end) \
    order by p.id desc limit $3::bigint";
const WAITING_SQL: &str =
    "where p.status = 'pending' and p.expires_at > clock_timestamp() order by p.expires_at limit $1::bigint";
const ENDED_SQL: &str =
    "where p.status <> 'pending' or p.expires_at <= clock_timestamp() order by p.id desc limit $1::bigint";
const FIND_SQL: &str = "where p.proposal_id between $1::uuid and $2::uuid order by p.id desc limit $3::bigint";
const PROPOSE_SQL: &str = "select * from countersign.propose($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, \
    make_interval(secs => $14::double precision), $15, $16, $17, $18, $19, $20, $21, $22, $23, $24)";

impl Proposals {
    pub(crate) fn new(writer: WriterPool, gate: Gate, records: Records, settings: &crate::LedgerOptions) -> Self {
        let (lifetime, call_deadline) = (settings.proposal_lifetime, settings.call_deadline);
        let fingerprints = settings.fingerprints.clone();
        let executing = Arc::new(Semaphore::new(AT_ONCE.min(settings.sessions)));
        let previewing = Arc::new(Semaphore::new((settings.sessions / 2).max(1)));
        let absence = outage::Absence::default();
        Self { writer, gate, records, fingerprints, lifetime, call_deadline, executing, previewing, absence }
    }

    /// The correlation id and the answer of an identical write that is in force, in which case no proposal is needed.
    ///
    /// # Errors
    /// The call fails because an identical write is no longer in force, or because its idempotency key has been used
    /// with other arguments; or the ledger cannot be read.
    pub async fn standing(&self, call: &WriteCall) -> Result<Option<(CorrelationId, Value)>, Failure> {
        let fingerprint = self.fingerprint(&call.tool, &call.request);
        let slot = call.slot(&call.undoes(), &fingerprint);
        let context = &call.request.principal.context;
        let standing = existing_write::find(&self.writer, (&slot, &fingerprint), context, call.deadline);
        let failure = |error: pg::Error| match (&context.role, error.server_error()) {
            (Some(role), Some(error)) if error.sqlstate == REFUSED_ROLE => role.refused(),
            _ => ledger_failure(&error),
        };
        match standing.await.map_err(failure)? {
            None => Ok(None),
            Some(ExistingWrite::Executed(original, cached_result)) => Ok(Some((original, cached_result))),
            Some(ExistingWrite::Superseded(original, detail)) => Err(superseded(original, &detail)),
            Some(ExistingWrite::AlreadyReversed(by)) => Err(conflicts::already_reversed(Some(by))),
            Some(ExistingWrite::KeyReused) => Err(key_reused()),
        }
    }

    /// Applies the policy of the tool to a call that is proposed, and logs the decision. Returns `None` for a tool
    /// without a policy.
    pub async fn apply_policy(&self, call: &WriteCall) -> Result<Option<AppliedPolicy>, Failure> {
        self.decide(call.executor.as_ref(), &call.request, PolicyMode::Refuse, call.deadline).await
    }

    /// The decision of the tool's policy for a call that is only previewed. The limit of the tool
    /// is not checked.
    pub async fn preview_policy(
        &self,
        executor: &dyn WriteExecutor,
        request: &WriteRequest,
        deadline: Instant,
    ) -> Result<Option<AppliedPolicy>, Failure> {
        self.decide(executor, request, PolicyMode::Preview, deadline).await
    }

    async fn decide(
        &self,
        executor: &dyn WriteExecutor,
        request: &WriteRequest,
        mode: PolicyMode<'_>,
        deadline: Instant,
    ) -> Result<Option<AppliedPolicy>, Failure> {
        let Some(call) = executor.policy(request)? else { return Ok(None) };
        policy::decide(&self.writer, &call, &request.principal, mode, deadline).await.map(Some)
    }

    /// Makes the preview of the write.
    pub async fn preview(&self, call: &WriteCall) -> Result<Preview, Failure> {
        let (executor, deadline) = (call.executor.as_ref(), call.deadline);
        let trials = Trials { writer: &self.writer, executor, request: &call.request, deadline };
        if !executor.preview_is_binding() {
            return Ok(Preview::without_run(trials.once(None).await?));
        }
        // A preview holds two sessions of the pool at a time. The semaphore prevents that all previews wait for their
        // second one.
        let permit = tokio::time::timeout_at(deadline, self.previewing.acquire()).await;
        let _permit = permit.map_err(|_| preview::too_many())?.map_err(|_| internal_error())?;
        for _ in 0..TRIES {
            match trials.twice().await {
                Ok([first, second]) => {
                    let preview = Preview::from_two_runs(first, &second)?;
                    let unusual = unusual::of_effects(&self.writer, preview.effects.as_ref(), deadline).await;
                    let preview = Preview { row_key: executor.row_key().to_vec(), unusual, ..preview };
                    return Ok(preview.with_bounded_rows());
                }
                // Other transactions have changed the rows since the snapshot was taken.
                Err(failure) if failure.sqlstate.as_deref() == Some(SERIALIZATION_FAILURE) => {}
                Err(failure) => return Err(failure),
            }
        }
        Err(preview::concurrent_changes())
    }

    /// Whether this call would make the same proposal.
    #[must_use]
    pub fn is_of(&self, proposal: &Proposal, call: &WriteCall) -> bool {
        proposal.tool_name == call.tool
            && proposal.account_id == call.request.principal.account_id
            && proposal.params_hash == self.fingerprint(&call.tool, &call.request).as_str()
            && proposal.idempotency_key == call.idempotency_key
    }

    fn fingerprint(&self, tool: &str, request: &WriteRequest) -> Fingerprint {
        self.fingerprints.of(tool, &request.params, &request.principal.context)
    }

    /// Stores a proposal, or returns the identical one that waits already.
    pub async fn store(
        &self,
        call: &WriteCall,
        draft: &NewProposal,
        preview: &Preview,
        description: &str,
    ) -> Result<Proposal, Failure> {
        let shown = serde_json::to_string(&preview.clone().without_further_rows())
            .map_err(|error| Failure::new(ErrorCode::InternalError, error.to_string()))?;
        let arguments = Value::Object(call.request.params.clone()).to_string();
        too_large(arguments.len(), shown.len())?;
        let principal = &call.request.principal;
        let client = &principal.client;
        let params = [
            Some(ProposalId::new().to_string()),
            Some(principal.account_id.as_str().to_owned()),
            principal.actor.clone(),
            Some(call.tool.clone()),
            Some(draft.title.clone()),
            Some(draft.tool_version.clone()),
            Some(definition(call.executor.as_ref())),
            Some(draft.tier.as_str().to_owned()),
            Some(description.to_owned()),
            Some(arguments),
            Some(self.fingerprint(&call.tool, &call.request).as_str().to_owned()),
            call.idempotency_key.clone(),
            Some(shown),
            Some(self.lifetime.as_secs_f64().to_string()),
            Some(MAX_PENDING.to_string()),
            client.session_id.clone(),
            client.name.clone(),
            client.version.clone(),
            client.trace_id.clone(),
            Some(draft.rule.approvals.to_string()),
            draft.rule.approvers.clone(),
            call.reason.clone(),
            principal.context.to_json(),
            preview.further_text.clone(),
        ];
        let answer = self.writer.run_one(PROPOSE_SQL, &params, call.deadline).await;
        let answer = answer.map_err(|error| ledger_failure(&error))?;
        let row = answer.into_row::<2>();
        match row {
            Some([_, Some(stored)]) => match ProposalId::parse(&stored) {
                Some(id) => self.get(Some(principal), id).await?.ok_or_else(not_found),
                None => Err(not_found()),
            },
            _ => Err(Failure::new(
                ErrorCode::NotPermitted,
                format!("{MAX_PENDING} proposals of this account wait already; nothing was written"),
            )
            .hint(
                "Ask the user to decide pending proposals (list_proposals), or take some back with reject_proposal.",
            )),
        }
    }

    /// Returns a proposal of this caller, or of anybody if `owner` is `None`. A proposal that was made with another role
    /// or other claims is not the caller's.
    pub async fn get(&self, owner: Option<&Principal>, id: ProposalId) -> Result<Option<Proposal>, Failure> {
        let account = owner.map(|owner| owner.account_id.as_str().to_owned());
        let params = [Some(id.to_string()), account, owner.and_then(|owner| owner.context.to_json())];
        let mut row = self.objects(WHOLE_SQL, ONE_SQL, &params).await?.into_iter().next();
        let further_rows = row.as_mut().and_then(|row| row.remove("further_rows"));
        let mut proposal: Option<Proposal> = row.map(parsed).transpose()?;
        if let (Some(proposal), Some(Value::String(rows))) = (&mut proposal, further_rows) {
            proposal.preview.add_further_rows(&rows);
        }
        Ok(proposal)
    }

    /// Like [`Self::get`], after a decision has reached the ledger: a failure does not say that nothing was written.
    async fn get_decided(&self, owner: Option<&Principal>, id: ProposalId) -> Result<Proposal, Failure> {
        let unread = |failure: Failure| Failure {
            message: "the ledger got the decision, but the proposal could not be read then, so its state is not known"
                .to_owned(),
            hint: Some(
                "Look with get_proposal or `countersign proposals show`; repeating the decision is safe.".to_owned(),
            ),
            ..failure
        };
        self.get(owner, id).await.map_err(unread)?.ok_or_else(not_found)
    }

    /// The newest proposals first.
    pub async fn list(&self, filter: &ProposalFilter) -> Result<Vec<ProposalSummary>, Failure> {
        self.list_of(LINE_SQL, filter).await
    }

    /// The proposals of a list with their outlines.
    pub async fn outlines(&self, filter: &ProposalFilter) -> Result<Vec<OutlinedProposal>, Failure> {
        self.list_of(OUTLINE_SQL, filter).await
    }

    async fn list_of<T: DeserializeOwned>(&self, what: &str, filter: &ProposalFilter) -> Result<Vec<T>, Failure> {
        let params = [
            filter.account.as_ref().map(|account| account.as_str().to_owned()),
            filter.status.map(|status| status.as_str().to_owned()),
            Some(filter.limit.to_string()),
            filter.context.as_ref().map(|context| context.to_json().unwrap_or_default()),
        ];
        self.read(what, LIST_SQL, &params).await
    }

    /// The proposals of all accounts that wait for a decision, in the order in which they expire.
    pub async fn waiting(&self, limit: u32) -> Result<Vec<OutlinedProposal>, Failure> {
        self.read(OUTLINE_SQL, WAITING_SQL, &[Some(limit.to_string())]).await
    }

    /// The proposals of all accounts that no longer wait, the most recently proposed first.
    pub async fn lately_ended(&self, limit: u32) -> Result<Vec<OutlinedProposal>, Failure> {
        self.read(OUTLINE_SQL, ENDED_SQL, &[Some(limit.to_string())]).await
    }

    /// The proposals whose id begins with this prefix, newest first.
    pub async fn find(&self, prefix: &IdPrefix, limit: u32) -> Result<Vec<ProposalSummary>, Failure> {
        let [low, high] = prefix.range();
        self.read(LINE_SQL, FIND_SQL, &[Some(low), Some(high), Some(limit.to_string())]).await
    }

    async fn read<T: DeserializeOwned>(
        &self,
        what: &str,
        which: &str,
        params: &[Option<String>],
    ) -> Result<Vec<T>, Failure> {
        self.objects(what, which, params).await?.into_iter().map(parsed).collect()
    }

    async fn objects(
        &self,
        what: &str,
        which: &str,
        params: &[Option<String>],
    ) -> Result<Vec<Map<String, Value>>, Failure> {
        let rows = self.records.objects(&format!("{what}{COLUMNS_SQL}{which}"), params).await;
        rows.map_err(|error| {
            outage::log(&error, "the proposals cannot be read");
            match error {
                pg::Error::Connect(error) => Failure::from(&error),
                _ => Failure::new(ErrorCode::DbError, "the proposals cannot be read"),
            }
        })
    }
}

fn parsed<T: DeserializeOwned>(row: Map<String, Value>) -> Result<T, Failure> {
    serde_json::from_value(Value::Object(row)).map_err(|error| {
        tracing::error!(%error, "a proposal has another form than this server knows");
        Failure::new(ErrorCode::DbError, "a stored proposal cannot be read")
    })
}

/// The names of the tools and their definitions, as two arrays of PostgreSQL in their text form.
fn tool_definitions(executors: &ExecutorRegistry) -> [Option<String>; 2] {
    let tools = executors.definitions().map(|(name, definition)| (name.to_owned(), definition.to_owned()));
    let (names, definitions): (Vec<String>, Vec<String>) = tools.unzip();
    [Some(text_array(&names)), Some(text_array(&definitions))]
}

/// The maximum size of a preview in bytes: a person must be able to read it.
const MAX_PREVIEW_BYTES: usize = 1 << 20;

fn too_large(params: usize, preview: usize) -> Result<(), Failure> {
    let (what, bytes, most) = match (params, preview) {
        (bytes, _) if bytes > MAX_PARAMS_BYTES => ("parameters", bytes, MAX_PARAMS_BYTES),
        (_, bytes) if bytes > MAX_PREVIEW_BYTES => ("preview", bytes, MAX_PREVIEW_BYTES),
        _ => return Ok(()),
    };
    let message =
        format!("the {what} of the proposal would be {bytes} bytes of JSON, and {most} are kept; nothing was written");
    Err(Failure::new(ErrorCode::ResultTooLarge, message).hint("Write less in one call."))
}
