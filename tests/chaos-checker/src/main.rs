//! Judges a history: `chaos-checker FILE`, or `-` for standard input.
//!
//! Exits with 0 if every promise that was checked is held, 1 if one is broken, and 2 if the history cannot be read or
//! ends early.

use std::fs::File;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, bail};
use chaos_checker::{History, Verdict, judge, report};

fn main() -> std::io::Result<ExitCode> {
    run().or_else(|error| {
        writeln!(std::io::stderr(), "{error:#}")?;
        Ok(ExitCode::from(2))
    })
}

fn run() -> anyhow::Result<ExitCode> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [path] = arguments.as_slice() else { bail!("usage: chaos-checker FILE, or - for standard input") };
    let history = match path.to_str() {
        Some("-") => History::read(std::io::stdin().lock()),
        _ => File::open(path).map_err(Into::into).and_then(History::read),
    };
    let history = history.with_context(|| format!("{} cannot be judged", path.display()))?;
    let verdicts = judge(&history);
    std::io::stdout().write_all(report(&history, &verdicts).as_bytes())?;
    let is_broken = verdicts.iter().any(|(_, verdict)| matches!(verdict, Verdict::Broken { .. }));
    Ok(match (is_broken, &history.end) {
        (true, _) => ExitCode::from(1),
        (false, None) => ExitCode::from(2),
        (false, Some(_)) => ExitCode::SUCCESS,
    })
}
