//! The requests of a log to a witness, and the decision of the witness (c2sp.org/tlog-witness).

use std::str::FromStr;

use crate::checkpoint::parse_decimal;
use crate::tree::verify_consistency;
use crate::{Checkpoint, Hash, NoteError, SignedNote, VerifierKey};

/// The body of an `add-checkpoint` request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRequest {
    /// The size of the checkpoint that the witness has cosigned last, as far as the log knows.
    pub old_size: u64,
    /// The proof that the checkpoint extends the tree of that size.
    pub proof: Vec<Hash>,
    pub checkpoint: SignedNote,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the body takes a line `old SIZE`, at most 63 lines of a proof, an empty line, and a signed checkpoint")]
pub struct RequestError;

/// The newest checkpoint of a log that a witness has cosigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WitnessState {
    pub size: u64,
    pub root: Hash,
}

impl Default for WitnessState {
    /// No checkpoint was cosigned yet.
    fn default() -> Self {
        Self { size: 0, root: Hash::EMPTY_ROOT }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Cosign this checkpoint once it is persisted.
    Cosign(Checkpoint),
    /// 400: the body is malformed, or the old size is larger than the new one.
    Malformed,
    /// 403: no trusted key of the log has signed the checkpoint.
    Unsigned,
    /// 404: the log is unknown.
    UnknownLog,
    /// 409: the witness has last cosigned another size, which is this one.
    Conflict(u64),
    /// 422: the checkpoint does not extend the one that was cosigned last.
    Inconsistent,
}

impl FromStr for CheckpointRequest {
    type Err = RequestError;

    fn from_str(body: &str) -> Result<Self, RequestError> {
        let (head, note) = body.split_once("\n\n").ok_or(RequestError)?;
        let mut lines = head.split('\n');
        let old_size =
            lines.next().and_then(|line| line.strip_prefix("old ")).and_then(parse_decimal).ok_or(RequestError)?;
        let proof: Option<Vec<Hash>> = lines.map(Hash::from_base64).collect();
        let proof = proof.filter(|proof| proof.len() < 64).ok_or(RequestError)?;
        Ok(Self { old_size, proof, checkpoint: note.parse().map_err(|_| RequestError)? })
    }
}

impl std::fmt::Display for CheckpointRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "old {}", self.old_size)?;
        self.proof.iter().try_for_each(|hash| writeln!(f, "{hash}"))?;
        write!(f, "\n{}", self.checkpoint)
    }
}

/// Decides on a request. `logs` are the keys that the witness trusts; `state` returns the last cosigned checkpoint of
/// an origin.
pub fn judge(body: &str, logs: &[VerifierKey], state: impl FnOnce(&str) -> Option<WitnessState>) -> Verdict {
    let Ok(request) = body.parse::<CheckpointRequest>() else { return Verdict::Malformed };
    let Ok(checkpoint) = request.checkpoint.text().parse::<Checkpoint>() else { return Verdict::Malformed };
    let keys: Vec<VerifierKey> = logs.iter().filter(|key| key.name() == checkpoint.origin).cloned().collect();
    if keys.is_empty() {
        return Verdict::UnknownLog;
    }
    match request.checkpoint.verify(&keys) {
        Ok(_) => {}
        Err(NoteError::Malformed(_)) => return Verdict::Malformed,
        Err(NoteError::Unsigned | NoteError::Invalid(_)) => return Verdict::Unsigned,
    }
    if request.old_size > checkpoint.size {
        return Verdict::Malformed;
    }
    let known = state(&checkpoint.origin).unwrap_or_default();
    if known.size != request.old_size {
        return Verdict::Conflict(known.size);
    }
    let (old, new) = ((known.size, &known.root), (checkpoint.size, &checkpoint.root));
    match verify_consistency(old, new, &request.proof) {
        Ok(()) => Verdict::Cosign(checkpoint),
        Err(_) => Verdict::Inconsistent,
    }
}
