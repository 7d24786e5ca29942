//! Why nothing is signed.

use std::path::PathBuf;

/// The reason why nothing was signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The database cannot be asked.
    #[error(transparent)]
    Database(#[from] pg::Error),
    /// Fewer leaves than were signed for.
    #[error(
        "the log has {size} entries, and a checkpoint of {signed} was signed ({}): the database was restored from a backup, or entries \
         were removed. Nothing is signed or written until `countersign audit fork --restored`",
        state.display()
    )]
    Behind {
        /// The number of leaves.
        size: u64,
        /// The size that was signed.
        signed: u64,
        /// The file that says so.
        state: PathBuf,
    },
    /// The leaves are others than those that were signed for.
    #[error(
        "the first {size} entries of the log are not those that were signed for ({by}): entries were altered, or the database was restored \
         from a backup and has gone on since. Nothing is signed or written until `countersign audit fork --restored`"
    )]
    Inconsistent {
        /// The size that was signed.
        size: u64,
        /// What says so.
        by: String,
    },
    /// The tree lacks a hash.
    #[error(
        "the tree of the log is incomplete: {0}. Nothing is signed; `countersign audit verify` names what is missing"
    )]
    Incomplete(String),
    /// A key cannot be used.
    #[error("{} cannot be used as a signing key: {why}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// A signer that has not signed before must ask the witnesses what was signed elsewhere, and one does not answer.
    #[error(
        "this signer has not signed this log before, and the witness {name} cannot be asked what was signed elsewhere: {error}. \
         Nothing is signed until it answers, or `countersign audit witness remove` was run"
    )]
    Witness {
        /// The witness.
        name: String,
        /// The reason.
        error: std::io::Error,
    },
    /// The signing command failed.
    #[error("the signing command {0}")]
    Command(String),
    /// The file with the last signed checkpoint cannot be read or written.
    #[error("{} has the last checkpoint that was signed, and {why}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

impl SignError {
    /// Whether the log contradicts what was signed.
    #[must_use]
    pub const fn is_contradiction(&self) -> bool {
        matches!(self, Self::Behind { .. } | Self::Inconsistent { .. })
    }
}
