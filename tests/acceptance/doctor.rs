//! `countersign doctor`: it reports stuck work and mistakes with their remedies.

use serde_json::{Value, json};
use testkit::audit::{audit, insert_failed_records, insert_pending_record, tamper};
use testkit::{CommandOutput, Database, Server, database, lone_database, repository, run_countersign};

async fn doctor(url: &str, arguments: &[&str]) -> CommandOutput {
    run_countersign(url, &[&["doctor"], arguments].concat()).await
}

/// The findings of the servers' login, and the exit code.
async fn findings(url: &str, arguments: &[&str]) -> (Vec<Value>, i32) {
    let ran = doctor(url, &[&["--json"], arguments].concat()).await;
    assert_eq!(ran.err, "", "{}", ran.out);
    let findings = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (findings, ran.code)
}

/// The only finding of an area and level that says this.
fn finding<'a>(findings: &'a [Value], level: &str, area: &str, says: &str) -> &'a Value {
    let is_it = |finding: &&Value| {
        finding["level"] == level
            && finding["area"] == area
            && finding["message"].as_str().is_some_and(|message| message.contains(says))
    };
    let found: Vec<&Value> = findings.iter().filter(is_it).collect();
    let &[found] = found.as_slice() else {
        panic!("one {level} of {area} with {says:?}, not {found:?}: {findings:#?}")
    };
    assert!(level == "ok" || found["advice"].is_string() || found["message"].as_str().unwrap().len() > 60, "{found}");
    found
}

