//! Statements that try to do more than change rows of tracked tables. Each is refused, and nothing is left of it.

use serde_json::json;
use testkit::{Database, Server};

use super::shop;

/// Objects that reach beyond tracked tables.
const BEYOND: &str = "
create table shop.note (n int primary key);
create table shop.keyless (n int);
create sequence shop.counter;
create view shop.customer_names as select id, name from shop.customer;
create view shop.facade as select 1 as n;
create materialized view shop.totals as select count(*) as n from shop.customer;
create function shop.through() returns trigger language plpgsql as $$ begin insert into shop.note values (new.n); return new; end $$;
create trigger through instead of insert on shop.facade for each row execute function shop.through();
create table shop.also (n int primary key);
create rule also as on insert to shop.also do also insert into shop.note values (new.n);
create table shop.moved (n int primary key);
create rule moved as on insert to shop.moved do instead insert into shop.note values (new.n);
create table shop.noted (n int primary key);
create function shop.note_it() returns trigger language plpgsql as $$ begin insert into shop.note values (new.n); return new; end $$;
create trigger note_it after insert on shop.noted for each row execute function shop.note_it();
create table shop.lazily_noted (n int primary key);
create constraint trigger note_it after insert on shop.lazily_noted deferrable initially deferred
    for each row execute function shop.note_it();
create function shop.writes() returns text language sql as $$ insert into shop.note values (1) returning 'x' $$;
-- A plan shows an operator without its function.
create function shop.writes_for(text) returns text language sql as $$ insert into shop.note values (3) returning 'x' $$;
create operator shop.!! (function = shop.writes_for, rightarg = text);
create function shop.creates() returns text language plpgsql as $$ begin create table shop.made (n int); return 'x'; end $$;
create function shop.drops() returns text language plpgsql as $$ begin drop table shop.keyless; return 'x'; end $$;
create function shop.truncates() returns text language plpgsql as $$ begin truncate shop.history; return 'x'; end $$;
create function shop.truncates_other() returns text language plpgsql as $$ begin truncate shop.keyless; return 'x'; end $$;
create function shop.disables() returns text language plpgsql as $$ begin alter table shop.orders disable trigger all; return 'x'; end $$;
create function shop.grants() returns text language plpgsql as $$ begin grant all on shop.note to public; return 'x'; end $$;
create function shop.refreshes() returns text language plpgsql as $$ begin refresh materialized view shop.totals; return 'x'; end $$;
create function shop.makes_temporary() returns text language plpgsql as $$ begin create temp table t (n int); return 'x'; end $$;
create function shop.comments() returns text language plpgsql as $$ begin comment on table shop.note is 'x'; return 'x'; end $$;
create function shop.pretends() returns text language plpgsql immutable as $$ begin perform shop.writes(); return 'x'; end $$;
create function shop.as_owner() returns text language sql security definer as $$ insert into shop.note values (2) returning 'x' $$;
create function shop.large() returns text language plpgsql as $$ begin perform lo_from_bytea(0, 'x'); return 'x'; end $$;
grant all on all tables in schema shop to countersign_writer;
grant all on all sequences in schema shop to countersign_writer;
grant create on schema shop to countersign_writer;
alter table shop.keyless owner to countersign_writer;
";

const TRACKED: &str = "select countersign.track(t) from unnest(array['shop.also', 'shop.noted', 'shop.lazily_noted', 'shop.moved', \
                       'shop.keyless']::regclass[]) t";

/// What is not one statement that changes rows.
const NO_CHANGES: &[&str] = &[
    "select 1",
    "select nextval('shop.counter')",
    "select * from shop.customer for update",
    "select shop.writes()",
    "values (shop.writes())",
    "table shop.customer",
    "create table shop.mine (n int)",
    "create table shop.mine as select 1 as n",
    "select 1 as n into shop.mine",
    "create function shop.mine() returns int language sql as 'select 1'",
    "alter table shop.customer add column extra int",
    "drop table shop.note",
    "truncate shop.customer",
    "grant all on shop.note to public",
    "copy shop.customer from stdin",
    "copy (select 1) to program 'true'",
    "do $$ begin insert into shop.note values (4); end $$",
    "explain analyze insert into shop.note values (5)",
    "explain update shop.customer set credit = 1",
    "prepare p as update shop.customer set credit = 1",
    "set role postgres",
    "set local session_replication_role = replica",
    "reset all",
    "begin",
    "commit",
    "rollback",
    "savepoint x",
    "release savepoint x",
    "prepare transaction 'x'",
    "declare c cursor for select 1",
    "fetch all from c",
    "lock table shop.customer",
    "listen x",
    "notify x",
    "vacuum shop.customer",
    "analyze shop.customer",
    "refresh materialized view shop.totals",
    "discard all",
    "comment on table shop.customer is 'x'",
    "insert into shop.also values (1)",
];

