//! A write of one row is undone by the function that `track` has made for its table, and otherwise in the way of several rows.

use testkit::Database;
use tokio_postgres::Client;

use crate::support::{OPERATOR, codes, connect, ledger, run, server, undo, write};

/// Writes of one row, each undone and redone: every row is what it was, and then what the write made it.
async fn undo_and_redo(database: &Database, session: &Client, statements: &[&str]) {
    for statement in statements {
        let before = database.contents("s").await;
        let written = write(session, statement).await;
        let after = database.contents("s").await;
        assert_ne!(before, after, "{statement}");
        let undone = undo(session, &[written]).await.unwrap_or_else(|conflict| panic!("{statement}: {conflict:#}"));
        assert_eq!(database.contents("s").await, before, "{statement}");
        undo(session, &[undone]).await.unwrap_or_else(|conflict| panic!("{statement}, redo: {conflict:#}"));
        assert_eq!(database.contents("s").await, after, "{statement}");
    }
}

/// Columns with the names of what the function itself uses, and with names that would end a text in it.
const HOSTILE: &str = r#"create schema s;
    create table s.t (
        "of_shape" int, "path" int, "before" text, "after" text, "o'clock" int, "100%s" int, "$trigger$; select 1/0; --" int,
        "$restore$; select 1/0; --" int, "a ""b"" \ c" int, at timestamptz, total int generated always as ("of_shape" + "path") stored,
        no int generated always as identity, primary key ("of_shape", "o'clock"));
    insert into s.t values (1, 1, 'b', 'a', 1, 1, 1, 1, 1, '2026-03-01 12:00+02'), (2, 2, null, 'a', 2, 2, 2, 2, 2, null);
    select countersign.track('s.t')"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_row_is_restored_for_any_column_names() {
    let database = ledger("single_names").await;
    database.run(HOSTILE).await;
    let session = server(&database).await;
    run(&session, "set timezone = 'Asia/Tokyo'; set datestyle = german").await.unwrap();
    let table = "s.t";
    let columns = [
        "path",
        "before",
        "after",
        "100%s",
        "$trigger$; select 1/0; --",
        "$restore$; select 1/0; --",
        "a \"\"b\"\" \\ c",
        "at",
    ];
    for column in columns {
        let value = if column == "at" { "now()" } else { "'7'" };
        let update = format!(r#"update {table} set "{column}" = {value} where of_shape = 1"#);
        let database_before = database.contents("s").await;
        let written = write(&session, &update).await;
        undo(&session, &[written]).await.unwrap_or_else(|conflict| panic!("{update}: {conflict:#}"));
        assert_eq!(database.contents("s").await, database_before, "{update}");
    }
    let all = format!(
        r#"update {table} set path = 9, "before" = 'x', "after" = null, "100%s" = 9, "$trigger$; select 1/0; --" = 9, at = null where of_shape = 1"#
    );
    let insert = format!(r#"insert into {table} (of_shape, "o'clock", path, "before") values (3, 3, 3, ',"(')"#);
    let delete = format!("delete from {table} where of_shape = 2");
    undo_and_redo(&database, &session, &[&all, &insert, &delete]).await;
}

const SCHEMA: &str =
    "create schema s; create table s.t (id int primary key, n int unique, v text, at timestamptz default now());
    create table s.log (id int generated always as identity, path text, zone text);
    insert into s.t select g, g, 'v' from generate_series(1, 9) g; select countersign.track('s.t')";

/// The name of the function of s.t.
const FUNCTION: &str = "select 'restore_of_' || 's.t'::regclass::oid";
const STATEMENTS: [&str; 4] = [
    "update s.t set v = 'w' where id = 1",
    "update s.t set v = 'x', n = 11 where id = 1",
    "delete from s.t where id = 2",
    "insert into s.t values (10, 10, 'new')",
];

#[tokio::test(flavor = "multi_thread")]
async fn only_servers_and_operators_may_call_the_undo_function_of_a_table() {
    let database = ledger("single_rights").await;
    database.run(SCHEMA).await;
    let session = server(&database).await;
    let function = database.value(FUNCTION).await;
    let holders = format!(
        "select string_agg(a.grantee::regrole::text, ' ' order by a.grantee::regrole::text collate \"C\") from pg_proc p, aclexplode(p.proacl) a where p.proname = '{function}' \
         and a.grantee <> p.proowner"
    );
    let holders = database.value(&holders).await;
    assert_eq!(holders, "countersign_operator countersign_writer countersign_writer_2");
    let with = format!("select prosecdef::text || proowner::regrole from pg_proc where proname = '{function}'");
    assert_eq!(database.value(&with).await, "falsecountersign_owner", "it has the rights of who calls it");
    undo_and_redo(&database, &session, &STATEMENTS).await;

    // Outside of a write it changes nothing, as no statement does.
    let called = format!("select countersign.{function}(1, null, (select t::text from s.t t where id = 5), 'public')");
    run(&session, "set timezone = utc").await.unwrap();
    assert_eq!(run(&session, &called).await.unwrap_err().code, "CS003");
    run(&session, "reset timezone").await.unwrap();

    // Without a right to it, and without it: the same comes of it.
    database.run(&format!("revoke all on function countersign.{function} from countersign_writer")).await;
    undo_and_redo(&database, &session, &["update s.t set v = 'y' where id = 3", "delete from s.t where id = 4"]).await;
    database.run(&format!("drop function countersign.{function}")).await;
    undo_and_redo(&database, &session, &["update s.t set v = 'z' where id = 3", "delete from s.t where id = 5"]).await;

    database.run("select countersign.track('s.t')").await;
    assert_eq!(database.value(&format!("select count(*) from pg_proc where proname = '{function}'")).await, "1");
    database.run("select countersign.untrack('s.t')").await;
    assert_eq!(database.value(&format!("select count(*) from pg_proc where proname = '{function}'")).await, "0");
}

/// What the function says is not believed, and it is asked: one that says that it has restored the row fails the undo.
#[tokio::test(flavor = "multi_thread")]
async fn an_undo_by_a_function_that_restores_nothing_is_refused() {
    let database = ledger("single_lie").await;
    database.run(SCHEMA).await;
    let session = server(&database).await;
    let written = write(&session, "update s.t set v = 'w' where id = 1").await;
    let function = database.value(FUNCTION).await;
    database
        .run(&format!(
            "create or replace function countersign.{function}(of_shape integer, before text, after text, path text) returns boolean \
             language sql as 'select true'"
        ))
        .await;
    let conflict = undo(&session, &[written]).await.unwrap_err();
    assert_eq!(conflict["code"], "CS002", "{conflict:#}");
    assert_eq!(codes(&conflict), ["side_effects"]);
    assert_eq!(database.value("select v from s.t where id = 1").await, "w");
}

/// What a statement of `undo` looks like to the triggers of a table: like any statement of the session.
#[tokio::test(flavor = "multi_thread")]
async fn triggers_find_the_settings_of_the_session() {
    let database = ledger("single_settings").await;
    database.run(SCHEMA).await;
    database
        .run(
            "create function s.note() returns trigger language plpgsql as $$ begin
                 insert into log (path, zone) values (current_setting('search_path'), current_setting('timezone')); return null; end $$;
             create trigger note after insert or update or delete on s.t for each row execute function s.note()",
        )
        .await;
    let session = server(&database).await;
    let person = connect(&database, OPERATOR).await;
    for (session, zone) in [(&session, "Asia/Tokyo"), (&person, "Asia/Tokyo")] {
        run(session, &format!("set search_path = s; set timezone = '{zone}'")).await.unwrap();
    }
    for statement in STATEMENTS {
        let written = write(&session, statement).await;
        undo(&session, &[written]).await.unwrap_or_else(|conflict| panic!("{statement}: {conflict:#}"));
    }
    let seen = database.rows("select path, zone, count(*)::text from s.log group by 1, 2").await;
    assert_eq!(seen, [["s", "Asia/Tokyo", "8"]]);
}

/// A trigger that changes the row once it is put back, and one that refuses a statement whether it has rows or not.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_triggers_change_again_is_restored_or_refused() {
    let database = ledger("single_triggers").await;
    database.run(SCHEMA).await;
    database
        .run(
            "create function s.again() returns trigger language plpgsql as $$ begin
                 if pg_trigger_depth() = 1 then update s.t set n = n + 100 where id = new.id; end if; return null; end $$;
             create trigger again after update of v on s.t for each row execute function s.again()",
        )
        .await;
    let session = server(&database).await;
    undo_and_redo(&database, &session, &["update s.t set n = 50 where id = 2"]).await;
    database.run("alter table s.t disable trigger again").await;
    let written = write(&session, "update s.t set v = 'w' where id = 1").await;
    database.run("alter table s.t enable trigger again").await;
    undo(&session, &[written]).await.unwrap();
    assert_eq!(database.rows("select n::text, v from s.t where id = 1").await, [["1", "v"]]);

    // A row that is another one is a conflict, and no trigger of a statement is asked first.
    let written = write(&session, "delete from s.t where id = 3").await;
    database
        .run(
            "create function s.never() returns trigger language plpgsql as $$ begin raise exception 'never'; end $$;
             insert into s.t values (3, 33, 'taken');
             create trigger never before insert on s.t for each statement execute function s.never()",
        )
        .await;
    let conflict = undo(&session, &[written]).await.unwrap_err();
    assert_eq!(codes(&conflict), ["key_taken"]);
}
