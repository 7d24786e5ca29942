//! What `init` grants, leaves alone, repairs and prints.

use serde_json::json;
use testkit::{Database, Server, database};

use super::{named, run_as, succeed};

async fn reads(db: &Database, table: &str) -> bool {
    db.value(&format!("select has_any_column_privilege('countersign_reader', '{table}', 'select')")).await == "t"
}

/// A database on a separate cluster, whose reader is `countersign_reader`.
async fn shop() -> Database {
    let db = testkit::lone_database().await;
    db.run("create schema shop; create table shop.customers (id int, card text); create table shop.orders (id int)")
        .await;
    succeed(&db.url(), &["init"]).await;
    db
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_privilege_stays_revoked_and_new_tables_are_granted() {
    let db = shop().await;
    assert!(reads(&db, "shop.customers").await && reads(&db, "shop.orders").await);
    db.run("revoke select on shop.customers from countersign_reader; grant select (id) on shop.customers to countersign_reader")
        .await;
    db.run("create table shop.items (id int); create schema stock; create table stock.levels (id int)").await;
    db.run("revoke usage on schema social from countersign_reader; create table social.secret (id int)").await;
    let said = succeed(&db.url(), &["init"]).await;
    assert!(said.contains("granted  SELECT to countersign_reader on shop.items, stock.levels\n"), "{said}");
    let columns = "select string_agg(column_name, ' ') from information_schema.column_privileges \
                   where grantee = 'countersign_reader' and table_name = 'customers'";
    assert_eq!(db.value(columns).await, "id");
    assert!(!reads(&db, "social.secret").await, "the schema was taken from the reader as a whole");
    assert!(said.contains("cannot read, as after the last init: social."), "{said}");
    let server = Server::on(&db).await;
    server.succeed("query_database", json!({"query": "select id from shop.customers"})).await;
    server.fail("query_database", json!({"query": "select card from shop.customers"}), "not_permitted").await;
    server.close().await;

    db.run("create table shop.later (id int)").await;
    succeed(&db.url(), &["init", "--reader-tables", "none"]).await;
    succeed(&db.url(), &["init"]).await;
    assert!(!reads(&db, "shop.later").await, "none: it counts as seen");
    let said = succeed(&db.url(), &["init", "--reader-tables", "all"]).await;
    assert!(said.contains("shop.customers") && said.contains("shop.later") && said.contains("social.secret"), "{said}");
    assert!(reads(&db, "shop.later").await && reads(&db, "social.secret").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_a_role_may_not_grant_are_listed_and_the_others_are_granted() {
    // A role with CREATEROLE runs init on a database with a table of somebody else, as PostGIS leaves one. The roles of
    // the ledger exist already.
    database().await;
    let db = Database::empty("foreign_table").await;
    let (admin, other) = (named(&db, "admin"), named(&db, "postgis"));
    db.run(&format!(
        "create role {admin} login createrole; create role {other}; alter database {} owner to {admin};
         grant countersign_owner to {admin}; create schema shop authorization {admin};
         create table public.spatial_ref_sys (id int); alter table public.spatial_ref_sys owner to {other}",
        db.name()
    ))
    .await;
    run_as(&db, &admin, "create table shop.orders (id int)").await;
    let said = succeed(&db.url_as(&admin), &["init"]).await;
    assert!(
        said.contains(&format!("this login may not grant SELECT on public.spatial_ref_sys (of {other})")),
        "{said}"
    );
    let reader = db.value("select role_name from countersign.reader_login").await;
    assert!(said.contains(&format!("granted  SELECT to {reader} on shop.orders")), "{said}");
    let server = Server::start(Server::bare_command(&db)).await;
    server.succeed("query_database", json!({"query": "select count(*) from shop.orders"})).await;
    server
        .fail("query_database", json!({"query": "select count(*) from public.spatial_ref_sys"}), "not_permitted")
        .await;
    server.close().await;

    // As a role without CREATEROLE.
    let db = Database::empty("plain_owner").await;
    let owner = named(&db, "owner");
    db.run(&format!("create role {owner} login; alter database {} owner to {owner}", db.name())).await;
    let said = succeed(&db.url_as(&owner), &["init"]).await;
    assert!(said.contains("there is no login for reading") && said.contains("--read-url"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_cannot_log_in_gets_a_new_password() {
    // The cluster of this test asks for passwords; the one of the other tests does not.
    let db = shop().await;
    let file = db.value("show hba_file").await;
    let rules = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("local all countersign_reader scram-sha-256\n{rules}")).unwrap();
    db.run("select pg_reload_conf()").await;
    let said = succeed(&db.url(), &["init"]).await;
    assert!(!said.contains("password"), "nothing was wrong: {said}");
    db.run("alter role countersign_reader password 'changed from outside'").await;
    super::refused(&db.writer_url(), &["serve"], &["the reader cannot log in", "`countersign init`"]).await;
    let said = succeed(&db.url(), &["init"]).await;
    assert!(said.contains("gave countersign_reader a new password"), "{said}");
    let server = Server::on(&db).await;
    server.succeed("query_database", json!({"query": "select 1"})).await;
    server.close().await;
    db.run("alter role countersign_reader nologin").await;
    let said = succeed(&db.url(), &["init"]).await;
    assert!(said.contains("gave countersign_reader a new password"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_prints_the_sql_and_changes_nothing() {
    let db = testkit::lone_database().await;
    db.beside("postgres").run("create database fresh").await;
    let db = db.beside("fresh");
    db.run("create table public.orders (id int)").await;
    let roles = "select count(*) from pg_roles";
    let before = db.value(roles).await;
    let sql = succeed(&db.url(), &["init", "--writer", "fresh_writer", "--dry-run"]).await;
    for statement in [
        "create schema countersign;",
        "create role \"fresh_writer\" login",
        "grant select on public.orders to",
        "grant execute on function",
    ] {
        assert!(sql.contains(statement), "no {statement}: {sql}");
    }
    assert!(sql.contains("password 'SCRAM-SHA-256$..'"), "{sql}");
    assert_eq!(db.value("select count(*) from pg_namespace where nspname = 'countersign'").await, "0");
    assert_eq!(db.value(roles).await, before);
    let said = succeed(&db.url(), &["init", "--writer", "fresh_writer"]).await;
    for line in [
        "created  fresh_writer: the login of servers",
        "granted  SELECT to",
        "The log of the ledger is signed",
        "countersign check --manifest FILE",
    ] {
        assert!(said.contains(line), "no {line}: {said}");
    }
    let again = succeed(&db.url(), &["init", "--writer", "fresh_writer"]).await;
    assert_eq!(again.lines().count(), 2, "nothing to do: {again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_servers_log_and_statistics_do_not_see_the_readers_password() {
    let db = testkit::lone_database().await;
    db.beside("postgres").run("create database logged").await;
    let db = db.beside("logged");
    db.run("alter system set log_statement = 'all'").await;
    db.run("select pg_reload_conf()").await;
    succeed(&db.url(), &["init"]).await;
    let logged = std::fs::read_to_string(db.cluster().log_path()).unwrap();
    let logins = db.rows("select l.role_name, l.password, a.rolpassword from countersign.reader_login l join pg_authid a on a.rolname = l.role_name").await;
    assert_eq!(logins.len(), 2, "of reads, and of reads as the roles of callers");
    for login in logins {
        let [role, password, stored] = <[String; 3]>::try_from(login).unwrap();
        assert!(stored.starts_with("SCRAM-SHA-256$"), "{stored}");
        assert!(logged.contains(&format!("create role \"{role}\"")), "the control: statements are logged");
        assert!(!logged.contains(&password), "the password of {role} is in the server's log");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_inits_at_once_make_one_ledger() {
    let db = database().await;
    let url = db.url();
    let (one, two, three) = tokio::join!(succeed(&url, &["init"]), succeed(&url, &["init"]), succeed(&url, &["init"]));
    for said in [one, two, three] {
        assert!(said.contains("is ready"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn init_as_the_login_of_servers_says_who_runs_it() {
    // N-29
    database().await;
    let db = Database::empty("not_allowed").await;
    let said = super::run(&db.writer_url(), &["init"]).await.0;
    assert!(said.contains("the role countersign_writer may not set up the ledger in database"), "{said}");
    assert!(said.contains("run init as the owner of the database with CREATEROLE, or as a superuser"), "{said}");
}
