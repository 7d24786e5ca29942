//! A preview shows the effects of a write and changes nothing.

use serde_json::{Value, json};
use testkit::audit::audit;
use testkit::social::{every_write, untouched_tweet};
use testkit::{Database, RawStdioServer, Server, TestManifest, database};

/// Every row of every table, the demo's and the ledger's, but those that a server writes by itself, each minute.
async fn everything(db: &Database) -> (Vec<Vec<String>>, Vec<Vec<String>>) {
    // The first sweep keeps what the catalog says of tracked tables. This one passes over those that a server's own has locked.
    db.run("select countersign.sweep(interval '1 h', 1)").await;
    db.first_value(
        "select 1 where not exists (select from countersign.tracked t where t.is_current
            and t.catalog_versions is distinct from countersign.catalog_versions(t.relation, t.clock_numbers <> '{}'))",
    )
    .await;
    let mut ledger = Vec::new();
    // Sealing notes in `seal_state` who is writing.
    let tables = "select tablename from pg_tables where schemaname = 'countersign'
        and tablename not in ('fingerprint_key', 'seal_state') order by 1";
    for table in db.rows(tables).await {
        ledger.extend(db.rows(&format!("select '{0}', t::text from countersign.{0} t order by 2", table[0])).await);
    }
    (db.social().await, ledger)
}

/// An image without what the database makes of its own at each write.
fn known(image: &Value) -> Value {
    let without = |row: &Value| {
        let mut row = row.clone();
        for key in ["id", "created_at", "in_reply_to_id"] {
            row.as_object_mut().unwrap().remove(key);
        }
        row
    };
    image.as_array().map_or(Value::Null, |rows| rows.iter().map(without).collect())
}

