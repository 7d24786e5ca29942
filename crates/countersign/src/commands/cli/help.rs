//! The output of `countersign --help` and `-h`, which fits on a screen. `--help` of a command shows the rest.

use std::fmt::Write as _;

use clap::{Args, Command};

use crate::settings::ServerKeys;

/// The settings that most people need, by their ids on the command line.
pub(crate) const MOST_USED: [&str; 12] = [
    "database_url",
    "manifests",
    "profile",
    "account",
    "actor",
    "read_url",
    "execute_sql",
    "execute_sql_tier",
    "signing_key",
    "listen",
    "tokens_file",
    "query_timeout_ms",
];

/// The server settings that matter to a command that runs no server.
const OF_A_CHECK: [&str; 3] = ["database_url", "manifests", "profile"];

/// The commands by purpose. Commands on one line are opposites; the description is that of the first one.
const GROUPS: [(&str, &[&[&str]]); 5] = [
    ("Start", &[&["demo"], &["init"], &["install", "uninstall"], &["serve"], &["doctor"]]),
    ("Tools", &[&["scaffold"], &["check"], &["try"], &["track", "untrack"]]),
    ("People", &[&["proposals"], &["schema"], &["console"], &["undo"], &["freeze", "unfreeze"]]),
    ("Operation", &[&["audit"], &["token"], &["keys"], &["completions"], &["man"]]),
    ("Shells", &[&["query"], &["pipe"], &["psql"]]),
];

/// The command line with help that fits a screen.
pub(super) fn concise(cli: Command) -> Command {
    let overview = overview(&cli);
    let of_server: Vec<_> = ServerKeys::augment_args(Command::new("")).get_arguments().cloned().collect();
    let hide = |cli: Command, name: &str, shown: &[&str]| {
        cli.mut_subcommand(name, |command| {
            let command = command.mut_args(|argument| {
                let is_of_server = of_server.iter().any(|key| key.get_id() == argument.get_id());
                let is_shown = !is_of_server || shown.contains(&argument.get_id().as_str());
                if is_shown { argument } else { argument.hide_short_help(true) }
            });
            command.after_help(format!("More options: countersign {name} --help")).after_long_help("")
        })
    };
    let cli = hide(cli, "serve", &MOST_USED);
    let cli = ["doctor", "install", "try"].iter().fold(cli, |cli, name| hide(cli, name, &OF_A_CHECK));
    cli.override_help(overview)
}

/// The help of the program, in at most 40 lines of 100 columns.
fn overview(cli: &Command) -> String {
    let about = |command: &Command| command.get_about().map(ToString::to_string).unwrap_or_default();
    let mut text = format!("{}\n\nUsage: countersign [OPTIONS] <COMMAND>\n", about(cli));
    for (heading, lines) in GROUPS {
        let _infallible = writeln!(text, "\n{heading}:");
        for names in lines {
            let summary = names.first().and_then(|first| cli.find_subcommand(first)).map(about).unwrap_or_default();
            let summary = summary.split(". ").next().unwrap_or_default();
            let _infallible = writeln!(text, "  {:<19} {summary}", names.join(", "));
        }
    }
    text.push_str(
        "\nAll but the last three take --config <FILE>, --log <LEVEL> and --log-format <FORMAT> as well.\n\
         countersign COMMAND -h shows the options that most people need, and --help all of them.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::commands::cli::Cli;

    #[test]
    fn the_overview_has_every_command_and_fits_a_screen() {
        let cli = Cli::command();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, lines)| lines.concat()).collect();
        let mut names: Vec<&str> = cli.get_subcommands().map(Command::get_name).collect();
        listed.sort_unstable();
        names.sort_unstable();
        assert_eq!(listed, names);
        let text = overview(&cli);
        assert!(text.lines().count() <= 40, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn the_short_help_of_every_command_fits_sixty_lines() {
        fn check(command: &Command, path: &str) {
            let help = command.clone().term_width(100).render_help().to_string();
            assert!(help.lines().count() <= 60, "{path} has {} lines:\n{help}", help.lines().count());
            command.get_subcommands().for_each(|below| check(below, &format!("{path} {}", below.get_name())));
        }
        let mut cli = concise(Cli::command());
        cli.build();
        check(&cli, "countersign");
    }

    #[test]
    fn the_settings_that_most_people_need_are_options_of_serve() {
        let cli = Cli::command();
        let serve = cli.find_subcommand("serve").unwrap();
        for id in MOST_USED {
            assert!(serve.get_arguments().any(|argument| argument.get_id() == id), "{id}");
        }
    }
}
