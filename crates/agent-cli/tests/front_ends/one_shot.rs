//! One statement and its exit code.

use countersign_agent_cli::FrontEnd::{Psql, Query};
use serde_json::{Value, json};

use crate::harness::{brief, command, command_in, settled};

fn event(lines: &[String]) -> Value {
    assert_eq!(lines.len(), 1, "{lines:?}");
    serde_json::from_str(&lines[0]).unwrap()
}

#[tokio::test]
async fn a_result_is_0_and_a_failure_is_1() {
    for (sql, expected, code) in [
        ("rows 2", "result query ROWS 2", 0),
        ("-- a comment", "sql_error query 42601", 1),
        ("duplicate", "sql_error query 23505", 1),
        ("refused", "error query connect_failed", 1),
        ("panic", "error query internal_error", 1),
        ("write 1", "sql_error query 25006", 1),
    ] {
        let (lines, exit, fake) = command(Query, &["--sql", sql], "").await;
        assert_eq!((brief(&event(&lines)).as_str(), exit), (expected, code));
        assert_eq!(fake.notes().last().map(String::as_str), Some("drained"));
    }
    let (lines, exit, fake) = command(Query, &["--sql", "write 1", "--write"], "").await;
    assert_eq!((brief(&event(&lines)).as_str(), exit), ("result query INSERT 0 1", 0));
    assert!(fake.notes().contains(&"committed".to_owned()));
    let (lines, exit, _) = command(Query, &["--sql", "rows 3", "--stream-rows", "--batch-rows", "2"], "").await;
    let briefs: Vec<String> = lines.iter().map(|line| brief(&serde_json::from_str(line).unwrap())).collect();
    let expected = ["result_start query", "result_rows query", "result_rows query", "result_end query ROWS 3"];
    assert_eq!((briefs.as_slice(), exit), (&expected.map(str::to_owned)[..], 0));
}

#[tokio::test]
async fn the_statement_is_an_argument_a_file_or_standard_input() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "rows 3").unwrap();
    let path = file.path().to_str().unwrap();
    for (front_end, arguments) in [(Query, ["--sql-file", path]), (Psql, ["-f", path])] {
        assert_eq!(brief(&event(&command(front_end, &arguments, "").await.0)), "result query ROWS 3");
    }
    for (front_end, arguments) in [(Query, ["--sql-file", "-"]), (Psql, ["-f", "-"])] {
        assert_eq!(brief(&event(&command(front_end, &arguments, "rows 4").await.0)), "result query ROWS 4");
    }
    std::fs::write(file.path(), b"\xff").unwrap();
    for (arguments, stdin, said) in [
        (["--sql-file", "/nowhere"], "", "the statement cannot be read from /nowhere: "),
        (["--sql-file", path], "", "is not UTF-8"),
        (["--sql-file", "-"], "a\0b", "standard input: sql contains U+0000"),
        (["--sql-file", "-"], &"x".repeat((1 << 20) + 1), "standard input: sql is longer than"),
    ] {
        let (lines, code, fake) = command(Query, &arguments, stdin).await;
        let event = event(&lines);
        assert!(event["error"].as_str().unwrap().contains(said), "{event}");
        assert_eq!((brief(&event).as_str(), code), ("error invalid_request", 2));
        assert_eq!(fake.notes(), ["drained"]);
    }
}

#[tokio::test]
async fn both_parsers_give_the_same_events() {
    let variables = [("COUNTERSIGN_DSN_SECRET", "postgresql://no:hunter2@nowhere/d"), ("PGHOST", "no")];
    let ours = ["--sql", "settings", "--host", "h", "--port", "7", "--user", "u", "--dbname", "d"];
    let ours = [&ours[..], &["--param", "1=a=b", "--param", "2=-5", "--stream-rows"]].concat();
    let theirs =
        ["-c", "settings", "-h", "h", "-p", "7", "-U", "u", "-d", "d", "-v", "1=a=b", "-v", "2=-5", "--stream-rows"];
    let attached = ["-csettings", "-hh", "-p7", "-Uu", "-dd", "-v1=a=b", "-v2=-5", "--stream-rows=true"];
    let uri = ["postgresql://u@h:7/d", "-csettings", "-v1=a=b", "-v2=-5", "--stream-rows"];
    let dbname = ["-d", "host=h port=7 user=u", "-csettings", "-v1=a=b", "-v2=-5", "--stream-rows"];
    let (expected, code, _) = command_in(Query, &ours, "", &variables).await;
    let expected: Vec<String> = expected.iter().map(|line| settled(line)).collect();
    assert_eq!((expected.len(), code), (3, 0));
    let row: Value = serde_json::from_str(&expected[1]).unwrap();
    assert_eq!((&row["rows"][0]["at"], &row["rows"][0]["params"]), (&"h:7".into(), &json!(["a=b", "-5"])));
    for theirs in [&theirs[..], &attached, &uri, &dbname] {
        let (lines, code, _) = command_in(Psql, theirs, "", &variables).await;
        assert_eq!(
            (lines.iter().map(|line| settled(line)).collect::<Vec<_>>(), code),
            (expected.clone(), 0),
            "{theirs:?}"
        );
    }
}

#[tokio::test]
async fn log_events_come_with_the_filter_only() {
    let arguments = ["--sql", "rows 1", "--password-secret", "hunter2", "--log", " Startup ,query.result"];
    let (lines, _, _) = command_in(Query, &arguments, "", &[("PGPASSWORD", "hunter2"), ("PGUSER", "u")]).await;
    assert!(!lines.concat().contains("hunter2"), "{lines:?}");
    let startup: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(startup["argv"][3], "***");
    assert_eq!(startup["args"], json!({"front_end": "query", "password_secret": "***"}));
    assert_eq!(startup["env"], json!({"PGPASSWORD": "***", "PGUSER": "u"}));
    let told: Value = serde_json::from_str(&lines[1]).unwrap();
    assert_eq!(
        (&told["event"], &told["request_id"], &told["command_tag"]),
        (&"query.result".into(), &"query".into(), &"ROWS 1".into())
    );
    assert_eq!(lines.len(), 3);
    let (lines, _, _) = command(Query, &["--sql", "refused", "--log", "all"], "").await;
    let told: Value = serde_json::from_str(&lines[1]).unwrap();
    assert_eq!((&told["event"], &told["error_code"]), (&"query.error".into(), &"connect_failed".into()));
    assert_eq!(command(Query, &["--sql", "rows 1"], "").await.0.len(), 1);
}
