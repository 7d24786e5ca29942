//! Command lines that are refused: an `error` event, exit code 2, and no secret in either.

use countersign_agent_cli::FrontEnd::{self, Pipe, Psql, Query};
use countersign_agent_cli::parse;
use serde_json::Value;

use crate::harness::{command, env};

async fn refused(front_end: FrontEnd, arguments: &[&str]) -> String {
    let (lines, code, fake) = command(front_end, arguments, "").await;
    assert_eq!((lines.len(), code), (1, 2), "{arguments:?}: {lines:?}");
    let event: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!((&event["code"], &event["error_code"]), (&"error".into(), &"invalid_request".into()));
    assert_eq!((&event["retryable"], event["trace"]["duration_ms"].is_u64()), (&false.into(), true));
    assert!(
        fake.notes().iter().all(|note| note == "drained") && !lines[0].contains("hunter2"),
        "{arguments:?}: {lines:?}"
    );
    event["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn options_that_query_and_pipe_do_not_accept_are_named() {
    let sql = ["--sql", "rows 1"];
    for (arguments, said) in [
        (vec!["-c", "rows 1"], "there is no flag \"-c\""),
        (vec!["--sqll", "hunter2"], "there is no flag \"--sqll\""),
        (vec!["--pasword-secret=hunter2"], "there is no flag \"--pasword-secret\""),
        (vec!["postgresql://u:hunter2@h/d"], "argument 1 is neither a flag nor a flag's value"),
        ([&sql[..], &["hunter2"]].concat(), "argument 3 is neither a flag nor a flag's value"),
        ([&sql[..], &["-phunter2"]].concat(), "there is no flag \"-p\""),
        ([&sql[..], &["--port", "hunter2"]].concat(), "--port takes a number from 1 to 65535"),
        ([&sql[..], &["--output", "hunter2"]].concat(), "--output takes one of json, yaml, plain"),
        ([&sql[..], &["--batch-rows=hunter2"]].concat(), "--batch-rows takes a whole number"),
        ([&sql[..], &["--read-only=hunter2"]].concat(), "--read-only takes one of true, false"),
        ([&sql[..], &["--write=hunter2"]].concat(), "--write takes no value"),
        ([&sql[..], &["--log", "hunter2"]].concat(), "--log"),
        ([&sql[..], &["--host", "postgres//u:hunter2@h/db"]].concat(), "host is or holds a connection string"),
        ([&sql[..], &["--user", "u:hunter2@h"]].concat(), "user is or holds a connection string"),
        ([&sql[..], &["--dsn-secret", "postgres//u:hunter2@h/db"]].concat(), "dsn_secret is no URL"),
        ([&sql[..], &["--conninfo-secret", "postgres//u:hunter2@h/db"]].concat(), "cannot be made"),
        (vec!["--sql-file", "postgresql://u:hunter2@h/db"], "the statement cannot be read from ***"),
        (vec!["--sql-file", "postgres//u:hunter2@h/db"], "the statement cannot be read from ***"),
        (vec![], "--sql <SQL>"),
        (vec!["--sql", "a", "--sql-file", "b"], "cannot be used with"),
        (vec!["--sql", "a", "--sql", "b"], "cannot be used multiple times"),
        ([&sql[..], &["--port", "70000"]].concat(), "from 1 to 65535"),
        ([&sql[..], &["--port", "x"]].concat(), "--port"),
        ([&sql[..], &["--batch-rows", "0"]].concat(), "--batch-rows is 0; it is a whole number from 1 to"),
        ([&sql[..], &["--batch-bytes", "5"]].concat(), "--batch-bytes is 5"),
        ([&sql[..], &["--statement-timeout-ms", "-1"]].concat(), "-1"),
        ([&sql[..], &["--port"]].concat(), "--port needs a value"),
        ([&sql[..], &["--param", "2=hunter2"]].concat(), "--param 1 is missing"),
        ([&sql[..], &["--param", "0=hunter2"]].concat(), "--param 0"),
        ([&sql[..], &["--param", "name=hunter2"]].concat(), "--param \"name\""),
        ([&sql[..], &["--param", "hunter2"]].concat(), "no \"=\""),
        ([&sql[..], &["--audit", "--no-audit"]].concat(), "cannot be used with"),
        ([&sql[..], &["--write", "--read-only"]].concat(), "cannot be used with"),
        ([&sql[..], &["--dsn-secret", "host=h password=hunter2"]].concat(), "dsn_secret is no URL"),
        ([&sql[..], &["--dbname", "postgres://u:hunter2@h/d"]].concat(), "dbname is or holds a connection string"),
        ([&sql[..], &["--dbname=host=h password=hunter2"]].concat(), "dbname is or holds a connection string"),
        ([&sql[..], &["--host", "Postgresql://u:hunter2@h"]].concat(), "host is or holds"),
        (
            [&sql[..], &["--dsn-secret", "postgresql://u:hunter2@h", "--conninfo-secret", "password=hunter2"]].concat(),
            "cannot be used with",
        ),
    ] {
        let error = refused(Query, &arguments).await;
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
    assert!(refused(Pipe, &["--sql", "x"]).await.contains("there is no flag \"--sql\""));
    assert!(refused(Query, &["--sql", "x", "--dsn-secret", "postgresql://u:hunter2@hunter2@h"]).await.contains("%40"));
}

#[tokio::test]
async fn options_that_psql_does_not_accept_are_named() {
    let sql = ["-c", "rows 1"];
    for (arguments, said) in [
        (vec!["--set", "x=1"], "--set"),
        (vec!["--set=x=hunter2"], "--set is not taken"),
        (vec!["-At"], "-At"),
        (vec!["-X"], "-X"),
        (vec!["-W"], "-W"),
        (vec!["--command", "x"], "--command"),
        (vec!["--command=x"], "--command"),
        (vec!["--sql", "x"], "--sql"),
        (vec!["mydb"], "argument 1 is neither a flag nor a flag's value, and no postgresql:// URI"),
        (vec!["host=h password=hunter2"], "argument 1 is neither"),
        (vec!["-c", "rows 1", "postgres//u:hunter2@h/db"], "argument 3 is neither"),
        (vec!["-c", "rows 1", "-Whunter2"], "the flag -W is not taken"),
        ([&sql[..], &["-p", "hunter2"]].concat(), "--port takes a number from 1 to 65535"),
        ([&sql[..], &["-phunter2"]].concat(), "--port takes a number from 1 to 65535"),
        ([&sql[..], &["-v", "hunter2"]].concat(), "-v is not taken: -v gives the value of $N"),
        ([&sql[..], &["-vhunter2"]].concat(), "-v is not taken: -v gives the value of $N"),
        ([&sql[..], &["-h", "u:hunter2@h"]].concat(), "host is or holds a connection string"),
        (vec!["-f", "postgresql://u:hunter2@h/db"], "the statement cannot be read from ***"),
        ([&sql[..], &["-v", "name=hunter2"]].concat(), "-v \"name\" is not taken"),
        ([&sql[..], &["-v", "2=hunter2"]].concat(), "1 is missing"),
        ([&sql[..], &["-v", "1"]].concat(), "-v"),
        ([&sql[..], &["-c", "rows 2"]].concat(), "there is one statement"),
        ([&sql[..], &["-f", "x"]].concat(), "there is one statement"),
        (vec![], "there is one statement"),
        (vec!["-c"], "the flag -c needs a value"),
        (vec!["--dbname"], "the flag --dbname needs a value"),
        ([&sql[..], &["-d", "Postgres://u:hunter2@h"]].concat(), "dbname is or holds a connection string"),
        ([&sql[..], &["-p", "x"]].concat(), "--port"),
    ] {
        let error = refused(Psql, &arguments).await;
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
}

#[test]
fn an_error_comes_in_the_form_that_was_asked_for() {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let exit = parse(Query, &words(&["--nope", "--output", "yaml"]), env(&[])).unwrap_err();
    assert!(exit.stdout.starts_with(b"---\ncode: error\n") && exit.code == 2);
    let exit = parse(Query, &words(&["--output=plain", "--nope"]), env(&[])).unwrap_err();
    assert!(exit.stdout.starts_with(b"code=error error_code=invalid_request "));
}

#[test]
fn help_and_version_are_text_and_0_and_show_no_short_flag() {
    for front_end in [Query, Pipe, Psql] {
        let exit = parse(front_end, &["--help".to_owned()], env(&[])).unwrap_err();
        let text = String::from_utf8(exit.stdout).unwrap();
        assert!(exit.code == 0 && text.contains("Usage: countersign "), "{text}");
        let is_short = |line: &str| {
            let mut characters = line.trim_start().chars();
            characters.next() == Some('-') && characters.next().is_some_and(char::is_alphabetic)
        };
        let has_short = text.lines().any(is_short);
        assert_eq!(has_short, front_end == Psql, "{text}");
        let exit = parse(front_end, &["--version".to_owned()], env(&[])).unwrap_err();
        assert!(exit.code == 0 && String::from_utf8(exit.stdout).unwrap().contains(env!("CARGO_PKG_VERSION")));
    }
}

#[test]
fn the_options_audit_and_config_are_passed_on() {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let audit = |flags: &[&str]| parse(Pipe, &words(flags), env(&[])).unwrap().audit;
    assert_eq!((audit(&[]), audit(&["--audit"]), audit(&["--no-audit"])), (None, Some(true), Some(false)));
    let config = parse(Pipe, &words(&["--config", "/c"]), env(&[])).unwrap().config;
    assert_eq!(config.as_deref(), Some(std::path::Path::new("/c")));
}
