//! What an attempt's record says from the beginning.

use contract::CorrelationId;
use serde_json::Value;

use crate::fingerprint::{Fingerprint, canonical_json};
use crate::gate::Attempt;
use crate::records::summary;

/// The first arguments of `countersign.admit`, and all of `countersign.record_aborted`: text by text.
#[derive(Debug)]
pub(crate) struct Intent {
    pub(crate) correlation_id: CorrelationId,
    columns: [Option<String>; 9],
}

/// The most bytes that a record's parameters may have as JSON, and its result, images and undo calls together: what the
/// ledger takes it must be able to give back in one answer (8 MiB).
pub(crate) const MAX_PARAMS_BYTES: usize = 2 << 20;
pub(crate) const MAX_OUTCOME_BYTES: usize = 4 << 20;

impl Intent {
    /// How large the parameters are, in bytes of JSON.
    pub(crate) fn params_bytes(&self) -> usize {
        let [.., params, _, _] = &self.columns;
        params.as_ref().map_or(0, String::len)
    }

    pub(crate) fn new(correlation_id: CorrelationId, attempt: &Attempt, fingerprint: &Fingerprint) -> Self {
        let params = Value::Object(attempt.redaction.params(&attempt.order.params));
        let columns = [
            Some(correlation_id.to_string()),
            Some(attempt.order.principal.account_id.as_str().to_owned()),
            attempt.order.principal.actor.clone(),
            Some(attempt.tool.clone()),
            Some(fingerprint.as_str().to_owned()),
            attempt.idempotency_key.clone(),
            Some(params.to_string()),
            Some(summary(&canonical_json(&params))),
            attempt.order.principal.client.to_json(),
        ];
        Self { correlation_id, columns }
    }

    pub(crate) const fn columns(&self) -> &[Option<String>; 9] {
        &self.columns
    }
}
