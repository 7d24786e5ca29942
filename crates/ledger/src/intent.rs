//! What an attempt's record says from the beginning.

use serde_json::Value;
use types::{AccountId, CorrelationId};

use crate::executor::{WriteExecutor, WriteRequest};
use crate::fingerprint::{Fingerprint, canonical_json, sha256_hex};
use crate::gate::{WriteAttempt, undone_by};
use crate::plans::array;
use crate::records::summary;

/// What is known of an attempt before anything of it is done: the columns of `countersign.admission`, in their order, as texts.
#[derive(Debug)]
pub(crate) struct Intent {
    pub(crate) correlation_id: CorrelationId,
    columns: [Option<String>; COLUMNS],
}

pub(crate) const COLUMNS: usize = 15;

/// The most bytes that a record's parameters may have as JSON, and its result, images and undo calls together: what the
/// ledger takes it must be able to give back in one answer (8 MiB).
pub(crate) const MAX_PARAMS_BYTES: usize = 2 << 20;
pub(crate) const MAX_OUTCOME_BYTES: usize = 4 << 20;

impl Intent {
    /// How large the parameters are, in bytes of JSON.
    pub(crate) fn params_bytes(&self) -> usize {
        let [.., params, _, _, _] = &self.columns;
        params.as_ref().map_or(0, String::len)
    }

    pub(crate) fn new(correlation_id: CorrelationId, attempt: &WriteAttempt, fingerprint: &Fingerprint) -> Self {
        let params = Value::Object(attempt.redaction.params(&attempt.request.params));
        let principal = &attempt.request.principal;
        let (account, client) = (principal.account_id.as_str(), &principal.client);
        let key = attempt.idempotency_key.as_deref();
        let undoes = undoes(key, attempt.executor.as_ref(), &attempt.request);
        let slot = slot(&principal.account_id, &attempt.tool, key, &undoes, fingerprint);
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
            Some(attempt.tool.clone()),
            Some(fingerprint.as_str().to_owned()),
            attempt.idempotency_key.clone(),
            Some(params.to_string()),
            Some(summary(&canonical_json(&params))),
            undo_of,
            attempt.confirmed.as_ref().map(|confirmed| confirmed.proposal_id.to_string()),
        ];
        Self { correlation_id, columns }
    }

    pub(crate) const fn columns(&self) -> &[Option<String>; COLUMNS] {
        &self.columns
    }

    /// What counts as the same call, as `bytea` in text form.
    pub(crate) fn slot(&self) -> Option<String> {
        let [slot, ..] = &self.columns;
        slot.clone()
    }

    pub(crate) fn fingerprint(&self) -> Option<String> {
        let [_, _, _, _, _, _, _, _, _, fingerprint, ..] = &self.columns;
        fingerprint.clone()
    }
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

/// What counts as the same call, as `bytea` in text form: SHA-256, as `countersign.slot_of`
/// has it.
pub(crate) fn slot(
    account: &AccountId,
    tool: &str,
    idempotency_key: Option<&str>,
    undoes: &[CorrelationId],
    fingerprint: &Fingerprint,
) -> String {
    let call = if undoes.is_empty() {
        let account = account.as_str();
        let (accounts, tools) = (account.chars().count(), tool.chars().count());
        let same = idempotency_key.map_or_else(|| format!("f{}", fingerprint.as_str()), |key| format!("k{key}"));
        format!("{accounts} {tools} {account}{tool}{same}")
    } else {
        let part = undone_by(idempotency_key).map_or("", |(_, part)| part);
        let writes: Vec<String> = undoes.iter().map(ToString::to_string).collect();
        format!("undo {}{part}", writes.join(" "))
    };
    format!("\\x{}", sha256_hex(&call))
}
