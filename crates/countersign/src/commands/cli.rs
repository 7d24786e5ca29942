//! The command line. What can be configured in another way as well is a key of [`crate::settings`].

pub(crate) mod help;
mod install;

use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use types::DatabaseName;

use crate::settings::{
    ChosenKeys, ConfigSources, Keys, LogKeys, ManifestKeys, ServerGroups, ServerKeys, SignedKeys, With,
};

use self::install::given_options;
pub(crate) use self::install::{ClientName, GivenOption, InstallArgs, OptionKind, Scope, UninstallArgs};
use ledger::ReaderTables;
use scaffold::ToolKind;

use crate::commands::audit::args::AuditCommand;
use crate::commands::console::args::ConsoleArgs;
use crate::commands::freeze::{FreezeArgs, UnfreezeArgs};
use crate::commands::keys::KeysCommand;
use crate::commands::proposals::args::ProposalsCommand;
use crate::commands::schema::args::SchemaCommand;
use crate::commands::token::args::TokenCommand;
use crate::commands::track::{TrackArgs, UntrackArgs};
use crate::commands::undo::args::UndoArgs;
use crate::commands::words;

/// The variable that names the configuration file.
const CONFIG: &str = "COUNTERSIGN_CONFIG";

/// MCP server for PostgreSQL: bounded reads, and audited writes that happen once and can be undone.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// Configuration file. Flags and COUNTERSIGN_* variables take precedence over it.
    #[arg(long, env = CONFIG, global = true, value_name = "FILE", help_heading = "Global options")]
    config: Option<PathBuf>,
    #[command(flatten)]
    log: LogKeys,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show a real MCP session step by step, on a private PostgreSQL with sample data.
    Demo(DemoArgs),
    /// Serve MCP on standard input and output, or with --http over HTTP.
    Serve(Box<With<ServeArgs, ServerKeys>>),
    /// Create the ledger and the logins in the configured database, or update them.
    ///
    /// With --schema, it also lets servers write the tables of that schema, and --config FILE names a file
    /// that it writes: the connection string of the servers' login with a new password, and execute_sql. FILE
    /// is readable only by you and must not exist, so leave --config out when you repeat the command. Without
    /// it no file is written: a server reads only the file that --config or COUNTERSIGN_CONFIG names. Without
    /// --schema, --config names a file that is read, as for every command.
    Init(With<InitArgs, SignedKeys>),
    /// Record what writes change in these tables, so that they can be undone.
    ///
    /// Repeat it after DDL on the tables. Needs a database login that owns the tables and is a member of
    /// countersign_owner. All of the tables are tracked, or none. A table that is tracked already keeps the options that are not given; --maintained ''
    /// and --is-log=false remove them.
    Track(With<TrackArgs>),
    /// Stop recording the changes of these tables. Recorded changes stay, and can no longer be undone.
    Untrack(With<UntrackArgs>),
    /// Undo a write of any account: restore every row that it changed, or none.
    ///
    /// Needs a database login with the role countersign_operator and the privileges that the write needed.
    /// Exits with 0 if the write is undone, 1 after an error, and 2 if there are conflicts and nothing was
    /// changed.
    Undo(Box<UndoArgs>),
    /// Refuse the writes of an account, of an actor, or all of them.
    ///
    /// Running writes are refused too, and reads continue. Needs a database login with the role countersign_operator. That login and the user of the operating
    /// system are recorded.
    Freeze(With<FreezeArgs>),
    /// Accept the writes of an account, of an actor, or all of them again.
    Unfreeze(With<UnfreezeArgs>),
    /// Check the manifests against the database, and report every mistake.
    Check(With<CheckArgs>),
    /// Write a manifest with inserts, updates and deletes for the tables of a schema.
    ///
    /// The manifest goes to standard output, and what to do before it fits to standard error. Needs a database
    /// login that may read the tables, best their owner.
    Scaffold(With<ScaffoldArgs>),
    /// Run the write of a tool, show what it would change, and roll it back.
    ///
    /// Takes the options of serve. A tool that reads is run. Exits with 1 if the call would fail.
    Try(Box<With<TryArgs, ServerKeys>>),
    /// Read, seal, sign, verify, export and prune the records of writes.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Show the writes that wait for agreement, and approve or reject them.
    #[command(subcommand)]
    Proposals(ProposalsCommand),
    /// Show changes of tables' definitions, and carry them out in your own login.
    #[command(subcommand)]
    Schema(SchemaCommand),
    /// Serve the web page on which people decide on proposals and undo writes.
    ///
    /// Needs a database login that has the role countersign_console and nothing else. It listens on
    /// 127.0.0.1:7788 unless --listen says otherwise.
    Console(ConsoleArgs),
    /// Make bearer tokens for the HTTP transport.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Change the keys that seal session ids and questions to users.
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Add this server to the configuration of an MCP client.
    ///
    /// The client then starts `countersign serve` with the options given here. Checks the manifests against the database first. Everything else in the client's file stays as it is, and
    /// the previous file is kept beside it. The entry contains no connection string: it names a file with it.
    Install(Box<With<InstallArgs, ServerKeys>>),
    /// Remove this server from the configuration of an MCP client, or the ledger from a database.
    Uninstall(With<UninstallArgs>),
    /// Report what is wrong with database, ledger and roles, and what to do.
    ///
    /// Takes the options of serve. Exits with 1 if there is a problem, and with 0 if there is none, or only warnings.
    Doctor(Box<With<DoctorArgs, ServerKeys>>),
    /// Print the completions for a shell.
    ///
    /// Save them in its completions folder, or source them.
    Completions(CompletionsArgs),
    /// Write the man pages of all commands into a folder.
    Man(ManArgs),
    /// Run one SQL statement and answer with JSON.
    ///
    /// It has its own options: countersign query --help.
    #[command(disable_help_flag = true)]
    Query(PassthroughArgs),
    /// Run SQL statements from JSON lines, over persistent connections.
    ///
    /// It has its own options: countersign pipe --help.
    #[command(disable_help_flag = true)]
    Pipe(PassthroughArgs),
    /// Like query, with psql's flags.
    ///
    /// It has its own options: countersign psql --help.
    #[command(disable_help_flag = true)]
    Psql(PassthroughArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// An existing folder. `man -M` needs the folder above one that is named man1.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

/// The arguments of a front end that parses its command line itself (`crate::commands::front_ends`).
#[derive(Debug, Args)]
pub(crate) struct PassthroughArgs {
    #[arg(hide = true, num_args = 0.., trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<std::ffi::OsString>,
}

/// The configuration around a command line that is parsed elsewhere.
#[derive(Debug, Parser)]
struct FrontEndConfig {
    #[arg(long, env = CONFIG)]
    config: Option<PathBuf>,
    #[command(flatten)]
    _server: ServerKeys,
}

/// The variables and the configuration file, for front ends with a command line of their own; `config` takes
/// precedence over the variable that names the file.
pub(crate) fn sources_around(
    config: Option<PathBuf>,
    database: Option<DatabaseName>,
) -> Result<ConfigSources, clap::Error> {
    let matches = FrontEndConfig::command().try_get_matches_from(["countersign"])?;
    let around = FrontEndConfig::from_arg_matches(&matches)?;
    let given = Keys { chosen: ChosenKeys { database }, ..Keys::given(&matches)? };
    Ok(ConfigSources { config: config.or(around.config), given })
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Delete the data of earlier demos, and start again.
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Print each call with its answer, and the configuration of a client.
    #[arg(long, conflicts_with = "console")]
    pub(crate) verbose: bool,
    /// Show proposals in the console instead: a page in your browser, where you approve what an agent wants to do.
    #[arg(long)]
    pub(crate) console: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Serve the demo: its manifests, on a private PostgreSQL with its data.
    #[arg(long)]
    pub(crate) demo: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object per finding: level, area, message, advice, details.
    #[arg(long)]
    pub(crate) json: bool,
    /// Also try the undo of the newest write of each tool, in a transaction that is rolled back.
    #[arg(long)]
    pub(crate) undo_drill: bool,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Login of the servers. It is created without a password if it does not exist, and granted what the ledger
    /// needs.
    #[arg(long, env = "COUNTERSIGN_WRITER", value_name = "ROLE", default_value = ledger::DEFAULT_WRITER)]
    pub(crate) writer: String,
    /// Let servers write the tables of this schema: grants the login of the servers what writes need, and
    /// tracks the tables. Repeat it for new tables. SQL that your login may not run is printed for the owner.
    /// Can be given several times.
    #[arg(long = "schema", value_name = "SCHEMA")]
    pub(crate) schemas: Vec<String>,
    /// The file to write.
    #[arg(skip)]
    pub(crate) config: Option<PathBuf>,
    /// Tables and views on which the reader's login gets SELECT.
    #[arg(long, value_parser = reader_tables(), default_value = "new", value_name = "WHICH")]
    pub(crate) reader_tables: ReaderTables,
    /// Let agents read the tables of this schema, too. They may read the schemas of --schema; with neither option, every
    /// schema. Can be given several times.
    #[arg(long = "reader-schema", value_name = "SCHEMA")]
    pub(crate) reader_schemas: Vec<String>,
    /// Print the SQL and change nothing. The SQL is tried in a transaction that is rolled back.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Also create the demo's data, in the schemas social and studio.
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) demo: bool,
}

