//! Checkpoints (c2sp.org/tlog-checkpoint), without extension lines.

use std::str::FromStr;

use crate::Hash;

/// The signed statement of a log: its origin, its number of entries, and their root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The name of the log.
    pub origin: String,
    pub size: u64,
    pub root: Hash,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a checkpoint is an origin, a size and a root in base64, each on a line")]
pub struct CheckpointError;

impl FromStr for Checkpoint {
    type Err = CheckpointError;

    fn from_str(text: &str) -> Result<Self, CheckpointError> {
        let lines: Vec<&str> = text.strip_suffix('\n').ok_or(CheckpointError)?.split('\n').collect();
        let [origin, size, root] = lines.as_slice() else { return Err(CheckpointError) };
        if origin.is_empty() {
            return Err(CheckpointError);
        }
        let size = parse_decimal(size).ok_or(CheckpointError)?;
        let root = Hash::from_base64(root).ok_or(CheckpointError)?;
        Ok(Self { origin: (*origin).to_owned(), size, root })
    }
}

/// Reads a decimal number without a sign and without leading zeros, up to 2^63 - 1.
pub(crate) fn parse_decimal(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|number| is_plain && i64::try_from(*number).is_ok())
}

impl std::fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}\n{}\n{}", self.origin, self.size, self.root)
    }
}
