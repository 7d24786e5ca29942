//! What is known of a write before it is executed, and the slot that identical calls share.

use tokio::time::Instant;
use types::{AccountId, CorrelationId, Failure};

use crate::evidence::conflicts;
use crate::fingerprint::{Fingerprint, sha256_hex};

/// One attempt to write, as the ledger stores it before the write.
#[derive(Debug)]
pub(crate) struct Intent {
    pub(crate) correlation_id: CorrelationId,
    /// The slot of the call, as `bytea` in text form.
    pub(crate) slot: String,
    pub(crate) fingerprint: Fingerprint,
    /// The columns of `countersign.admission`, in their order, as text.
    pub(crate) columns: [Option<String>; 17],
    pub(crate) began: Instant,
}

/// The maximum sizes, in bytes of JSON, of the parameters of a record, and of its result, images and undo calls
/// together. One answer (8 MiB) must be able to return everything that the ledger accepts.
pub(crate) const MAX_PARAMS_BYTES: usize = 2 << 20;
pub(crate) const MAX_OUTCOME_BYTES: usize = 4 << 20;

impl Intent {
    /// The arguments of `countersign.report_write`: the columns, and the seconds since the call began.
    pub(crate) fn report(&self) -> Vec<Option<String>> {
        let mut params = self.columns.to_vec();
        params.push(Some(self.began.elapsed().as_secs_f64().to_string()));
        params
    }

    /// The arguments of `countersign.record_failure`.
    pub(crate) fn failed(&self, failure: &Failure) -> Vec<Option<String>> {
        let mut params = self.columns.to_vec();
        params.extend(outcome(failure));
        params.push(Some(self.began.elapsed().as_secs_f64().to_string()));
        params
    }
}

/// The columns of a failure: code, SQLSTATE, message and detail.
pub(crate) fn outcome(failure: &Failure) -> [Option<String>; 4] {
    [
        Some(failure.code.as_str().to_owned()),
        failure.sqlstate.clone(),
        Some(failure.message.clone()),
        conflicts::detail(failure),
    ]
}

/// The slot of a call, as `bytea` in text form: a SHA-256 hash, computed as in `countersign.slot_of`.
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

/// The write that a call with this idempotency key undoes. The key of an undo is `undo:` and the correlation id of
/// that write. If several calls undo the write together, each key also has `/` and the number of the call.
#[must_use]
pub fn undone_by(idempotency_key: Option<&str>) -> Option<(CorrelationId, &str)> {
    let (write, part) = idempotency_key?.strip_prefix("undo:")?.split_at_checked(36)?;
    let number = part.strip_prefix('/').unwrap_or("1");
    let is_part = (1..=4).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    let is_undo = is_part && (part.is_empty() || part.starts_with('/'));
    let undone = CorrelationId::parse(write).filter(|id| is_undo && id.to_string() == write)?;
    Some((undone, part))
}
