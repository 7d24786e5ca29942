//! The ratios to the smallest server that earlier runs had, in `tests/benches/calls/baseline.toml`. A run that is much
//! worse fails, so that a change that makes something slower is seen. `COUNTERSIGN_BENCH_UPDATE=1` writes the file anew.

use std::path::PathBuf;

use testkit::repository;
use toml::{Table, Value};

/// How much worse than in the file a ratio may be: machines are noisy, and differ.
const BOUND: f64 = 1.4;

/// The side that the ratios are of.
const REFERENCE: &str = "smallest";

/// The sides that the file has: this repository's own.
const OWN: [&str; 4] = ["core", "stdio", "http", "http session"];

/// The file, and what a run found.
pub(crate) struct Baseline {
    known: Table,
    found: Table,
    worse: Vec<String>,
}

impl Baseline {
    pub(crate) fn load() -> Self {
        let text = std::fs::read_to_string(path()).unwrap_or_default();
        Self { known: text.parse().expect("TOML"), found: Table::new(), worse: Vec::new() }
    }

    /// Compares the figures of one line. Less is better, but for rates. The slowest calls are not compared: they are
    /// those that something else on the machine has disturbed.
    pub(crate) fn compare(&mut self, case: &str, is_rate: bool, sides: &[(&str, f64)]) {
        if case.ends_with("p99") {
            return;
        }
        let Some((_, reference)) = sides.iter().find(|(name, _)| *name == REFERENCE) else { return };
        let mut ratios = Table::new();
        for (side, figure) in sides.iter().filter(|(side, figure)| OWN.contains(side) && figure.is_finite()) {
            let ratio = figure / reference;
            let known = self.known.get(case).and_then(|sides| sides.get(side)).and_then(Value::as_float);
            let is_worse = |known: f64| if is_rate { ratio * BOUND < known } else { ratio > known * BOUND };
            if let Some(known) = known.filter(|known| is_worse(*known)) {
                self.worse.push(format!("{case}: {side} has {ratio:.2} of the smallest server's, and had {known:.2}"));
            }
            ratios.insert((*side).to_owned(), Value::Float((ratio * 100.0).round() / 100.0));
        }
        self.found.insert(case.to_owned(), Value::Table(ratios));
    }

    /// Writes the file anew, if the variable says so, or else fails if something is much worse than in it.
    pub(crate) fn finish(self) {
        if std::env::var_os("COUNTERSIGN_BENCH_UPDATE").is_some_and(|value| value == "1") {
            let head = "# Ratios to the smallest MCP server in one run. COUNTERSIGN_BENCH_UPDATE=1 writes them.\n\n";
            let text = toml::to_string(&self.found).expect("TOML");
            std::fs::write(path(), format!("{head}{text}")).expect("the file of the baseline");
        } else {
            assert!(self.worse.is_empty(), "slower than in {}:\n{}", path().display(), self.worse.join("\n"));
        }
    }
}

fn path() -> PathBuf {
    repository().join("tests/benches/calls/baseline.toml")
}
