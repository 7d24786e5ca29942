//! Attempts at the gate and their outcomes.

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

/// How long the outcome is looked up after the deadline has passed or the connection was lost.
pub(crate) const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The time limit for recording a write that is known to be undone. The sweep does it otherwise.
pub(crate) const UNDONE_TIMEOUT: Duration = Duration::from_secs(1);

/// PostgreSQL ends the statement itself at the deadline, and the record then says why. This much later it is given up.
pub(crate) const CANCEL_GRACE: Duration = Duration::from_secs(2);

/// One call of a write tool that has passed validation and policy.
#[derive(Clone)]
pub struct WriteAttempt {
    /// The requested write.
    pub request: WriteRequest,
    /// The tool.
    pub tool: String,
    /// The parameters that must not be stored in the record, in logs and in later answers. The fingerprint still
    /// covers them.
    pub redaction: Redaction,
    /// The caller's own key, if there is one: that of an undo ([`undone_by`]), or any other.
    pub idempotency_key: Option<String>,
    /// From the call to the answer.
    pub deadline: Instant,
    /// The executor of the write.
    pub executor: Arc<dyn WriteExecutor>,
    /// The condition that it must meet; `None` for a write that was not proposed.
    pub precondition: Option<Arc<dyn WritePrecondition>>,
}

impl WriteAttempt {
    /// The columns of its record that are known before it is executed.
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

/// A write that is in force, or that needs approval.
#[derive(Debug, Clone, PartialEq)]
pub enum WriteOutcome {
    /// This call wrote.
    Executed {
        /// The receipt.
        correlation_id: CorrelationId,
        /// The answer of the executor.
        data: Value,
        /// The number of rows that it changed.
        rows_affected: u64,
        /// How to undo it.
        rollback: Box<Rollback>,
    },
    /// An identical call had written before.
    Duplicate {
        /// The correlation id of this call. A call that is answered from memory has no record; then it is that of the
        /// original.
        correlation_id: CorrelationId,
        /// The receipt of the call that wrote.
        original: CorrelationId,
        /// The whole answer to the original call.
        cached_result: Value,
    },
    /// A rule of the tool requires approval for this call. Nothing was written, and there is no record.
    NeedsApproval(AppliedPolicy),
}

/// The writes that a call takes back.
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
