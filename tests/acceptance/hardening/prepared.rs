//! A schema `countersign`, or roles of its names, that another user has prepared.

use testkit::{Database, database};

use super::{named, refused, run_as, succeed};

/// A database of a user who is no superuser; the user.
async fn owned_database(name: &str) -> (Database, String) {
    let db = Database::empty(name).await;
    let owner = named(&db, "owner");
    db.run(&format!("create role {owner} login; alter database {name} owner to {owner}")).await;
    (db, owner)
}

/// Whether the role became a superuser.
async fn is_superuser(db: &Database, role: &str) -> bool {
    db.value(&format!("select rolsuper from pg_roles where rolname = '{role}'")).await == "t"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_of_another_user_is_refused_with_the_names_of_what_is_wrong() {
    // Such objects could make the database's owner a superuser.
    let (db, owner) = owned_database("planted_schema").await;
    run_as(
        &db,
        &owner,
        &format!(
            "create schema countersign;
             create table countersign.schema_history (version int4 primary key, name varchar(255), applied_on varchar(255),
                 checksum varchar(255));
             create function countersign.rise() returns trigger language plpgsql as
                 $$ begin alter role {owner} superuser; return new; end $$;
             create trigger rise before insert on countersign.schema_history
                 for each row execute function countersign.rise();
             create function countersign.steal() returns text language sql security definer as 'select ''stolen''';
             grant all on schema countersign to public; grant all on all tables in schema countersign to public"
        ),
    )
    .await;
    let words = [
        &format!("the schema belongs to the role {owner}"),
        "countersign.schema_history",
        "countersign.steal()",
        "trigger rise",
    ];
    refused(&db.url(), &["init"], &words.map(|word| word as &str)).await;
    refused(&db.url(), &["init", "--dry-run"], &["cannot be trusted"]).await;
    assert!(!is_superuser(&db, &owner).await);
    // Nothing was changed.
    let owners = "select pg_get_userbyid(proowner) from pg_proc where pronamespace = 'countersign'::regnamespace";
    assert_eq!(db.rows(owners).await, [[owner.clone()], [owner]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_another_user_in_the_ledgers_own_schema_are_refused() {
    let (db, owner) = owned_database("planted_objects").await;
    succeed(&db.url(), &["init"]).await;
    db.run(&format!("grant usage, create on schema countersign to {owner}")).await;
    run_as(&db, &owner, "create function countersign.mine() returns int4 language sql as 'select 1'").await;
    refused(&db.url(), &["init"], &["may create objects in the schema", &format!("belongs to the role {owner}")]).await;
    let said = super::run(&db.url(), &["doctor"]).await.0;
    assert!(said.contains("unexpected: function mine()") && said.contains("CREATE on schema countersign"), "{said}");
    run_as(&db, &owner, "drop function countersign.mine()").await;
    db.run(&format!("revoke create on schema countersign from {owner}")).await;

    // What a member of the ledger's owner attaches to a table would run with the rights of the next `init`.
    for (attached, removed, words) in [
        (
            "create function countersign.rise() returns trigger language plpgsql as 'begin return new; end';
             create trigger rise before insert on countersign.writer_login for each row execute function countersign.rise()",
            "drop function countersign.rise() cascade",
            "trigger rise of countersign.writer_login",
        ),
        (
            "create function countersign.rise(name) returns bool language sql as 'select true';
             alter table countersign.writer_login add constraint rise check (countersign.rise(role_name))",
            "drop function countersign.rise(name) cascade",
            "constraint rise of countersign.writer_login uses function",
        ),
        (
            "create function countersign.rise() returns name language sql as 'select null::name';
             alter table countersign.reader_schema alter column schema_name set default countersign.rise()",
            "drop function countersign.rise() cascade",
            "default of countersign.reader_schema uses function",
        ),
        (
            "create rule rise as on insert to countersign.reader_login do also select 1",
            "drop rule rise on countersign.reader_login",
            "rule rise of countersign.reader_login",
        ),
        (
            "create policy rise on countersign.reader_login using (true)",
            "drop policy rise on countersign.reader_login",
            "policy rise of countersign.reader_login",
        ),
    ] {
        db.run(&format!("set role countersign_owner; {attached}")).await;
        refused(&db.url(), &["init"], &[words]).await;
        db.run(&format!("set role countersign_owner; {removed}")).await;
        succeed(&db.url(), &["init"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_what_differs_from_what_this_program_makes() {
    let db = database().await;
    // The triggers of tracked tables have functions in the ledger's schema, and belong to it.
    db.run("select countersign.track('social.tweet')").await;
    succeed(&db.url(), &["init"]).await;
    let well = succeed(&db.writer_url(), &["doctor"]).await;
    assert!(well.contains("are as `countersign init` makes them"), "{well}");
    for (change, words) in [
        (
            "create or replace function countersign.commit_durably() returns void language plpgsql
             set search_path = pg_catalog, pg_temp as 'begin end'",
            "missing or altered: function commit_durably()",
        ),
        (
            "alter function countersign.sweep(interval, integer) reset search_path",
            "missing or altered: function sweep(",
        ),
        (
            "alter function countersign.executable_until(countersign.proposal) security definer",
            "function executable_until(",
        ),
        ("alter table countersign.record disable trigger protect_record", "missing or altered: trigger protect_record"),
        (
            "alter table countersign.reader_login disable row level security",
            "missing or altered: relation reader_login",
        ),
        (
            "grant execute on function countersign.resolve(uuid, bytea, integer, boolean) to public",
            "EXECUTE on function countersign.resolve",
        ),
        ("grant select on countersign.state_key to countersign_approver", "SELECT on table countersign.\"state_key\""),
        ("grant update (status) on countersign.record to countersign_writer", "UPDATE on table countersign.\"record\""),
        (
            "alter table countersign.attempt alter own_transaction set default true",
            "missing or altered: column attempt.own_transaction",
        ),
        (
            "create or replace function countersign.slot_of(account text, tool text, caller_key text, print text, undoes uuid[] default null) \
                 returns bytea language sql stable as 'select null::bytea'",
            "missing or altered: function slot_of",
        ),
        (
            "create or replace view countersign.admission with (security_barrier) as select slot, correlation_id, 'default'::text as \
                 account_id, actor, session_id, client_name, client_version, trace_id, reason, tool_name, fingerprint, idempotency_key, params, \
                 params_summary, undo_of, proposal_id, caller_context from countersign.attempt",
            "missing or altered: relation admission",
        ),
        ("alter table countersign.record drop constraint record_pkey", "constraint record_pkey"),
    ] {
        let db = database().await;
        db.run(change).await;
        let (said, is_well) = super::run(&db.writer_url(), &["doctor"]).await;
        assert!(!is_well && said.contains(words), "{change}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn init_takes_privileges_back_that_it_does_not_grant() {
    let db = database().await;
    db.run(
        "grant execute on function countersign.resolve(uuid, bytea, integer, boolean) to public;
         grant insert, update (status) on countersign.record to countersign_approver;
         grant select on countersign.state_key to countersign_writer;
         revoke execute on function countersign.claim_attempt(uuid, bytea, integer, boolean), countersign.fail(uuid, bytea, text, text, text, json, text)
             from countersign_writer",
    )
    .await;
    let said = succeed(&db.url(), &["init"]).await;
    assert!(
        said.contains("revoked EXECUTE on function countersign.resolve(uuid, bytea, integer, boolean) from public"),
        "{said}"
    );
    assert!(said.contains("revoked SELECT on table countersign.\"state_key\" from countersign_writer"), "{said}");
    let said = succeed(&db.writer_url(), &["doctor"]).await;
    assert!(said.contains("are as `countersign init` makes them"), "{said}");
    let admits = "select has_function_privilege('countersign_writer', \
                  'countersign.claim_attempt(uuid, bytea, integer, boolean)', 'execute')";
    assert_eq!(db.value(admits).await, "t");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_every_form_of_init_no_other_role_may_call_the_ledgers_functions() {
    // Otherwise an auditor with USAGE could end another account's write.
    let public = "select p.oid::regprocedure from pg_proc p where p.pronamespace = 'countersign'::regnamespace \
                  and has_function_privilege('public', p.oid, 'execute') order by 1";
    // Policies of row level security call these with the rights of whoever reads.
    let about_callers = ["countersign.account()", "countersign.claim(text)"].map(|function| vec![function.to_owned()]);
    let (db, owner) = owned_database("without_createrole").await;
    let auditor = named(&db, "auditor");
    let said = succeed(&db.url_as(&owner), &["init"]).await;
    assert!(
        said.contains("may not create roles") && said.contains(&format!("the ledger belongs to {owner}")),
        "{said}"
    );
    assert_eq!(db.rows(public).await, about_callers, "without CREATEROLE");
    db.run(&format!(
        "create role {auditor} login; grant usage on schema countersign to {auditor};
         grant select on countersign.record to {auditor}"
    ))
    .await;
    for call in ["countersign.sweep('0', 1)", "countersign.state_keys()", "countersign.reader_credentials()"] {
        let client = testkit::connect(&db.url_as(&auditor)).await;
        let refused = client.batch_execute(&format!("select {call}")).await.expect_err(call);
        assert_eq!(refused.as_db_error().unwrap().code().code(), "42501", "{call}");
    }

    database().await;
    let (db, owner) = owned_database("with_createrole").await;
    db.run(&format!("alter role {owner} createrole; grant countersign_owner to {owner}")).await;
    succeed(&db.url_as(&owner), &["init"]).await;
    assert_eq!(db.rows(public).await, about_callers, "with CREATEROLE");
    let db = database().await;
    assert_eq!(db.rows(public).await, about_callers, "as a superuser");
    // What an administrator adds to the defaults does not reach the ledger.
    let db = Database::empty("default_privileges").await;
    db.run("alter default privileges grant all on tables to public; alter default privileges grant all on schemas to public")
        .await;
    succeed(&db.url(), &["init"]).await;
    let (said, _) = super::run(&db.writer_url(), &["doctor"]).await;
    assert!(said.contains("are as `countersign init` makes them"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn existing_roles_are_checked_before_they_own_or_approve_anything() {
    // Roles belong to the cluster, so the test has a separate one.
    let db = testkit::lone_database().await;
    let other = db.beside("postgres");
    for (change, back, words) in [
        (
            "alter role countersign_owner login createrole",
            "alter role countersign_owner nologin nocreaterole",
            "the role countersign_owner has LOGIN, CREATEROLE: run `alter role \"countersign_owner\" NOLOGIN NOCREATEROLE`",
        ),
        ("alter role countersign_approver superuser", "alter role countersign_approver nosuperuser", "has SUPERUSER"),
        (
            "grant pg_read_all_data to countersign_owner",
            "revoke pg_read_all_data from countersign_owner",
            "the role countersign_owner is a member of pg_read_all_data",
        ),
    ] {
        other.run(change).await;
        refused(&db.url(), &["init"], &[words]).await;
        let (said, is_well) = super::run(&db.url(), &["doctor"]).await;
        assert!(!is_well && said.contains(words), "{said}");
        other.run(back).await;
    }
    other.run("create role mallory login; grant countersign_owner to mallory with admin option").await;
    let named = "members of countersign_owner, who can change the ledger: mallory (with ADMIN OPTION)";
    let said = succeed(&db.url(), &["init"]).await;
    assert!(said.contains(named), "{said}");
    let (said, _) = super::run(&db.writer_url(), &["doctor"]).await;
    assert!(said.contains("who can change the records: mallory (with ADMIN OPTION)"), "{said}");

    // A role of the reader's name may have members who would read as the reader: another name is taken.
    let empty = db.beside("postgres");
    empty.run("create database second").await;
    let second = db.beside("second");
    let oid = second.value("select oid from pg_database where datname = 'second'").await;
    second.run(&format!("create role countersign_reader_{oid}; grant countersign_reader_{oid} to mallory")).await;
    succeed(&second.url(), &["init"]).await;
    let reader = second.value("select role_name from countersign.reader_login").await;
    assert_eq!(reader, format!("countersign_reader_{oid}_2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_the_database_sets_for_its_sessions_does_not_come_to_own_the_ledger() {
    // `ALTER DATABASE .. SET role` would make the database's owner the owner of the ledger.
    let (db, owner) = owned_database("role_of_a_database").await;
    run_as(&db, &owner, &format!("alter database {} set role = {owner}", db.name())).await;
    succeed(&db.url(), &["init"]).await;
    let ledger_owner = "select pg_get_userbyid(nspowner) from pg_namespace where nspname = 'countersign'";
    assert_eq!(db.value(ledger_owner).await, "countersign_owner");
}
