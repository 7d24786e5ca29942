//! The write protocol as a model: every interleaving of a few calls with lost connections, dead servers, a crash of PostgreSQL, the
//! sweep and a freeze is looked at, and what must hold is asked in each state. A change of the protocol starts here (CONTRIBUTING.md).
//!
//! `database` has what PostgreSQL keeps and promises, `protocol` the steps of a server and of its backend, `promises` what must hold.
//! A [`Fault`] leaves a mechanism out: the checker has to find what that breaks.
#![allow(clippy::indexing_slicing, reason = "calls and slots are numbered, and a number that is wrong fails the test")]

mod database;
mod one_transaction;
mod promises;
mod protocol;

use stateright::{Checker, HasDiscoveries, Model};
use testkit::long_form;

use crate::protocol::{Call, Form, Kind, Protocol};

const WRITE: Call = Call { kind: Kind::Write, slot: 0, server: 0 };
const SAME_ELSEWHERE: Call = Call { kind: Kind::Write, slot: 0, server: 1 };
const OTHER: Call = Call { kind: Kind::Write, slot: 1, server: 1 };
const UNDO: Call = Call { kind: Kind::Undo { of_slot: 0 }, slot: 2, server: 0 };
const WIDER_UNDO: Call = Call { kind: Kind::Undo { of_slot: 0 }, slot: 1, server: 1 };
const SAME_UNDO: Call = Call { kind: Kind::Undo { of_slot: 0 }, slot: 2, server: 1 };

const FORMS: [Form; 3] = [
    Form::TwoTransactions,
    Form::OneTransaction { is_admitted_first: false },
    Form::OneTransaction { is_admitted_first: true },
];

/// Two servers get the same call; an undo meets another write of the row, the same undo, and an undo of this write among others.
fn scenarios(form: Form) -> [Protocol; 4] {
    let losses = if long_form::is_on() { 2 } else { 1 };
    let meeting = |calls: &[Call], may_freeze| {
        let (calls, faults) = (calls.to_vec(), Vec::new());
        Protocol { form, calls, faults, crashes: 1, losses, deaths: 1, may_freeze }
    };
    [
        meeting(&[WRITE, SAME_ELSEWHERE], true),
        meeting(&[WRITE, OTHER, UNDO], false),
        meeting(&[WRITE, UNDO, SAME_UNDO], false),
        meeting(&[WRITE, UNDO, WIDER_UNDO], false),
    ]
}

#[test]
fn every_promise_holds_in_every_interleaving() {
    for protocol in FORMS.into_iter().flat_map(scenarios) {
        let checker = protocol.checker().threads(2).spawn_bfs().join();
        assert!(checker.is_done());
        // What can happen at all does: a model that does nothing keeps every promise.
        checker.assert_properties();
    }
}

/// Each control leaves mechanisms out, and names what breaks without them.
#[test]
fn a_mechanism_that_is_missing_is_found() {
    for (form, (faults, promise)) in
        FORMS.into_iter().flat_map(|form| form.controls().into_iter().map(move |control| (form, control)))
    {
        let is_broken = |protocol: Protocol| {
            let faults = faults.clone();
            let checker = Protocol { faults, ..protocol }
                .checker()
                .threads(2)
                .finish_when(HasDiscoveries::AnyOf([promise].into()));
            checker.spawn_bfs().join().discoveries().contains_key(promise)
        };
        assert!(scenarios(form).into_iter().any(is_broken), "{form:?} without {faults:?} does not break \"{promise}\"");
    }
}
