//! The command lines of `query` and `pipe`: long flags with descriptive names only.
//!
//! To add a flag: a field of one of the structs, and its use in `invocation`.

use std::any::TypeId;
use std::collections::HashMap;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, Args, CommandFactory, Parser, ValueEnum};
use types::{DatabaseName, quoted};

use crate::connection::ConnectionFields;
use crate::error::CliError;
use crate::events::Event;
use crate::invocation::{FrontEnd, Invocation, Mode, OneShot, ParamArg, Sql, params};
use crate::log::LogFilters;
use crate::options::{Defaults, LimitArgs, Options};
use crate::output::Output;
use crate::request::check_sql;
use crate::{psql, redaction};

/// The end of parsing without an invocation: text for standard output, and the exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseExit {
    /// The help or the version, or an `error` event.
    pub stdout: Vec<u8>,
    /// 0 for help and version, 2 for an error.
    pub code: u8,
}

/// The flags of the output.
#[derive(Args)]
struct CommonArgs {
    /// Format of events.
    #[arg(long, value_enum, default_value = "json")]
    output: Output,
    /// Events to log, separated by commas: startup, query.result, query.error, query.sql_error, query, all.
    #[arg(long, value_delimiter = ',', value_name = "EVENTS")]
    log: Vec<String>,
    /// Record writes in the ledger.
    #[arg(long)]
    audit: bool,
    /// Do not record writes.
    #[arg(long, conflicts_with = "audit")]
    no_audit: bool,
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A database of the configuration file, by its name there.
    #[arg(long, value_name = "NAME")]
    database: Option<DatabaseName>,
    /// Print this help.
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    /// Print the version.
    #[arg(long, action = ArgAction::Version)]
    version: Option<bool>,
}

/// Runs one statement and writes its result as events, one JSON object per line.
///
/// Exits with 0 for a result, 1 for an error, 2 for wrong arguments. Reads only, unless --write is given.
#[derive(Parser)]
#[command(name = "countersign query", version, disable_help_flag = true, disable_version_flag = true)]
struct QueryArgs {
    /// The statement.
    #[arg(long, required_unless_present = "sql_file", conflicts_with = "sql_file", allow_hyphen_values = true)]
    sql: Option<String>,
    /// A file with the statement; - is standard input.
    #[arg(long, value_name = "FILE")]
    sql_file: Option<String>,
    /// The value of $N, as text; repeatable.
    #[arg(long = "param", value_name = "N=value", allow_hyphen_values = true)]
    params: Vec<String>,
    /// $N is NULL; repeatable.
    #[arg(long = "param-null", value_name = "N")]
    null_params: Vec<String>,
    /// Describe the parameters and columns of the statement, and do not run it.
    #[arg(long)]
    dry_run: bool,
    /// Let the statement write; equal to --read-only=false.
    #[arg(long, conflicts_with = "read_only")]
    write: bool,
    /// Whether the statement runs in a read-only transaction. Default: true.
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    read_only: Option<bool>,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    connection: ConnectionFields,
    #[command(flatten)]
    common: CommonArgs,
}

/// Runs commands from standard input and writes events, each as one JSON object per line.
///
/// Commands: query, cancel, config, ping, close, begin, commit, rollback. The flags are defaults for the commands.
#[derive(Parser)]
#[command(name = "countersign pipe", version, disable_help_flag = true, disable_version_flag = true)]
struct PipeArgs {
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    connection: ConnectionFields,
    #[command(flatten)]
    common: CommonArgs,
}

/// The definition of a command line, for completions of shells and man pages.
#[must_use]
pub fn command(front_end: FrontEnd) -> clap::Command {
    match front_end {
        FrontEnd::Query => QueryArgs::command(),
        FrontEnd::Pipe => PipeArgs::command(),
        FrontEnd::Psql => psql::command(QueryArgs::command()),
    }
}

/// Parses a command line: the arguments after `countersign query`, `pipe` or `psql`.
pub fn parse(front_end: FrontEnd, argv: &[String], env: HashMap<String, String>) -> Result<Invocation, ParseExit> {
    let name = format!("countersign {}", front_end.as_str());
    let shown_argv = redaction::argv(argv);
    let argv = match front_end {
        FrontEnd::Query | FrontEnd::Pipe => argv.to_vec(),
        FrontEnd::Psql => match psql::translate(argv, &command(front_end)) {
            Ok(Some(translated)) => translated,
            Ok(None) => return Err(ParseExit { stdout: psql::HELP.into(), code: 0 }),
            Err(problem) => return Err(exit(problem, argv)),
        },
    };
    let words = || std::iter::once(&name).chain(&argv);
    let read = match front_end {
        FrontEnd::Pipe => PipeArgs::try_parse_from(words()).map(PipeArgs::into_invocation),
        FrontEnd::Query | FrontEnd::Psql => QueryArgs::try_parse_from(words()).map(QueryArgs::into_invocation),
    };
    match read {
        Ok(Ok(invocation)) => Ok(Invocation { front_end, env, shown_argv, ..invocation }),
        Ok(Err(problem)) => Err(exit(problem, &argv)),
        Err(error) if !error.use_stderr() => {
            Err(ParseExit { stdout: error.render().to_string().into_bytes(), code: 0 })
        }
        // A value may be a secret in the wrong place, so it is not shown.
        Err(error) => {
            let problem = CliError::invalid(without_values(&error, &argv));
            Err(exit(problem.hint(format!("{name} --help lists the flags")), &argv))
        }
    }
}

