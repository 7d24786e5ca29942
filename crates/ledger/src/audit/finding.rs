//! What a verification of the ledger can find.

/// A finding of the verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerifyFinding {
    /// A record is not what was sealed.
    Record {
        /// `record.id`.
        id: i64,
        /// Its receipt, if the record is there.
        correlation_id: Option<String>,
        /// The index of its entry in the log; for an inserted record of the next one.
        entry: u64,
        /// The kind of difference.
        wrong: Discrepancy,
    },
    /// An event, such as a decision or a pruning, is not what was sealed.
    Event {
        /// `event.id`.
        id: i64,
        /// The index of its entry in the log.
        entry: u64,
        /// The kind of difference: `Altered` or `Missing`.
        wrong: Discrepancy,
    },
    /// There is no entry with this index, though there are later ones.
    EntryMissing(u64),
    /// The entry is not the one that was hashed.
    EntryAltered(u64),
    /// A stored hash of the tree is missing, or is not that of the entries below it.
    Node {
        /// Its level: a node covers 256^level entries.
        level: u32,
        /// Its index in the level.
        index: u64,
    },
    /// The log ends before the size of a checkpoint.
    TailRemoved {
        /// The checkpoint's size.
        size: u64,
        /// The number of entries that are there.
        entries: u64,
        /// Where the checkpoint is.
        place: String,
    },
    /// The entries are not those of a checkpoint.
    Rewritten {
        /// The checkpoint's size.
        size: u64,
        /// Where the checkpoint is.
        place: String,
    },
    /// The mark that says that a write was undone is not what the records say.
    Reversal {
        /// The receipt of the write.
        write: String,
        /// The receipt of the undo, where it is known.
        undo: Option<String>,
        /// Whether the mark is there, and no record of an undo; or the record, and no mark.
        is_marked: bool,
    },
    /// A checkpoint is malformed, or not signed by a trusted key.
    Checkpoint {
        /// Where the checkpoint is.
        place: String,
        /// What is wrong with it.
        why: String,
    },
}

/// How a record or an event differs from the sealed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discrepancy {
    /// It says something else, or its effects do.
    Altered,
    /// It is gone, and no pruning announces it.
    Missing,
    /// It was not there.
    Inserted,
    /// A pruning says that it was removed.
    Returned,
}

impl Discrepancy {
    /// The difference by its name in `verify.sql`.
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "altered" => Some(Self::Altered),
            "missing" => Some(Self::Missing),
            "inserted" => Some(Self::Inserted),
            "returned" => Some(Self::Returned),
            _ => None,
        }
    }
}

impl std::fmt::Display for Discrepancy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Altered => "was altered after it was sealed",
            Self::Missing => "is missing: it was sealed and never pruned",
            Self::Inserted => "was inserted after its range of ids was sealed",
            Self::Returned => "is there, though a pruning says that it was removed",
        })
    }
}

impl std::fmt::Display for VerifyFinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Record { id, correlation_id, entry, wrong } => {
                write!(f, "record {id}")?;
                if let Some(correlation_id) = correlation_id {
                    write!(f, " (correlation id {correlation_id})")?;
                }
                write!(f, " {wrong} (entry {entry} of the log)")
            }
            Self::Event { id, entry, wrong } => write!(f, "event {id} {wrong} (entry {entry} of the log)"),
            Self::EntryMissing(index) => write!(f, "entry {index} of the log is missing"),
            Self::EntryAltered(index) => write!(f, "entry {index} of the log was altered: its hash does not fit"),
            Self::Node { level, index } => {
                write!(f, "node {index} of level {level} of the tree is not the hash of the entries below it")
            }
            Self::TailRemoved { size, entries, place } => {
                write!(f, "the log has {entries} entries and {place} is of {size}: its tail was removed")
            }
            Self::Rewritten { size, place } => {
                write!(f, "the first {size} entries of the log are not those of {place}: history was rewritten")
            }
            Self::Reversal { write, undo, is_marked } => {
                let undo = undo.as_deref().map(|undo| format!(" by {undo}")).unwrap_or_default();
                if *is_marked {
                    write!(f, "the write {write} is marked as undone{undo}, and no such undo is on record")
                } else {
                    write!(f, "the write {write} was undone{undo}, and is not marked as undone")
                }
            }
            Self::Checkpoint { place, why } => write!(f, "{place}: {why}"),
        }
    }
}
