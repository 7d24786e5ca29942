//! Changes of definitions: an agent proposes them as text, a person carries them out, and what happened is on record whatever happens
//! to the process.

use std::process::Stdio;

use nix::sys::signal::Signal;
use nix::unistd::{Uid, User};
use serde_json::{Value, json};
use testkit::{CommandOutput, Database, Server, config_home, countersign, database, run_countersign, send_signal};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use crate::console::Console;
use crate::hospital::hospital;

mod ends;
mod impact;

async fn schema(url: &str, arguments: &[&str]) -> CommandOutput {
    run_countersign(url, &[&["schema"], arguments].concat()).await
}

/// A server whose agent may propose schema changes.
async fn server(db: &Database, account: &str) -> Server {
    Server::bare_with(db, |it| it.args(["--profile", "admin", "--account", account])).await
}

/// Proposes a change; its id.
async fn propose(server: &Server, sql: &str) -> String {
    let answer = server.succeed("propose_schema_change", json!({"sql": sql, "reason": "the wards asked for it"})).await;
    assert_eq!(answer["data"]["status"], "pending", "{answer}");
    answer["data"]["proposal_id"].as_str().unwrap().to_owned()
}

/// The change as `schema show --json` has it.
async fn stored(db: &Database, id: &str) -> Value {
    let shown = schema(&db.url(), &["show", id, "--try", "--json"]).await.succeeded();
    serde_json::from_str(&shown.out).unwrap()
}

async fn status(db: &Database, id: &str) -> String {
    db.value(&format!("select status from countersign.schema_change where change_id = '{id}'")).await
}

/// The number of its ended steps.
async fn steps(db: &Database, id: &str) -> String {
    db.value(&format!("select ended_steps from countersign.schema_change where change_id = '{id}'")).await
}

