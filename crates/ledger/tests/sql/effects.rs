//! What is recorded: by whom, how much of it, and what `tracking_problems` names.

use countersign_ledger::DEFAULT_WRITER;

use crate::support::{Call, OTHER_WRITER, codes, connect, ledger, run, server, undo, write};

#[tokio::test(flavor = "multi_thread")]
async fn only_writes_of_server_logins_are_recorded() {
    let database = ledger("writers").await;
    database
        .run(
            "create schema s; create table s.t (id int primary key, n int); create table s.all (id int primary key, n int);
             insert into s.t values (1, 0); insert into s.all values (1, 0);
             select countersign.track('s.t'), countersign.track('s.all', all_writers => true)",
        )
        .await;
    for login in [DEFAULT_WRITER, OTHER_WRITER] {
        let session = connect(&database, login).await;
        let written = write(&session, "update s.t set n = n + 1").await;
        assert_eq!(
            database
                .value(&format!("select count(*) from countersign.effect where correlation_id = '{written}'"))
                .await,
            "1",
            "{login}"
        );
        assert_eq!(
            database.value(&format!("select login from countersign.record where correlation_id = '{written}'")).await,
            login
        );
        for statement in ["update s.t set n = 9", "delete from s.all", "insert into s.t values (5, 5)"] {
            let refused = run(&session, statement).await.unwrap_err();
            assert_eq!(refused.code, "CS003", "{login}: {statement}");
        }
    }
    database.run("update s.t set n = 100; set application_name = 'by hand'; update s.all set n = 100").await;
    assert_eq!(
        database.rows("select op, origin from countersign.effect where correlation_id is null").await,
        [["U", "postgres by hand"]]
    );
    // A login that came later is named until the triggers know it.
    database.run("insert into countersign.writer_login values ('postgres')").await;
    let problems = "select count(*) from countersign.tracking_problems() where problem like '%do not know the login%'";
    assert_eq!(database.value(problems).await, "2");
    database.run("select countersign.renew_tracking()").await;
    assert_eq!(database.value(problems).await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn sensitive_columns_stay_out_of_the_ledger() {
    let database = ledger("sensitive").await;
    database
        .run(
            "create schema s; create table s.t (id int primary key, n int, secret text, token bytea);
             insert into s.t values (1, 1, 'hunter2', 'abc'), (2, 2, null, null);
             select countersign.track('s.t', sensitive => '{secret,token}')",
        )
        .await;
    let session = server(&database).await;
    let number = write(&session, "update s.t set n = n + 1").await;
    let insert = write(&session, "insert into s.t values (3, 3, 'swordfish', 'x')").await;
    let secret = write(&session, "update s.t set secret = 'swordfish' where id = 1").await;
    assert_eq!(
        database.value("select count(*) from countersign.effect e where e::text ~ 'hunter2|swordfish'").await,
        "0"
    );
    assert_eq!(codes(&undo(&session, &[secret]).await.unwrap_err()), ["image_missing"]);
    undo(&session, &[insert]).await.unwrap();
    // The other columns come back; the secret is left as it is.
    database.run("update s.t set secret = 'hunter2' where id = 1").await;
    undo(&session, &[number]).await.unwrap();
    assert_eq!(
        database.value("select string_agg(n || coalesce(secret, '-'), ' ' order by id) from s.t").await,
        "1hunter2 2-"
    );
    // A secret that somebody changed since is not removed with its row.
    let insert = write(&session, "insert into s.t values (4, 4, 'first', null)").await;
    database.run("update s.t set secret = 'second' where id = 4").await;
    let conflict = undo(&session, &[insert]).await.unwrap_err();
    assert_eq!(conflict["code"], "CS002", "{conflict:#}");
    assert_eq!(database.value("select secret from s.t where id = 4").await, "second");
    let deleted = write(&session, "delete from s.t where id = 1").await;
    assert_eq!(codes(&undo(&session, &[deleted]).await.unwrap_err()), ["image_missing"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_values_that_did_not_change_are_kept_once() {
    let database = ledger("large").await;
    database
        .run(
            "create schema s; create table s.t (id int primary key, n int, doc text); select countersign.track('s.t');
             insert into s.t select 1, 0, string_agg(md5(g::text), '') from generate_series(1, 3000) g",
        )
        .await;
    let session = server(&database).await;
    let written = write(&session, "update s.t set n = 1").await;
    let sizes = format!(
        "select length(before) < 50, length(after) > 90000 from countersign.effect where correlation_id = '{written}'"
    );
    assert_eq!(database.rows(&sizes).await, [["t", "t"]]);
    undo(&session, &[written]).await.unwrap();
    assert_eq!(database.value("select n || ' ' || length(doc) from s.t").await, "0 96000");
}

#[tokio::test(flavor = "multi_thread")]
async fn obstacles_to_recording_changes_are_named() {
    let database = ledger("problems").await;
    database
        .run(&format!(
            "create schema s; create table s.p (id int primary key); create table s.k (id int primary key, p int references s.p on delete cascade);
             create unlogged table s.u (id int primary key); create table s.own (id int primary key); alter table s.own owner to {OTHER_WRITER};
             create table s.gone (id int primary key); create table s.up (id int primary key); create table s.down () inherits (s.up); create table s.nokey (v int);
             create table s.m (id int primary key) partition by range (id); create table s.m1 partition of s.m for values from (0) to (9);
             select countersign.track(c.oid) from pg_class c where c.relnamespace = 's'::regnamespace and c.relname in ('p', 'u', 'own', 'up', 'nokey', 'm', 'gone'); drop table s.gone;
             create table s.m2 partition of s.m for values from (10) to (20); alter table s.m1 disable trigger \"!countersign_of_root\"",
        ))
        .await;
    let mut problems =
        database.rows("select name || ': ' || problem from countersign.tracking_problems() order by 1").await.concat();
    problems.retain(|problem| !problem.is_empty());
    let wanted = [
        "s.gone: the table does not exist",
        "s.m: s.m1 has no enabled trigger",
        "s.m: s.m2 has no enabled trigger \"!countersign_truncate\"",
        "s.nokey: no key",
        "s.own: the login countersign_writer_2 owns the table",
        "s.p: foreign key k_p_fkey of s.k",
        "s.u: the table is UNLOGGED",
        "s.up: s.down inherits from it",
    ];
    assert_eq!(problems.len(), wanted.len(), "{problems:#?}");
    for (problem, wanted) in problems.iter().zip(wanted) {
        assert!(problem.starts_with(wanted), "{problem} / {wanted}");
    }
    for (target, code) in [("s.m1", "42809"), ("pg_class", "42501"), ("countersign.record", "42809")] {
        let refused =
            run(&database.connect().await, &format!("select countersign.track('{target}')")).await.unwrap_err();
        assert_eq!(refused.code, code, "{target}");
    }
    // A partition that came later is recorded as well.
    let session = server(&database).await;
    let written = write(&session, "insert into s.m values (15)").await;
    undo(&session, &[written]).await.unwrap();
    assert_eq!(database.value("select count(*) from s.m").await, "0");
    let refused = Call::new("t", "truncate").run(&session, "truncate s.m").await.unwrap_err();
    assert!(["42501", "0A000"].contains(&refused.code.as_str()), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_of_a_tables_owner_never_runs_with_the_ledgers_rights() {
    let database = ledger("casts").await;
    database
        .run(
            "create schema s; create type s.id as enum ('one', 'two'); create table s.t (id s.id primary key, v int);
             create table s.seen (who text);
             create function s.spy(s.t) returns text language plpgsql as $$ begin insert into s.seen values (current_user); return '()'; end $$;
             create function s.spy(s.id) returns json language plpgsql as $$ begin insert into s.seen values (current_user); return '{}'; end $$;
             create cast (s.t as text) with function s.spy(s.t); create cast (s.id as json) with function s.spy(s.id);
             create function s.equal(text, text) returns boolean language plpgsql as $$ begin insert into s.seen values (current_user); return $1 like $2; end $$;
             create operator s.= (leftarg = text, rightarg = text, function = s.equal);
             create operator s.<> (leftarg = text, rightarg = text, function = s.equal);
             insert into s.t values ('one', 1); select countersign.track('s.t'); grant all on s.seen to public",
        )
        .await;
    let session = server(&database).await;
    run(&session, "set search_path = s, pg_catalog").await.unwrap();
    let written = write(&session, "update s.t set v = 2").await;
    write(&session, "insert into s.t values ('two', 1)").await;
    let undone = undo(&session, &[written]).await;
    assert!(undone.is_ok(), "{undone:#?}");
    assert_eq!(
        database.rows("select distinct who from s.seen where who <> 'countersign_writer'").await,
        Vec::<Vec<String>>::new()
    );
    assert_eq!(database.value("select v from s.t where id = 'one'").await, "1");
}
