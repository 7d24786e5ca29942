//! Calls of write tools, attempts to execute them through the gate, and their outcomes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use types::{CorrelationId, ErrorCode, Failure, Redaction};

use crate::evidence::values::{array, summary};
use crate::fingerprint::{Fingerprint, Fingerprints, canonical_json};
use crate::write::executor::{WriteExecutor, WriteOutput, WritePrecondition, WriteRequest};
use crate::write::intent::{self, Intent, MAX_PARAMS_BYTES, undone_by};
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
pub struct WriteCall {
    pub request: WriteRequest,
    pub tool: String,
    /// The agent's reason for the write, for people. It is not part of the fingerprint.
    pub reason: Option<String>,
    /// The sensitive parameters, which must not appear in the record, in logs or in later answers. The fingerprint
    /// still covers them.
    pub redaction: Redaction,
    /// The idempotency key, if there is one: the key of an undo ([`undone_by`]), or any other key from the caller.
    pub idempotency_key: Option<String>,
    pub deadline: Instant,
    /// The executor of the write.
    pub executor: Arc<dyn WriteExecutor>,
}

impl WriteCall {
    /// The writes that the call undoes.
    pub(crate) fn undoes(&self) -> Vec<CorrelationId> {
        match undone_by(self.idempotency_key.as_deref()) {
            Some((write, _)) => vec![write],
            None => self.executor.undoes(&self.request),
        }
    }

    /// The slot of the call, which undoes these writes.
    pub(crate) fn slot(&self, undoes: &[CorrelationId], fingerprint: &Fingerprint) -> String {
        let account = &self.request.principal.account_id;
        intent::slot(account, &self.tool, self.idempotency_key.as_deref(), undoes, fingerprint)
    }
}

/// An attempt to execute a call.
pub(crate) struct WriteAttempt<'a> {
    pub(crate) call: &'a WriteCall,
    /// A condition that the write must meet; `None` for a write without a proposal.
    pub(crate) precondition: Option<&'a dyn WritePrecondition>,
    pub(crate) intent: Intent,
}

impl<'a> WriteAttempt<'a> {
    pub(crate) fn new(
        call: &'a WriteCall,
        precondition: Option<&'a dyn WritePrecondition>,
        correlation_id: CorrelationId,
        fingerprints: &Fingerprints,
    ) -> Result<Self, Failure> {
        let fingerprint = fingerprints.of(&call.tool, &call.request.params, &call.request.principal.context);
        let params = Value::Object(call.redaction.params(&call.request.params));
        let principal = &call.request.principal;
        let client = &principal.client;
        let undoes = call.undoes();
        let slot = call.slot(&undoes, &fingerprint);
        let params_text = params.to_string();
        if params_text.len() > MAX_PARAMS_BYTES {
            let message = format!(
                "the parameters are {} bytes of JSON, and a record takes {MAX_PARAMS_BYTES}; nothing was written",
                params_text.len()
            );
            return Err(Failure::new(ErrorCode::InvalidParams, message).hint("Write less in one call."));
        }
        let columns = [
            Some(slot.clone()),
            Some(correlation_id.to_string()),
            Some(principal.account_id.as_str().to_owned()),
            principal.actor.clone(),
            client.session_id.clone(),
            client.name.clone(),
            client.version.clone(),
            client.trace_id.clone(),
            call.reason.clone(),
            Some(call.tool.clone()),
            Some(fingerprint.as_str().to_owned()),
            call.idempotency_key.clone(),
            Some(params_text),
            Some(summary(&canonical_json(&params))),
            (!undoes.is_empty()).then(|| array(&undoes)),
            precondition.and_then(WritePrecondition::proposal_id).map(|id| id.to_string()),
            principal.context.to_json(),
        ];
        let intent = Intent { correlation_id, slot, fingerprint, columns, began: Instant::now() };
        Ok(Self { call, precondition, intent })
    }

    /// The arguments of `countersign.fail`.
    pub(crate) fn failed(&self, failure: &Failure) -> Vec<Option<String>> {
        let mut params = vec![Some(self.intent.correlation_id.to_string()), Some(self.intent.slot.clone())];
        params.extend(intent::outcome(failure));
        let state = self.precondition.and_then(|precondition| precondition.state_after(failure));
        params.push(state.map(str::to_owned));
        params
    }
}

/// The outcome of a call that did not fail.
#[derive(Debug, Clone)]
pub enum WriteOutcome {
    /// This call wrote.
    Executed {
        /// The correlation id of the record.
        correlation_id: CorrelationId,
        /// The result of the write.
        output: Box<WriteOutput>,
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
