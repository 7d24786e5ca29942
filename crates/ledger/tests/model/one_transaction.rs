//! The write in one transaction: a lock of the slot instead of a committed attempt, and `resolve` under the same lock.

use crate::database::{Outcome, Record};
use crate::protocol::{Answer, Fault, Protocol, Server, State, Step};

/// `durable_admission`: the attempt is on disk before the write begins.
pub(crate) fn admit(next: &mut State, call: usize) {
    next.memory.pending |= 1 << call;
    next.disk = next.memory.clone();
    next.calls[call].step = Step::Begin;
}

/// `begin_write`. What an earlier call decides is recorded in this transaction.
pub(crate) fn begin(protocol: &Protocol, next: &mut State, call: usize) {
    let slot = protocol.slot(call);
    if protocol.is_claimed(next, slot) {
        // Nobody waits for a lock: the caller asks again.
        let is_waiting = next.calls[call].server == Server::Waiting;
        next.calls[call].refuse(Server::Answered(Answer::InFlight));
        if is_waiting {
            next.answer(call, Answer::InFlight);
        }
        return;
    }
    if next.memory.record_of(call).is_some() && !protocol.lacks(Fault::BeginIgnoresFences) {
        return next.calls[call].refuse(Server::Resolve { is_fenced: false });
    }
    let prior = next.memory.success(slot).filter(|_| !protocol.lacks(Fault::ClaimIgnoresSuccess));
    let decided = if next.memory.is_frozen || prior.is_some_and(|prior| next.memory.is_reversed(prior.call)) {
        Some(Outcome::Failure)
    } else {
        prior.map(|_| Outcome::Duplicate)
    };
    let mine = &mut next.calls[call];
    mine.transaction.has_claim = true;
    mine.transaction.record = decided.map(|outcome| Record { call, slot, outcome, was_frozen: false });
    mine.step = if decided.is_some() { Step::Commit } else { Step::Statement };
}

/// The next statement of a server, each a transaction of its own; `None` if it waits for one.
pub(crate) fn serve(protocol: &Protocol, state: &State, call: usize) -> Option<State> {
    let (mut next, slot) = (state.clone(), protocol.slot(call));
    match state.calls[call].server {
        Server::Fail => {
            next.memory.end(call, slot, Outcome::Failure);
            next.calls[call].server = Server::Resolve { is_fenced: false };
        }
        Server::Resolve { .. } => {
            if protocol.is_claimed(state, slot) && !protocol.lacks(Fault::ResolveTakesNoLock) {
                return None;
            }
            // The insert waits for that of a `finish` that is not committed.
            if state.calls[call].transaction.record.is_some() && !protocol.lacks(Fault::RecordsAreNotUnique) {
                return None;
            }
            if !protocol.lacks(Fault::ResolveGuesses) {
                next.memory.end(call, slot, Outcome::Failure);
            }
            let outcome = next.memory.record_of(call).map_or(Outcome::Failure, |record| record.outcome);
            next.answer(call, Answer::of(outcome));
        }
        _ => return None,
    }
    next.disk = next.memory.clone();
    Some(next)
}

/// A write that runs for long is shown to others, over another session, whatever has become of it meanwhile.
pub(crate) fn report(next: &mut State, call: usize) {
    let it = next.calls[call];
    if it.server == Server::Waiting && matches!(it.step, Step::Statement | Step::Finish | Step::Commit) {
        next.memory.pending |= 1 << call;
    }
}

/// Ends an attempt whose slot nobody has locked. One whose record is there came too late.
pub(crate) fn sweep(protocol: &Protocol, state: &State, call: usize) -> Option<State> {
    let slot = protocol.slot(call);
    let is_blocked = protocol.is_claimed(state, slot) && !protocol.lacks(Fault::ResolveTakesNoLock);
    if !state.memory.is_pending(call) || is_blocked || protocol.lacks(Fault::NothingIsSwept) {
        return None;
    }
    let mut next = state.clone();
    next.memory.end(call, slot, Outcome::Failure);
    next.disk = next.memory.clone();
    Some(next)
}
