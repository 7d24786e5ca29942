//! Committed writes whose result could not be delivered. This is not a failed write (exit code 3).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use types::quoted;

/// A commit that a terminal event reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) id: String,
    /// PostgreSQL's command tag; `None` if the response to COMMIT did not arrive.
    pub(crate) command_tag: Option<String>,
    /// The correlation id of a write that the ledger has recorded.
    pub(crate) correlation_id: Option<String>,
}

/// The commits that were announced but not delivered.
#[derive(Clone, Default)]
pub(crate) struct Undelivered(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    commits: BTreeMap<u64, Commit>,
    announced: u64,
}

impl Undelivered {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces that the result of a commit is about to be written. Returns its number for `delivered`.
    pub(crate) fn announce(&self, commit: Commit) -> u64 {
        let mut table = self.table();
        table.announced += 1;
        let number = table.announced;
        table.commits.insert(number, commit);
        number
    }

    /// Records that the results of these commits were passed to the operating system.
    pub(crate) fn delivered(&self, numbers: impl IntoIterator<Item = u64>) {
        let mut table = self.table();
        for number in numbers {
            table.commits.remove(&number);
        }
    }

    /// Returns one line about all undelivered results; `None` if there are none.
    pub(crate) fn complaint(&self) -> Option<String> {
        let table = self.table();
        let commits: Vec<String> = table.commits.values().map(told).collect();
        (!commits.is_empty()).then(|| format!("committed, result lost: {}", commits.join("; ")))
    }
}

fn told(commit: &Commit) -> String {
    let id = quoted(&commit.id);
    let what = commit.command_tag.as_deref().unwrap_or("the answer to COMMIT did not come, so look whether it was");
    match &commit.correlation_id {
        Some(receipt) => format!("{id} ({what}; receipt {receipt})"),
        None => format!("{id} ({what}; no receipt, since it is not recorded in a ledger)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_delivered_is_not_told_and_the_rest_is_one_line() {
        let undelivered = Undelivered::default();
        let commit = |id: &str, tag: Option<&str>, receipt: Option<&str>| Commit {
            id: id.to_owned(),
            command_tag: tag.map(str::to_owned),
            correlation_id: receipt.map(str::to_owned),
        };
        let first = undelivered.announce(commit("a", Some("INSERT 0 1"), None));
        undelivered.announce(commit("b\n", Some("COMMIT"), Some("r-1")));
        undelivered.announce(commit("c", None, Some("r-2")));
        undelivered.delivered([first]);
        let line = undelivered.complaint().unwrap();
        assert!(line.starts_with("committed, result lost: ") && !line.contains('\n'), "{line}");
        assert!(
            line.contains("COMMIT; receipt r-1") && line.contains("receipt r-2") && !line.contains("INSERT"),
            "{line}"
        );
        undelivered.delivered([2, 3]);
        assert_eq!(undelivered.complaint(), None);
    }
}
