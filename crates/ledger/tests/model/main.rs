//! The write protocol as a model: every interleaving of a few calls with lost connections, dead servers, a crash of PostgreSQL, the
//! sweep, a freeze and an asynchronous failover is looked at, and what must hold is asked in each state. A change of the protocol starts here (CONTRIBUTING.md).
//!
//! `database` has what PostgreSQL keeps and promises, `protocol` the steps of a server and of its backend, `promises` what must hold.
//! A [`Fault`] leaves a mechanism out: the checker has to find what that breaks.
#![allow(clippy::indexing_slicing, reason = "calls and slots are numbered, and a number that is wrong fails the test")]

mod database;
mod promises;
mod protocol;

use stateright::{Checker, HasDiscoveries, Model};
use testkit::long_form;

use crate::protocol::{Call, Kind, Protocol};

const WRITE: Call = Call { kind: Kind::Write, slot: 0, server: 0, is_admitted_first: false };
const SAME_ELSEWHERE: Call = Call { kind: Kind::Write, slot: 0, server: 1, is_admitted_first: false };
const OTHER: Call = Call { kind: Kind::Write, slot: 1, server: 1, is_admitted_first: false };
const OTHER_HERE: Call = Call { kind: Kind::Write, slot: 1, server: 0, is_admitted_first: false };
const OTHER_ELSEWHERE: Call = Call { kind: Kind::Write, slot: 2, server: 1, is_admitted_first: false };
const UNDO: Call = Call { kind: Kind::Undo { of_slot: 0 }, slot: 2, server: 0, is_admitted_first: false };
const WIDER_UNDO: Call = Call { kind: Kind::Undo { of_slot: 0 }, slot: 1, server: 1, is_admitted_first: false };
const SAME_UNDO: Call = Call { kind: Kind::Undo { of_slot: 0 }, slot: 2, server: 1, is_admitted_first: false };

/// Whose attempts are committed before their writes begin: nobody's, everybody's, or those of one of two calls.
const WAYS: [fn(usize) -> bool; 4] = [|_| false, |_| true, |call| call == 0, |call| call != 0];

/// Two servers get the same call; an undo meets another write of the row, the same undo, and an undo of this write among others; writes
/// of two servers meet a failover to a standby that lacks some of them.
fn scenarios() -> impl Iterator<Item = Protocol> {
    let losses = if long_form::is_on() { 2 } else { 1 };
    WAYS.into_iter().flat_map(move |is_admitted_first| {
        let meeting = |calls: &[Call], may_freeze| {
            let calls = calls.iter().enumerate();
            let calls = calls.map(|(n, call)| Call { is_admitted_first: is_admitted_first(n), ..*call }).collect();
            Protocol { calls, crashes: 1, losses, deaths: 1, may_freeze, ..Protocol::default() }
        };
        let failing_over = |calls: &[Call]| {
            let calls = calls.iter().enumerate();
            let calls = calls.map(|(n, call)| Call { is_admitted_first: is_admitted_first(n), ..*call }).collect();
            Protocol { calls, losses: 1, failovers: 1, ..Protocol::default() }
        };
        [
            meeting(&[WRITE, SAME_ELSEWHERE], true),
            meeting(&[WRITE, OTHER, UNDO], false),
            meeting(&[WRITE, UNDO, SAME_UNDO], false),
            meeting(&[WRITE, UNDO, WIDER_UNDO], false),
            failing_over(&[WRITE, OTHER_HERE, OTHER_ELSEWHERE]),
        ]
    })
}

#[test]
fn every_promise_holds_in_every_interleaving() {
    for protocol in scenarios() {
        let checker = protocol.checker().threads(2).spawn_bfs().join();
        assert!(checker.is_done());
        // What can happen at all does: a model that does nothing keeps every promise.
        checker.assert_properties();
    }
}

/// Each control leaves mechanisms out, and names what breaks without them.
#[test]
fn a_mechanism_that_is_missing_is_found() {
    for (faults, promise) in protocol::controls() {
        let is_broken = |protocol: Protocol| {
            let faults = faults.clone();
            let checker = Protocol { faults, ..protocol }
                .checker()
                .threads(2)
                .finish_when(HasDiscoveries::AnyOf([promise].into()));
            checker.spawn_bfs().join().discoveries().contains_key(promise)
        };
        assert!(scenarios().any(is_broken), "without {faults:?} \"{promise}\" holds");
    }
}
