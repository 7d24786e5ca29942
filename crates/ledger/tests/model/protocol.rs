//! The steps of the protocol (migrations/baseline/20_admission.sql), and what happens to those who take them.

use stateright::{Model, Property};

use crate::database::{Database, Outcome, Record, SLOTS};
use crate::promises;

pub(crate) type Slot = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Write,
    Undo { of_slot: Slot },
}

/// A call of a client: an account, a tool and a key or parameters (its slot), sent to a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) slot: Slot,
    pub(crate) server: usize,
    /// Its attempt is committed before the write begins: it is a proposal, has a policy, or `durable_admission` is set.
    pub(crate) is_admitted_first: bool,
}

/// A mechanism that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// `begin_write` and `claim` do not look for the success of an identical call.
    ClaimIgnoresSuccess,
    /// COMMIT of a write does not wait for the disk.
    CommitIsNotDurable,
    /// `finish` does not find that the correlation id has a record (no primary key).
    RecordsAreNotUnique,
    /// A server answers that nothing was written when it finds no record, and does not fence the call.
    ResolveGuesses,
    /// The record is committed before the write begins.
    RecordBeforeWrite,
    /// A statement writes what it has read, without a lock of the row.
    RowsAreNotLocked,
    /// `finish` does not look for a freeze.
    FinishIgnoresFreeze,
    /// An undo does not look whether its write was undone.
    UndoIsNotProved,
    /// Nobody respects the claim of an attempt, and `finish` does not ask for the attempt.
    NothingIsClaimed,
    /// Nobody ends the attempts of a server that died.
    NothingIsSwept,
    /// `begin_write` takes no lock of the slot.
    BeginTakesNoLock,
    /// An attempt is committed although a write of its slot runs.
    AdmissionTakesNoLock,
    /// `resolve` does not wait for the lock of the slot.
    ResolveTakesNoLock,
    /// The statements of a tool run without SET ROLE.
    RoleIsNotEntered,
    /// `finish` runs without SET ROLE DEFAULT.
    RoleIsNotLeft,
    /// `begin_write` and `take_slot` do not look for what the server has acknowledged.
    HistoryIsNotCompared,
    /// They do not look again after a failover, once everything was found.
    IncarnationIsNotCompared,
    /// A failure counts as the record of a write: a sweep may have ended the attempt of a write that was lost.
    FailuresCount,
    /// A server that misses what it has acknowledged does not tell the others (`note_loss`).
    LossIsNotNoted,
}

/// What is left out, each with a promise that it breaks. Where two mechanisms hold a promise, both are left out.
pub(crate) fn controls() -> Vec<(Vec<Fault>, &'static str)> {
    use Fault::*;
    vec![
        (vec![ClaimIgnoresSuccess], promises::EXACTLY_ONCE),
        (vec![BeginTakesNoLock], promises::EXACTLY_ONCE),
        (vec![AdmissionTakesNoLock], promises::EXACTLY_ONCE),
        (vec![CommitIsNotDurable], promises::ANSWERS_ARE_TRUE),
        (vec![RecordsAreNotUnique], promises::ANSWERS_ARE_TRUE),
        (vec![ResolveGuesses], promises::ANSWERS_ARE_TRUE),
        (vec![NothingIsClaimed], promises::ANSWERS_ARE_TRUE),
        (vec![ResolveTakesNoLock, RecordsAreNotUnique], promises::ANSWERS_ARE_TRUE),
        (vec![RecordBeforeWrite], promises::ROWS_ARE_RECORDED),
        (vec![RowsAreNotLocked], promises::ROWS_ARE_RECORDED),
        (vec![FinishIgnoresFreeze], promises::FREEZE),
        (vec![UndoIsNotProved], promises::UNDONE_ONCE),
        (vec![NothingIsSwept], promises::EVERYTHING_ENDS),
        (vec![RoleIsNotEntered], promises::RIGHTS),
        (vec![RoleIsNotLeft], promises::RIGHTS),
        (vec![HistoryIsNotCompared], promises::LOSS),
        (vec![IncarnationIsNotCompared], promises::LOSS),
        (vec![FailuresCount], promises::LOSS),
        (vec![LossIsNotNoted], promises::LOSS_IS_TOLD),
    ]
}

