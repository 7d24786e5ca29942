//! `execute_sql` runs one arbitrary statement through the gate. Its record is correct for every statement, and no state of it
//! reaches the next write.

use serde_json::{Value, json};
use testkit::{Database, Server, arguments, database};

async fn admin(db: &Database) -> Server {
    Server::with(db, |it| it.args(["--profile", "admin", "--execute-sql=any", "--execute-sql-tier", "auto"])).await
}

/// Status, SQLSTATE and rows of the latest record.
async fn latest(db: &Database) -> Vec<String> {
    let sql = "select status, coalesce(error_sqlstate, ''), coalesce(rows_affected::text, '') \
               from countersign.mutation order by id desc limit 1";
    db.rows(sql).await.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_served_to_admins_alone_and_only_where_it_is_switched_on() {
    let db = database().await;
    for (profile, switched_on, served) in [("write", true, false), ("admin", false, false), ("admin", true, true)] {
        let mut command = Server::command(&db);
        command.args(["--profile", profile]);
        if switched_on {
            command.env("COUNTERSIGN_EXECUTE_SQL", "any");
        }
        let server = Server::start(command).await;
        assert_eq!(server.tool_names().await.contains(&"execute_sql".to_owned()), served, "{profile} {switched_on}");
        if !served {
            let call = server.client().call("execute_sql", testkit::arguments(json!({"sql": "select 1"}))).await;
            assert!(call.unwrap_err().to_string().contains("Unknown tool"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_writes_once_with_a_record_a_receipt_and_its_rows() {
    let db = database().await;
    let server = admin(&db).await;
    let call = json!({
        "sql": "update social.tweet set text = $1 where id = any ($2) returning id, text",
        "params": ["edited", [1, 2]],
    });
    let done = server.succeed("execute_sql", call.clone()).await;
    assert_eq!(done["data"]["command_tag"], "UPDATE 2");
    assert_eq!(done["data"]["columns"], json!([{"name": "id", "type": "int8"}, {"name": "text", "type": "text"}]));
    assert_eq!(done["data"]["rows"], json!([{"id": 1, "text": "edited"}, {"id": 2, "text": "edited"}]));
    assert_eq!((&done["data"]["row_count"], &done["data"]["truncated"]), (&json!(2), &json!(false)));
    assert_eq!(done["meta"]["rows_affected"], 2);
    assert_eq!(done["meta"]["rollback"]["reversible"], false);
    let receipt = done["meta"]["correlation_id"].as_str().unwrap();
    let record = db
        .rows(&format!(
            "select status, tool_name, params->>'sql', params->>'params', rows_affected \
             from countersign.mutation where correlation_id = '{receipt}'"
        ))
        .await;
    let sql = call["sql"].as_str().unwrap();
    assert_eq!(record, [["success", "execute_sql", sql, r#"["edited",[1,2]]"#, "2"].map(str::to_owned)]);

    db.run("update social.tweet set text = 'by hand' where id = 1").await;
    let again = server.succeed("execute_sql", call.clone()).await;
    assert_eq!(
        (&again["data"]["duplicate"], &again["data"]["original_correlation_id"]),
        (&json!(true), &json!(receipt))
    );
    assert_eq!(again["data"]["cached_result"], done["data"]);
    assert_eq!(db.value("select text from social.tweet where id = 1").await, "by hand");
    let mut keyed = call.clone();
    keyed["idempotency_key"] = json!("once-more");
    assert_eq!(server.succeed("execute_sql", keyed).await["data"]["command_tag"], "UPDATE 2");
    let other = json!({"sql": sql, "params": ["edited", [1]]});
    assert_eq!(server.succeed("execute_sql", other).await["meta"]["rows_affected"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn its_numbers_are_those_of_a_read_also_where_clients_would_change_them() {
    // I-2
    let db = database().await;
    let server = admin(&db).await;
    let sql = "select 9007199254740993 as big, 1.5::numeric(5, 2) as price, array[2.5] as prices, 0.1::float8 as share, 7 as n, \
               '{\"a\": 1.10}'::jsonb as document";
    let exact =
        r#"{"big": 9007199254740993, "price": 1.50, "prices": [2.5], "share": 0.1, "n": 7, "document": {"a": 1.10}}"#;
    let safe = r#"{"big": "9007199254740993", "price": "1.50", "prices": ["2.5"], "share": 0.1, "n": 7, "document": {"a": 1.10}}"#;
    let rows = |envelope: &Value, path: &str| envelope.pointer(path).unwrap_or_else(|| panic!("{envelope}")).clone();
    let [exact, safe] = [exact, safe].map(|row| serde_json::from_str::<Value>(row).unwrap());
    let read = server.client().call("query_database", arguments(json!({"query": sql}))).await.unwrap();
    assert_eq!(rows(&read.envelope, "/data/rows/0"), safe);
    // And those of the duplicate, which come from the ledger.
    for path in ["/data/rows/0", "/data/cached_result/rows/0"] {
        let done = server.client().call("execute_sql", arguments(json!({"sql": sql}))).await.unwrap();
        assert_eq!(rows(&serde_json::from_str(&done.text).unwrap(), path), exact, "{path}");
        assert_eq!(rows(&done.envelope, path), safe, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_changes_in_tracked_tables_can_be_undone() {
    // N-9
    let db = database().await;
    db.run("create table social.plain (n int); select countersign.track('social.tweet')").await;
    let server = admin(&db).await;
    let before = db.value("select text from social.tweet where id = 1").await;
    let done =
        server.succeed("execute_sql", json!({"sql": "update social.tweet set text = 'edited' where id = 1"})).await;
    let rollback = &done["meta"]["rollback"];
    assert_eq!((&rollback["reversible"], &rollback["checked"]), (&json!(true), &json!(true)), "{rollback}");
    server.succeed(rollback["undo_tool"].as_str().unwrap(), rollback["undo_params"].clone()).await;
    assert_eq!(db.value("select text from social.tweet where id = 1").await, before);
    for (sql, reason) in [
        ("insert into social.plain values (1)", json!("image_missing")),
        ("create table social.made_here (n int)", Value::Null),
    ] {
        db.run("grant all on social.plain to public; grant create on schema social to public").await;
        let done = server.succeed("execute_sql", json!({"sql": sql})).await;
        let rollback = &done["meta"]["rollback"];
        assert_eq!((&rollback["reversible"], &rollback["reason"]), (&json!(false), &reason), "{sql}: {rollback}");
        let receipt = json!({"correlation_id": done["meta"]["correlation_id"]});
        server.fail("undo_mutation", receipt, "undo_conflict").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_runs_to_its_end_although_only_some_of_its_rows_are_shown() {
    let db = database().await;
    db.run(
        "create table social.log (n int); create function social.note(n int) returns text language sql as \
            $$ insert into social.log values (n) returning repeat('x', 1000) $$",
    )
    .await;
    let mut command = Server::command(&db);
    command.args([
        "--profile",
        "admin",
        "--execute-sql=any",
        "--execute-sql-tier",
        "auto",
        "--row-limit",
        "10",
        "--max-result-bytes",
        "65536",
    ]);
    let server = Server::start(command).await;
    let sql = "select n, social.note(n) from generate_series(1, 3000) n";
    let data = server.succeed("execute_sql", json!({"sql": sql})).await["data"].clone();
    assert_eq!(
        (&data["row_count"], &data["truncated"], &data["command_tag"]),
        (&json!(10), &json!(true), &json!("SELECT 3000"))
    );
    assert_eq!(db.value("select count(*) from social.log").await, "3000");

    // One row that is larger than an answer may be: nothing of it is kept.
    let huge = json!({"sql": "insert into social.log values (-1) returning repeat('x', 100000)"});
    let error = server.fail("execute_sql", huge, "result_too_large").await;
    assert!(error["message"].as_str().unwrap().contains("nothing was written"), "{error}");
    assert_eq!(latest(&db).await[0], "failure");
    assert_eq!(db.value("select count(*) from social.log where n = -1").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_recorded_and_schema_violations_are_not() {
    let db = database().await;
    let server = admin(&db).await;
    let mut failed = 0;
    for (call, code, state) in [
        (json!({"sql": "selec 1"}), "sql_error", "42601"),
        (json!({"sql": "select 1; select 2"}), "sql_error", "42601"),
        (json!({"sql": "update social.nowhere set x = 1"}), "sql_error", "42P01"),
        (json!({"sql": "insert into social.tweet (account_id, text) values ('nobody', 'x')"}), "sql_error", "23503"),
        (json!({"sql": "select 1 / $1::int", "params": [0]}), "invalid_params", "22012"),
        (json!({"sql": "select $1::int", "params": []}), "invalid_params", ""),
        (json!({"sql": "select $1::int", "params": ["one"]}), "invalid_params", "22P02"),
        (json!({"sql": "select $1::int", "params": [1.5]}), "invalid_params", ""),
        (json!({"sql": "-- nothing"}), "invalid_params", ""),
        (json!({"sql": " ; "}), "invalid_params", ""),
    ] {
        let error = server.fail("execute_sql", call.clone(), code).await;
        failed += 1;
        assert_eq!(error["sqlstate"].as_str().unwrap_or_default(), state, "{call}: {error}");
        assert_eq!(latest(&db).await, ["failure", state, ""], "{call}");
    }
    let error = server.fail("execute_sql", json!({"sql": "select nope from social.tweet"}), "sql_error").await;
    assert_eq!(error["position"], 8);
    for call in [json!({"sql": ""}), json!({"sql": "select 1", "rows": 3}), json!({"sql": "a\u{0}"}), json!({})] {
        server.fail("execute_sql", call, "invalid_params").await;
    }
    assert_eq!(db.value("select count(*) from countersign.mutation").await, (failed + 1).to_string());
}

/// Statements that would end or change the protocol's transaction, or the session: what each must come to.
const HAZARDS: &[(&str, &str)] = &[
    // Transaction control: refused by PostgreSQL inside the block.
    ("commit", "0A000"),
    ("COMMIT AND CHAIN", "0A000"),
    ("rollback", "0A000"),
    ("/* a */ end", "0A000"),
    ("begin", "0A000"),
    ("start transaction read only", "0A000"),
    ("savepoint x", "0A000"),
    ("release work", "0A000"),
    ("rollback to work", "0A000"),
    ("prepare transaction 'theirs'", "0A000"),
    ("commit prepared 'theirs'", "0A000"),
    ("rollback prepared 'theirs'", "0A000"),
    // The same from inside.
    ("call social.commits()", "2D000"),
    ("call social.commits_with(1)", "2D000"),
    ("do $$ begin insert into social.log values (1); commit; end $$", "2D000"),
    ("do $$ begin insert into social.log values (1); rollback; end $$", "2D000"),
    ("do $$ begin execute 'commit'; end $$", "0A000"),
    // Prepared statements of the server's own, by every name that it uses.
    (
        "do $$ begin for i in 0..40 loop begin execute 'execute cs' || i; exception when others then end; end loop; end $$",
        "",
    ),
    // The transaction's own properties.
    // Read-only as far as the savepoint, so the outcome is written all the same.
    ("set transaction read only", ""),
    ("set transaction isolation level serializable", "25001"),
    ("set local transaction_read_only = on", ""),
    ("do $$ begin set local transaction_read_only = on; end $$", ""),
    ("set constraints all deferred", ""),
    // Data that flows outside the protocol's messages.
    ("copy social.log from stdin", "0A000"),
    ("copy social.log to stdout", "0A000"),
    ("copy (select 1) to program '/bin/cat > /dev/null'", ""),
    // What stays in a session.
    ("listen somebody", ""),
    ("unlisten *", ""),
    ("set role nobody_in_particular", ""),
    ("set session authorization nobody_in_particular", ""),
    ("set synchronous_commit = off", ""),
    ("set local synchronous_commit = off", ""),
    ("set local statement_timeout = 1", ""),
    ("set statement_timeout = 1", ""),
    ("set search_path = social", ""),
    ("set client_encoding = 'LATIN1'", ""),
    ("set default_transaction_read_only = on", ""),
    ("reset all", ""),
    ("select set_config('role', 'nobody_in_particular', false), set_config('synchronous_commit', 'off', false)", ""),
    ("do $$ begin set session authorization nobody_in_particular; set search_path = social; end $$", ""),
    ("discard all", "25001"),
    ("discard plans", ""),
    ("deallocate all", ""),
    ("prepare cs0 as select 1", ""),
    ("do $$ begin execute 'prepare cs5 as select 1'; raise 'no'; end $$", "P0001"),
    ("do $$ begin execute 'deallocate all'; raise 'no'; end $$", "P0001"),
    ("declare c cursor with hold for select 1", ""),
    ("select pg_advisory_lock(4711)", ""),
    ("create temp table left_behind (n int)", ""),
    ("lock table social.log in access exclusive mode", ""),
    // What cannot run in a transaction, and what can.
    ("vacuum social.log", "25001"),
    ("create index concurrently on social.log (n)", "25001"),
    ("create database another", "25001"),
    ("alter system set work_mem = '4MB'", "25001"),
    ("create table social.made (n int)", ""),
    ("create table social.made_of as select 1 as n", ""),
    ("alter table social.log add column m int", ""),
    ("drop table social.made", ""),
    ("explain analyze insert into social.log values (2)", ""),
    ("show synchronous_commit", ""),
    ("notify somebody", ""),
    ("call social.harmless(1)", ""),
    // A deferred trigger runs before the outcome is written.
    ("insert into social.deferred values (1)", "P0001"),
    ("insert into social.lazy values (1)", ""),
];

const HAZARD_SCHEMA: &str = "
create table social.log (n int);
create procedure social.commits() language plpgsql as $$ begin insert into social.log values (1); commit; end $$;
create procedure social.commits_with(inout n int) language plpgsql as $$ begin commit; end $$;
create procedure social.harmless(inout n int) language plpgsql as $$ begin n := n + 1; end $$;
create table social.deferred (n int);
create function social.refuse() returns trigger language plpgsql as $$ begin raise 'too late'; end $$;
create constraint trigger refuse after insert on social.deferred deferrable initially deferred
    for each row execute function social.refuse();
create table social.lazy (n int);
create function social.loosen() returns trigger language plpgsql as
    $$ begin perform set_config('synchronous_commit', 'off', true), set_config('role', 'nobody_in_particular', true);
       return null; end $$;
create constraint trigger loosen after insert on social.lazy deferrable initially deferred
    for each row execute function social.loosen();
-- What the final statements of the write protocol see of the settings.
create table public.seen (synchronous_commit text, who text, tool text);
grant all on public.seen to public;
create function public.see() returns trigger language plpgsql as $$ begin
    if new.status = 'success' then
        insert into public.seen values (current_setting('synchronous_commit'), current_user, new.tool_name);
    end if;
    return null;
end $$;
create trigger see after insert on countersign.record for each row execute function public.see();
";

#[tokio::test(flavor = "multi_thread")]
async fn no_statement_ends_the_transaction_of_its_record_or_reaches_the_next_write() {
    let db = database().await;
    db.run(HAZARD_SCHEMA).await;
    db.run(
        "do $$ begin create role nobody_in_particular; exception when duplicate_object or unique_violation then end $$",
    )
    .await;
    // As the superuser, who may do the most.
    let mut command = Server::command(&db);
    command.env("DATABASE_URL", db.url()).args([
        "--profile",
        "admin",
        "--execute-sql=any",
        "--execute-sql-tier",
        "auto",
    ]);
    let server = Server::start(command).await;
    let mut wrong = Vec::new();
    for (index, (sql, state)) in HAZARDS.iter().enumerate() {
        let envelope = server.call("execute_sql", json!({"sql": sql})).await;
        let record = latest(&db).await;
        let said = envelope["error"]["sqlstate"].as_str().unwrap_or_default();
        let as_expected = match *state {
            "" if envelope["success"] == true => record[0] == "success",
            // A limit of 1 ms may end what countersign runs behind the statement, and with it the write.
            "" => sql.contains("statement_timeout = 1") && record[0] == "failure" && said == "57014",
            state => envelope["success"] == false && record[0] == "failure" && said == state,
        };
        // In doubt is for connections that are lost: none of these is.
        if !as_expected || record[1] != said || envelope["error"]["code"] == "in_doubt_aborted" {
            wrong.push(format!("{sql}: {record:?} {envelope}"));
        }
        // The next write is one like any other.
        let post = server.call("post_tweet", json!({"text": format!("after {index}")})).await;
        let pending = db.value("select count(*) from countersign.mutation where status = 'pending'").await;
        if post["success"] != true || latest(&db).await != ["success", "", "1"] || pending != "0" {
            wrong.push(format!("after {sql}: {pending} pending, {post}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Nothing of what failed was kept, and everything that was committed was committed durably, as the ledger's owner.
    assert_eq!(db.value("select string_agg(n::text, ',' order by n) from social.log").await, "2");
    assert_eq!(db.value("select count(*) from social.deferred").await, "0");
    assert_eq!(
        db.rows("select distinct synchronous_commit, who from public.seen").await,
        [["on", "countersign_owner"]],
        "{:?}",
        db.rows("select * from public.seen where synchronous_commit <> 'on'").await
    );
    // Nothing that belongs to a session outlived its statement.
    db.first_value("select 1 where not exists (select from pg_locks where locktype = 'advisory' and objid = 4711)")
        .await;
    db.first_value("select 1 where to_regclass('pg_temp.left_behind') is null").await;
    assert_eq!(db.value("select count(*) from pg_prepared_xacts").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_kills_its_own_session_or_never_ends_leaves_a_true_record() {
    let db = database().await;
    let mut command = Server::command(&db);
    command.args([
        "--profile",
        "admin",
        "--execute-sql=any",
        "--execute-sql-tier",
        "auto",
        "--call-deadline-ms",
        "1500",
    ]);
    let server = Server::start(command).await;
    let kill = json!({"sql": "select pg_terminate_backend(pg_backend_pid())"});
    server.fail("execute_sql", kill, "in_doubt_aborted").await;
    assert_eq!(latest(&db).await[0], "failure");
    server.fail("execute_sql", json!({"sql": "do $$ begin loop perform 1; end loop; end $$"}), "timeout").await;
    assert_eq!(latest(&db).await[0], "failure");
    // It cannot give itself more time.
    let more = "do $$ begin set local statement_timeout = 0; perform pg_sleep(60); end $$";
    server.fail("execute_sql", json!({"sql": more}), "timeout").await;
    // Its connection was cut, and the record says what the caller was told.
    let code = "select error_code from countersign.mutation order by id";
    assert_eq!(db.rows(code).await, [["in_doubt_aborted"], ["timeout"], ["timeout"]]);
    let post = server.succeed("post_tweet", json!({"text": "still here"})).await;
    assert_eq!(post["data"]["text"], Value::from("still here"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_is_out_of_reach_also_for_an_admins_own_sql() {
    let db = database().await;
    let server = admin(&db).await;
    server.succeed("post_tweet", json!({"text": "on the record"})).await;
    for sql in [
        "update countersign.record set status = 'failure'",
        "delete from countersign.attempt",
        "truncate countersign.effect",
        "alter table countersign.record disable trigger all",
        "select * from countersign.reader_login",
        "select * from countersign.reader_credentials()",
    ] {
        let error = server.fail("execute_sql", json!({"sql": sql}), "sql_error").await;
        assert_eq!(error["sqlstate"], "42501", "{sql}: {error}");
        assert_eq!(latest(&db).await[..2], ["failure", "42501"], "{sql}");
    }
}