/// Creates an `error` event for an invocation that cannot run for a reason other than its command line.
#[must_use]
pub fn error_exit(message: &str, invocation: &Invocation) -> ParseExit {
    let problem = CliError::invalid(redaction::without_password(message));
    ParseExit { stdout: invocation.output.render(&Event::error(None, problem, 0)), code: 2 }
}

/// Creates an `error` event in the requested format, as far as the format can be determined.
fn exit(problem: CliError, argv: &[String]) -> ParseExit {
    let named = argv.iter().position(|argument| argument == "--output").and_then(|at| argv.get(at + 1));
    let form =
        named.map(String::as_str).or_else(|| argv.iter().find_map(|argument| argument.strip_prefix("--output=")));
    let form = form.and_then(|form| Output::from_str(form, false).ok()).unwrap_or_default();
    ParseExit { stdout: form.render(&Event::error(None, problem, 0)), code: 2 }
}

/// Whether this is a flag of `query` that takes a number.
fn is_number(flag: &str) -> bool {
    let is_it = |known: &clap::Arg| known.get_long().is_some_and(|long| flag.strip_prefix("--") == Some(long));
    let number = TypeId::of::<u64>();
    QueryArgs::command().get_arguments().any(|known| is_it(known) && known.get_value_parser().type_id() == number)
}

/// Describes the error in a command line without any of its values.
#[must_use]
pub fn without_values(error: &clap::Error, argv: &[String]) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let argument = text(ContextKind::InvalidArg).unwrap_or_default();
    // `--port <PORT>`
    let flag = argument.split([' ', '=', '[']).next().unwrap_or_default();
    match error.kind() {
        ErrorKind::UnknownArgument if flag.starts_with('-') => {
            format!("there is no flag {}", quoted(psql::shown_flag(flag)))
        }
        ErrorKind::UnknownArgument => {
            let place = argv.iter().position(|given| given == argument);
            place.map_or_else(|| "a value belongs to no flag".to_owned(), psql::unflagged)
        }
        ErrorKind::InvalidValue if text(ContextKind::InvalidValue).is_none_or(str::is_empty) => {
            format!("the flag {flag} needs a value")
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::TooManyValues => {
            let known = match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(known)) if !known.is_empty() => format!("one of {}", known.join(", ")),
                _ if flag == "--port" => "a number from 1 to 65535".to_owned(),
                _ if is_number(flag) => "a whole number from 0 on".to_owned(),
                _ if error.kind() == ErrorKind::TooManyValues => "no value".to_owned(),
                _ => "other values".to_owned(),
            };
            format!("the flag {flag} takes {known}, and was given something else")
        }
        // These messages contain only flags.
        _ => {
            let text = error.render().to_string();
            let lines = text.lines().map(str::trim);
            let lines = lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
            let lines: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with("tip:")).collect();
            let message = lines.join(" ");
            redaction::scrubbed(message.strip_prefix("error: ").unwrap_or(&message), argv)
        }
    }
}

impl QueryArgs {
    fn into_invocation(self) -> Result<Invocation, CliError> {
        let sql = match (self.sql, &self.sql_file) {
            (Some(sql), _) => {
                check_sql(&sql)?;
                Sql::Text(sql)
            }
            (None, file) => Sql::file(file.as_deref().unwrap_or("-")),
        };
        let read_only = if self.write { Some(false) } else { self.read_only };
        let options = Options { read_only, ..self.options };
        options.check().map_err(kebab)?;
        let given = self.params.iter().map(|pair| ParamArg::Pair(pair));
        let params = params(given.chain(self.null_params.iter().map(|number| ParamArg::Null(number))))?;
        let one_shot = OneShot { sql, params, options, dry_run: self.dry_run };
        invocation(Mode::OneShot(Box::new(one_shot)), self.connection, self.common)
    }
}

impl PipeArgs {
    fn into_invocation(self) -> Result<Invocation, CliError> {
        let limits = Options::from(self.limits);
        limits.check().map_err(kebab)?;
        let defaults = Defaults::default().with(&limits);
        invocation(Mode::Pipe(defaults), self.connection, self.common)
    }
}

fn invocation(mode: Mode, connection: ConnectionFields, common: CommonArgs) -> Result<Invocation, CliError> {
    connection.check()?;
    Ok(Invocation {
        front_end: FrontEnd::Query,
        mode,
        connection,
        database: None,
        output: common.output,
        log: LogFilters::new(common.log.iter().map(String::as_str))
            .map_err(|problem| CliError { message: format!("--log: {problem}"), ..problem })?,
        audit: if common.audit { Some(true) } else { common.no_audit.then_some(false) },
        config: common.config,
        configured_database: common.database,
        env: HashMap::new(),
        shown_argv: Vec::new(),
    })
}

/// Rewrites a message about an option (`batch_rows is 0; ..`) for the flag.
fn kebab(problem: CliError) -> CliError {
    let (name, rest) = problem.message.split_once(' ').unwrap_or((&problem.message, ""));
    CliError { message: format!("--{} {rest}", name.replace('_', "-")), ..problem }
}