async fn preview(server: &Server, tool: &str, params: Value) -> Value {
    server.succeed("preview_mutation", json!({"tool": tool, "params": params})).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_of_every_write_tool_shows_what_the_write_then_does_and_changes_nothing() {
    let db = database().await;
    let server = Server::on(&db).await;
    let own = server.succeed("post_tweet", json!({"text": "to be deleted"})).await["data"]["id"].clone();
    let calls = every_write(&db, &own).await;
    let listed = server.client().list_tools().await.unwrap();
    let writes = listed.iter().filter(|tool| tool["annotations"]["readOnlyHint"] == false).count();
    assert_eq!(calls.len() + 1, writes, "every write tool but undo_mutation is previewed");
    for (tool, params) in calls {
        // Else the server might do it during the preview.
        audit(&db, &["seal"]).await;
        let before = everything(&db).await;
        let envelope = preview(&server, tool, params.clone()).await;
        assert_eq!(everything(&db).await, before, "{tool}: the preview changes no row anywhere");
        let shown = &envelope["data"];
        assert_eq!(envelope["meta"].get("correlation_id"), None, "there is no record to find");
        assert_eq!((&shown["tool"], &shown["message"]), (&json!(tool), &json!("Nothing was written.")));
        assert_eq!(shown["warnings"], json!([]));
        assert_eq!(shown["params"]["account_id"], "default");

        let done = server.succeed(tool, params).await;
        let record = server.record(&done).await;
        assert_eq!(shown["rows_affected"], done["meta"]["rows_affected"], "{tool}");
        assert_eq!(shown["rollback"]["reversible"], done["meta"]["rollback"]["reversible"]);
        assert_eq!(shown["rollback"]["undo_tool"], done["meta"]["rollback"]["undo_tool"]);
        let images = [&shown["before"], &shown["after"]].map(known);
        assert_eq!(images, [&record["before_image"], &record["after_image"]].map(known), "{tool}");
        assert!(!record["after_image"].is_null(), "{tool} records what it left");
        assert_eq!(shown["params"], record["params"]);
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&shown["result"]), keys(&done["data"]), "{tool}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_fail_fails_in_the_preview_in_the_same_way() {
    let db = database().await;
    db.run(
        "create table social.late_parent (id int primary key);
         alter table social.bookmark add column parent int default 7;
         alter table social.bookmark add constraint late foreign key (parent)
             references social.late_parent deferrable initially deferred not valid",
    )
    .await;
    let server = Server::on(&db).await;
    let tweet = untouched_tweet(&db).await;
    let before = everything(&db).await;
    for (tool, params, code, said) in [
        ("like_tweet", json!({"tweet_id": 999_999}), "sql_error", "tweet_like_tweet_id_fkey"),
        ("unlike_tweet", json!({"tweet_id": tweet}), "row_count_mismatch", "0 row(s)"),
        // Deferred constraints are checked too.
        ("bookmark_tweet", json!({"tweet_id": tweet}), "sql_error", "\"late\""),
        ("like_tweet", json!({"tweet_id": "x"}), "invalid_params", "like_tweet: argument \"tweet_id\""),
        ("like_tweet", json!({}), "invalid_params", "missing argument \"tweet_id\""),
        ("like_tweet", json!({"tweet_id": 1, "colour": 2}), "invalid_params", "unknown argument \"colour\""),
        ("post_tweet", json!({"text": "a\u{0}b"}), "invalid_params", "U+0000"),
        ("query_database", json!({}), "invalid_params", "\"query_database\" is not a write tool"),
        ("no_such_tool", json!({}), "invalid_params", "\"no_such_tool\" is not a write tool"),
        ("execute_sql", json!({}), "invalid_params", "\"execute_sql\" is not a write tool"),
    ] {
        let error = server.fail("preview_mutation", json!({"tool": tool, "params": params}), code).await;
        assert!(error["message"].as_str().unwrap().contains(said), "{tool}: {error}");
    }
    let error =
        server.fail("preview_mutation", json!({"tool": "like_tweet", "params": "hunter2"}), "invalid_params").await;
    assert!(error["message"].as_str().unwrap().contains("params") && !error.to_string().contains("hunter2"), "{error}");
    assert_eq!(everything(&db).await, before);
    // The sessions are clean: the same calls go on to work, and a key is no matter.
    preview(&server, "like_tweet", json!({"tweet_id": tweet, "idempotency_key": "k"})).await;
    let done = server.succeed("like_tweet", json!({"tweet_id": tweet, "idempotency_key": "k"})).await;
    assert_eq!(done["data"]["liked"], true, "the preview took no key");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_previews_its_own_tools_only_and_explains_why_it_previews_no_sql() {
    let db = database().await;
    let mut command = Server::command(&db);
    command.args(["--profile", "admin", "--execute-sql=any"]);
    let call = json!({"tool": "execute_sql", "params": {"sql": "delete from social.media"}});
    let error = Server::start(command).await.fail("preview_mutation", call, "invalid_params").await;
    assert!(error["message"].as_str().unwrap().contains("execute_sql cannot be previewed"), "{error}");
    let admin = "[[tool]]\nname = 'wipe'\naccess = 'admin'\ndescription = 'It.'\n\
                 sql = 'delete from social.media returning id'\nrows = 'any'\nmax_rows = 5\nundo = { irreversible = 'x' }\n";
    let manifest = TestManifest::new(admin);
    let call = json!({"tool": "wipe", "params": {}});
    manifest.serve(&db).await.fail("preview_mutation", call.clone(), "invalid_params").await;
    let mut command = manifest.command(&db);
    command.args(["--profile", "admin"]);
    Server::start(command).await.succeed("preview_mutation", call).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn words_of_mixed_scripts_are_marked_in_escaped_form() {
    let db = database().await;
    let server = Server::on(&db).await;
    let shown = preview(&server, "post_tweet", json!({"text": "mail \u{430}dmin@x.test"})).await;
    let warnings = shown["data"]["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1, "{shown}");
    let warning = warnings[0].as_str().unwrap();
    assert!(warning.is_ascii() && warning.contains("\"text\"") && warning.contains("Cyrillic and Latin"), "{warning}");
    assert!(warning.contains("\\u{430}dmin"), "{warning}");
    let shown =
        preview(&server, "post_thread", json!({"tweets": ["привет", "p\u{3bf}st", "東京タワーのTシャツ"]})).await;
    assert!(shown["data"]["warnings"][0].as_str().unwrap().contains("\"tweets.1\""), "{shown}");
    assert_eq!(shown["data"]["warnings"].as_array().unwrap().len(), 1, "{shown}");
    db.run("select countersign.track('social.tweet')").await;
    let mut command = Server::command(&db);
    command.args(["--profile", "admin", "--execute-sql"]);
    let call = json!({"sql": "update social.tweet set text = $1 where false", "params": ["\u{410}dmin p\u{430}ypal"]});
    let shown = preview(&Server::start(command).await, "execute_sql", call).await;
    assert_eq!(shown["data"]["warnings"].as_array().unwrap().len(), 2, "{shown}");
    assert!(
        shown["data"]["warnings"][1].as_str().unwrap().contains("\"params.0\" mixes Latin and Cyrillic"),
        "{shown}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_shows_no_sensitive_value() {
    let db = database().await;
    db.run("create table social.login (id int, token text); insert into social.login values (1, 'former-token')").await;
    let server = TestManifest::new(
        "[[tool]]\nname = 'set_token'\naccess = 'write'\ndescription = 'It.'\nrows = 'one'\n\
         before = 'select id, token from social.login where id = $1 for update'\n\
         sql = 'update social.login set token = $2 where id = $1 returning id, token'\n\
         param = [{ name = 'id', description = 'It.' }, { name = 'token', description = 'It.', sensitive = true }]\n\
         undo = { tool = 'set_token', params = { id = 'param.id', token = 'before.token' } }\n",
    )
    .serve(&db)
    .await;
    let shown = preview(&server, "set_token", json!({"id": 1, "token": "new-t\u{43e}ken"})).await;
    let text = shown.to_string();
    assert!(!text.contains("former-token") && !text.contains("t\u{43e}ken") && !text.contains("new-t"), "{text}");
    assert_eq!(shown["data"]["result"], json!({"id": 1, "token": "[redacted]"}));
    assert!(shown["data"]["warnings"][0].as_str().unwrap().contains("\"token\" mixes Latin and Cyrillic"), "{text}");
    let params = json!({"id": 1, "token": ["hunter2"]});
    let error = server.fail("preview_mutation", json!({"tool": "set_token", "params": params}), "invalid_params").await;
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_that_is_cancelled_or_loses_its_backend_leaves_nothing() {
    let db = database().await;
    let mut server = RawStdioServer::start(Server::command(&db), "2025-06-18").await;
    let before = everything(&db).await;
    let call = json!({"name": "preview_mutation", "arguments": {"tool": "post_tweet", "params": {"text": "soon"}}});
    let waiting = "select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    let mut blocker = db.connect().await;
    for cancel in [true, false] {
        let lock = blocker.transaction().await.unwrap();
        lock.batch_execute("lock table social.tweet in access exclusive mode").await.unwrap();
        server.send(&json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call}).to_string()).await;
        let pid = db.first_value(waiting).await;
        if cancel {
            server.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#).await;
        } else {
            db.run(&format!("select pg_terminate_backend({pid})")).await;
            let answer = server.receive().await;
            let error = &answer["result"]["structuredContent"]["error"];
            assert_eq!(
                (&error["code"], &error["retryable"]),
                (&json!("database_unavailable"), &json!(true)),
                "{answer}"
            );
            assert!(error["message"].as_str().unwrap().contains("nothing was written"), "{error}");
        }
        // While the lock is still held: the backend is gone.
        db.first_value(&format!("select 1 where not exists (select from pg_stat_activity where pid = {pid})")).await;
        lock.rollback().await.unwrap();
    }
    assert_eq!(everything(&db).await, before);
    let answer = server.request(8, "tools/call", call).await;
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    assert!(server.close().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_whose_snapshot_is_lost_between_its_runs_can_be_repeated() {
    let db = database().await;
    let mut server = RawStdioServer::start(Server::studio_command(&db), "2025-06-18").await;
    let package = json!({"package_id": 1, "title": "x", "description": "x", "price": 9, "duration_minutes": 60});
    let call = json!({"name": "upsert_package", "arguments": package});
    let lock = db.lock("studio.package").await;
    server.send(&json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call}).to_string()).await;
    // The first run waits. The session that holds the snapshot for the second one is gone before that begins.
    db.first_value("select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()")
        .await;
    let holder = "select pid from pg_stat_activity where state = 'idle in transaction' and query ~ 'pg_export_snapshot'
        and datname = current_database()";
    let holder = db.first_value(holder).await;
    db.run(&format!("select pg_terminate_backend({holder})")).await;
    db.first_value(&format!("select 1 where not exists (select from pg_stat_activity where pid = {holder})")).await;
    lock.release().await;
    let answer = server.receive().await;
    let error = &answer["result"]["structuredContent"]["error"];
    assert_eq!((&error["code"], &error["retryable"]), (&json!("database_unavailable"), &json!(true)), "{answer}");
    assert!(error["message"].as_str().unwrap().contains("nothing was written"), "{error}");
    let answer = server.request(8, "tools/call", call).await;
    assert_eq!(answer["result"]["structuredContent"]["data"]["requires_approval"], true, "{answer}");
    assert!(server.close().await);
}
