//! The proof of one entry (c2sp.org/tlog-proof), with the entry in `extra`.

use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::checkpoint::parse_decimal;
use crate::tree::{leaf_hash, verify_inclusion};
use crate::{Checkpoint, Hash, ProofError, SignedNote};

const FIRST_LINE: &str = "c2sp.org/tlog-proof@v1";

/// An entry, and the proof that a signed tree contains it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryProof {
    pub entry: Vec<u8>,
    pub index: u64,
    /// The hashes of the path from the leaf to the root.
    pub hashes: Vec<Hash>,
    pub checkpoint: SignedNote,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it is no proof of an entry: {0}")]
pub struct ProofTextError(&'static str);

impl EntryProof {
    /// Verifies that the tree of the checkpoint contains the entry. Does not verify the signatures.
    pub fn verify(&self, checkpoint: &Checkpoint) -> Result<(), ProofError> {
        verify_inclusion(&leaf_hash(&self.entry), self.index, checkpoint.size, &self.hashes, &checkpoint.root)
    }
}

impl FromStr for EntryProof {
    type Err = ProofTextError;

    fn from_str(text: &str) -> Result<Self, ProofTextError> {
        let (head, note) = text.split_once("\n\n").ok_or(ProofTextError("no empty line is before the checkpoint"))?;
        let mut lines = head.split('\n');
        if lines.next() != Some(FIRST_LINE) {
            return Err(ProofTextError("its first line is not c2sp.org/tlog-proof@v1"));
        }
        let extra = lines.next().and_then(|line| line.strip_prefix("extra "));
        let entry =
            extra.and_then(|extra| STANDARD.decode(extra).ok()).ok_or(ProofTextError("it has no entry in `extra`"))?;
        let index = lines.next().and_then(|line| line.strip_prefix("index ")).and_then(parse_decimal);
        let index = index.ok_or(ProofTextError("it has no index"))?;
        let hashes: Option<Vec<Hash>> = lines.map(Hash::from_base64).collect();
        let hashes = hashes.filter(|hashes| hashes.len() < 64).ok_or(ProofTextError("a line of it is no hash"))?;
        let checkpoint = note.parse().map_err(|_| ProofTextError("its checkpoint is no signed note"))?;
        Ok(Self { entry, index, hashes, checkpoint })
    }
}

impl std::fmt::Display for EntryProof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{FIRST_LINE}\nextra {}\nindex {}", STANDARD.encode(&self.entry), self.index)?;
        self.hashes.iter().try_for_each(|hash| writeln!(f, "{hash}"))?;
        write!(f, "\n{}", self.checkpoint)
    }
}
