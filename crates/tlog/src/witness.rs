//! The requests of a log to a witness (c2sp.org/tlog-witness).

use crate::{Hash, SignedNote};

/// The body of an `add-checkpoint` request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRequest {
    /// The size of the checkpoint that the witness has cosigned last, as far as the log knows.
    pub old_size: u64,
    /// The proof that the checkpoint extends the tree of that size.
    pub proof: Vec<Hash>,
    pub checkpoint: SignedNote,
}

impl std::fmt::Display for CheckpointRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "old {}", self.old_size)?;
        self.proof.iter().try_for_each(|hash| writeln!(f, "{hash}"))?;
        write!(f, "\n{}", self.checkpoint)
    }
}
