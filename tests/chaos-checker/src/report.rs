//! Verdicts and figures as text.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::history::{History, Operation};
use crate::line::{Header, Outcome, Request};
use crate::promises::{Promise, Verdict};

/// How many breaches of one promise are shown, and how many lines of one breach.
const SHOWN: usize = 20;
/// A time without an acknowledged write is counted as unavailable from here on, in milliseconds.
const UNAVAILABLE_MS: i64 = 1000;

/// What was run, its figures, and one verdict for each promise.
#[must_use]
pub fn report(history: &History, verdicts: &[(Promise, Verdict)]) -> String {
    let Header { countersign, commit, profile, run, seed, postgresql, servers, agents, .. } = &history.header;
    let mut lines = vec![
        format!("{run}: countersign {countersign} ({commit}, {profile}), PostgreSQL {postgresql}, seed {seed}"),
        format!("{servers} servers, {agents} agents, {}", figures(history)),
        faults(history),
    ];
    if history.end.is_none() {
        lines.push(format!("The history ends early, after {} lines: it has no final state.", history.lines));
    }
    for (promise, verdict) in verdicts {
        let (text, cases_are) = promise.text();
        match verdict {
            Verdict::NotChecked => lines.push(format!("not checked  {text}")),
            Verdict::Held { cases } => lines.push(format!("held         {text} ({cases} {cases_are})")),
            Verdict::Broken { cases, breaches } => {
                lines.push(format!("BROKEN       {text} ({cases} {cases_are}, {} breaches)", breaches.len()));
                for breach in breaches.iter().take(SHOWN) {
                    lines.push(format!("             line {}: {}", numbers(&breach.lines), breach.what));
                }
            }
        }
    }
    // A history is somebody else's text.
    let printed = |c: char| if c.is_control() && c != '\n' { '?' } else { c };
    lines.join("\n").chars().map(printed).chain(['\n']).collect()
}

fn numbers(lines: &[usize]) -> String {
    let mut numbers: Vec<String> = lines.iter().take(SHOWN).map(ToString::to_string).collect();
    if lines.len() > SHOWN {
        numbers.push(format!("and {} more", lines.len() - SHOWN));
    }
    numbers.join(", ")
}

fn figures(history: &History) -> String {
    let mut counts = BTreeMap::<_, usize>::new();
    for operation in &history.operations {
        *counts.entry(name_of(operation)).or_default() += 1;
    }
    let counts: Vec<String> = counts.into_iter().map(|(name, count)| format!("{count} {name}")).collect();
    let writes = history.operations.iter().filter(|operation| matches!(operation.call.request, Request::Write { .. }));
    let acknowledged = writes.filter(|operation| operation.acknowledged().is_some());
    let mut times: Vec<i64> = acknowledged.filter_map(|write| Some(write.answer.as_ref()?.of.t)).collect();
    times.sort_unstable();
    let gaps = || times.iter().zip(times.iter().skip(1)).map(|(earlier, later)| later - earlier);
    let unavailable: i64 = gaps().filter(|gap| *gap >= UNAVAILABLE_MS).sum();
    let seconds = |ms: i64| format!("{}.{} s", ms / 1000, ms % 1000 / 100);
    format!(
        "{}; {} operations: {}\nwithout an acknowledged write: {} at most, {} in gaps of 1 s or more",
        seconds(times.last().copied().unwrap_or_default()),
        history.operations.len(),
        counts.join(", "),
        seconds(gaps().max().unwrap_or_default()),
        seconds(unavailable),
    )
}

fn name_of(operation: &Operation) -> &'static str {
    match operation.outcome() {
        None => "unanswered",
        Some(Outcome::Done { .. }) => "done",
        Some(Outcome::Repeated { .. }) => "answered as before",
        Some(Outcome::Proposed { .. }) => "proposed",
        Some(Outcome::Read) => "read",
        Some(Outcome::Refused { .. }) => "refused",
        Some(Outcome::InDoubt { .. }) => "in doubt",
        Some(Outcome::Lost) => "lost",
        Some(Outcome::Planned { .. } | Outcome::Ended { .. }) => "by people",
    }
}

fn faults(history: &History) -> String {
    let mut faults = BTreeMap::<_, usize>::new();
    for fault in history.faults.iter().filter(|fault| !fault.over) {
        *faults.entry(fault.name.as_str()).or_default() += 1;
    }
    let mut text = format!("{} faults", faults.values().sum::<usize>());
    for (at, (name, count)) in faults.into_iter().enumerate() {
        let _never_fails = write!(text, "{} {count} {name}", if at == 0 { ":" } else { "," });
    }
    text
}
