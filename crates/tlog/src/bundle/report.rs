//! The findings of a verification.

use crate::{Entry, Hash};

/// The maximum number of findings with one code that are reported.
pub(super) const MAX_PER_CODE: usize = 1000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The name of the log, if the checkpoint could be read.
    pub origin: Option<String>,
    /// The number of entries in the checkpoint.
    pub size: Option<u64>,
    pub root: Option<Hash>,
    /// The number of entries that were read.
    pub entries: u64,
    pub parts: u64,
    /// The number of parts that an entry names but that are missing.
    pub withheld: u64,
    /// The number of parts that erasures have taken values from.
    pub erased: u64,
    /// The number of entries that say so, and the index of the first of them.
    pub erasures: u64,
    pub first_erasure: u64,
    /// The witnesses that have cosigned, and the times, in seconds since 1970.
    pub cosigned: Vec<(String, u64)>,
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether there are no findings.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.findings.is_empty()
    }

    pub(super) fn find(&mut self, code: FindingCode, place: impl ToString) {
        if !self.is_full(code) {
            self.findings.push(Finding { code, place: place.to_string() });
        }
    }

    /// Counts what an entry says of an erasure.
    pub(super) fn note_erasure(&mut self, index: u64, entry: &Entry) {
        if entry.get("kind") == Some("erase") {
            self.erased += entry.get("erased").map_or(0, |parts| parts.split(' ').count() as u64);
            self.first_erasure = if self.erasures == 0 { index } else { self.first_erasure };
            self.erasures += 1;
        }
    }

    /// Whether the maximum number of findings with this code has been reported.
    pub(super) fn is_full(&self, code: FindingCode) -> bool {
        self.findings.iter().filter(|finding| finding.code == code).count() >= MAX_PER_CODE
    }
}

/// A problem of a bundle or proof.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub code: FindingCode,
    /// The place: a path, or the index of an entry.
    pub place: String,
}

macro_rules! codes {
    ($($(#[$meta:meta])* $code:ident $name:literal $sentence:literal,)*) => {
        /// The codes of `docs/reference/log-format.md`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum FindingCode {
            $($(#[$meta])* $code,)*
        }

        impl FindingCode {
            /// The name in JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$code => $name,)*
                }
            }

            /// A sentence about the problem, without the place.
            #[must_use]
            pub const fn sentence(self) -> &'static str {
                match self {
                    $(Self::$code => $sentence,)*
                }
            }
        }
    };
}

codes! {
    /// No signed checkpoint.
    CheckpointMalformed "checkpoint_malformed" "the file is not a signed checkpoint",
    /// No trusted key has signed.
    CheckpointUnsigned "checkpoint_unsigned" "no trusted key whose name is the origin has signed the checkpoint",
    /// A trusted key's signature is wrong, or there twice.
    SignatureInvalid "signature_invalid" "a signature of a trusted key is invalid",
    /// Too few witnesses.
    PolicyNotMet "policy_not_met" "too few witnesses of the policy have cosigned the checkpoint",
    /// A file that does not belong there.
    FileUnexpected "file_unexpected" "the file does not belong to a bundle of this size",
    /// A file that belongs there.
    FileMissing "file_missing" "the file is missing",
    /// A tile of another length.
    TileMalformed "tile_malformed" "the tile does not have the length that its name says",
    /// Entries of another number or length.
    EntriesMalformed "entries_malformed" "the file does not have the entries that its name says",
    /// A tile has another hash.
    TileAltered "tile_altered" "the tile has a hash that is not that of what is below it",
    /// An entry has another hash.
    EntryAltered "entry_altered" "the entry is not the one that was hashed",
    /// Neither entries nor tiles lead to the root.
    RootMismatch "root_mismatch" "the entries are not those of the checkpoint",
    /// An entry of more than 8,192 bytes.
    EntryTooLong "entry_too_long" "the entry is longer than 8,192 bytes",
    /// An entry that breaks the format.
    EntryMalformed "entry_malformed" "the entry is malformed",
    /// A part with another hash.
    PartAltered "part_altered" "the part is not the one that was hashed",
    /// An earlier checkpoint is of more entries.
    CheckpointNewer "checkpoint_newer" "the earlier checkpoint is of more entries than the bundle has",
    /// An earlier checkpoint has another root.
    CheckpointInconsistent "checkpoint_inconsistent" "the bundle does not go on from the earlier checkpoint",
    /// No proof of an entry.
    ProofMalformed "proof_malformed" "the file is not a proof of an entry",
    /// A proof that does not hold.
    ProofInvalid "proof_invalid" "the proof does not lead to the root of the checkpoint",
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = match self.code {
            FindingCode::EntryAltered | FindingCode::EntryTooLong | FindingCode::EntryMalformed => {
                format!("entry {}", self.place)
            }
            _ => self.place.clone(),
        };
        write!(f, "{place}: {} ({})", self.code.sentence(), self.code.name())
    }
}
