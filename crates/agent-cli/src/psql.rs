//! Translation of `psql` command lines: psql's flags become those of `query`. Other features of psql are not supported:
//! variables in the text, backslash commands, tables.

use pg::Conninfo;
use types::quoted;

use crate::error::CliError;

pub(crate) const HELP: &str = "\
Runs one statement given by psql's flags, and writes its result as events, one JSON object per line.

Usage: countersign psql [OPTIONS] [postgresql://user@host:port/dbname]

Options:
  -c SQL         The statement
  -f FILE        A file with the statement; - is standard input
  -h HOST        A name, an address, or the folder of a unix socket
  -p PORT        The port
  -U USER        The user
  -d DBNAME      The database, or a whole connection string
  -v N=value     The value of $N, as text; repeatable (--param-null N for NULL)
  --help         Print this help

The long flags of `countersign query` work too, except --sql, --sql-file and --param; see
`countersign query --help`.
Exits with 0 for a result, 1 for an error, 2 for wrong arguments. Reads only, unless --write is given.
";

/// psql's flags and their names in `query`.
const FLAGS: [(char, &str); 7] = [
    ('c', "--sql"),
    ('f', "--sql-file"),
    ('h', "--host"),
    ('p', "--port"),
    ('U', "--user"),
    ('d', "--dbname"),
    ('v', "--param"),
];

/// Flags of `query` whose only form in psql is a letter.
const WITHOUT_LONG: [&str; 3] = ["--sql", "--sql-file", "--param"];

/// The definition of the command line, from that of `query`.
pub(crate) fn command(query: clap::Command) -> clap::Command {
    let command =
        query.name("countersign psql").about("Runs one statement given by psql's flags.").mut_args(|argument| {
            let long = argument.get_long().map(|long| format!("--{long}")).unwrap_or_default();
            let letter = FLAGS.iter().find(|(_, flag)| *flag == long).map(|(letter, _)| *letter);
            let argument = argument.short(letter);
            if WITHOUT_LONG.contains(&long.as_str()) { argument.long(None) } else { argument }
        });
    command.arg(clap::Arg::new("connection").value_name("URL").help("postgresql://user@host:port/dbname"))
}

/// Translates psql's arguments to those of `query`; `None` if there is a `--help`. `command` is that of [`command`].
pub(crate) fn translate(argv: &[String], command: &clap::Command) -> Result<Option<Vec<String>>, CliError> {
    let mut translated = Vec::new();
    let mut arguments = argv.iter();
    while let Some(argument) = arguments.next() {
        let place = argv.len() - arguments.len() - 1;
        if argument == "--help" {
            return Ok(None);
        }
        if let Some(long) = argument.strip_prefix("--").filter(|long| !long.is_empty()) {
            let name = long.split_once('=').map_or(long, |(name, _)| name);
            if name == "version" {
                return Ok(Some(vec!["--version".to_owned()]));
            }
            if name == "dbname" {
                let value = match argument.split_once('=') {
                    Some((_, value)) => value.to_owned(),
                    None => value_of("--dbname", arguments.next())?,
                };
                translated.push(format!("{}={value}", flag_of_database(&value)));
                continue;
            }
            let known = command.get_arguments().find(|known| known.get_long() == Some(name) && name != "help");
            let known = known.ok_or_else(|| not_taken(&format!("--{name}")))?;
            translated.push(argument.clone());
            let takes_next = known.get_action().takes_values() && !known.is_require_equals_set();
            if takes_next && !argument.contains('=') {
                translated.extend(arguments.next().cloned());
            }
        } else if let Some(short) = argument.strip_prefix('-').filter(|short| !short.is_empty()) {
            push_short(&mut translated, argument, short, &mut arguments)?;
        } else if Conninfo::is_uri(argument) {
            translated.push(format!("--dsn-secret={argument}"));
        } else {
            let message = format!("{}, and no postgresql:// URI", unflagged(place));
            return Err(CliError::invalid(message).hint("name the database with -d and the user with -U"));
        }
    }
    let count = |flag: &str| translated.iter().filter(|argument| argument.starts_with(&format!("{flag}="))).count();
    if count("--sql") + count("--sql-file") != 1 {
        return Err(CliError::invalid("there is one statement: give it once, with -c or with -f"));
    }
    Ok(Some(translated))
}

fn not_taken(flag: &str) -> CliError {
    CliError::invalid(format!("the flag {flag} is not taken"))
        .hint("of psql's flags there are -c, -f, -h, -p, -U, -d, -v N=value; countersign psql --help lists all")
}

/// Translates `-c SQL` or `-cSQL`.
fn push_short(
    translated: &mut Vec<String>,
    argument: &str,
    short: &str,
    arguments: &mut std::slice::Iter<'_, String>,
) -> Result<(), CliError> {
    let mut characters = short.chars();
    let flag = characters.next();
    let Some((letter, long)) = FLAGS.iter().find(|(letter, _)| Some(*letter) == flag) else {
        return Err(not_taken(shown_flag(argument)));
    };
    let attached = characters.as_str();
    let value =
        if attached.is_empty() { value_of(&format!("-{letter}"), arguments.next())? } else { attached.to_owned() };
    let long = match letter {
        'd' => flag_of_database(&value),
        'v' if !is_numbered(&value) => {
            // Without "=" the text may be a value, so it is not shown.
            let name = value.split_once('=').map(|(name, _)| format!("{} ", quoted(name))).unwrap_or_default();
            return Err(CliError::invalid(format!("-v {name}is not taken: -v gives the value of $N, as in -v 1=text"))
                .hint("there are no named variables and no :name in a statement"));
        }
        _ => long,
    };
    translated.push(format!("{long}={value}"));
    Ok(())
}

fn value_of(flag: &str, value: Option<&String>) -> Result<String, CliError> {
    value.cloned().ok_or_else(|| CliError::invalid(format!("the flag {flag} needs a value")))
}

/// Returns the flag for the value of `-d`: a database name or, as in psql, a whole connection string.
fn flag_of_database(value: &str) -> &'static str {
    match value {
        uri if Conninfo::is_uri(uri) => "--dsn-secret",
        conninfo if conninfo.contains('=') => "--conninfo-secret",
        _ => "--dbname",
    }
}

fn is_numbered(value: &str) -> bool {
    let number = value.split_once('=').map_or("", |(number, _)| number);
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// The part of an unknown flag that a message may show. A value may be attached to the flag: `-Wsecret`.
pub(crate) fn shown_flag(flag: &str) -> &str {
    let name = flag.split('=').next().unwrap_or_default();
    if name.starts_with("--") || name.len() <= 3 { name } else { name.get(..2).unwrap_or("-") }
}

/// The message for a value that belongs to no flag, without the value.
pub(crate) fn unflagged(place: usize) -> String {
    format!("argument {} is neither a flag nor a flag's value", place + 1)
}