fn problems(findings: &[Value]) -> usize {
    findings.iter().filter(|finding| finding["level"] == "problem").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_no_problem_and_warns_of_roles_without_members() {
    // A cluster of its own: roles belong to all of its databases.
    let db = lone_database().await;
    let studio = repository().join("manifests/studio.toml");
    let arguments = ["--manifest", studio.to_str().unwrap()];
    let unsigned = doctor(&db.writer_url(), &arguments).await;
    assert!(unsigned.out.contains("warning    log         the log is not signed"), "{}", unsigned.out);
    let policies = "warning    roles       policies believe settings that a query may find a way to change: tenant on studio.booking, \
                    tenant on studio.package";
    assert!(unsigned.out.contains(policies), "{}", unsigned.out);
    for table in ["studio", "package", "package_photo", "working_hours", "booking"] {
        db.run(&format!("alter policy tenant on studio.{table} using (tenant_id = (select countersign.account()))"))
            .await;
    }
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("log.key").to_str().unwrap().to_owned();
    audit(&db, &["keys", "new", "--signing-key", &key]).await;
    audit(&db, &["seal", "--signing-key", &key]).await;
    let ran = doctor(&db.writer_url(), &arguments).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    // N-18: the owners of the ledger can as well.
    let who = "warning    roles       no login has the role countersign_approver or countersign_console, so only superusers and \
               members of countersign_owner can approve proposals of tier approve";
    assert!(ran.out.contains(who), "{}", ran.out);
    assert!(ran.out.ends_with("0 problems, 1 warning.\n"), "{}", ran.out);

    db.run("create role anna login; grant countersign_approver to anna").await;
    let ran = doctor(&db.writer_url(), &arguments).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    let (last, lines) = ran.out.trim_end().rsplit_once('\n').map(|(lines, last)| (last, lines)).unwrap();
    assert_eq!(last, "Nothing is wrong with what was checked.");
    let is_fine = |line: &str| line.starts_with("ok         ") || line.starts_with("unchecked  ");
    assert!(lines.lines().all(is_fine), "{lines}");
    for part in [
        "logged in as \"countersign_writer\"",
        "servers log in as \"countersign_writer\", which may do what a server needs, and no more",
        "the reader can log in, and can do no more than read tables",
        "proposals can be approved by \"anna\"",
        "6 tools fit the database",
        "every executor is there",
    ] {
        assert!(lines.contains(part), "{part} is missing in:\n{lines}");
    }

    // Every login of doctor sees the settings of the servers' login.
    db.run("alter role countersign_writer set default_transaction_read_only = on").await;
    db.run("alter role countersign_writer set session_replication_role = replica").await;
    let (found, code) = findings(&db.url(), &[]).await;
    assert_eq!(code, 1);
    let named = |setting: &str| {
        format!("role countersign_writer has the setting {setting}, which a server does not expect: with")
    };
    finding(&found, "problem", "roles", &named("default_transaction_read_only=on"));
    finding(&found, "problem", "roles", &named("session_replication_role=replica"));
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_that_are_pending_for_too_long_are_listed_until_a_server_ends_them() {
    let db = database().await;
    insert_pending_record(&db, 2).await;
    insert_pending_record(&db, 0).await;
    let old = "select correlation_id from countersign.mutation order by admitted_at limit 1";
    let correlation_id = db.value(old).await;
    let (found, code) = findings(&db.writer_url(), &[]).await;
    assert_eq!((code, problems(&found)), (1, 1), "the one of just now may be running: {found:#?}");
    let says = format!("like_tweet of account default is pending for 2 days (correlation id {correlation_id})");
    let details = &finding(&found, "problem", "records", &says)["details"];
    assert_eq!((&details["correlation_id"], &details["tool_name"]), (&json!(correlation_id), &json!("like_tweet")));
    assert!(details["age_s"].as_i64().unwrap() >= 2 * 86_400, "{details}");
    let table = doctor(&db.writer_url(), &[]).await;
    assert!(table.code == 1 && table.out.contains(&format!("problem    records     {says}\n")), "{}", table.out);

    // A call may take longer than that: then nothing is wrong with it.
    let deadline = ["--call-deadline-ms", "3600000"];
    db.run("update countersign.attempt set admitted_at = clock_timestamp() - interval '40 minutes'").await;
    finding(&findings(&db.writer_url(), &deadline).await.0, "ok", "records", "no write is pending");
    let server = Server::on(&db).await;
    // The server's sweep ends it.
    db.until_value("select count(*) from countersign.mutation where status = 'pending'", "0").await;
    assert_eq!(problems(&findings(&db.writer_url(), &[]).await.0), 0);
    server.close().await;
}

/// Creates a proposal that was confirmed this long ago and not executed; returns its id.
async fn confirmed(db: &Database, account: &str, minutes_ago: u32, expires_in_minutes: i32) -> String {
    let insert = format!(
        "with made as (select gen_random_uuid() as id, clock_timestamp() - interval '{minutes_ago} minutes' as at) \
         insert into countersign.proposal (proposal_id, account_id, tool_name, title, tool_version, definition, tier, description, params, \
             fingerprint, preview, preview_hash, created_at, expires_at, digest, status, decision, decided_by, decided_login, \
             decided_via, decided_at) \
         select id, '{account}', 'delete_package', 'Delete a package', '1.0', repeat('0', 64), 'approve', '', '{{}}', repeat('0', 64), '{{}}', id::text, \
             at - interval '1 minute', clock_timestamp() + interval '{expires_in_minutes} minutes', repeat('0', 64), 'confirmed', \
             'confirmed', 'anna', 'anna', 'command_line', at from made returning proposal_id"
    );
    db.value(&insert).await
}

#[tokio::test(flavor = "multi_thread")]
async fn confirmed_proposals_that_are_not_executed_are_listed_newest_first() {
    let db = database().await;
    finding(&findings(&db.writer_url(), &[]).await.0, "ok", "proposals", "none was confirmed within the last hour");
    let oldest = confirmed(&db, "old", 300, -200).await;
    let older = confirmed(&db, "default", 20, 10).await;
    let old = confirmed(&db, "north.light", 6, 24).await;
    let fresh = confirmed(&db, "default", 1, 29).await;
    let (found, code) = findings(&db.writer_url(), &[]).await;
    assert_eq!((code, problems(&found)), (1, 3), "{found:#?}");
    let listed: Vec<&str> = found.iter().filter_map(|finding| finding["details"]["proposal_id"].as_str()).collect();
    assert_eq!(listed, [&old, &older, &oldest], "the newest first, and not {fresh}");
    let says = "delete_package of account north.light is confirmed for 6 minutes and not executed";
    let stuck = finding(&found, "problem", "proposals", says);
    let (message, details) = (stuck["message"].as_str().unwrap(), &stuck["details"]);
    assert!(message.contains(&old) && message.contains("by anna"), "{message}");
    for (key, expected) in [
        ("account_id", "north.light"),
        ("tool_name", "delete_package"),
        ("status", "confirmed"),
        ("decided_by", "anna"),
    ] {
        assert_eq!(details[key], expected, "{details}");
    }
    assert!(details["created_at"].is_string() && details["decided_at"].is_string(), "{details}");
    let over = finding(&found, "problem", "proposals", &oldest);
    assert!(over["advice"].as_str().unwrap().starts_with("its time is over"), "{over}");
    let lately = finding(&found, "warning", "proposals", "3 confirmed within the last hour, without an end yet");
    assert_eq!(lately["details"], json!({"confirmed_last_hour": 3}));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_stuck_writes_the_newest_are_listed_and_all_are_counted() {
    let db = database().await;
    for _ in 0..21 {
        confirmed(&db, "default", 10, 10).await;
    }
    let (found, _) = findings(&db.writer_url(), &[]).await;
    assert_eq!(problems(&found), 21, "20 of them, and the count");
    finding(
        &found,
        "problem",
        "proposals",
        "21 proposals are confirmed for more than 5 minutes; the newest 20 are listed",
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_pending_proposals_and_unsealed_records() {
    let db = database().await;
    insert_failed_records(&db, 3, 1).await;
    let server = Server::studio(&db).await;
    server.succeed("delete_package_photo", json!({"package_id": 1, "photo_id": 1})).await;
    db.first_value("select 1 from countersign.leaf where record_id is not null").await;
    server.close().await;
    let (found, code) = findings(&db.writer_url(), &[]).await;
    assert_eq!((code, problems(&found)), (0, 0), "{found:#?}");
    finding(&found, "ok", "proposals", "1 of tier confirm wait for somebody to decide; the next one expires at 20");
    finding(&found, "ok", "log", "what was final 10 minutes ago is sealed");

    insert_failed_records(&db, 2, 1).await;
    let (found, _) = findings(&db.writer_url(), &[]).await;
    let unsealed = finding(&found, "warning", "log", "2 final records are not sealed, the oldest since 20");
    assert!(unsealed["advice"].as_str().unwrap().contains("countersign audit seal"), "{unsealed}");
    audit(&db, &["seal"]).await;
    finding(&findings(&db.writer_url(), &[]).await.0, "ok", "log", "is sealed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_can_do_too_much_or_too_little_is_named() {
    let db = database().await;
    let (found, code) = findings(&db.url(), &["--read-url", &db.url()]).await;
    assert_eq!((code, problems(&found)), (1, 1), "{found:#?}");
    finding(&found, "warning", "roles", "this was asked as \"postgres\", which is a superuser");
    finding(
        &found,
        "problem",
        "roles",
        "query_database is not served: the reader logs in as \"postgres\", which is a superuser",
    );
    let (found, code) = findings(&db.url(), &["--read-url", &db.url(), "--allow-privileged-reader"]).await;
    assert_eq!((code, problems(&found)), (0, 0), "{found:#?}");
    let nobody = db.url_as("nobody_of_this_name");
    let (found, code) = findings(&db.writer_url(), &["--read-url", &nobody]).await;
    assert_eq!(code, 1);
    finding(&found, "problem", "roles", "the reader cannot log in: ");

    // Every login of doctor sees the logins of all servers.
    let second = format!("second_{}", db.name());
    run_countersign(&db.url(), &["init", "--writer", &second]).await.succeeded();
    db.run(&format!("grant countersign_approver to {second}")).await;
    let says = format!("servers log in as \"{second}\", which may approve what its agents propose");
    let (found, code) = findings(&db.writer_url(), &[]).await;
    assert_eq!(code, 0);
    finding(&found, "warning", "roles", &says);
    finding(&found, "ok", "roles", "servers log in as \"countersign_writer\"");
    let (found, code) = findings(&db.writer_url(), &["--strict-roles"]).await;
    assert_eq!(code, 1);
    finding(&found, "problem", "roles", &format!("{says}; strict_roles refuses that"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_connection_or_a_matching_ledger_doctor_explains_the_remedy() {
    let (found, code) = findings("host=/nowhere user=me dbname=shop", &[]).await;
    assert_eq!((found.len(), code), (1, 1));
    finding(&found, "problem", "connection", "/nowhere");
    let empty = Database::empty("doctor_without_a_ledger").await;
    let (found, code) = findings(&empty.url(), &["--manifest", "shop.toml"]).await;
    assert_eq!((found.len(), code), (2, 1), "{found:#?}");
    finding(&found, "problem", "ledger", "run `countersign init` on it first");
    let db = database().await;
    db.run("update countersign.schema_history set version = version + 1000 where version = (select max(version) from countersign.schema_history)").await;
    let (found, code) = findings(&db.writer_url(), &[]).await;
    assert_eq!((found.len(), code), (2, 1), "{found:#?}");
    finding(&found, "problem", "ledger", "use a newer countersign");
    let ran = doctor("", &[]).await;
    assert!(ran.code == 1 && ran.err.contains("no database is configured"), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_every_mistake_of_the_manifests() {
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wrong.toml");
    let text = std::fs::read_to_string(repository().join("manifests/studio.toml")).unwrap();
    std::fs::write(&path, text.replace("from studio.package where", "from studio.parcel where")).unwrap();
    let (found, code) = findings(&db.writer_url(), &["--manifest", path.to_str().unwrap()]).await;
    assert!(code == 1 && problems(&found) > 2, "{found:#?}");
    for place in ["tool upsert_package: before: ", "tool upsert_package: after: ", "tool delete_package: sql: "] {
        finding(&found, "problem", "manifests", &format!("{place}relation \"studio.parcel\" does not exist"));
    }
    std::fs::write(&path, text.replace("executor = \"delete_package_photo\"", "executor = \"no_such_executor\""))
        .unwrap();
    let (found, code) = findings(&db.writer_url(), &["--manifest", path.to_str().unwrap()]).await;
    assert_eq!((code, problems(&found)), (1, 1), "{found:#?}");
    finding(&found, "problem", "manifests", "no_such_executor");
    let missing = folder.path().join("missing.toml");
    let (found, code) = findings(&db.writer_url(), &["--manifest", missing.to_str().unwrap()]).await;
    assert_eq!((code, problems(&found)), (1, 1), "{found:#?}");
    finding(&found, "problem", "manifests", "missing.toml cannot be read");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_altered_record_is_found_among_the_newest_and_what_was_not_compared_is_named() {
    let db = database().await;
    let none = findings(&db.writer_url(), &[]).await.0;
    finding(&none, "unchecked", "log", "whether records were altered: none is sealed yet");
    finding(&none, "unchecked", "keys", "none ran within the last 2 minutes");
    for _ in 0..3 {
        insert_failed_records(&db, 600, 0).await;
        audit(&db, &["seal"]).await;
    }
    let (sound, code) = findings(&db.writer_url(), &[]).await;
    assert_eq!((code, problems(&sound)), (0, 0), "{sound:#?}");
    finding(
        &sound,
        "ok",
        "log",
        "the newest 1000 sealed records are what was sealed (1802 entries in the log, 0 pruned since)",
    );
    finding(&sound, "unchecked", "log", "records before these");
    tamper(&db, "update countersign.record set account_id = 'other' where id = 5").await;
    assert_eq!(problems(&findings(&db.writer_url(), &[]).await.0), 0, "it is not among the newest");
    tamper(&db, "update countersign.record set account_id = 'other' where id = 1000").await;
    let (altered, code) = findings(&db.writer_url(), &[]).await;
    assert_eq!((code, problems(&altered)), (1, 1), "{altered:#?}");
    finding(&altered, "problem", "log", "the ledger was altered: record 1000 (correlation id ");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_servers_with_different_fingerprint_keys() {
    let db = database().await;
    let server = async |key: &str| Server::with(&db, |it| it.env("COUNTERSIGN_FINGERPRINT_KEY", key)).await;
    let keys = "select count(*) from countersign.fingerprint_key";
    let with = async |key: &'static str| findings(&db.writer_url(), &["--fingerprint-key", key]).await.0;
    let first = server("the key of the servers").await;
    db.until_value(keys, "1").await;
    finding(&with("the key of the servers").await, "ok", "keys", "all servers have the fingerprint key");
    finding(
        &with("the key of somebody else").await,
        "warning",
        "keys",
        "another fingerprint key than this configuration",
    );
    let second = server("the key of one server").await;
    db.until_value(keys, "2").await;
    finding(&with("the key of the servers").await, "problem", "keys", "the servers have 2 different fingerprint keys");
    let stored = db.rows("select key_id from countersign.fingerprint_key").await.concat().join(" ");
    assert!(stored.len() == 33 && !stored.contains("key"), "ids, and no keys: {stored}");
    first.close().await;
    second.close().await;
}
