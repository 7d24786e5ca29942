//! A sensitive value appears only where the statement puts it: not in the ledger, in logs or in later answers.

use std::process::Stdio;

use serde_json::{Value, json};
use testkit::{Database, RawStdioServer, Server, TestManifest, database};

const SECRET: &str = "hunter2-Geheim";
const OLD: &str = "former-Passwort";
const PIN: i64 = 73_519;

const LOGINS: &str = "create table social.login (id bigint primary key, password text, pin int, note text);
    insert into social.login values (1, 'former-Passwort', 90001, '');
    create function social.watch() returns trigger language plpgsql as $$
    begin
        raise notice 'new password %', new.password;
        if new.note = 'fail' then raise exception 'cannot set % and %', new.password, new.pin; end if;
        return new;
    end $$;
    create trigger watch before update on social.login for each row execute function social.watch();
    grant select on social.login to public";

const TOOLS: &str = r#"
[[tool]]
name = "set_password"
access = "write"
description = "Set it."
before = "select id, password, pin from social.login where id = $1 for update"
sql = "update social.login set password = $2, pin = $3, note = $4 where id = $1 returning id, password, 'now ' || password as said, pin"
rows = "one"
[[tool.param]]
name = "id"
description = "Whose."
[[tool.param]]
name = "password"
description = "The new one."
sensitive = true
max_length = 30
[[tool.param]]
name = "pin"
description = "The new PIN."
sensitive = true
[[tool.param]]
name = "note"
description = "A note."
[tool.undo]
tool = "set_password"
params = { id = "param.id", password = "before.password", pin = "before.pin", note = "param.note" }

[[tool]]
name = "check_password"
access = "read"
description = "Check it."
sql = "select ($1::text::int > 0) as fits"
rows = "one"
param = [{ name = "password", description = "It.", sensitive = true }]
"#;

fn arguments(note: &str) -> Value {
    json!({"id": 1, "password": SECRET, "pin": PIN, "note": note})
}

/// Every text of every row of every table of the ledger.
async fn ledger(db: &Database) -> String {
    let mut all = String::new();
    for table in db.rows("select tablename from pg_tables where schemaname = 'countersign' order by 1").await {
        let rows = db.rows(&format!("select t::text from countersign.{} t", table[0])).await;
        all.push_str(&rows.concat().join("\n"));
    }
    assert!(all.contains("set_password"), "{all}");
    all
}