/// A small schema whose table is tracked, and written by the servers' login.
async fn ward() -> Database {
    let db = database().await;
    db.run(
        "create schema ward; create table ward.bed (id int primary key, label text not null);
         insert into ward.bed select g, 'B' || g from generate_series(1, 50) g; grant usage on schema ward to public;
         grant select on ward.bed to public",
    )
    .await;
    db
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_wrote_runs_only_once_a_person_has_read_it() {
    let db = ward().await;
    db.run("create sequence ward.ran").await;
    let server = server(&db, "agent").await;
    // A sequence is not rolled back, as a file that COPY TO PROGRAM writes is not.
    let id = propose(&server, "select nextval('ward.ran')").await;
    let has_run = async || db.value("select is_called from ward.ran").await;
    let shown = schema(&db.url(), &["show", &id]).await.succeeded().out;
    assert!(shown.contains("nextval('ward.ran')") && !shown.contains("rolled back"), "{shown}");
    let unasked = schema(&db.url(), &["apply", &id]).await;
    assert!(unasked.code == 1 && unasked.out.contains("nextval('ward.ran')"), "{unasked:?}");
    assert_eq!(has_run().await, "f");
    assert!(schema(&db.url(), &["show", &id, "--try"]).await.succeeded().out.contains("now, and rolled back"));
    assert_eq!(has_run().await, "t");
}

/// An owner of the ledger, who is no superuser, writes another text into a stored change.
async fn alter_as_owner(db: &Database, owner: &str, id: &str, sql: &str, also: &str) {
    let alter = format!(
        "begin; set local role countersign_owner; alter table countersign.schema_change disable trigger user;
         update countersign.schema_change set sql = '{}' where change_id = '{id}'; {also}
         alter table countersign.schema_change enable trigger user; commit",
        sql.replace('\'', "''")
    );
    testkit::connect(owner).await.batch_execute(&alter).await.unwrap();
    assert_eq!(db.value(&format!("select sql from countersign.schema_change where change_id = '{id}'")).await, sql);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_was_altered_in_the_database_is_not_shown_and_does_not_run() {
    let db = ward().await;
    db.run("create sequence ward.ran").await;
    let owner = db.login("keeper", "countersign_owner").await;
    let agent = server(&db, "agent").await;
    let id = propose(&agent, "create table ward.a (id int)").await;
    let other = propose(&agent, "create table ward.b (id int)").await;
    let digest = stored(&db, &id).await["digest"].as_str().unwrap().to_owned();
    // A sequence is not rolled back, as the program of a COPY is not.
    let evil = "select nextval('ward.ran')";
    alter_as_owner(&db, &owner, &id, evil, "").await;
    for arguments in [
        &["show", &id][..],
        &["show", &id, "--json"],
        &["show", &id, "--try"],
        &["apply", &id, "--digest", &digest],
        &["apply", &id, "--yes"],
        &["apply", &id, "--yes", "--no-try"],
        &["list"],
        &["list", "--json"],
    ] {
        let said = schema(&db.url(), arguments).await;
        assert_eq!(said.code, 1, "{arguments:?}: {said:?}");
        assert!(
            said.err.contains(&format!("schema change {id} was altered in the database")),
            "{arguments:?}: {said:?}"
        );
        assert!(said.err.contains(&format!("and {digest} was proposed")), "{arguments:?}: {said:?}");
        assert!(!said.out.contains("nextval"), "{arguments:?}: {said:?}");
        // The list has the others.
        assert_eq!(said.out.contains(&other[..8]), arguments[0] == "list", "{arguments:?}: {said:?}");
    }
    let console = Console::on(&db).await;
    let mut anna = console.browser(&db, "anna", &[]).await;
    let page = anna.get(&format!("/schema-changes/{id}")).await.body;
    assert!(page.contains("was altered in the database") && !page.contains("nextval"), "{page}");
    let inbox = anna.get("/").await.body;
    assert!(inbox.contains(&format!("schema change {id} was altered")) && inbox.contains(&other), "{inbox}");
    agent.fail("get_proposal", json!({"proposal_id": id}), "digest_mismatch").await;
    // An owner who makes the digest of the new text as well has another digest than a person has looked at.
    let sealed = format!(
        "update countersign.schema_change c set digest = countersign.schema_change_digest(c) where change_id = '{id}';"
    );
    alter_as_owner(&db, &owner, &id, evil, &sealed).await;
    let refused = schema(&db.url(), &["apply", &id, "--digest", &digest]).await;
    assert!(refused.code == 1 && refused.err.contains("what you looked at is not what is stored"), "{refused:?}");
    assert_eq!(db.value("select is_called from ward.ran").await, "f");
    assert_eq!(status(&db, &id).await, "pending");
    // It can be rejected, whatever its text is.
    alter_as_owner(&db, &owner, &id, "select 2", "").await;
    assert!(schema(&db.url(), &["reject", &id]).await.succeeded().out.contains("nothing was changed"));
    assert_eq!(status(&db, &id).await, "rejected");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_proposes_and_a_person_carries_out_with_tracking_renewed() {
    let Some((db, manifest)) = hospital().await else { return };
    let mut command = manifest.command(&db);
    command.args(["--profile", "admin", "--account", "agent"]);
    let server = Server::start(command).await;
    let written = server.succeed("change_prescription", json!({"id": 1, "times": 4, "note": "after meals"})).await;
    let sql = "alter table hospital.prescription add column \"Reviewed By\" text;\n\
               comment on column hospital.prescription.\"Reviewed By\" is 'Who looked at it; twice.';";
    // The login of the server has no right on definitions.
    let refused = testkit::connect(&db.writer_url()).await.batch_execute(sql).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "42501");
    let id = propose(&server, sql).await;
    assert_eq!(propose(&server, sql).await, id, "the same text that waits");
    let listed = run_countersign(&db.url(), &["proposals", "list"]).await.succeeded().out;
    assert!(listed.contains("1 schema change waits: countersign schema list"), "{listed}");
    let other = run_countersign(&db.url(), &["proposals", "show", &id]).await;
    assert!(other.code == 1 && other.err.contains("countersign schema show"), "{other:?}");
    assert!(schema(&db.url(), &["list"]).await.succeeded().out.contains("the wards asked for it"));

    let unasked = schema(&db.url(), &["apply", &id]).await;
    assert!(unasked.code == 1 && unasked.err.contains("--digest"), "{unasked:?}");
    assert_eq!(status(&db, &id).await, "pending");
    let digest = stored(&db, &id).await["digest"].as_str().unwrap().to_owned();
    let applied = schema(&db.url(), &["apply", &id, "--digest", &digest]).await.succeeded().out;
    for part in
        ["ACCESS EXCLUSIVE blocks reads and writes", "step 1 ended", "tracked  hospital.prescription", "Applied."]
    {
        assert!(applied.contains(part), "{part} is missing: {applied}");
    }
    assert_eq!(steps(&db, &id).await, "1");
    let found = server.succeed("get_proposal", json!({"proposal_id": id})).await;
    assert_eq!((&found["data"]["status"], &found["data"]["ended_steps"]), (&json!("applied"), &json!(1)), "{found}");
    // Tracking has the new shape before any write: the receipts of both sides of the change come true.
    assert_eq!(
        db.value("select columns::text ~ 'Reviewed By' from countersign.tracked where is_current and name = 'hospital.prescription'")
            .await,
        "t"
    );
    let undo = written["meta"]["rollback"]["undo_params"].clone();
    server.succeed("undo_mutation", undo).await;
    // Begin and end are entries of the log, with the reason in their part.
    assert_eq!(
        db.rows("select fields[8], fields[12], reason from countersign.event where kind = 'schema_change' order by id")
            .await,
        [["begun", "0", "the wards asked for it"], ["applied", "1", "NULL"]]
    );
    run_countersign(&db.url(), &["audit", "seal"]).await.succeeded();
    run_countersign(&db.url(), &["audit", "verify"]).await.succeeded();
    let again = schema(&db.url(), &["apply", &id, "--yes"]).await;
    assert!(again.code == 1 && again.err.contains("applied"), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_carries_a_file_out_with_the_rights_of_the_own_login_only() {
    let db = ward().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("change.sql");
    std::fs::write(&file, "alter table ward.bed add column \"Höhe\" int;").unwrap();
    let file = file.to_str().unwrap();
    let arguments = ["apply", file, "--reason", "beds differ", "--yes"];
    // A login that may decide, and does not own the table.
    let approver = db.login("clerk", "countersign_approver").await;
    let refused = schema(&approver, &arguments).await;
    assert!(refused.code == 1 && refused.err.contains("must be owner"), "{refused:?}");
    // One that may not decide.
    db.run("create role plain_owner login; grant plain_owner to postgres").await;
    let refused = schema(&db.url_as("plain_owner"), &arguments).await;
    assert!(refused.code == 1 && refused.err.contains("countersign_approver"), "{refused:?}");
    assert_eq!(db.value("select count(*) from countersign.schema_change").await, "0");
    // The owner of the table, who is no member of the ledger's owner: the next write renews the tracking.
    run_countersign(&db.url(), &["track", "ward.bed"]).await.succeeded();
    let owner = db.login("owner", "countersign_approver").await;
    db.run(&format!("alter table ward.bed owner to owner_{0}; grant create on schema ward to owner_{0}", db.name()))
        .await;
    let applied = schema(&owner, &arguments).await.succeeded().out;
    assert!(applied.contains("Applied.") && applied.contains("their next write renews it"), "{applied}");
    let row = db.rows("select origin, account_id = decided_login, reason, status from countersign.schema_change").await;
    assert_eq!(row, [["command_line", "t", "beds differ", "applied"]]);
    let id = db.value("select change_id from countersign.schema_change").await;
    let shown = schema(&owner, &["show", &id, "--try"]).await.succeeded().out;
    assert!(shown.contains("Höhe") && shown.contains("ended"), "{shown}");
    db.run("drop role plain_owner").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_shown_is_what_is_carried_out_by_somebody_else() {
    let db = ward().await;
    let agent = server(&db, "agent").await;
    let id = propose(&agent, "alter table ward.bed add column a text").await;
    let other = "0".repeat(64);
    let refused = schema(&db.url(), &["apply", &id, "--digest", &other]).await;
    assert!(refused.code == 1 && refused.err.contains(&other), "{refused:?}");
    let alter = format!("update countersign.schema_change set sql = 'drop table ward.bed' where change_id = '{id}'");
    db.run(&format!("begin; set local session_replication_role = replica; {alter}; commit")).await;
    let refused = schema(&db.url(), &["apply", &id, "--yes"]).await;
    assert!(refused.code == 1 && refused.err.contains("altered"), "{refused:?}");
    assert_eq!(db.value("select count(*) from ward.bed").await, "50");
    // Nobody carries out what they have proposed themselves.
    let me = User::from_uid(Uid::effective()).unwrap().unwrap().name;
    let own = server(&db, &me.to_ascii_uppercase()).await;
    let id = propose(&own, "alter table ward.bed add column b text").await;
    let refused = schema(&db.url(), &["apply", &id, "--yes"]).await;
    assert!(refused.code == 1 && refused.err.contains("nobody carries out their own"), "{refused:?}");
    assert_eq!(status(&db, &id).await, "pending");
    // Of another account an agent sees nothing.
    agent.fail("get_proposal", json!({"proposal_id": id}), "not_found").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_change_is_never_carried_out_and_the_agent_reads_why() {
    let db = ward().await;
    let agent = server(&db, "agent").await;
    let id = propose(&agent, "drop table ward.bed").await;
    schema(&db.url(), &["reject", &id, "--reason", "beds are needed"]).await.succeeded();
    let found = agent.succeed("get_proposal", json!({"proposal_id": id})).await;
    assert_eq!(found["data"]["status"], "rejected", "{found}");
    assert_eq!(found["data"]["decision_reason"], "beds are needed", "{found}");
    let refused = schema(&db.url(), &["apply", &id, "--yes"]).await;
    assert!(refused.code == 1 && refused.err.contains("rejected"), "{refused:?}");
    assert_eq!(db.value("select count(*) from ward.bed").await, "50");
    assert_eq!(
        db.value("select fields[8] || ' ' || reason from countersign.event where kind = 'schema_change'").await,
        "rejected beds are needed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_console_lists_what_waits_and_says_who_can_carry_it_out() {
    let db = ward().await;
    let agent = server(&db, "agent").await;
    let sql = "alter table ward.bed add column \"<b>x</b>\" int;\ncreate index concurrently on ward.bed (label);";
    let id = propose(&agent, sql).await;
    let console = Console::on(&db).await;
    let mut anna = console.browser(&db, "anna", &[]).await;
    let inbox = anna.get("/").await.body;
    assert!(inbox.contains("the wards asked for it") && inbox.contains(&format!("/schema-changes/{id}")), "{inbox}");
    let page = anna.get(&format!("/schema-changes/{id}")).await.body;
    let command = format!("countersign schema apply {id}");
    for part in ["alone, outside of a transaction: not begun", "has no rights on tables", command.as_str()] {
        assert!(page.contains(part), "{part} is missing: {page}");
    }
    assert!(!page.contains("<b>x</b>"), "{page}");
    schema(&db.url(), &["apply", &id, "--yes"]).await.succeeded();
    let page = anna.get(&format!("/schema-changes/{id}")).await.body;
    assert!(page.contains("applied") && page.contains(": ended</li>") && !page.contains(&command), "{page}");
    assert!(!anna.get("/").await.body.contains(&id));
    let nothing = anna.get("/schema-changes/0b9f7c52-6d3e-4a57-9b0a-1f2e3d4c5b6a").await;
    assert_eq!(nothing.status, 404, "{}", nothing.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_text_is_refused_or_changes_nothing() {
    let db = ward().await;
    let agent = server(&db, "agent").await;
    for (sql, word) in [
        ("alter table ward.bed add a int; commit; drop table ward.bed", "transaction"),
        ("set role postgres; drop table ward.bed", "role"),
        ("\\! id", "psql"),
        ("select 1 -- \u{202e}", "U+202E"),
        ("select '\u{1b}[2J'", "U+001B"),
        ("copy ward.bed from stdin", "COPY"),
        ("alter tabel ward.bed", "syntax"),
    ] {
        let error = agent.fail("propose_schema_change", json!({"sql": sql, "reason": "r"}), "invalid_params").await;
        assert!(error["message"].as_str().unwrap().contains(word), "{sql}: {error}");
    }
    let long = format!("select '{}'", "x".repeat(70_000));
    agent.fail("propose_schema_change", json!({"sql": long, "reason": "r"}), "invalid_params").await;
    agent.fail("propose_schema_change", json!({"sql": "select 1", "reason": " "}), "invalid_params").await;
    // What only PostgreSQL knows fails when it is carried out, as a whole. --no-try begins it nevertheless.
    let victim = propose(&agent, "create table ward.victim (id int)").await;
    let begin = format!("select countersign.begin_decision('{victim}')");
    let count = format!("select countersign.note_schema_step('{victim}', 1)");
    let forged = format!("update countersign.schema_change set ended_steps = 1 where change_id = '{victim}'");
    for (sql, word) in [
        ("alter table ward.bed add a int; do $$ begin commit; end $$", "invalid transaction termination"),
        (begin.as_str(), "not for the statements of a write"),
        (count.as_str(), "one after the other"),
        (forged.as_str(), "is pending, and cannot become pending"),
        ("alter table ward.bed add a int; drop trigger protect_record on countersign.record", "the ledger's record"),
    ] {
        let id = propose(&agent, sql).await;
        let failed = schema(&db.url(), &["apply", &id, "--yes", "--no-try"]).await;
        assert!(failed.code == 1 && failed.err.contains(word), "{sql}: {failed:?}");
        assert_eq!(status(&db, &id).await, "failed", "{sql}");
        assert_eq!(steps(&db, &id).await, "0", "{sql}");
    }
    assert_eq!(db.value("select string_agg(attname, ' ' order by attnum) from pg_attribute where attrelid = 'ward.bed'::regclass and attnum > 0").await, "id label");
    assert_eq!(db.value("select count(*) from pg_trigger where tgname = 'protect_record'").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_code_of_a_text_gives_a_role_changes_the_role_or_touches_the_ledger() {
    let db = ward().await;
    let agent = server(&db, "agent").await;
    let writer = db.value("select role_name from countersign.writer_login").await;
    db.run(&format!(
        "create function ward.promote() returns void language plpgsql as
             $$ begin execute 'grant countersign_approver to {writer}'; end $$"
    ))
    .await;
    let role = "it changes the role in which the text runs";
    let grant = format!("do $$ begin grant countersign_approver to {writer}; end $$");
    let create = "do $$ begin execute 'create role \"ward boss\" superuser'; end $$";
    let setting = format!("do $$ begin alter role {writer} set search_path = ward; end $$");
    let expose = format!("grant update on countersign.schema_change to {writer}");
    let expose_in_code = format!("do $$ begin grant update on countersign.schema_change to {writer}; end $$");
    let forge = "alter table countersign.event disable trigger user; delete from countersign.event; \
                 alter table countersign.event enable trigger user";
    for (sql, word) in [
        (grant.as_str(), "it changes pg_auth_members, which all databases share"),
        ("select ward.promote()", "it changes pg_auth_members, which all databases share"),
        (create, "it changes pg_authid, which all databases share"),
        (setting.as_str(), "it changes pg_db_role_setting, which all databases share"),
        (expose.as_str(), "it grants UPDATE on table countersign.\"schema_change\""),
        (expose_in_code.as_str(), "it grants UPDATE on table countersign.\"schema_change\""),
        (forge, "it changes the ledger's event"),
        (
            "create or replace function countersign.sweep_marker() returns int language sql as 'select 1'",
            "sweep_marker",
        ),
        ("do $$ begin execute 'set role pg_monitor'; end $$; select 1", role),
        ("do $$ begin perform set_config('ro' || 'le', 'pg_monitor', false); end $$", role),
        ("do $$ begin execute 'set session authorization pg_monitor'; end $$", role),
        ("set U&\"\\0072ole\" = 'pg_monitor'", role),
    ] {
        let id = propose(&agent, &format!("create table ward.new (id int);\n{sql}")).await;
        let tried = schema(&db.url(), &["show", &id, "--try"]).await.succeeded().out;
        assert!(tried.contains("fails") && tried.contains(word), "{sql}: {tried}");
        let refused = schema(&db.url(), &["apply", &id, "--yes"]).await;
        assert!(refused.code == 1 && refused.err.contains(word), "{sql}: {refused:?}");
        assert_eq!(status(&db, &id).await, "pending", "{sql}");
        // Untried it is refused as well, and nothing of it stays.
        let refused = schema(&db.url(), &["apply", &id, "--yes", "--no-try"]).await;
        assert!(refused.code == 1 && refused.err.contains(word), "{sql}: {refused:?}");
        assert_eq!(status(&db, &id).await, "failed", "{sql}");
        assert_eq!(db.value("select to_regclass('ward.new') is null").await, "t", "{sql}");
    }
    assert_eq!(db.value(&format!("select pg_has_role('{writer}', 'countersign_approver', 'member')")).await, "f");
    assert_eq!(db.value("select count(*) from pg_roles where rolname = 'ward boss'").await, "0");
    // What belongs to the database is none of this: owners, policies, privileges, and writes to a tracked table.
    run_countersign(&db.url(), &["track", "ward.bed"]).await.succeeded();
    let id = propose(
        &agent,
        &format!(
            "alter table ward.bed enable row level security; create policy p on ward.bed to {writer} using (true);
             grant select on ward.bed to {writer}; alter default privileges in schema ward grant select on tables to {writer};
             update ward.bed set label = 'B'; alter table ward.bed owner to pg_monitor; alter table ward.bed owner to postgres"
        ),
    )
    .await;
    let applied = schema(&db.url(), &["apply", &id, "--yes"]).await.succeeded().out;
    assert!(applied.contains("Applied."), "{applied}");
}

#[tokio::test(flavor = "multi_thread")]
async fn comments_and_words_of_two_scripts_are_shown_wherever_the_text_is() {
    let db = ward().await;
    let agent = server(&db, "agent").await;
    let sql = "-- agreed with the wards\ncreate table ward.s\u{441} (id int); -- not ward.sc\n\
               create index concurrently on ward.s\u{441} (id);\n/* the end */";
    let answer = agent.succeed("propose_schema_change", json!({"sql": sql, "reason": "r"})).await;
    let warning = "\"s\\u{441}\" mixes Latin and Cyrillic letters in one word; it may look like another name.";
    assert!(answer["data"]["findings"].to_string().contains("mixed-scripts"), "{answer}");
    let id = answer["data"]["proposal_id"].as_str().unwrap();
    for arguments in [&["show", id][..], &["apply", id, "--yes"]] {
        let shown = schema(&db.url(), arguments).await.succeeded().out;
        for part in ["-- agreed with the wards", "-- not ward.sc", "/* the end */", &format!("line 2: {warning}")] {
            assert!(shown.contains(part), "{part} is missing: {shown}");
        }
    }
    let console = Console::on(&db).await;
    let page = console.browser(&db, "anna", &[]).await.get(&format!("/schema-changes/{id}")).await.body;
    assert!(page.contains("agreed with the wards") && page.contains("mixes Latin and Cyrillic"), "{page}");
}

/// A command that runs, and its lines.
struct Running {
    child: Child,
    out: Lines<BufReader<ChildStdout>>,
    err: Lines<BufReader<ChildStderr>>,
}

impl Running {
    fn apply(db: &Database, id: &str, options: &[&str]) -> Self {
        let mut command = Command::new(countersign());
        command.env("DATABASE_URL", db.url()).env("XDG_CONFIG_HOME", config_home()).kill_on_drop(true);
        command.args(["--log", "warn", "schema", "apply", id, "--yes", "--no-try"]).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap()).lines();
        let err = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, out, err }
    }

    /// Reads up to a line of standard output with this text.
    async fn until_out(&mut self, text: &str) {
        while let Some(line) = self.out.next_line().await.unwrap() {
            if line.contains(text) {
                return;
            }
        }
        panic!("no line has {text}: {:?}", self.rest().await);
    }

    async fn until_err(&mut self, text: &str) {
        while let Some(line) = self.err.next_line().await.unwrap() {
            if line.contains(text) {
                return;
            }
        }
        panic!("no line has {text}");
    }

    fn signal(&self, signal: Signal) {
        send_signal(self.child.id().unwrap(), signal);
    }

    /// What it still says on standard error, and its exit code.
    async fn rest(&mut self) -> (String, Option<i32>) {
        let mut said = String::new();
        while let Some(line) = self.err.next_line().await.unwrap() {
            said.push_str(&line);
        }
        (said, self.child.wait().await.unwrap().code())
    }
}