/// What a server has to do next for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Server {
    /// The client has not called yet.
    Idle,
    /// It has sent statements, and waits for its backend.
    Waiting,
    /// `admit`: the attempt was not admitted, or not claimed.
    Admit,
    /// `answer_duplicate`
    Standing,
    /// `fail`
    Fail,
    /// `resolve`
    Resolve,
    /// `note_loss`
    NoteLoss,
    Answered(Answer),
    Dead,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    Success,
    /// Nothing was written, and nothing will be.
    Failure,
    Duplicate,
    /// An identical call is in flight: ask again.
    InFlight,
    /// Acknowledged writes are missing, so nothing is written.
    Stopped,
}

/// The next step of a backend. Its server may be gone: what was sent is carried out all the same, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Admission,
    /// `begin_write`
    Begin,
    Claim {
        slot_may_be_held: bool,
    },
    Statement,
    Finish,
    Commit,
    None,
}

/// A transaction that is not committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Transaction {
    /// It has locked the slot of its call.
    pub(crate) has_slot: bool,
    /// It has locked the row of its attempt.
    pub(crate) has_claim: bool,
    /// It runs as the role of the caller. SET ROLE and the statement are one step: nothing can come between them.
    pub(crate) is_role: bool,
    /// What the row will be, once it was written.
    pub(crate) row: Option<i8>,
    /// The row was written as the role of the caller.
    pub(crate) is_of_role: bool,
    pub(crate) record: Option<Record>,
    /// The write that it reverses.
    pub(crate) reverses: Option<usize>,
    /// See [`Record::follows_loss`].
    pub(crate) follows_loss: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CallState {
    pub(crate) server: Server,
    pub(crate) step: Step,
    pub(crate) transaction: Transaction,
    /// Its server died after it had been answered, or never.
    pub(crate) answered: Option<Answer>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) memory: Database,
    pub(crate) disk: Database,
    /// What an asynchronous standby has received.
    pub(crate) standby: Database,
    pub(crate) calls: Vec<CallState>,
    /// Calls that were answered before a failover, and whose records may be lost with it, as bits.
    pub(crate) lost: u8,
    /// `countersign.incarnation`
    incarnation: u8,
    /// Where each server has found, or written, all that it has acknowledged.
    found_in: [Option<u8>; 2],
    crashes: u8,
    losses: u8,
    deaths: u8,
    failovers: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Call(usize),
    /// The backend of a call takes its next step.
    Backend(usize),
    /// The server of a call takes its next step. `takes_over`: an attempt that stands in the way is old.
    Server {
        call: usize,
        takes_over: bool,
    },
    /// The connection of a call is lost. What the backend was told may still happen.
    Lose(usize),
    /// The answer of a server's statement is lost, which has happened.
    LoseAnswer(usize),
    /// A backend whose server is gone ends.
    End(usize),
    /// A server dies.
    Die(usize),
    /// PostgreSQL crashes, and starts again with what is on disk.
    Crash,
    /// What is committed is on disk.
    Flush,
    Sweep(Slot),
    /// Others are shown that a write runs that was not admitted first.
    Report(usize),
    /// Such a write is swept where nobody works on it.
    SweepReported(usize),
    Freeze,
    /// The standby receives what is committed.
    Replicate,
    /// The primary is lost, and the standby takes over with what it has.
    FailOver,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Protocol {
    pub(crate) calls: Vec<Call>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) crashes: u8,
    pub(crate) losses: u8,
    pub(crate) deaths: u8,
    pub(crate) may_freeze: bool,
    pub(crate) failovers: u8,
}

