//! Lines, right and wrong.

use serde_json::{Value, json};

use super::*;
use crate::connection::{Change, ConnectionPatch};

fn read(line: &str) -> Command {
    parse(line.as_bytes()).unwrap_or_else(|rejected| panic!("{line}: {rejected}"))
}

fn rejected(line: &str) -> RequestError {
    *parse(line.as_bytes()).expect_err(line)
}

#[test]
fn a_query_has_an_id_and_sql_and_may_have_the_rest() {
    let bare =
        Command::Query(Box::new(QueryCommand { id: "q1".into(), sql: "select 1".into(), ..QueryCommand::default() }));
    assert_eq!(read(r#"{"code":"query","id":"q1","sql":"select 1"}"#), bare);
    let line = r#"{"code":"query","id":"q","session":"s","sql":"x","params":[1,null,"a"],"options":{"stream_rows":true,
        "batch_rows":5,"batch_bytes":2048,"read_only":false,"statement_timeout_ms":0,"lock_timeout_ms":1,
        "inline_max_rows":2,"inline_max_bytes":3}}"#
        .replace('\n', "");
    let Command::Query(query) = read(&line) else { panic!() };
    assert_eq!(
        (query.session.as_deref(), query.params.as_slice()),
        (Some("s"), &[json!(1), Value::Null, json!("a")][..])
    );
    let expected = Options {
        stream_rows: Some(true),
        batch_rows: Some(5),
        batch_bytes: Some(2048),
        read_only: Some(false),
        statement_timeout_ms: Some(0),
        lock_timeout_ms: Some(1),
        inline_max_rows: Some(2),
        inline_max_bytes: Some(3),
    };
    assert_eq!(query.options, expected);
}

#[test]
fn numbers_keep_every_digit() {
    let line = r#"{"code":"query","id":"q","sql":"x","params":[12345678901234567890.12345678901234567890,1.10]}"#;
    let Command::Query(query) = read(line) else { panic!() };
    let numbers: Vec<String> = query.params.iter().map(Value::to_string).collect();
    assert_eq!(numbers, ["12345678901234567890.12345678901234567890", "1.10"]);
}

