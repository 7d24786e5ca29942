//! Output that is generated from the definition of the command line: completions of shells, and man pages.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::terminal;

pub(crate) fn completions(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "countersign", &mut script);
    terminal::write_bytes(&script);
    ExitCode::SUCCESS
}

/// A page for each command, such as `countersign-audit-list.1`.
pub(crate) fn man(dir: &Path) -> anyhow::Result<ExitCode> {
    clap_mangen::generate_to(Cli::command(), dir)
        .with_context(|| format!("the man pages cannot be written into {}", dir.display()))?;
    Ok(ExitCode::SUCCESS)
}