impl Protocol {
    pub(crate) fn lacks(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    pub(crate) fn slot(&self, call: usize) -> Slot {
        self.calls[call].slot
    }

    /// Whether a transaction has the claim of the attempt of this slot.
    fn is_claimed(&self, state: &State, slot: Slot) -> bool {
        !self.lacks(Fault::NothingIsClaimed)
            && (0..self.calls.len()).any(|n| self.slot(n) == slot && state.calls[n].transaction.has_claim)
    }

    /// Whether a transaction has the lock of this slot.
    fn is_slot_locked(&self, state: &State, slot: Slot) -> bool {
        (0..self.calls.len()).any(|n| self.slot(n) == slot && state.calls[n].transaction.has_slot)
    }

    fn is_row_locked_for(&self, state: &State, call: usize) -> bool {
        !self.lacks(Fault::RowsAreNotLocked)
            && state.calls.iter().enumerate().any(|(n, other)| n != call && other.transaction.row.is_some())
    }

    /// Whether the database lacks a write that the server of this call has acknowledged.
    fn lacks_acknowledged(&self, state: &State, call: usize, is_there: fn(Record) -> bool) -> bool {
        let server = self.calls[call].server;
        (0..self.calls.len()).any(|other| {
            self.calls[other].server == server
                && state.calls[other].answered == Some(Answer::Success)
                && !state.memory.record_of(other).is_some_and(is_there)
        })
    }

    /// Whether `begin_write` or `take_slot` refuses the call (CS007).
    fn is_refused_after_loss(&self, state: &State, call: usize) -> bool {
        let is_there = if self.lacks(Fault::FailuresCount) { |_| true } else { Record::is_success };
        let found_in = state.found_in[self.calls[call].server];
        let is_found = found_in
            .is_some_and(|found_in| found_in == state.incarnation || self.lacks(Fault::IncarnationIsNotCompared));
        let lacks =
            !is_found && self.lacks_acknowledged(state, call, is_there) && !self.lacks(Fault::HistoryIsNotCompared);
        lacks || state.memory.has_loss
    }

    /// The write that an undo reverses.
    fn target(&self, state: &State, call: usize) -> Option<Record> {
        match self.calls[call].kind {
            Kind::Write => None,
            Kind::Undo { of_slot } => state.memory.success(of_slot),
        }
    }

    /// The next step of a backend; `None` if it waits for a lock.
    fn step(&self, state: &State, call: usize) -> Option<State> {
        let (mut next, slot) = (state.clone(), self.slot(call));
        let mine = &mut next.calls[call];
        let refuse = CallState::refuse;
        match mine.step {
            Step::None => return None,
            Step::Begin | Step::Admission if self.is_refused_after_loss(state, call) => {
                refuse(mine, Server::NoteLoss);
            }
            Step::Claim { .. } if state.memory.has_loss => refuse(mine, Server::NoteLoss),
            Step::Begin => {
                let is_locked = self.is_slot_locked(state, slot) && !self.lacks(Fault::BeginTakesNoLock);
                let is_held = state.memory.success(slot).is_some() && !self.lacks(Fault::ClaimIgnoresSuccess);
                if is_locked || state.memory.attempts[slot].is_some() || state.memory.is_frozen || is_held {
                    refuse(mine, Server::Admit);
                } else {
                    mine.transaction.has_slot = true;
                    mine.transaction.follows_loss = self.lacks_acknowledged(state, call, Record::is_success);
                    mine.step = Step::Statement;
                }
            }
            Step::Admission if self.is_slot_locked(state, slot) && !self.lacks(Fault::AdmissionTakesNoLock) => {
                refuse(mine, Server::Admit);
            }
            Step::Admission if state.memory.attempts[slot].is_some() => refuse(mine, Server::Admit),
            Step::Admission => {
                next.memory.attempts[slot] = Some(call);
                next.calls[call].step = Step::Claim { slot_may_be_held: false };
                if self.lacks(Fault::RecordBeforeWrite) {
                    let (was_frozen, follows_loss, outcome) = (false, false, Outcome::Success);
                    next.memory.insert(Record { call, slot, outcome, was_frozen, follows_loss, has_rights: true });
                    next.disk = next.memory.clone();
                }
            }
            Step::Claim { slot_may_be_held } => {
                let is_held = state.memory.success(slot).is_some_and(|held| held.call != call)
                    && !slot_may_be_held
                    && !self.lacks(Fault::ClaimIgnoresSuccess);
                if state.memory.attempts[slot] != Some(call) || state.memory.is_frozen || is_held {
                    refuse(mine, Server::Admit);
                } else {
                    mine.transaction.has_claim = true;
                    mine.step = Step::Statement;
                }
            }
            Step::Statement if self.is_row_locked_for(state, call) => return None,
            Step::Statement => match (self.calls[call].kind, self.target(state, call)) {
                (Kind::Write, _) => {
                    mine.transaction.is_role = !self.lacks(Fault::RoleIsNotEntered);
                    mine.transaction.is_of_role = mine.transaction.is_role;
                    mine.transaction.row = Some(state.memory.row + 1);
                    mine.step = Step::Finish;
                }
                (Kind::Undo { .. }, Some(write))
                    if !state.memory.is_reversed(write.call) || self.lacks(Fault::UndoIsNotProved) =>
                {
                    // `undo` enters the role to restore the row, and leaves it for what it reads of the ledger.
                    mine.transaction.is_of_role = !self.lacks(Fault::RoleIsNotEntered);
                    mine.transaction.row = Some(state.memory.row - 1);
                    mine.transaction.reverses = Some(write.call);
                    mine.step = Step::Finish;
                }
                (Kind::Undo { .. }, _) => refuse(mine, Server::Fail),
            },
            Step::Finish => {
                let is_taken = state.memory.record_of(call).is_some()
                    && !self.lacks(Fault::RecordsAreNotUnique)
                    && !self.lacks(Fault::RecordBeforeWrite);
                let is_fenced = mine.transaction.has_claim
                    && state.memory.attempts[slot] != Some(call)
                    && !self.lacks(Fault::NothingIsClaimed);
                let is_frozen = state.memory.is_frozen && !self.lacks(Fault::FinishIgnoresFreeze);
                mine.transaction.is_role &= self.lacks(Fault::RoleIsNotLeft);
                if is_taken || is_fenced || is_frozen {
                    refuse(mine, Server::Fail);
                } else {
                    let (was_frozen, follows_loss) = (state.memory.is_frozen, mine.transaction.follows_loss);
                    let has_rights = mine.transaction.is_of_role && !mine.transaction.is_role;
                    let outcome = Outcome::Success;
                    mine.transaction.record =
                        Some(Record { call, slot, outcome, was_frozen, follows_loss, has_rights });
                    mine.step = Step::Commit;
                }
            }
            Step::Commit => {
                let Transaction { row, record, reverses, .. } = mine.transaction;
                mine.transaction = Transaction::default();
                mine.step = Step::None;
                if mine.server == Server::Waiting {
                    let answer = record.map_or(Answer::Success, |record| Answer::of(record.outcome));
                    mine.server = Server::Answered(answer);
                    mine.answered = Some(answer);
                    let Call { server, is_admitted_first, .. } = self.calls[call];
                    next.found_in[server] = (!is_admitted_first).then_some(state.incarnation);
                }
                next.memory.attempts[slot] = next.memory.attempts[slot].filter(|owner| *owner != call);
                next.memory.row = row.unwrap_or(next.memory.row);
                next.memory.records.extend(record.filter(|_| !self.lacks(Fault::RecordBeforeWrite)));
                next.memory.reversals.extend(reverses.map(|write| (write, call)));
                if !self.lacks(Fault::CommitIsNotDurable) {
                    next.disk = next.memory.clone();
                }
            }
        }
        Some(next)
    }

    /// The next statement of a server, each a transaction of its own; `None` if it waits for one.
    fn serve(&self, state: &State, call: usize, takes_over: bool) -> Option<State> {
        let (mut next, slot) = (state.clone(), self.slot(call));
        let is_mine = state.memory.attempts[slot] == Some(call);
        let is_blocked = is_mine && self.is_claimed(state, slot);
        let is_locked = self.is_slot_locked(state, slot);
        // The insert of a record waits for that of a `finish` that is not committed.
        let waits = state.calls[call].transaction.record.is_some() && !self.lacks(Fault::RecordsAreNotUnique);
        match state.calls[call].server {
            Server::Idle | Server::Waiting | Server::Answered(_) | Server::Dead => return None,
            Server::Admit if is_locked && !self.lacks(Fault::AdmissionTakesNoLock) => {
                if takes_over {
                    return None;
                }
                next.answer(call, Answer::InFlight);
            }
            Server::Admit => match state.memory.attempts[slot] {
                Some(other) if other != call && !takes_over => next.answer(call, Answer::InFlight),
                Some(other) if other != call => {
                    if self.is_claimed(state, slot) {
                        return None;
                    }
                    next.memory.end(other, slot, Outcome::Failure);
                    next.disk = next.memory.clone();
                }
                _ if takes_over || is_blocked => return None,
                _ => self.admit(&mut next, call),
            },
            _ if takes_over => return None,
            Server::NoteLoss => {
                next.memory.has_loss |=
                    self.lacks_acknowledged(state, call, Record::is_success) && !self.lacks(Fault::LossIsNotNoted);
                next.disk = next.memory.clone();
                // An attempt that was admitted before is ended, and has a record.
                next.calls[call].server = if is_mine { Server::Fail } else { Server::Answered(Answer::Stopped) };
            }
            Server::Standing => {
                if is_mine {
                    next.memory.end(call, slot, Outcome::Duplicate);
                    next.disk = next.memory.clone();
                    next.answer(call, Answer::Duplicate);
                } else {
                    next.calls[call].server = Server::Resolve;
                }
            }
            Server::Fail | Server::Resolve
                if is_blocked || waits || is_locked && !self.lacks(Fault::ResolveTakesNoLock) =>
            {
                return None;
            }
            Server::Fail | Server::Resolve => {
                if is_mine || !self.lacks(Fault::ResolveGuesses) {
                    next.memory.end(call, slot, Outcome::Failure);
                    next.disk = next.memory.clone();
                }
                let outcome = next.memory.record_of(call).map_or(Outcome::Failure, |record| record.outcome);
                next.answer(call, Answer::of(outcome));
                next.found_in[self.calls[call].server] = None;
            }
        }
        Some(next)
    }

    /// `admit`, once the slot is not another call's.
    fn admit(&self, next: &mut State, call: usize) {
        let slot = self.slot(call);
        next.memory.attempts[slot] = Some(call);
        if let Some(record) = next.memory.record_of(call) {
            next.memory.attempts[slot] = None;
            return next.answer(call, Answer::of(record.outcome));
        }
        let prior = next.memory.success(slot);
        let is_over = prior.is_some_and(|prior| next.memory.is_reversed(prior.call));
        if next.memory.is_frozen || is_over {
            next.memory.end(call, slot, Outcome::Failure);
            next.disk = next.memory.clone();
            next.answer(call, Answer::Failure);
        } else if prior.is_some() {
            next.calls[call].server = Server::Standing;
        } else {
            next.calls[call].server = Server::Waiting;
            next.calls[call].step = Step::Claim { slot_may_be_held: true };
        }
    }
}

impl CallState {
    /// A statement fails: the transaction is rolled back, and a server that still listens hears of it.
    pub(crate) fn refuse(&mut self, then: Server) {
        self.step = Step::None;
        self.transaction = Transaction::default();
        if self.server == Server::Waiting {
            self.server = then;
        }
    }
}

impl Answer {
    pub(crate) fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Success => Self::Success,
            Outcome::Failure => Self::Failure,
            Outcome::Duplicate => Self::Duplicate,
        }
    }
}

