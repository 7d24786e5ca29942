//! Output that is generated from the definition of the command line: completions of shells, and man pages.

use std::path::Path;
use std::process::ExitCode;

use agent_cli::FrontEnd;
use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::commands::cli::Cli;
use crate::terminal;

/// The whole command line, with the options of the front ends that parse theirs themselves.
fn command_line() -> clap::Command {
    FrontEnd::ALL.into_iter().fold(Cli::command(), |cli, front_end| {
        let name = front_end.as_str();
        cli.mut_subcommand(name, |_| agent_cli::command(front_end).name(name))
    })
}

pub(crate) fn completions(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command_line(), "countersign", &mut script);
    terminal::write_bytes(&script);
    ExitCode::SUCCESS
}

/// A page for each command, such as `countersign-audit-list.1`.
pub(crate) fn man(dir: &Path) -> anyhow::Result<ExitCode> {
    clap_mangen::generate_to(command_line(), dir)
        .with_context(|| format!("the man pages cannot be written into {}", dir.display()))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_command_line_is_consistent() {
        command_line().debug_assert();
    }
}
