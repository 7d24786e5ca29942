//! What must hold in every state.

use stateright::{Model, Property};

use crate::database::{Database, Outcome};
use crate::protocol::{Action, Answer, Kind, Protocol, Server, State};

pub(crate) const EXACTLY_ONCE: &str = "identical calls write once";
pub(crate) const ROWS_ARE_RECORDED: &str = "the rows are what the records say";
pub(crate) const ANSWERS_ARE_TRUE: &str = "an answer is true, and stays true";
pub(crate) const UNDONE_ONCE: &str = "a write is undone once";
pub(crate) const FREEZE: &str = "no write ends well after a freeze";
pub(crate) const RIGHTS: &str = "a row is changed as the caller's role, and recorded as the login";
pub(crate) const EVERYTHING_ENDS: &str = "every call ends, and has one record";
pub(crate) const LOSS: &str = "a server that has lost acknowledged writes makes no other";
pub(crate) const LOSS_IS_TOLD: &str = "the ledger says that acknowledged writes are lost";

pub(crate) fn all() -> Vec<Property<Protocol>> {
    vec![
        Property::always(EXACTLY_ONCE, |protocol: &Protocol, state: &State| {
            (0..protocol.calls.len()).all(|call| {
                let slot = protocol.slot(call);
                let successes =
                    state.memory.records.iter().filter(|record| record.slot == slot && is_success(record.outcome));
                successes.count() <= 1
            })
        }),
        Property::always(ROWS_ARE_RECORDED, |protocol: &Protocol, state: &State| {
            [&state.memory, &state.disk].into_iter().all(|database| database.row == recorded(protocol, database))
        }),
        Property::always(ANSWERS_ARE_TRUE, |protocol: &Protocol, state: &State| {
            (0..state.calls.len()).all(|call| {
                let is_written =
                    |database: &Database| database.records.iter().any(|it| it.call == call && is_success(it.outcome));
                let slot = protocol.slot(call);
                match state.calls[call].answered {
                    _ if state.is_lost(call) => true,
                    None => true,
                    Some(Answer::Success) => is_written(&state.memory) && is_written(&state.disk),
                    Some(Answer::Failure) => !is_written(&state.memory) && !is_written(&state.disk),
                    Some(Answer::Duplicate) => state.memory.success(slot).is_some_and(|it| it.call != call),
                    Some(Answer::InFlight | Answer::Stopped) => !is_written(&state.memory),
                }
            })
        }),
        Property::always(UNDONE_ONCE, |_: &Protocol, state: &State| {
            let reversals = &state.memory.reversals;
            reversals.iter().all(|(write, _)| reversals.iter().filter(|(other, _)| other == write).count() == 1)
        }),
        Property::always(FREEZE, |_: &Protocol, state: &State| !state.memory.records.iter().any(|it| it.was_frozen)),
        Property::always(RIGHTS, |_: &Protocol, state: &State| state.memory.records.iter().all(|it| it.has_rights)),
        Property::always(LOSS, |_: &Protocol, state: &State| !state.memory.records.iter().any(|it| it.follows_loss)),
        Property::always(LOSS_IS_TOLD, |_: &Protocol, state: &State| {
            let was_stopped = state
                .calls
                .iter()
                .enumerate()
                .any(|(call, it)| it.server == Server::Answered(Answer::Stopped) && !state.is_lost(call));
            !was_stopped || state.memory.has_loss
        }),
        Property::always(EVERYTHING_ENDS, |protocol: &Protocol, state: &State| {
            goes_on(protocol, state) || {
                let is_over = |it: &Server| matches!(it, Server::Idle | Server::Answered(_) | Server::Dead);
                state.calls.iter().enumerate().all(|(call, it)| {
                    let records = state.memory.records.iter().filter(|record| record.call == call).count();
                    let must_have_one = !state.is_lost(call)
                        && it.answered.is_some_and(|it| !matches!(it, Answer::InFlight | Answer::Stopped));
                    is_over(&it.server) && records <= 1 && (records == 1 || !must_have_one)
                }) && state.memory.attempts.iter().all(Option::is_none)
                    && state.memory.reported == 0
            }
        }),
        Property::sometimes("a write succeeds", |_: &Protocol, state: &State| has_answer(state, Answer::Success)),
        Property::sometimes("a write is found not to have happened", |_: &Protocol, state: &State| {
            has_answer(state, Answer::Failure)
        }),
    ]
}

const fn is_success(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Success)
}

fn has_answer(state: &State, answer: Answer) -> bool {
    state.calls.iter().any(|call| call.answered == Some(answer))
}

/// The row by the records: what was written, less what was undone.
fn recorded(protocol: &Protocol, database: &Database) -> i8 {
    let successes = database.records.iter().filter(|record| is_success(record.outcome));
    successes
        .map(|record| match protocol.calls[record.call].kind {
            Kind::Write => 1,
            Kind::Undo { .. } => -1,
        })
        .sum()
}

/// Whether somebody can still do something without a new fault.
fn goes_on(protocol: &Protocol, state: &State) -> bool {
    let mut actions = Vec::new();
    protocol.actions(state, &mut actions);
    let is_progress = |action: &Action| {
        matches!(
            action,
            Action::Backend(_) | Action::Server { .. } | Action::End(_) | Action::Sweep(_) | Action::SweepReported(_)
        )
    };
    actions.into_iter().filter(is_progress).any(|action| protocol.next_state(state, action).is_some())
}
