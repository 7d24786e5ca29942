//! `countersign track` and `untrack`: the owner of tables decides whose changes the ledger records.

mod checked;

use serde_json::json;
use testkit::{CommandOutput, Database, Server, database, run_countersign};

const SHOP: &str = "create schema shop;
    create table shop.orders (id bigint generated always as identity primary key, total numeric, note text, updated_at timestamptz);
    create table shop.items (\"order\" bigint references shop.orders on delete cascade, no int, name text, primary key (\"order\", no));
    create table shop.bare (line text);
    create view shop.open as select * from shop.orders;
    create table shop.days (day date, n int, primary key (day)) partition by range (day);
    create table shop.days_2026 partition of shop.days for values from ('2026-01-01') to ('2027-01-01');
    create schema other; create table other.bare (line text)";

/// A database with a shop, and the connection string of its owner: a member of countersign_owner without CREATEROLE.
async fn shop() -> (Database, String) {
    let db = database().await;
    // As if no table had been tracked before.
    db.run(
        "select countersign.untrack(t.relation) from countersign.tracked t; delete from countersign.tracked;
         alter table countersign.tracked alter column shape restart",
    )
    .await;
    let anna = login(&db, "anna").await;
    db.run(&format!("grant countersign_owner to {anna}; grant create on database {0} to {anna}", db.name())).await;
    db.run(&format!("set role {anna}; {SHOP}; grant usage on schema shop to public")).await;
    let url = db.url_as(&anna);
    (db, url)
}

async fn login(db: &Database, name: &str) -> String {
    let role = format!("{name}_{}", db.name());
    db.run(&format!("create role {role} login")).await;
    role
}

async fn succeed(url: &str, arguments: &[&str]) -> String {
    let CommandOutput { code, out, err } = run_countersign(url, arguments).await;
    assert_eq!((code, err.as_str()), (0, ""), "{arguments:?}: {out}");
    out
}

async fn fail(url: &str, arguments: &[&str]) -> String {
    let CommandOutput { code, out, err } = run_countersign(url, arguments).await;
    assert_eq!((code, out.as_str()), (1, ""), "{arguments:?}: {err}");
    err
}

async fn tracked(db: &Database) -> String {
    db.value("select coalesce(string_agg(name, ' ' order by name), '') from countersign.tracked where is_current").await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_of_tables_has_them_tracked_and_the_writes_of_servers_are_recorded() {
    let (db, anna) = shop().await;
    let owner = login(&db, "author").await;
    db.run(&format!(
        "grant {owner} to anna_{}; grant usage on schema social to {owner}; alter table social.tweet owner to {owner}",
        db.name()
    ))
    .await;
    let server = Server::on(&db).await;
    let said = succeed(&anna, &["track", "social.tweet", "--is-log"]).await;
    assert_eq!(said, "tracked  social.tweet: key (id), shape 1, log\n");
    let written = server.succeed("post_tweet", json!({"text": "on the record"})).await;
    let effects = "select e.correlation_id || ' ' || e.op::text from countersign.effect e";
    let id = written["meta"]["correlation_id"].as_str().expect("a receipt");
    assert_eq!(db.rows(effects).await, [[format!("{id} I")]]);
    // The ledger is as init makes it, so that the next command and doctor trust it.
    let said = succeed(&anna, &["untrack", "social.tweet"]).await;
    assert!(said.starts_with("untracked  social.tweet"), "{said}");
    server.succeed("post_tweet", json!({"text": "off the record"})).await;
    assert_eq!(db.rows(effects).await.len(), 1);
    assert_eq!(succeed(&anna, &["untrack", "social.tweet"]).await, "unchanged  social.tweet: it was not tracked\n");
    assert_eq!(tracked(&db).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_table_is_listed_with_its_key_and_the_limits_of_its_undo() {
    let (db, anna) = shop().await;
    let said =
        succeed(&anna, &["track", "--schema", "shop", "--maintained", "updated_at", "--sensitive", "note"]).await;
    assert_eq!(
        said,
        "tracked  shop.bare: no key, shape 1\n\
         tracked  shop.days: key (day), shape 2\n\
         tracked  shop.items: key (order, no), shape 3\n\
         tracked  shop.orders: key (id), shape 4, maintained (updated_at), sensitive (note)\n\
         warning  shop.bare: no key: changes are recorded, and cannot be undone\n"
    );
    // What is not given stays, and the shape with it; what is given replaces it.
    let again = succeed(&anna, &["track", "orders", "--schema", "shop", "--all-writers"]).await;
    assert_eq!(
        again,
        "tracked  shop.orders: key (id), shape 4, maintained (updated_at), sensitive (note), all writers\n"
    );
    let less = succeed(&anna, &["track", "orders", "--maintained", "", "--all-writers=false"]).await;
    assert_eq!(less, "tracked  shop.orders: key (id), shape 4, sensitive (note)\n");
    // A column that was kept secret is never recorded because of a new name.
    db.run("alter table shop.orders rename note to memo").await;
    let refused = fail(&anna, &["track", "shop.orders"]).await;
    assert!(
        refused.contains("\"note\" of shop.orders was named with --sensitive") && refused.contains("again"),
        "{refused}"
    );
    succeed(&anna, &["track", "shop.orders", "--sensitive", "memo"]).await;
    // A new login of servers, an unlogged table, policies, a partition whose trigger is gone, and the login as the owner.
    db.run(&format!(
        "insert into countersign.writer_login values ('second_{0}'); alter table shop.bare set unlogged;
         alter table shop.items disable trigger all; alter table shop.items enable always trigger \"!countersign\";
         alter table shop.items enable row level security; drop trigger \"!countersign_truncate\" on shop.days_2026;
         create table shop.lines (\"order\" bigint, no int, foreign key (\"order\", no) references shop.items on update cascade);
         create role second_{0} login; grant anna_{0} to second_{0}",
        db.name()
    ))
    .await;
    let problems: Vec<String> =
        db.rows("select p.name || ': ' || p.problem from countersign.tracking_problems() p order by 1").await.concat();
    for part in [
        "shop.bare: the table is UNLOGGED",
        "shop.days: shop.days_2026 has no enabled trigger \"!countersign_truncate\"",
        "shop.items: row level security",
        "shop.items: the foreign key items_order_fkey of shop.items is switched off",
        "shop.items: foreign key lines_order_no_fkey of shop.lines, which is not tracked",
        "shop.orders: the triggers do not know the login second_",
        "shop.orders: the login second_",
    ] {
        assert!(problems.iter().any(|problem| problem.starts_with(part)), "{part}: {problems:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn printing_shows_the_sql_and_changes_nothing() {
    let (db, anna) = shop().await;
    let said = succeed(&anna, &["track", "shop.orders", "--print"]).await;
    assert_eq!(tracked(&db).await, "");
    let triggers = "select count(*) from pg_trigger where not tgisinternal and tgrelid = 'shop.orders'::regclass";
    assert_eq!(db.value(triggers).await, "0");
    for part in [
        "SECURITY DEFINER",
        "CREATE TRIGGER \"!countersign\" AFTER",
        "ENABLE ALWAYS TRIGGER",
        "would track  shop.orders",
    ] {
        assert!(said.lines().any(|line| line.starts_with("-- ") && line.contains(part)), "{part}: {said}");
    }
    // What is printed can be run.
    db.run(&said).await;
    assert_eq!(tracked(&db).await, "shop.orders");
    assert_eq!(db.value(triggers).await, "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_tables_are_tracked_or_none_and_each_mistake_is_named() {
    let (db, anna) = shop().await;
    let refused = fail(
        &anna,
        &[
            "track",
            "shop.orders",
            "shop.ordres",
            "shop.open",
            "shop.days_2026",
            "bare",
            "social.tweet",
            "countersign.record",
            "a.b.c",
            "1 x",
        ],
    )
    .await;
    for part in [
        "there is no table shop.ordres",
        "shop.open is a view: track the tables that it shows",
        "shop.days_2026 is a partition of shop.days",
        "bare is ambiguous: other.bare, shop.bare",
        "social.tweet belongs to the role postgres",
        "countersign.record belongs to the ledger",
        "there is no table a.b.c",
        "1 x is not the name of a table",
    ] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    let refused = fail(&anna, &["track", "shop.orders", "shop.items", "--maintained", "updated"]).await;
    assert!(refused.contains("there is no column \"updated\" in shop.items, shop.orders"), "{refused}");
    // S-9: the statements that undo writes have names that begin so.
    db.run("create table shop.odd (id int primary key, \"!t\" text)").await;
    db.run(&format!("alter table shop.odd owner to anna_{}", db.name())).await;
    let refused = fail(&anna, &["track", "shop.odd"]).await;
    assert!(refused.contains("shop.odd has the column \"!t\""), "{refused}");
    let refused = fail(&anna, &["track", "shop.orders", "--sensitive", "id"]).await;
    assert!(refused.contains("\"id\" is in the key of shop.orders"), "{refused}");
    let refused = fail(&anna, &["track", "--schema", "nowhere"]).await;
    assert!(refused.contains("the schema nowhere has no table"), "{refused}");
    // An owner without rights on the ledger, and a server.
    let bob = login(&db, "bob").await;
    // In this order: from version 16 on, a grant keeps what the role inherited when it was made.
    db.run(&format!("alter role {bob} noinherit; grant anna_{} to {bob}", db.name())).await;
    for url in [db.url_as(&bob), db.writer_url()] {
        let refused = fail(&url, &["track", "shop.orders"]).await;
        assert!(
            refused.contains("not a member of the ledger's owner") && refused.contains("countersign_owner"),
            "{refused}"
        );
    }
    // A ledger in which another user has prepared something.
    db.run("create function countersign.track(text) returns int language sql as 'select 1'").await;
    let refused = fail(&anna, &["track", "shop.orders"]).await;
    assert!(
        refused.contains("cannot be trusted") && refused.contains("countersign.track(pg_catalog.text)"),
        "{refused}"
    );
    assert_eq!(tracked(&db).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_in_use_is_named_and_a_dropped_one_can_be_untracked() {
    let (db, anna) = shop().await;
    let busy = db.connect().await;
    busy.batch_execute("begin; insert into shop.bare values ('x')").await.unwrap();
    let refused = fail(&anna, &["track", "shop.bare", "shop.orders"]).await;
    assert!(refused.contains("shop.bare is in use by transactions that have lasted longer than 5s"), "{refused}");
    assert_eq!(tracked(&db).await, "");
    busy.batch_execute("rollback").await.unwrap();
    succeed(&anna, &["track", "shop.bare"]).await;
    db.run("alter table shop.bare rename to plain").await;
    let problems =
        "select p.problem from countersign.tracking_problems() p where p.problem like 'the table has another name%'";
    assert_eq!(db.rows(problems).await, [["the table has another name now: run `countersign track` again"]]);
    assert_eq!(fail(&anna, &["untrack", "shop.bare"]).await, "countersign: there is no table shop.bare\n");
    db.run("alter table shop.plain rename to bare; drop table shop.bare").await;
    let refused = fail(&anna, &["track", "shop.bare"]).await;
    assert!(
        refused.contains("there is no table shop.bare any more: `countersign untrack shop.bare` forgets it"),
        "{refused}"
    );
    let said = succeed(&anna, &["untrack", "shop.bare"]).await;
    assert!(said.starts_with("untracked  shop.bare"), "{said}");
    assert_eq!(db.value("select count(*) from countersign.tracking_problems()").await, "0");
    assert_eq!(db.value("select count(*) from pg_proc where proname ~ '^(effect|restore)_of_'").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_triggers_learn_of_a_new_login_of_servers() {
    let (db, anna) = shop().await;
    succeed(&anna, &["track", "shop.orders", "shop.items"]).await;
    let writers = |name: &str| format!("{name}_{}", db.name());
    let said = succeed(&db.url(), &["init", "--writer", &writers("second")]).await;
    assert!(said.contains("changed  tracks shop.items, shop.orders for the new login as well"), "{said}");
    assert_eq!(db.value("select count(*) from countersign.tracking_problems()").await, "0");
    // An administrator without rights on the tables.
    let admin = login(&db, "admin").await;
    db.run(&format!("alter role {admin} createrole; grant countersign_owner to {admin}")).await;
    db.run(&format!("grant countersign_approver, countersign_operator to {admin} with admin option")).await;
    let said = succeed(&db.url_as(&admin), &["init", "--writer", &writers("third"), "--reader-tables", "none"]).await;
    assert!(said.contains("warning  the triggers of tracked tables do not know the new login of servers"), "{said}");
    assert!(said.contains("`countersign track shop.items shop.orders` as the tables' owner"), "{said}");
    // Asked by a login that may not look into the schema.
    db.run("revoke usage on schema shop from public").await;
    let doctor = run_countersign(&db.writer_url(), &["doctor"]).await;
    let problem = format!("tracking    shop.items: the triggers do not know the login {}", writers("third"));
    assert!(doctor.out.lines().any(|line| line.starts_with("warning") && line.contains(&problem)), "{}", doctor.out);
    succeed(&anna, &["track", "shop.orders", "shop.items"]).await;
    let doctor = run_countersign(&db.writer_url(), &["doctor"]).await;
    assert!(doctor.out.contains("the changes that writes make to 2 tracked tables are recorded"), "{}", doctor.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demos_tables_are_tracked() {
    let db = Database::empty("tracked_demo").await;
    succeed(&db.url(), &["init", "--demo"]).await;
    let sql = "select count(*) from pg_class c where c.relkind = 'r' and c.relnamespace in ('social'::regnamespace, 'studio'::regnamespace) \
               and not exists (select from countersign.tracked t where t.relation = c.oid and t.is_current)";
    assert_eq!(db.value(sql).await, "0");
    let server = Server::on(&db).await;
    let posted = server.succeed("post_tweet", json!({"text": "on the record"})).await;
    assert_eq!(db.value("select count(*) from countersign.effect").await, "1");
    let undo = &posted["meta"]["rollback"]["undo_params"];
    server.succeed("delete_tweet", undo.clone()).await;
    assert_eq!(db.value("select count(*) from social.tweet where text = 'on the record'").await, "0");
    let problems = db
        .rows(
            "select p.name, p.problem from countersign.tracking_problems() p \
                           where p.problem not like 'row level security:%'",
        )
        .await;
    assert_eq!(problems, Vec::<Vec<String>>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_owns_the_ledger_itself_has_its_tables_tracked() {
    let db = Database::empty("own_ledger_tracked").await;
    let solo = login(&db, "solo").await;
    db.run(&format!("alter database {} owner to {solo}", db.name())).await;
    let url = db.url_as(&solo);
    succeed(&url, &["init"]).await;
    db.run(&format!("set role {solo}; create schema shop; create table shop.orders (id int primary key)")).await;
    let said = succeed(&url, &["track", "--schema", "shop"]).await;
    assert!(said.starts_with("tracked  shop.orders: key (id), shape 1\n"), "{said}");
    let owners = "select distinct pg_get_userbyid(p.proowner) from pg_proc p where p.proname ~ '^(effect|restore)_of_'";
    assert_eq!(db.rows(owners).await, [[solo.as_str()]]);
    // Once more, now that there is a function to replace.
    succeed(&url, &["track", "shop.orders", "--all-writers"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_names_a_trigger_that_was_made_after_the_tracking_and_tracking_again_helps() {
    let db = database().await;
    db.run(
        "create schema s; create table s.t (id int primary key, n int, at timestamptz); insert into s.t values (1, 1);
         grant usage on schema s to countersign_writer; grant select, update on s.t to countersign_writer;
         select countersign.track('s.t');
         create function s.stamp() returns trigger language plpgsql as $$ begin new.at := clock_timestamp(); return new; end $$;
         create trigger stamp before update on s.t for each row execute function s.stamp()",
    )
    .await;
    let server =
        Server::bare_with(&db, |it| it.args(["--profile", "admin", "--execute-sql", "--execute-sql-tier", "auto"]))
            .await;
    let write = async |n: u32| {
        server.succeed("execute_sql", json!({"sql": format!("update s.t set n = {n} where id = 1")})).await
    };
    let receipt = write(2).await["meta"]["rollback"].clone();
    let why =
        "a BEFORE trigger that was made after the table was tracked changed the row again: run `countersign track`";
    assert!(receipt["reversible"] == false && receipt["note"].as_str().unwrap().contains(why), "{receipt}");
    succeed(&db.url(), &["track", "s.t"]).await;
    let meta = write(3).await["meta"].clone();
    assert_eq!(meta["rollback"]["set_by_triggers"], json!({"s.t": ["at"]}), "{meta}");
    server.succeed("undo_mutation", json!({"correlation_id": meta["correlation_id"]})).await;

    // A right that was taken away since is a conflict, as is one to a column.
    let id = write(4).await["meta"]["correlation_id"].clone();
    db.run("revoke update on s.t from countersign_writer").await;
    let refused = server.call("undo_mutation", json!({"correlation_id": id})).await;
    assert_eq!(refused["error"]["conflicts"][0]["code"], "not_permitted", "{refused}");
    assert_eq!(refused["error"]["conflicts"][0]["table"], "s.t", "{refused}");
    server.close().await;
}
