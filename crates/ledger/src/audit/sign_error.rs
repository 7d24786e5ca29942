//! The reasons why the log is not signed.

use std::path::PathBuf;

/// The reason why nothing was signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    #[error(transparent)]
    Database(#[from] pg::Error),
    #[error(
        "the log has {size} entries, and a checkpoint of {signed} was signed ({}): the database was restored from a backup, or entries \
         were removed. Nothing is signed or written until `countersign audit fork --restored`",
        state.display()
    )]
    Behind {
        size: u64,
        signed: u64,
        /// The file with the signed checkpoint.
        state: PathBuf,
    },
    #[error(
        "the first {size} entries of the log are not those that were signed for ({by}): entries were altered, or the database was restored \
         from a backup and has gone on since. Nothing is signed or written until `countersign audit fork --restored`"
    )]
    Inconsistent { size: u64, by: String },
    #[error(
        "the tree of the log is incomplete: {0}. Nothing is signed; `countersign audit verify` names what is missing"
    )]
    Incomplete(String),
    #[error("{} cannot be used as a signing key: {why}", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        why: String,
    },
    /// This signer has not signed the log before, so it must ask the witnesses what was signed elsewhere, and one
    /// does not answer.
    #[error(
        "this signer has not signed this log before, and the witness {name} cannot be asked what was signed elsewhere: {error}. \
         Nothing is signed until it answers, or `countersign audit witness remove` was run"
    )]
    Witness { name: String, error: std::io::Error },
    /// The signing command failed.
    #[error("the signing command {0}")]
    Command(String),
    #[error("{} has the last checkpoint that was signed, and {why}", path.display())]
    State {
        /// The file.
        path: PathBuf,
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