fn assert_free(place: &str, text: &str) {
    let lower = text.to_lowercase();
    for secret in [SECRET.to_owned(), OLD.to_owned(), PIN.to_string(), "90001".to_owned()] {
        assert!(!lower.contains(&secret.to_lowercase()), "{place} holds {secret}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_and_later_answers_have_redacted_instead_of_a_sensitive_value() {
    let db = database().await;
    db.run(LOGINS).await;
    let server = TestManifest::new(TOOLS).serve(&db).await;
    let first = server.succeed("set_password", arguments("ok")).await;
    assert_eq!(first["data"]["said"], format!("now {SECRET}"), "the first answer is what the statement returned");
    assert_eq!(first["meta"]["rollback"]["undo_params"]["password"], OLD, "and its undo can be called");
    let found = server.record(&first).await;
    assert_eq!(found["params"], json!({"id": 1, "password": "[redacted]", "pin": "[redacted]", "note": "ok"}));
    assert_eq!(found["before_image"], json!([{"id": 1, "password": "[redacted]", "pin": "[redacted]"}]));
    assert_eq!(found["after_image"], found["before_image"]);
    assert_eq!(found["result"], json!({"id": 1, "password": "[redacted]", "said": "[redacted]", "pin": "[redacted]"}));
    assert_free("get_mutation_detail", &found.to_string());
    let duplicate = server.succeed("set_password", arguments("ok")).await;
    assert_eq!(duplicate["data"]["cached_result"], found["result"]);
    // The fingerprint covers it: another value is another call.
    let mut other = arguments("ok");
    other["password"] = json!("something else");
    assert_eq!(server.succeed("set_password", other).await["data"]["duplicate"], Value::Null);

    let failed = server.call("set_password", arguments("fail")).await;
    let said = failed["error"]["message"].as_str().unwrap();
    assert_eq!(said, "cannot set [redacted] and [redacted]");
    assert_free("the record of a failure", &server.record(&failed).await.to_string());
    // PostgreSQL quotes the value itself.
    let read = server.fail("check_password", json!({"password": SECRET}), "invalid_params").await;
    assert!(read["message"].as_str().unwrap().contains("[redacted]"), "{read}");
    assert_free("a read", &read.to_string());
    let listed = server.succeed("get_recent_mutations", json!({})).await;
    assert_free("get_recent_mutations", &listed.to_string());
    assert_free("the ledger", &ledger(&db).await);
    // The undo still works, and its own record is as silent.
    let undo = first["meta"]["rollback"]["undo_params"].clone();
    server.succeed("set_password", undo).await;
    assert_eq!(db.value("select password from social.login").await, OLD);
    assert_free("the ledger", &ledger(&db).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sensitive_value_is_no_key_of_an_object_either() {
    let db = database().await;
    db.run("create table social.setting (id int, settings jsonb); insert into social.setting values (1, '{}')").await;
    let server = TestManifest::new(
        r#"
[[tool]]
name = "add_password"
access = "write"
description = "Add it."
sql = """update social.setting set settings = jsonb_build_object($2::text, 1, 'x' || $2::text, jsonb_build_object('by', $2::text))
         where id = $1 returning id, settings, settings::text as password"""
rows = "one"
undo = { irreversible = "x" }
param = [{ name = "id", description = "It." }, { name = "password", description = "It.", sensitive = true }]
"#,
    )
    .serve(&db)
    .await;
    let call = json!({"id": 1, "password": SECRET});
    let shown = server.succeed("preview_mutation", json!({"tool": "add_password", "params": call})).await;
    assert_free("a preview", &shown.to_string());
    let done = server.succeed("add_password", call).await;
    assert_eq!(done["data"]["settings"][SECRET], 1, "the first answer is what the statement returned");
    let record = server.record(&done).await;
    let settings = json!({"[redacted]": 1, "[redacted] 2": {"by": "[redacted]"}});
    assert_eq!(record["result"], json!({"id": 1, "settings": settings, "password": "[redacted]"}));
    let rows = db.rows("select a::text from countersign.mutation a").await.concat().join("\n");
    assert_free("the ledger", &rows);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_argument_is_not_quoted() {
    let db = database().await;
    db.run(LOGINS).await;
    let server = TestManifest::new(TOOLS).serve(&db).await;
    for (key, wrong) in [
        ("pin", json!(SECRET)),
        ("pin", json!([SECRET])),
        ("pin", json!({SECRET: 1})),
        ("password", json!([SECRET])),
        ("password", json!(SECRET.repeat(3))),
        ("password", json!(format!("{SECRET}\u{0}"))),
    ] {
        let mut arguments = arguments("x");
        arguments[key] = wrong;
        let error = server.fail("set_password", arguments, "invalid_params").await;
        assert!(error["message"].as_str().unwrap().contains(key), "{error}");
        assert_free("an error", &error.to_string());
    }
    assert_eq!(db.value("select count(*) from countersign.mutation").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_log_level_brings_a_sensitive_value_into_the_log() {
    // At level debug, rmcp logs whole requests.
    let db = database().await;
    db.run(LOGINS).await;
    for level in ["debug", "trace", "rmcp=trace", "trace,rmcp=trace,rmcp::service=trace,tokio_postgres=trace"] {
        let manifest = TestManifest::new(TOOLS);
        let mut command = manifest.command(&db);
        command.args(["--log", level]);
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut server = RawStdioServer::logging(command, Stdio::from(log.reopen().unwrap()), "2025-06-18").await;
        for (id, note) in [(1, format!("ok {level}")), (2, "fail".to_owned())] {
            let call = json!({"name": "set_password", "arguments": arguments(&note)});
            let answer = server.request(id, "tools/call", call).await;
            assert_eq!(answer["result"]["isError"], note == "fail", "{answer}");
        }
        let line = json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "set_password", "arguments": SECRET}});
        server.request(3, "tools/call", line["params"].clone()).await;
        server.send(&format!("{{\"{SECRET}\": 1, \"{SECRET}\": 2}}")).await;
        assert!(server.receive().await["error"].is_object());
        server.send(&format!("\"{SECRET}\"")).await;
        assert!(server.receive().await["error"].is_object());
        assert!(server.request(4, "tools/nothing", json!({"name": SECRET})).await["error"].is_object());
        assert!(server.close().await);
        let log = std::fs::read_to_string(log.path()).unwrap();
        assert!(level == "rmcp=trace" || log.contains("executed"), "it logs: {log}");
        assert!(!log.contains("response error"), "a client that is wrong is no warning: {log}");
        assert_free(&format!("the log at {level}"), &log);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_that_would_repeat_a_sensitive_parameter_stops_the_start() {
    let db = database().await;
    db.run(LOGINS).await;
    let manifest = TestManifest::new(&TOOLS.replace("before.password", "param.password"));
    let said = manifest.compile_error(&db).await;
    assert!(said.contains("password is sensitive, and the answer would show it"), "{said}");
    drop(Server::on(&db).await);
}