/// Changes of something else than rows of tracked tables, or by a function that must not be called.
const NOT_PERMITTED: &[&str] = &[
    "insert into shop.note values (6)",
    "with n as (insert into shop.note values (7) returning n) update shop.customer set credit = n.n from n where id = 1",
    "with n as (update shop.customer set credit = 1 where id = 1 returning id) insert into shop.note select id from n",
    "insert into shop.keyless values (8)",
    "insert into shop.facade values (9)",
    "insert into shop.moved values (10)",
    "insert into shop.noted values (11)",
    "insert into shop.lazily_noted values (12)",
    "insert into countersign.freeze (kind, name, frozen_by) values ('all', '', 'x')",
    "insert into shop.orders (customer, note) select 1, r.params::text from countersign.record r",
    "update shop.customer set name = (select string_agg(params::text, '') from countersign.mutation) where id = 1",
    "update pg_catalog.pg_class set relname = relname where relname = 'customer'",
    "delete from pg_catalog.pg_proc where false",
    "update shop.customer set name = shop.writes() where id = 1",
    "update shop.customer set name = 'x' where id = 1 and shop.writes() = 'x'",
    "insert into shop.customer values (301, shop.writes()), (302, 'x')",
    "insert into shop.customer values (1, 'x') on conflict (id) do update set name = shop.writes()",
    "merge into shop.customer c using (values (1)) v (id) on c.id = v.id when matched then update set name = shop.writes()",
    "update shop.customer set credit = 1 where id = 1 returning shop.writes()",
    "update shop.customer set name = operator(shop.!!) 'x' where id = 1",
    "update shop.customer set name = shop.creates() where id = 1",
    "update shop.customer set name = shop.drops() where id = 1",
    "update shop.orders set note = shop.truncates() where id = 1",
    "update shop.orders set note = shop.truncates_other() where id = 1",
    "update shop.customer set name = shop.disables() where id = 1",
    "update shop.customer set name = shop.grants() where id = 1",
    "update shop.customer set name = shop.refreshes() where id = 1",
    "update shop.customer set name = shop.makes_temporary() where id = 1",
    "update shop.customer set name = shop.comments() where id = 1",
    "update shop.customer set name = shop.as_owner() where id = 1",
    "update shop.customer set name = shop.large() where id = 1",
    "update shop.customer set name = set_config('role', 'postgres', true) where id = 1",
    "update shop.customer set name = pg_catalog.\"set_config\"('countersign.at', '(0,1)', true) where id = 1",
    "insert into shop.customer values (301, 'x'), (302, set_config/**/('session_replication_role', 'replica', true))",
    "insert into shop.customer values (1, 'x') on conflict (id) do update set name = set_config --\n('a.b', 'x', true)",
    "update shop.customer set credit = setval('shop.counter', 9) where id = 1",
    "update shop.customer set credit = 1 where pg_try_advisory_lock(1)",
    "update shop.customer set credit = 1 where pg_notify('x', 'y') is not null",
    "update shop.customer set credit = 1 where pg_cancel_backend(pg_backend_pid())",
    "insert into shop.customer values (301, 'x'), (302, pg_terminate_backend(pg_backend_pid())::text)",
    "update shop.customer set credit = lo_create(0)::int where id = 1",
    "update shop.customer set name = query_to_xml('select 1', true, true, '')::text where id = 1",
    "update shop.customer set name = pg_read_file('/etc/passwd') where id = 1",
    "update shop.customer set name = 'x' from pg_ls_dir('/') where id = 1",
];

/// What PostgreSQL itself refuses, or the parameters.
const REFUSED: &[&str] = &[
    "update shop.customer set credit = 1; commit",
    "update shop.customer set credit = 1; drop table shop.note",
    "update shop.customer set name = shop.pretends() where id = 1",
    "insert into pg_temp.t values (1)",
    "call shop.nothing()",
    "execute cs0",
    "update shop.customer set name = U&\"\\0073et_config\"('a.b', 'x', true) where id = 1",
    "insert into shop.totals values (1)",
];

