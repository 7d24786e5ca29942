//! What PostgreSQL keeps: the ledger's tables and one row of the operator's, as they are committed, and as they are on disk.

use crate::protocol::Slot;

/// The number of slots.
pub(crate) const SLOTS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    Success,
    Failure,
    Duplicate,
}

/// A row of `countersign.record`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    /// The call: its correlation id.
    pub(crate) call: usize,
    pub(crate) slot: Slot,
    pub(crate) outcome: Outcome,
    /// Its write looked for a freeze, when it ended, and there was one.
    pub(crate) was_frozen: bool,
    /// The row of its write was changed as the role of the caller, and the record was made as the login.
    pub(crate) has_rights: bool,
    /// When its write began, its server had acknowledged writes that were missing, or the ledger said so.
    pub(crate) follows_loss: bool,
}

impl Record {
    pub(crate) fn is_success(self) -> bool {
        self.outcome == Outcome::Success
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Database {
    /// `countersign.attempt`: the call that has the slot.
    pub(crate) attempts: [Option<usize>; SLOTS],
    /// Calls of which others see that they run, as bits.
    pub(crate) reported: u8,
    /// In the order of their ids.
    pub(crate) records: Vec<Record>,
    /// `countersign.reversal`: the write and its undo.
    pub(crate) reversals: Vec<(usize, usize)>,
    /// The row that all writes count up, and undos count down.
    pub(crate) row: i8,
    pub(crate) is_frozen: bool,
    /// `countersign.loss`: a server has missed writes that it had acknowledged.
    pub(crate) has_loss: bool,
}

impl Database {
    pub(crate) fn record_of(&self, call: usize) -> Option<Record> {
        self.records.iter().copied().find(|record| record.call == call)
    }

    /// The success that answers for a slot.
    pub(crate) fn success(&self, slot: Slot) -> Option<Record> {
        self.records.iter().rev().copied().find(|record| record.slot == slot && record.outcome == Outcome::Success)
    }

    pub(crate) fn is_reversed(&self, write: usize) -> bool {
        self.reversals.iter().any(|(reversed, _)| *reversed == write)
    }

    /// `insert .. on conflict (correlation_id) do nothing`
    pub(crate) fn insert(&mut self, record: Record) {
        if self.record_of(record.call).is_none() {
            self.records.push(record);
        }
    }

    pub(crate) const fn is_reported(&self, call: usize) -> bool {
        self.reported & 1 << call != 0
    }

    /// The attempt of a call ends without a change.
    pub(crate) fn end(&mut self, call: usize, slot: Slot, outcome: Outcome) {
        self.attempts[slot] = self.attempts[slot].filter(|owner| *owner != call);
        self.insert(Record { call, slot, outcome, was_frozen: false, follows_loss: false, has_rights: true });
    }
}
