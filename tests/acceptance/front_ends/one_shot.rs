//! One statement, one process: `query` and `psql`.

use std::process::Stdio;

use serde_json::json;
use testkit::{External, FrontEndOutput, bare_front_end, database, front_end, poll, skip_without};

#[tokio::test]
async fn a_query_answers_one_result_in_the_order_of_its_columns() {
    let db = database().await;
    let mut command = front_end("query", &db);
    let told = FrontEndOutput::of(command.args(["--sql", "select 7 as n, 'x' as \"api_key_secret\""])).await;
    assert_eq!(told.status, 0);
    let mut result = told.single_event();
    let trace = result["trace"].take();
    assert_eq!(
        result,
        json!({
            "code": "result", "id": result["id"], "session": "default", "command_tag": "ROWS 1",
            "columns": [{"name": "n", "type": "int4"}, {"name": "api_key_secret", "type": "text"}],
            "rows": [{"n": 7, "api_key_secret": "x"}], "row_count": 1, "trace": null,
        })
    );
    assert_eq!(
        (&trace["row_count"], &trace["payload_bytes"]),
        (&json!(1), &json!(r#"{"n":7,"api_key_secret":"x"}"#.len()))
    );
    assert!(trace["duration_ms"].is_u64(), "{trace}");
}

#[tokio::test]
async fn psql_is_no_more_than_its_flags() {
    let db = database().await;
    for text in ["\\d", "select :name", "\\x"] {
        let told = FrontEndOutput::of(front_end("psql", &db).args(["-c", text])).await;
        assert_eq!(told.status, 1, "{text}");
        let event = told.single_event();
        assert_eq!((&event["code"], &event["sqlstate"]), (&json!("sql_error"), &json!("42601")), "{text}");
    }
    for (arguments, named) in [
        (vec!["--set", "x=1", "-c", "select 1"], "--set"),
        (vec!["-At", "-c", "select 1"], "-A"),
        (vec!["-X", "-c", "select 1"], "-X"),
        (vec!["-c", "select 1", "-v", "name=1"], "name"),
        (vec!["--command", "select 1"], "--command"),
        (vec!["postgres", "-c", "select 1"], "postgres"),
    ] {
        let told = FrontEndOutput::of(bare_front_end("psql").args(&arguments)).await;
        assert_eq!(told.status, 2, "{arguments:?}");
        let event = told.single_event();
        assert_eq!(
            (&event["code"], &event["error_code"]),
            (&json!("error"), &json!("invalid_request")),
            "{arguments:?}"
        );
        assert!(event["error"].as_str().unwrap().contains(named), "{event}");
        assert_eq!(event["retryable"], false);
        assert!(event["trace"].is_object(), "{event}");
    }
}

#[tokio::test]
async fn a_failing_statement_prints_postgresqls_message_and_exits_with_1() {
    let db = database().await;
    let told = FrontEndOutput::of(front_end("query", &db).args(["--sql", "select * from nowhere where x = 1"])).await;
    assert_eq!(told.status, 1);
    let event = told.single_event();
    assert_eq!(event["code"], "sql_error");
    assert_eq!((&event["sqlstate"], &event["position"]), (&json!("42P01"), &json!("15")));
    assert_eq!(event["message"], "relation \"nowhere\" does not exist");
    assert!(event["trace"]["duration_ms"].is_u64() && event.get("detail").is_none(), "{event}");
}

/// N-34: the hints that an agent's query gets, for reads and for writes.
#[tokio::test]
async fn a_failing_statement_has_the_nearest_names_as_a_hint() {
    let db = database().await;
    for (arguments, hint) in [
        (&["--sql", "select * from social.twet"][..], "The nearest tables that exist: social.tweet."),
        (
            &["--sql", "select reply from social.tweet"],
            "The nearest columns that exist: in_reply_to_id (in social.tweet).",
        ),
        (&["--sql", "selec 1"], "\"selec\" is no keyword. The nearest are: SELECT."),
        (&["--sql", "delete from social.twet", "--write"], "The nearest tables that exist: social.tweet."),
    ] {
        let event = FrontEndOutput::of(front_end("query", &db).args(arguments)).await.single_event();
        assert_eq!((&event["code"], &event["hint"]), (&json!("sql_error"), &json!(hint)), "{event}");
    }
}

#[tokio::test]
async fn an_oversized_plan_has_its_own_error() {
    let db = database().await;
    let event = FrontEndOutput::of(
        front_end("query", &db).args(["--sql", "select length(repeat('x', 9000000) || current_user)"]),
    )
    .await
    .single_event();
    // A limit of the program is not reported as an error of PostgreSQL.
    assert_eq!(event["error_code"], "unsupported", "{event}");
    assert!(event["error"].as_str().unwrap().contains("the plan of this query is too large"), "{event}");
    assert!(event["hint"].as_str().unwrap().contains("as parameters"), "{event}");
}

#[tokio::test]
async fn reading_is_the_default_and_writing_needs_an_option() {
    let db = database().await;
    db.run("drop schema countersign cascade; create table t (a int)").await;
    let refused = FrontEndOutput::of(front_end("query", &db).args(["--sql", "insert into t values (1)"])).await;
    assert_eq!(refused.status, 1);
    let refused = refused.single_event();
    assert_eq!((&refused["sqlstate"], refused["hint"].as_str().unwrap().contains("--write")), (&json!("25006"), true));
    let sql = "insert into t select generate_series(1, 3)";
    let done = FrontEndOutput::of(front_end("query", &db).args(["--write", "--sql", sql])).await;
    assert_eq!(done.status, 0);
    let event = done.single_event();
    assert_eq!((&event["command_tag"], &event["row_count"]), (&json!("INSERT 0 3"), &json!(3)));
    assert_eq!((&event["columns"], &event["rows"]), (&json!([]), &json!([])));
    assert_eq!(db.value("select count(*) from t").await, "3");
}

#[tokio::test]
async fn a_dry_run_prints_parameters_and_columns_and_runs_nothing() {
    let db = database().await;
    db.run("create table t (a int, b text)").await;
    let sql = "insert into t values ($1, $2) returning b";
    let mut command = front_end("query", &db);
    let told =
        FrontEndOutput::of(command.args(["--dry-run", "--write", "--sql", sql, "--param", "2=x", "--param", "1=5"]))
            .await;
    assert_eq!(told.status, 0);
    let event = told.single_event();
    assert_eq!((&event["code"], &event["sql"]), (&json!("dry_run"), &json!(sql)));
    assert_eq!(event["param_types"], json!(["int4", "text"]));
    assert_eq!(event["columns"], json!([{"name": "b", "type": "text"}]));
    assert_eq!(event["params"], json!(["5", "x"]));
    assert_eq!(db.value("select count(*) from t").await, "0");
}

#[tokio::test]
async fn a_value_stays_a_value() {
    let db = database().await;
    db.run("create table t (a text)").await;
    let hostile = "x'); drop table t; --";
    let mut command = front_end("query", &db);
    let told =
        FrontEndOutput::of(command.args(["--sql", "select $1::text as v", "--param", &format!("1={hostile}")])).await;
    assert_eq!(told.single_event()["rows"], json!([{"v": hostile}]));
    assert_eq!(db.value("select count(*) from t").await, "0");
}

#[tokio::test]
async fn yaml_and_plain_change_the_framing_of_rows_but_not_their_values() {
    let db = database().await;
    let sql = "select 'hunter2' as api_key_secret, 5 as duration_ms";
    for form in ["yaml", "plain"] {
        let output = front_end("query", &db).args(["--output", form, "--sql", sql]).output().await.unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{said}");
        assert!(said.contains("hunter2") && said.contains("api_key_secret") && said.contains("duration_ms"), "{said}");
        let formatted = |text: &str| said.contains(text);
        assert!(formatted(if form == "yaml" { "payload: " } else { "payload=" }), "{said}");
        assert!(said.contains("ms"), "{said}");
    }
    let told = FrontEndOutput::of(bare_front_end("query").args(["--output", "xml", "--sql", "select 1"])).await;
    assert_eq!((told.status, &told.single_event()["error_code"]), (2, &json!("invalid_request")));
}

#[tokio::test]
#[ignore = "outer: .ci/run runs it"]
async fn yaml_output_is_valid_for_any_row() {
    if skip_without(&[External::Python]) {
        return;
    }
    let db = database().await;
    let sql = "select 'no' as \"yes\", '1e3' as n, e'a: b\\n- c #d\\t\"' as t, '2024-01-01' as d, null as z, 1.10 as x, \
               array['~', '', ' '] as a, '{\"k: \": [true, \"&x\"]}'::jsonb as j, 'null' as \"null\"";
    let json = FrontEndOutput::of(front_end("query", &db).args(["--sql", sql])).await.single_event();
    let yaml = front_end("query", &db).args(["--output", "yaml", "--sql", sql]).output().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("event.yaml");
    std::fs::write(&file, &yaml.stdout).unwrap();
    let mut reading = tokio::process::Command::new(External::Python.expected_path());
    reading.arg(testkit::repository().join("tests/python/documents.py")).stdin(std::fs::File::open(&file).unwrap());
    let read = reading.output().await.unwrap();
    let said = String::from_utf8(read.stdout).unwrap();
    let read: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    let as_number = |mut rows: serde_json::Value| {
        // YAML's numbers have no trailing zero.
        rows[0]["x"] = json!(rows[0]["x"].as_f64());
        rows
    };
    assert_eq!(as_number(read["rows"].clone()), as_number(json["rows"].clone()));
    assert_eq!((&read["code"], &read["columns"]), (&json["code"], &json["columns"]));
}

#[tokio::test]
async fn no_secret_is_in_any_log_and_rows_are_unchanged() {
    let db = database().await;
    db.run("create role keeper login superuser password 'geheim-7'").await;
    let mut command = front_end("query", &db);
    command.args(["--user", "keeper", "--password-secret", "geheim-7", "--log", "all", "--sql", "select 'row' as x"]);
    command.env("PGPASSWORD", "geheim-8").env("COUNTERSIGN_CONNINFO_SECRET", "host=h password=geheim-9");
    let told = FrontEndOutput::of(&mut command).await;
    assert_eq!(told.status, 0, "{:?}", told.events);
    let events = json!(told.events).to_string();
    assert!(!events.contains("geheim"), "{events}");
    assert!(events.contains("***"), "{events}");
    let logged: Vec<&str> = told.events.iter().filter_map(|event| event["event"].as_str()).collect();
    assert_eq!(logged, ["startup", "query.result"]);
    // A connection string in the place of a name is refused, and not shown either.
    let mut command = bare_front_end("query");
    command.args(["--log", "all", "--sql", "select 1", "--dbname", "postgres://keeper:geheim-7@127.0.0.1:1/x"]);
    let told = FrontEndOutput::of(&mut command).await;
    assert_eq!((told.status, json!(told.events).to_string().contains("geheim")), (2, false), "{:?}", told.events);
    let silent = FrontEndOutput::of(front_end("query", &db).args(["--sql", "select 1"])).await;
    assert_eq!(silent.events.len(), 1);
    db.run("drop role keeper").await;
}

#[tokio::test]
async fn invalid_utf_8_is_refused_and_never_replaced() {
    use std::os::unix::ffi::OsStrExt;
    let db = database().await;
    db.run("create table t (a text)").await;
    let not_utf_8 = std::ffi::OsStr::from_bytes(b"1=x\xffy");
    let mut command = front_end("query", &db);
    command.args(["--write", "--sql", "insert into t values ($1)", "--param"]).arg(not_utf_8);
    let told = FrontEndOutput::of(&mut command).await;
    assert_eq!(told.status, 2);
    let said = told.single_event();
    assert!(said["error"].as_str().is_some_and(|it| it.ends_with("is not UTF-8")), "{said}");
    assert_eq!(db.value("select count(*) from t").await, "0");
    for variable in ["COUNTERSIGN_DBNAME", "PGPASSFILE"] {
        let mut command = front_end("query", &db);
        command.args(["--sql", "select 1"]).env(variable, not_utf_8);
        let told = FrontEndOutput::of(&mut command).await;
        assert_eq!(told.status, 2);
        assert_eq!(told.single_event()["error"], format!("the variable {variable} is not UTF-8"));
    }
}

#[tokio::test]
async fn a_statement_that_never_arrives_does_not_delay_the_end() {
    let db = database().await;
    for arguments in [["query", "--sql-file"], ["psql", "-f"]] {
        let mut command = front_end(arguments[0], &db);
        let pipes = command.args([arguments[1], "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        // It takes signals from the moment on at which it catches them.
        let pid = child.id().unwrap();
        let caught = || std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let catches = |status: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap() & (1 << 14) != 0
        };
        poll::until("it catches signals", async || catches(&caught())).await;
        let asked = std::time::Instant::now();
        std::process::Command::new("kill").arg(pid.to_string()).status().unwrap();
        let input = child.stdin.take();
        let output = child.wait_with_output().await.unwrap();
        drop(input);
        let said = String::from_utf8(output.stdout).unwrap();
        assert_eq!((output.status.code(), said.matches("\"cancelled\"").count()), (Some(1), 1), "{said}");
        assert!(asked.elapsed() < std::time::Duration::from_secs(10));
    }
}

#[tokio::test]
async fn psqls_database_may_be_a_connection_string() {
    let db = database().await;
    for flag in ["-d", "--dbname"] {
        let mut command = bare_front_end("psql");
        let told =
            FrontEndOutput::of(command.arg(flag).arg(db.url()).args(["-c", "select current_database() as name"])).await;
        assert_eq!(told.single_event()["rows"][0]["name"], db.value("select current_database()").await, "{flag}");
    }
}

#[tokio::test]
async fn a_parameter_of_the_command_line_is_the_text_that_postgresql_reads() {
    let db = database().await;
    db.run("create table doc (a jsonb)").await;
    let text = r#"1={"b": [1, "x"]}"#;
    for (front, words) in [("query", ["--sql", "--param"]), ("psql", ["-c", "-v"])] {
        let [sql, param] = words;
        let mut command = front_end(front, &db);
        let told =
            FrontEndOutput::of(command.args([sql, "select $1::json as a, jsonb_typeof($1::jsonb) as b", param, text]))
                .await;
        assert_eq!(told.single_event()["rows"], json!([{"a": {"b": [1, "x"]}, "b": "object"}]), "{front}");
        let mut command = front_end(front, &db);
        command.args([sql, "insert into doc values ($1) returning jsonb_typeof(a) as b", param, text, "--write"]);
        assert_eq!(FrontEndOutput::of(&mut command).await.single_event()["rows"], json!([{"b": "object"}]), "{front}");
        let mut command = front_end(front, &db);
        let wrong = FrontEndOutput::of(command.args([sql, "select $1::json as a", param, "1={"])).await.single_event();
        assert_eq!(wrong["error_code"], "invalid_params", "{front}: {wrong}");
        let mut command = front_end(front, &db);
        command.args([sql, "select $1::int is null as a, $2::text as b", "--param-null", "1", param, "2=x"]);
        assert_eq!(
            FrontEndOutput::of(&mut command).await.single_event()["rows"],
            json!([{"a": true, "b": "x"}]),
            "{front}"
        );
    }
}

#[tokio::test]
async fn a_file_may_begin_with_a_byte_order_mark() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("q.sql");
    std::fs::write(&file, "\u{feff}select 1 as n").unwrap();
    let told = FrontEndOutput::of(front_end("query", &db).arg("--sql-file").arg(&file)).await;
    assert_eq!(told.single_event()["rows"], json!([{"n": 1}]));
}