fn reader_tables() -> impl TypedValueParser<Value = ReaderTables> {
    words::one_of([
        ("new", "Those created since the last init", ReaderTables::New),
        ("all", "All, also those on which an administrator has revoked it", ReaderTables::All),
        ("none", "None", ReaderTables::None),
    ])
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    _manifests: ManifestKeys,
    /// Print the SQL that grants the servers' login the privileges that it lacks for these manifests, instead
    /// of a report. Run it as the owner of the tables. Plans contain neither views nor sequences that a
    /// statement calls by name.
    #[arg(long, value_name = "ROLE", num_args = 0..=1, default_missing_value = ledger::DEFAULT_WRITER)]
    pub(crate) grants: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ScaffoldArgs {
    /// The schema of the tables; can be given several times.
    #[arg(long = "schema", value_name = "SCHEMA", required = true)]
    pub(crate) schemas: Vec<String>,
    /// Only this table; can be given several times.
    #[arg(long = "table", value_name = "TABLE")]
    pub(crate) tables: Vec<String>,
    /// Only tools of these kinds: insert, update, delete.
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    pub(crate) only: Vec<ToolKind>,
    /// Print the SQL that grants the servers' login the privileges that it lacks for these tools, instead of
    /// the manifest. Run it as the owner of the tables.
    #[arg(long, value_name = "ROLE", num_args = 0..=1, default_missing_value = ledger::DEFAULT_WRITER)]
    pub(crate) grants: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TryArgs {
    /// The tool.
    #[arg(value_name = "TOOL")]
    pub(crate) tool: String,
    /// Its arguments, a JSON object.
    #[arg(value_name = "ARGUMENTS", default_value = "{}")]
    pub(crate) arguments: String,
    /// Print the answer as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Show all rows and values, however many there are.
    #[arg(long)]
    pub(crate) full: bool,
}

impl Cli {
    /// Parses the command line, and the variables that replace flags. Ends the process with a message if it is wrong.
    pub(crate) fn read() -> (Command, ConfigSources) {
        let matches = help::concise(Self::command()).get_matches();
        let mut cli = Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        let matches = innermost(&matches);
        match &mut cli.command {
            Command::Install(install) => install.own.given = given_options(matches),
            // `init --schema` writes the file that the flag names. The variable still names one to read.
            Command::Init(init) if !init.own.schemas.is_empty() && is_flag(matches, "config") => {
                init.own.config = cli.config.take();
                cli.config = std::env::var_os(CONFIG).filter(|name| !name.is_empty()).map(PathBuf::from);
            }
            _ => {}
        }
        let given = Keys::given(matches).unwrap_or_else(|error| error.exit());
        let mut given = Keys { server: ServerGroups { log: cli.log, ..given.server }, ..given };
        let connection = &mut given.database.connection;
        let ids = ["database_url", "database_url_file"];
        flag_before_variable(matches, &mut connection.database_url, &mut connection.database_url_file, ids);
        let served = &mut given.database.served;
        flag_before_variable(matches, &mut served.read_url, &mut served.read_url_file, ["read_url", "read_url_file"]);
        let operator = &mut given.database.operator;
        let ids = ["operator_url", "operator_url_file"];
        flag_before_variable(matches, &mut operator.operator_url, &mut operator.operator_url_file, ids);
        let write = &mut given.database.write;
        let ids = ["fingerprint_key", "fingerprint_key_file"];
        flag_before_variable(matches, &mut write.fingerprint_key, &mut write.fingerprint_key_file, ids);
        let secret = &mut given.server.oidc_secret;
        let ids = ["console_oidc_client_secret", "console_oidc_client_secret_file"];
        flag_before_variable(matches, &mut secret.client_secret, &mut secret.client_secret_file, ids);
        // Whatever this shell is configured for, the demo is not about it.
        let config = cli.config.filter(|_| !matches!(cli.command, Command::Demo(_)));
        (cli.command, ConfigSources { config, given })
    }
}

/// The arguments after the last subcommand.
fn innermost(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, inner)| innermost(inner))
}