/// Everything that an attack could leave: rows, and numbers of objects of the catalog.
async fn everything(db: &Database) -> Vec<Vec<String>> {
    let mut all = db.contents("shop").await;
    for sql in [
        "select oid::text, relname, relacl::text, relfilenode::text from pg_class where oid >= 16384 and relkind in ('r', 'm', 'v') \
         and relnamespace <> 'countersign'::regnamespace order by oid",
        "select tgname, tgenabled::text from pg_trigger where tgrelid in (select oid from pg_class where relnamespace = 'shop'::regnamespace) order by oid",
        "select (select count(*) from pg_largeobject_metadata), (select count(*) from pg_proc), (select count(*) from pg_description)",
        "select last_value, is_called from shop.counter",
        "select count(*) from countersign.freeze",
    ] {
        all.extend(db.rows(sql).await);
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_rows_of_tracked_tables_is_changed() {
    let db = shop().await;
    db.run(BEYOND).await;
    db.run(TRACKED).await;
    let mut wrong = Vec::new();
    for is_superuser in [false, true] {
        let before = everything(&db).await;
        let mut command = Server::command(&db);
        command.args(["--profile", "write", "--execute-sql", "--execute-sql-tier", "auto"]);
        if is_superuser {
            command.env("DATABASE_URL", db.url());
        }
        let server = Server::start(command).await;
        let lists = [(NO_CHANGES, "invalid_params"), (NOT_PERMITTED, "not_permitted"), (REFUSED, "")];
        for (sql, code) in lists.into_iter().flat_map(|(list, code)| list.iter().map(move |sql| (*sql, code))) {
            let envelope = server.call("execute_sql", json!({"sql": sql})).await;
            // A login without the privilege is refused by PostgreSQL.
            let said = envelope["error"]["code"].as_str().unwrap_or("done");
            // MERGE exists from PostgreSQL 15 on.
            let is_unknown = sql.starts_with("merge") && db.cluster().version().major < 15;
            let is_right = said == if is_unknown { "sql_error" } else { code }
                || said == "sql_error" && (!is_superuser || code.is_empty())
                || code.is_empty() && said == "invalid_params";
            if !is_right || everything(&db).await != before {
                wrong.push(format!("{sql} (superuser: {is_superuser}): {envelope}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        // The session of a refused statement serves the next write.
        let call = json!({"sql": "update shop.customer set credit = 1 where id = 5",
                          "idempotency_key": format!("after-attacks-{is_superuser}")});
        let done = server.succeed("execute_sql", call).await;
        server.succeed("undo_mutation", done["meta"]["rollback"]["undo_params"].clone()).await;
        let pending = db.value("select count(*) from countersign.mutation where status = 'pending'").await;
        assert_eq!(pending, "0");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_changes_the_role_or_a_setting_reaches_no_other_write() {
    let db = shop().await;
    db.run(
        "do $$ begin create role shop_clerk; exception when duplicate_object or unique_violation then end $$; \
         create function shop.becomes() returns text language plpgsql as \
             $$ begin perform set_config('role', 'shop_clerk', false), set_config('synchronous_commit', 'off', false), \
                      set_config('search_path', 'shop', false); return 'x'; end $$; \
         create function shop.elsewhere() returns text language plpgsql as \
             $$ begin perform set_config('countersign.at', '(0,1)', true); return 'x'; end $$; \
         grant shop_clerk to countersign_writer; grant usage on schema shop to shop_clerk; \
         grant all on all tables in schema shop to shop_clerk",
    )
    .await;
    let server = super::auto(&db).await;
    server.succeed("execute_sql", json!({"sql": "update shop.customer set name = shop.becomes() where id = 1"})).await;
    let done = server.succeed("execute_sql", json!({"sql": "update shop.customer set credit = 2 where id = 2"})).await;
    server.succeed("undo_mutation", done["meta"]["rollback"]["undo_params"].clone()).await;
    // The row of another attempt cannot be claimed by its place.
    let before = db.contents("shop").await;
    let call = json!({"sql": "update shop.customer set name = shop.elsewhere() where id = 3"});
    let envelope = server.call("execute_sql", call).await;
    if envelope["success"] == true {
        let rollback = &envelope["meta"]["rollback"];
        assert_eq!(rollback["reversible"], true, "{envelope}");
        server.succeed("undo_mutation", rollback["undo_params"].clone()).await;
    }
    assert_eq!(db.contents("shop").await.len(), before.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_counters_of_postgresql_nothing_is_written() {
    let db = shop().await;
    db.run(&format!("alter database {} set track_counts = off", db.name())).await;
    let server = super::auto(&db).await;
    let update = json!({"sql": "update shop.customer set credit = 2 where id = 2"});
    let error = server.fail("execute_sql", update, "not_permitted").await;
    assert!(error["message"].as_str().unwrap().contains("track_counts"), "{error}");
    assert_eq!(db.value("select credit from shop.customer where id = 2").await, "0");
}
