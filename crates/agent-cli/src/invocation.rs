//! The result of parsing a command line, by either parser (`args`, `psql`).

use std::collections::HashMap;

use std::path::PathBuf;

use serde_json::Value;

use types::DatabaseName;

use crate::connection::{ConnectionFields, ConnectionString};
use crate::error::CliError;
use crate::log::LogFilters;
use crate::options::{Defaults, Options};
use crate::output::Output;
use crate::request::{MAX_PARAMS, check_params};

types::text_enum! {
    /// Front end of an invocation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum FrontEnd {
        /// `countersign query`: one statement.
        Query = "query",
        /// `countersign pipe`: commands as lines.
        Pipe = "pipe",
        /// `countersign psql`: one statement, with psql's flags.
        Psql = "psql",
    }
}

/// The request of a command line.
#[derive(Debug, Clone)]
pub struct Invocation {
    pub front_end: FrontEnd,
    pub mode: Mode,
    pub connection: ConnectionFields,
    /// The shared connection string. The code that reads the configuration sets it.
    pub database: Option<ConnectionString>,
    pub output: Output,
    pub log: LogFilters,
    /// `--audit` or `--no-audit`; `None` if neither was given. Used by the code that creates the executor.
    pub audit: Option<bool>,
    /// `--config`, for the code that reads the configuration.
    pub config: Option<PathBuf>,
    /// `--database`, for the same code.
    pub configured_database: Option<DatabaseName>,
    pub env: HashMap<String, String>,
    /// The arguments, without secrets.
    pub shown_argv: Vec<String>,
}

#[derive(Debug, Clone)]
pub enum Mode {
    OneShot(Box<OneShot>),
    /// Commands as lines, with the defaults for queries.
    Pipe(Defaults),
}

/// One statement from the command line.
#[derive(Debug, Clone)]
pub struct OneShot {
    /// The source of its text.
    pub sql: Sql,
    /// Values of `$1`, `$2`, ..
    pub params: Vec<Value>,
    pub options: Options,
    /// Whether the statement is only described.
    pub dry_run: bool,
}

/// The source of the text of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sql {
    Text(String),
    File(PathBuf),
    Stdin,
}

impl Sql {
    /// Creates the source of `--sql-file`; `-` is standard input.
    #[must_use]
    pub fn file(name: &str) -> Self {
        if name == "-" { Self::Stdin } else { Self::File(name.into()) }
    }
}

/// One parameter of a command line.
#[derive(Debug, Clone, Copy)]
pub enum ParamArg<'a> {
    /// `--param N=value`.
    Pair(&'a str),
    /// `--param-null N`.
    Null(&'a str),
}

/// Returns the parameters in order of their numbers.
///
/// A value is text, like psql's variables. PostgreSQL parses it as the parameter's type: `1` for an integer, `{a,b}`
/// for an array, `{"a":1}` for JSON.
///
/// # Errors
/// [`CliError`] if an argument is not `N=value`, N is not a number, or a number is missing, 0 or repeated. The message
/// does not contain the value.
pub fn params<'a>(given: impl IntoIterator<Item = ParamArg<'a>>) -> Result<Vec<Value>, CliError> {
    let mut values: Vec<(usize, Value)> = Vec::new();
    for given in given {
        let (flag, number, value) = match given {
            ParamArg::Null(number) => ("--param-null", number, Value::Null),
            ParamArg::Pair(pair) => {
                let (number, value) = pair.split_once('=').ok_or_else(|| {
                    CliError::invalid("--param takes N=value, such as --param 1=text: one has no \"=\"")
                })?;
                ("--param", number, Value::from(value))
            }
        };
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let number = number.parse().ok().filter(|_| is_number).ok_or_else(|| match given {
            ParamArg::Null(_) => {
                CliError::invalid("--param-null takes the number of a parameter, as in --param-null 1")
            }
            ParamArg::Pair(_) => {
                let name = types::quoted(number);
                CliError::invalid(format!("--param {name}: a parameter is named by its number, as in --param 1=text"))
                    .hint("there are no named variables and no :name in a statement; write $1 and give its value")
            }
        })?;
        if !(1..=MAX_PARAMS).contains(&number) {
            let message = format!("{flag} {number}: parameters are numbered from 1 to {MAX_PARAMS}");
            return Err(CliError::invalid(message));
        }
        values.push((number, value));
    }
    check_params(values.len())?;
    values.sort_by_key(|(number, _)| *number);
    for (index, (number, _)) in values.iter().enumerate() {
        let expected = index + 1;
        if *number > expected {
            return Err(CliError::invalid(format!("--param {expected} is missing: there is one for {number}")));
        }
        if *number < expected {
            return Err(CliError::invalid(format!("--param {number} is given twice")));
        }
    }
    Ok(values.into_iter().map(|(_, value)| value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_come_in_the_order_of_their_numbers() {
        assert_eq!(params(["2=b=c", "1=", "3=x"].map(ParamArg::Pair)).unwrap(), ["", "b=c", "x"]);
        assert!(params([]).unwrap().is_empty());
        let given = [ParamArg::Pair("1=x"), ParamArg::Null("2"), ParamArg::Pair("3=y")];
        assert_eq!(params(given).unwrap(), [Value::from("x"), Value::Null, Value::from("y")]);
        for given in ["0", "hunter2", "", "1=hunter2"] {
            let problem = params([ParamArg::Null(given)]).unwrap_err();
            assert!(problem.message.starts_with("--param-null") && !problem.message.contains("hunter2"), "{problem}");
        }
    }

    #[test]
    fn a_gap_a_zero_a_repetition_and_what_is_no_number_are_refused_without_the_value() {
        for (pairs, said) in [
            (vec!["1=hunter2", "3=hunter2"], "--param 2 is missing: there is one for 3"),
            (vec!["2=hunter2"], "--param 1 is missing"),
            (vec!["0=hunter2"], "--param 0: parameters are numbered from 1 to 65535"),
            (vec!["65536=hunter2"], "numbered from 1 to"),
            (vec!["1=hunter2", "1=x"], "--param 1 is given twice"),
            (vec!["name=hunter2"], "--param \"name\": a parameter is named by its number"),
            (vec!["-1=hunter2"], "named by its number"),
            (vec!["+1=hunter2"], "named by its number"),
            (vec!["=hunter2"], "named by its number"),
            (vec!["99999999999999999999=hunter2"], "named by its number"),
            (vec!["hunter2"], "has no \"=\""),
        ] {
            let problem = params(pairs.iter().map(|pair| ParamArg::Pair(pair))).unwrap_err();
            assert_eq!(problem.code, crate::error::EventErrorCode::InvalidRequest);
            assert!(problem.message.contains(said) && !problem.message.contains("hunter2"), "{pairs:?}: {problem}");
        }
    }
}