fn is_flag(matches: &ArgMatches, id: &str) -> bool {
    matches.value_source(id) == Some(ValueSource::CommandLine)
}

/// Resolves two keys for the same setting: a flag for one takes precedence over a variable for the other.
fn flag_before_variable<A, B>(matches: &ArgMatches, one: &mut Option<A>, other: &mut Option<B>, ids: [&str; 2]) {
    if one.is_some() && other.is_some() {
        match ids.map(|id| is_flag(matches, id)) {
            [true, false] => *other = None,
            [false, true] => *one = None,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// All commands that can be run.
    fn leaves(command: &clap::Command) -> Vec<&clap::Command> {
        let below: Vec<_> = command.get_subcommands().flat_map(leaves).collect();
        if below.is_empty() { vec![command] } else { below }
    }

    #[test]
    fn the_help_of_a_command_begins_with_its_own_options_and_ends_with_the_common_ones() {
        let mut cli = Cli::command();
        cli.build();
        for command in leaves(&cli) {
            let help = command.clone().render_help().to_string();
            let at = |heading: &str| help.find(&format!("\n{heading}:\n"));
            let of_connection =
                command.get_arguments().filter(|argument| argument.get_help_heading() == Some("Connection options"));
            let names: Vec<&str> = of_connection.map(|argument| argument.get_id().as_str()).collect();
            if names.is_empty() {
                continue;
            }
            let all = [
                "database",
                "database_url",
                "database_url_file",
                "pooler",
                "password_command",
                "password_lifetime_s",
                "ssh_tunnel",
                "connect_timeout_ms",
            ];
            assert_eq!(names, all, "{}", command.get_name());
            let request = [at("Options"), at("Connection options"), at("Global options")];
            assert!(request.is_sorted() && request[0].is_some(), "{help}");
            let between = help.get(request[1].unwrap() + 1..request[2].unwrap()).unwrap();
            let headings = between.lines().filter(|line| line.ends_with(':') && !line.starts_with(' '));
            assert_eq!(headings.count(), 1, "connection options come last but for the global ones: {help}");
        }
    }
}
