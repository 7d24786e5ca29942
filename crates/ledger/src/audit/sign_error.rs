//! The reasons why the log is not signed.

use std::path::PathBuf;

/// The reason why nothing was signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The query failed.
    #[error(transparent)]
    Database(#[from] pg::Error),
    /// The log has fewer leaves than were signed for.
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
        /// The file with the signed checkpoint.
        state: PathBuf,
    },
    /// The leaves differ from those that were signed for.
    #[error(
        "the first {size} entries of the log are not those that were signed for ({by}): entries were altered, or the database was restored \
         from a backup and has gone on since. Nothing is signed or written until `countersign audit fork --restored`"
    )]
    Inconsistent {
        /// The size that was signed.
        size: u64,
        /// The source of the signed checkpoint.
        by: String,
    },
    /// The stored tree lacks a hash.
    #[error(
        "the tree of the log is incomplete: {0}. Nothing is signed; `countersign audit verify` names what is missing"
    )]
    Incomplete(String),
    /// A key file cannot be used.
    #[error("{} cannot be used as a signing key: {why}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// This signer has not signed the log before, so it must ask the witnesses what was signed elsewhere, and one
    /// does not answer.
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
    /// Whether the log contradicts a signed checkpoint.
    #[must_use]
    pub const fn is_contradiction(&self) -> bool {
        matches!(self, Self::Behind { .. } | Self::Inconsistent { .. })
    }
}
