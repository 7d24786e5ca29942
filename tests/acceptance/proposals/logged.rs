//! Log records of approved proposals: the account, the proposal and the outcome, without any value.

use std::process::Stdio;

use serde_json::{Value, json};
use testkit::{RawStdioServer, Server, database};

use super::{agreement, approve, id};

/// From when `public.refusal` has a row, the writes fail, with a value of theirs in the error.
const QUOTE: &str = "create table public.refusal (why text); grant select on public.refusal to public; \
    create function public.quote() returns trigger language plpgsql as $$ begin \
    if exists (select from public.refusal) then raise exception 'not %', to_jsonb(old) ->> tg_argv[0]; end if; \
    return coalesce(new, old); end $$; \
    create trigger quote before update on studio.package_photo for each row execute function public.quote('caption'); \
    create trigger quote before delete on studio.package for each row execute function public.quote('title')";

async fn propose(server: &mut RawStdioServer, tool: &str, arguments: Value) -> Value {
    let envelope = server.call(tool, arguments).await;
    assert_eq!(envelope["data"]["requires_approval"], true, "{envelope}");
    envelope["data"]["proposal"].clone()
}

/// The one line that holds all of this.
fn line<'l>(log: &'l str, parts: &[&str]) -> &'l str {
    let found: Vec<&str> = log.lines().filter(|line| parts.iter().all(|part| line.contains(part))).collect();
    let &[line] = found.as_slice() else { panic!("one line with {parts:?}, not {found:?}: {log}") };
    line
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_has_account_proposal_and_outcome_but_no_value() {
    let db = database().await;
    db.run("update studio.package_photo set caption = 'hunter2'; update studio.package set title = 'hunter2' where package_id = 3")
        .await;
    db.run(QUOTE).await;
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = Server::studio_command(&db);
    command.args(["--log", "info"]);
    let mut server = RawStdioServer::logging(command, Stdio::from(log.reopen().unwrap()), "2025-06-18").await;
    let photo = |photo_id: i64| json!({"package_id": 1, "photo_id": photo_id});
    let good = propose(&mut server, "delete_package_photo", photo(1)).await;
    let done = server.call("confirm_proposal", agreement(&good)).await;
    let bad = propose(&mut server, "delete_package_photo", photo(2)).await;
    let approved = propose(&mut server, "delete_package", json!({"package_id": 3})).await;

    // The photo is deleted, and the next one cannot move up: both stay, and the agent gets the reason.
    db.run("insert into public.refusal values ('for now')").await;
    let photos = "select photo_id, position from studio.package_photo where package_id = 1 order by position";
    assert_eq!(db.rows(photos).await, [["2", "1"], ["3", "2"]]);
    let failed = server.call("confirm_proposal", agreement(&bad)).await;
    assert_eq!(failed["error"]["code"], "sql_error", "{failed}");
    assert_eq!((&failed["error"]["sqlstate"], &failed["error"]["message"]), (&json!("P0001"), &json!("not hunter2")));
    assert_eq!(db.rows(photos).await, [["2", "1"], ["3", "2"]]);
    // What a person approves is carried out by whichever server finds it.
    assert_eq!(approve(&db, &approved).await, "done");
    let is_over = |proposal: &Value| {
        format!(
            "select error_message from countersign.proposal where proposal_id = '{}' and status = 'failed'",
            id(proposal)
        )
    };
    assert_eq!(db.first_value(&is_over(&approved)).await, "not hunter2");
    assert!(server.close().await);

    let log = std::fs::read_to_string(log.path()).unwrap();
    let [done, failed] = [&done, &failed].map(|envelope| envelope["meta"]["correlation_id"].as_str().unwrap());
    let whose = ["tool=\"delete_package_photo\"", "account=\"default\""];
    for proposal in [&good, &bad] {
        line(&log, &["executing", id(proposal), whose[0], whose[1]]);
    }
    line(&log, &["executed", done, whose[0], whose[1], "rows_affected=3"]);
    line(&log, &["failed", failed, whose[0], whose[1], "sql_error"]);
    line(&log, &["was not executed", id(&approved), "sql_error", "P0001"]);
    assert!(!log.contains("hunter2"), "{log}");
}