impl State {
    /// No transaction goes on, and servers that wait for one look for its outcome.
    fn end_backends(&mut self) {
        for it in &mut self.calls {
            it.step = Step::None;
            it.transaction = Transaction::default();
            if it.server == Server::Waiting {
                it.server = Server::Resolve;
            }
        }
    }

    pub(crate) const fn is_lost(&self, call: usize) -> bool {
        self.lost & 1 << call != 0
    }

    pub(crate) fn answer(&mut self, call: usize, answer: Answer) {
        self.calls[call].server = Server::Answered(answer);
        self.calls[call].answered = Some(answer);
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let call =
            CallState { server: Server::Idle, step: Step::None, transaction: Transaction::default(), answered: None };
        vec![State {
            memory: Database::default(),
            disk: Database::default(),
            standby: Database::default(),
            calls: vec![call; self.calls.len()],
            lost: 0,
            incarnation: 0,
            found_in: [None; 2],
            crashes: self.crashes,
            losses: self.losses,
            deaths: self.deaths,
            failovers: self.failovers,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (call, it) in state.calls.iter().enumerate() {
            // A client undoes what it was told of.
            let may_begin = match self.calls[call].kind {
                Kind::Write => true,
                Kind::Undo { of_slot } => state.memory.success(of_slot).is_some(),
            };
            if it.server == Server::Idle && may_begin {
                actions.push(Action::Call(call));
            }
            actions.push(Action::Backend(call));
            actions.extend([false, true].map(|takes_over| Action::Server { call, takes_over }));
            if state.losses > 0 {
                actions.push(Action::Lose(call));
                actions.push(Action::LoseAnswer(call));
            }
            actions.push(Action::End(call));
            if !self.calls[call].is_admitted_first {
                actions.extend([Action::Report(call), Action::SweepReported(call)]);
            }
        }
        if state.deaths > 0 {
            actions.extend([0, 1].map(Action::Die));
        }
        if state.crashes > 0 {
            actions.push(Action::Crash);
        }
        actions.push(Action::Flush);
        actions.extend((0..SLOTS).map(Action::Sweep));
        if self.may_freeze {
            actions.push(Action::Freeze);
        }
        if state.failovers > 0 {
            actions.extend([Action::Replicate, Action::FailOver]);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        match action {
            Action::Call(call) => {
                next.calls[call].server = Server::Waiting;
                next.calls[call].step = if self.calls[call].is_admitted_first { Step::Admission } else { Step::Begin };
            }
            Action::Report(call) => {
                let it = state.calls[call];
                if it.server == Server::Waiting && it.transaction.has_slot {
                    next.memory.reported |= 1 << call;
                }
            }
            Action::SweepReported(call) => {
                let is_blocked = self.is_slot_locked(state, self.slot(call)) && !self.lacks(Fault::ResolveTakesNoLock);
                if !state.memory.is_reported(call) || is_blocked || self.lacks(Fault::NothingIsSwept) {
                    return None;
                }
                next.memory.reported &= !(1 << call);
                next.memory.insert(Record {
                    call,
                    slot: self.slot(call),
                    outcome: Outcome::Failure,
                    was_frozen: false,
                    has_rights: true,
                    follows_loss: false,
                });
                next.disk = next.memory.clone();
            }
            Action::Backend(call) => return self.step(state, call),
            Action::Server { call, takes_over } => return self.serve(state, call, takes_over),
            Action::Lose(call) => {
                next.losses -= 1;
                match state.calls[call].server {
                    Server::Waiting | Server::Admit | Server::Standing | Server::Fail => {
                        next.calls[call].server = Server::Resolve;
                    }
                    _ => return None,
                }
            }
            Action::LoseAnswer(call) => {
                if !matches!(state.calls[call].server, Server::Admit | Server::Standing | Server::Fail) {
                    return None;
                }
                next = self.serve(state, call, false)?;
                next.losses -= 1;
                next.calls[call].server = Server::Resolve;
                next.calls[call].step = Step::None;
                next.calls[call].answered = None;
            }
            Action::End(call) => {
                let it = &mut next.calls[call];
                if it.step == Step::None || it.server == Server::Waiting {
                    return None;
                }
                it.step = Step::None;
                it.transaction = Transaction::default();
            }
            Action::Die(server) => {
                next.deaths -= 1;
                for (call, it) in self.calls.iter().zip(&mut next.calls) {
                    if call.server == server && !matches!(it.server, Server::Idle | Server::Answered(_)) {
                        it.server = Server::Dead;
                    }
                }
            }
            Action::Crash => {
                next.crashes -= 1;
                next.memory = next.disk.clone();
                next.end_backends();
            }
            Action::Replicate => next.standby = next.memory.clone(),
            Action::FailOver => {
                next.failovers -= 1;
                next.incarnation += 1;
                next.memory = next.standby.clone();
                next.disk = next.standby.clone();
                next.end_backends();
                for (call, it) in state.calls.iter().enumerate() {
                    next.lost |= u8::from(it.answered.is_some()) << call;
                }
            }
            Action::Flush => next.disk = next.memory.clone(),
            Action::Sweep(slot) => {
                let call = state.memory.attempts[slot]?;
                if self.is_claimed(state, slot) || self.lacks(Fault::NothingIsSwept) {
                    return None;
                }
                next.memory.end(call, slot, Outcome::Failure);
                next.disk = next.memory.clone();
            }
            Action::Freeze => {
                next.memory.is_frozen = true;
                next.disk = next.memory.clone();
            }
        }
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        promises::all()
    }
}
