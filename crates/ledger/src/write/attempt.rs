//! Attempts to write through the gate, and their outcomes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use types::{CorrelationId, Redaction, Rollback};

use crate::evidence::values::{array, summary};
use crate::fingerprint::{Fingerprint, canonical_json};
use crate::write::executor::{WriteExecutor, WritePrecondition, WriteRequest};
use crate::write::intent::{Intent, slot, undone_by};
use crate::write::policy::AppliedPolicy;

/// The time limit for looking up an outcome after the deadline has passed or the connection was lost.
pub(crate) const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The time limit for recording a failure when it is known that nothing was written. If it is exceeded, the sweep
/// ends the attempt.
pub(crate) const UNDONE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the gate waits after the deadline before it abandons the session. PostgreSQL cancels the statement at the
/// deadline, so this leaves time to record the failure.
pub(crate) const CANCEL_GRACE: Duration = Duration::from_secs(2);

/// A call of a write tool that has passed validation.
#[derive(Clone)]
pub struct WriteAttempt {
    /// The requested write.
    pub request: WriteRequest,
    /// The tool.
    pub tool: String,
    /// The agent's reason for the write, for people. It is not part of the fingerprint.
    pub reason: Option<String>,
    /// The sensitive parameters, which must not appear in the record, in logs or in later answers. The fingerprint
    /// still covers them.
    pub redaction: Redaction,
    /// The idempotency key, if there is one: the key of an undo ([`undone_by`]), or any other key from the caller.
    pub idempotency_key: Option<String>,
    /// The deadline of the whole call.
    pub deadline: Instant,
    /// The executor of the write.
    pub executor: Arc<dyn WriteExecutor>,
    /// A condition that the write must meet; `None` for a write without a proposal.
    pub precondition: Option<Arc<dyn WritePrecondition>>,
}

impl WriteAttempt {
    /// The columns of the record that are known before the write is executed.
    pub(crate) fn intent(&self, correlation_id: CorrelationId, fingerprint: &Fingerprint) -> Intent {
        let params = Value::Object(self.redaction.params(&self.request.params));
        let principal = &self.request.principal;
        let (account, client) = (principal.account_id.as_str(), &principal.client);
        let key = self.idempotency_key.as_deref();
        let undoes = undoes(key, self.executor.as_ref(), &self.request);
        let slot = slot(&principal.account_id, &self.tool, key, &undoes, fingerprint);
        let undo_of = (!undoes.is_empty()).then(|| array(&undoes));
        let columns = [
            Some(slot),
            Some(correlation_id.to_string()),
            Some(account.to_owned()),
            principal.actor.clone(),
            client.session_id.clone(),
            client.name.clone(),
            client.version.clone(),
            client.trace_id.clone(),
            self.reason.clone(),
            Some(self.tool.clone()),
            Some(fingerprint.as_str().to_owned()),
            self.idempotency_key.clone(),
            Some(params.to_string()),
            Some(summary(&canonical_json(&params))),
            undo_of,
            self.precondition.as_ref().map(|precondition| precondition.proposal_id().to_string()),
        ];
        Intent::new(correlation_id, columns)
    }
}

/// The outcome of a call that did not fail.
#[derive(Debug, Clone, PartialEq)]
pub enum WriteOutcome {
    /// This call wrote.
    Executed {
        /// The correlation id of the record.
        correlation_id: CorrelationId,
        /// The answer of the executor.
        data: Value,
        /// The number of rows that the write changed.
        rows_affected: u64,
        /// How to undo the write.
        rollback: Box<Rollback>,
    },
    /// An identical earlier call wrote, and is still in force.
    Duplicate {
        /// The correlation id of this call. A call that is answered from memory has no record of its own; then this
        /// is the id of the original.
        correlation_id: CorrelationId,
        /// The correlation id of the call that wrote.
        original: CorrelationId,
        /// The whole answer of the original call.
        cached_result: Value,
    },
    /// A rule of the tool requires approval for this call. Nothing was written, and there is no record.
    NeedsApproval(AppliedPolicy),
}

/// The writes that a call undoes.
pub(crate) fn undoes(
    idempotency_key: Option<&str>,
    executor: &dyn WriteExecutor,
    request: &WriteRequest,
) -> Vec<CorrelationId> {
    match undone_by(idempotency_key) {
        Some((write, _)) => vec![write],
        None => executor.undoes(request),
    }
}
