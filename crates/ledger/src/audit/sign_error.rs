//! The reasons why the log is not signed.

use std::path::PathBuf;

/// The reason why nothing was signed.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    #[error(transparent)]
    Database(#[from] pg::Error),
    #[error(
        "{0}. Nothing is signed or written until `countersign audit fork --restored`; `countersign doctor` says what else to do"
    )]
    Contradiction(#[from] Contradiction),
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

/// How the log contradicts a signed checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    #[error(
        "the log has {size} entries, and a checkpoint of {signed} was signed ({}): a standby that lacked entries was promoted, the database \
         was restored from a backup, or entries were removed",
        state.display()
    )]
    Behind {
        size: u64,
        signed: u64,
        /// The file with the signed checkpoint.
        state: PathBuf,
    },
    #[error(
        "the first {size} entries of the log are not those that were signed for ({by}): entries were altered, or a standby that lacked entries \
         was promoted, or the database was restored from a backup, and it has gone on since"
    )]
    Inconsistent { size: u64, by: String },
}

impl Contradiction {
    /// The number of entries that were signed.
    pub(crate) const fn signed(&self) -> u64 {
        match self {
            Self::Behind { signed: size, .. } | Self::Inconsistent { size, .. } => *size,
        }
    }
}