#[test]
fn the_other_commands() {
    assert_eq!(read(r#"{"code":"cancel","id":"q1"}"#), Command::Cancel { id: "q1".into() });
    assert_eq!(read(r#" {"code":"ping"} "#), Command::Ping);
    assert_eq!(read(r#"{"code":"close"}"#), Command::Close);
    let begin = |session: Option<&str>, read_only, timeout_ms| Command::Begin {
        id: "t".into(),
        session: session.map(str::to_owned),
        begin: TransactionOptions { read_only, timeout: Duration::from_millis(timeout_ms), ..DEFAULT_BEGIN },
    };
    assert_eq!(read(r#"{"code":"begin","id":"t"}"#), begin(None, true, 60_000));
    let line = r#"{"code":"begin","id":"t","session":"s","options":{"read_only":false,"transaction_timeout_ms":5}}"#;
    assert_eq!(read(line), begin(Some("s"), false, 5));
    let (id, session) = (String::from("t"), Some(String::from("s")));
    let commit = Command::Commit { id: id.clone(), session: session.clone() };
    assert_eq!(read(r#"{"code":"commit","id":"t","session":"s"}"#), commit);
    assert_eq!(read(r#"{"code":"rollback","id":"t","session":"s"}"#), Command::Rollback { id, session });
}

#[test]
fn a_transaction_has_an_isolation_level_of_sqls_own_words() {
    for level in IsolationLevel::ALL {
        let word = level.as_str();
        let line = format!(r#"{{"code":"begin","id":"t","options":{{"isolation_level":"{word}"}}}}"#);
        let begin = TransactionOptions { isolation: Some(level), ..DEFAULT_BEGIN };
        assert_eq!(read(&line), Command::Begin { id: "t".into(), session: None, begin });
    }
    let line = br#"{"code":"begin","id":"t","options":{"isolation_level":"snapshot"}}"#;
    assert!(parse(line).unwrap_err().problem.message.contains("repeatable read"));
}

#[test]
fn null_stands_for_a_key_that_is_left_out() {
    for (with_null, without) in [
        (
            r#"{"code":"query","id":"q","session":null,"sql":"x","params":null,"options":{"read_only":null,"batch_rows":null}}"#,
            r#"{"code":"query","id":"q","sql":"x","options":{}}"#,
        ),
        (r#"{"code":"query","id":"q","sql":"x","options":null}"#, r#"{"code":"query","id":"q","sql":"x"}"#),
        (
            r#"{"code":"begin","id":"t","options":{"isolation_level":null,"transaction_timeout_ms":null}}"#,
            r#"{"code":"begin","id":"t"}"#,
        ),
        (
            r#"{"code":"config","default_session":null,"sessions":null,"inline_max_rows":null,"log":null}"#,
            r#"{"code":"config"}"#,
        ),
    ] {
        assert_eq!(read(with_null), read(without), "{with_null}");
    }
    for line in [r#"{"code":"query","id":null,"sql":"x"}"#, r#"{"code":"query","id":"q","sql":null}"#] {
        assert!(parse(line.as_bytes()).is_err(), "{line}");
    }
}

#[test]
fn a_configuration_is_patched_field_by_field() {
    assert_eq!(read(r#"{"code":"config"}"#), Command::Config(Box::default()));
    let line = r#"{"code":"config","default_session":"s","sessions":{"s":{"dsn_secret":null,"host":"h","port":5,
        "password_secret":"p"}},"inline_max_rows":2,"inline_max_bytes":3,"statement_timeout_ms":4,
        "lock_timeout_ms":5,"log":["Query "]}"#
        .replace('\n', "");
    let Command::Config(patch) = read(&line) else { panic!() };
    let fields = ConnectionPatch {
        dsn_secret: Change::Set(None),
        host: Change::Set(Some("h".into())),
        port: Change::Set(std::num::NonZeroU16::new(5)),
        password_secret: Change::Set(Some(types::Secret::new("p"))),
        ..ConnectionPatch::default()
    };
    assert_eq!(patch.sessions, [("s".to_owned(), fields)]);
    assert_eq!(patch.log, Some(crate::log::LogFilters::new(["query"]).unwrap()));
    assert_eq!((patch.defaults.inline_max_rows, patch.defaults.lock_timeout_ms), (Some(2), Some(5)));
}

#[test]
fn what_is_wrong_is_named_and_the_id_is_carried() {
    let q = |rest: &str| format!(r#"{{"code":"query","id":"q1",{rest}}}"#);
    for (line, said) in [
        (
            q(r#""sql":"x","sqll":1"#),
            r#"there is no key "sqll" in the command; known keys: id, session, sql, params, options"#,
        ),
        (
            q(r#""sql":"x","options":{"readonly":false}"#),
            r#"there is no key "readonly" in options; known keys: stream_rows"#,
        ),
        (q(r#""session":"s""#), "there is no sql in the command"),
        (q(r#""sql":1"#), "sql in the command must be a string"),
        (q(r#""sql":"x","session":1"#), "session in the command must be a string"),
        (q(r#""sql":"x","session":"""#), "session has 0 bytes"),
        (q(r#""sql":"x","options":[true,1,2048,true,0,0,1,1]"#), "options in the command must be an object"),
        (q(r#""sql":"x","options":[]"#), "options in the command must be an object"),
        (q(r#""sql":"x","options":{"read_only":"no"}"#), "read_only in options must be true or false"),
        (q(r#""sql":"x","options":{"batch_rows":0}"#), "batch_rows is 0; it is a whole number from 1 to"),
        (q(r#""sql":"x","options":{"batch_rows":1.5}"#), "batch_rows in options must be a whole number"),
        (q(r#""sql":"x","options":{"batch_rows":-1}"#), "batch_rows in options must be a whole number"),
        (q(r#""sql":"x\u0000""#), "U+0000"),
        (q(r#""sql":"x","sql":"y""#), r#"the key "sql" appears twice"#),
        (q(r#""sql":"x","options":{"read_only":true,"read_only":false}"#), r#"the key "read_only" appears twice"#),
        (q(r#""sql":"#), "line is not valid JSON: "),
        (r#"{"code":"quary","id":"q1"}"#.to_owned(), r#"there is no command "quary"; code is one of query, cancel,"#),
        (r#"{"id":"q1","sql":"x"}"#.to_owned(), "there is no code in the command"),
        (r#"{"code":"cancel","id":"q1","x":1}"#.to_owned(), "no key \"x\""),
        (r#"{"code":"begin","id":"q1","options":{"transaction_timeout_ms":0}}"#.to_owned(), "from 1 to"),
        (r#"{"code":"commit","id":"q1","options":{}}"#.to_owned(), "no key \"options\""),
        (r#"{"code":"config","id":"q1"}"#.to_owned(), "no key \"id\""),
    ] {
        let rejected = rejected(&line);
        assert_eq!(rejected.problem.code, EventErrorCode::InvalidRequest, "{line}");
        assert!(rejected.problem.message.contains(said), "{line}: {rejected}");
        assert_eq!(rejected.id.as_deref(), Some("q1"), "{line}");
    }
    for (line, said) in [
        ("nonsense", "line is not valid JSON"),
        ("[]", "expected a JSON object"),
        ("1", "expected a JSON object"),
        (r#"{"code":"query","sql":"x"}"#, "there is no id in the command"),
        (r#"{"code":"query","id":1,"sql":"x"}"#, "id in the command must be a string"),
        (
            r#"{"code":"config","sessions":{"s":{"hots":"h"}}}"#,
            r#"there is no key "hots" in session "s"; known keys: dsn_secret"#,
        ),
        (r#"{"code":"config","sessions":{"s":null}}"#, r#"session "s" must be an object"#),
        (r#"{"code":"config","sessions":{"s":{"port":0}}}"#, r#"port in session "s" must be a number from 1 to 65535"#),
        (
            r#"{"code":"config","sessions":{"s":{"password_secret":5}}}"#,
            r#"password_secret in session "s" must be a string"#,
        ),
        (r#"{"code":"config","log":"query"}"#, "log in the command must be an array"),
    ] {
        let rejected = rejected(line);
        assert!(rejected.problem.message.starts_with(said), "{line}: {rejected}");
        assert_eq!(rejected.id, None, "{line}");
    }
    assert!(rejected(r#"{"code":"query","id":"","sql":"x"}"#).problem.message.starts_with("id has 0 bytes"));
    assert!(parse(b"{\"id\":\"\xff\"}").unwrap_err().problem.message.contains("UTF-8"));
}

#[test]
fn parameters_of_a_wrong_shape_are_invalid_params_and_too_many_an_invalid_request() {
    let with = |params: &str| format!(r#"{{"code":"query","id":"q","sql":"x","params":{params}}}"#);
    let many = |count: usize| with(&format!("[{}]", vec!["1"; count].join(",")));
    for (line, code) in [
        (with("{}"), EventErrorCode::InvalidParams),
        (with("\"a\""), EventErrorCode::InvalidParams),
        (with("1"), EventErrorCode::InvalidParams),
        (many(65_536), EventErrorCode::InvalidRequest),
        (many(300_000), EventErrorCode::InvalidRequest),
    ] {
        let rejected = rejected(&line);
        assert_eq!((rejected.problem.code, rejected.id.as_deref()), (code, Some("q")), "{rejected}");
    }
    let Command::Query(query) = read(&many(65_535)) else { panic!() };
    assert_eq!(query.params.len(), 65_535);
    let nested = rejected(&with(&format!("[[{}]]", vec!["1"; 300_000].join(","))));
    assert_eq!(nested.problem.code, EventErrorCode::InvalidRequest, "{nested}");
}

#[test]
fn lines_and_statements_have_a_limit() {
    let line = |bytes: usize| {
        let empty = r#"{"code":"query","id":"q","sql":""}"#.len();
        format!(r#"{{"code":"query","id":"q","sql":"{}"}}"#, "x".repeat(bytes - empty))
    };
    assert!(matches!(read(&line(MAX_LINE_BYTES)), Command::Query(_)));
    let rejected = rejected(&line(MAX_LINE_BYTES + 1));
    assert_eq!((rejected.id.as_deref(), rejected.problem.code), (Some("q"), EventErrorCode::InvalidRequest));
    assert!(check_sql(&"x".repeat(MAX_SQL_BYTES)).is_ok());
    let problem = check_sql(&"x".repeat(MAX_SQL_BYTES + 1)).unwrap_err();
    assert_eq!(problem.code, EventErrorCode::InvalidRequest);
}

#[test]
fn no_message_repeats_a_value() {
    for line in [
        r#"{"code":"config","sessions":{"s":{"password_secret":["hunter2"]}}}"#,
        r#"{"code":"config","sessions":{"s":{"dsn_secret":"hunter2","conninfo_secret":1}}}"#,
        r#"{"code":"query","id":"q","sql":"hunter2","params":"hunter2"}"#,
        r#"{"code":"query","id":"q","sql":"hunter2","params":[hunter2]}"#,
        r#"{"code":"query","id":"q","sql":"x","options":{"read_only":"hunter2, expected hunter2"}}"#,
        r#"{"code":"query","id":"q","sql":"x","options":"hunter2"}"#,
        r#"{"code":"config","sessions":{"s":{"port":"hunter2"}}}"#,
        r#"{"code":"config","sessions":{"postgres://u:hunter2@h":{"hots":1}}}"#,
    ] {
        assert!(!format!("{:?}", rejected(line).problem).contains("hunter2"), "{line}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(2000))]

    #[test]
    fn a_known_line_with_another_key_is_refused(key in "[a-z]{1,12}") {
        let line = format!(r#"{{"code":"ping","{key}":1}}"#);
        proptest::prop_assert!(parse(line.as_bytes()).is_err());
    }

    #[test]
    fn any_text_comes_through(sql in "[^\u{0}]{0,50}", text in ".{0,50}") {
        let line = json!({"code": "query", "id": "q", "sql": sql, "params": [text]}).to_string();
        let Ok(Command::Query(query)) = parse(line.as_bytes()) else { panic!("{line}") };
        proptest::prop_assert_eq!((&query.sql, &query.params[0]), (&sql, &Value::from(text)));
    }
}
