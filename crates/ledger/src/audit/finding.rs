//! The findings of a verification of the ledger.

/// A contradiction that the verification found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerifyFinding {
    /// A record differs from what was sealed.
    Record {
        /// `record.id`.
        id: i64,
        /// The correlation id, if the record exists.
        correlation_id: Option<String>,
        /// The index of its entry in the log; for an inserted record, the index of the next entry.
        entry: u64,
        /// The kind of difference.
        wrong: Discrepancy,
    },
    /// An event, such as a decision or a pruning, differs from what was sealed.
    Event {
        /// `event.id`.
        id: i64,
        /// The index of its entry in the log.
        entry: u64,
        /// The kind of difference: `Altered` or `Missing`.
        wrong: Discrepancy,
    },
    /// The entry with this index is missing, although there are later ones.
    EntryMissing(u64),
    /// The text of the entry does not match its hash.
    EntryAltered(u64),
    /// A stored hash of the tree is missing, or does not match the entries below it.
    Node {
        /// The level of the node, which covers 256^level entries.
        level: u32,
        /// The index of the node in its level.
        index: u64,
    },
    /// The log is shorter than a checkpoint.
    TailRemoved {
        size: u64,
        entries: u64,
        /// Where the checkpoint was found.
        place: String,
    },
    /// The entries do not have the root hash of a checkpoint.
    Rewritten {
        size: u64,
        /// Where the checkpoint was found.
        place: String,
    },
    /// The stored fact that a write was undone contradicts the records.
    Reversal {
        /// The correlation id of the write.
        write: String,
        /// The correlation id of the undo, if it is known.
        undo: Option<String>,
        /// True if the reversal is stored without a record of an undo; false if the record exists without the
        /// reversal.
        is_marked: bool,
    },
    /// A checkpoint is malformed, or not signed by a trusted key.
    Checkpoint {
        /// Where the checkpoint was found.
        place: String,
        why: String,
    },
}

types::text_enum! {
    /// How a record or an event differs from the sealed one, by its name in `verify.sql`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Discrepancy {
        /// The contents or the effects have changed.
        Altered = "altered",
        /// The record or event does not exist, and no pruning has removed it.
        Missing = "missing",
        /// The record was added after later ones were sealed.
        Inserted = "inserted",
        /// The record exists although a pruning has removed it.
        Returned = "returned",
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
