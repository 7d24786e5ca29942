//! `init --schema`: from a schema of an application to a server that may write it, with exact privileges, tracked
//! tables and a configuration file.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{CommandOutput, Database, Server, config_home, countersign, poll, run, run_countersign};
use tokio::process::Command;

use crate::hardening::{run_as, succeed};

const SHOP: &str = r#"create schema "Shop";
    create table "Shop"."Order Items" (id serial primary key, name text not null);
    create sequence "Shop".numbers;
    create table "Shop".customers (id bigint generated always as identity primary key,
        number bigint not null default nextval('"Shop".numbers'));
    create sequence "Shop".owned owned by "Shop".customers.number;
    create sequence "Shop".unused;
    create table "Shop".days (day date primary key, n int) partition by range (day);
    create table "Shop".days_2026 partition of "Shop".days for values from ('2026-01-01') to ('2027-01-01');
    create table "Shop".bare (line text);
    create view "Shop".open as select * from "Shop".customers;
    create materialized view "Shop".counts as select count(*) from "Shop".customers"#;

/// Objects that only a superuser can create.
const FOREIGN: &str = r#"create foreign data wrapper nothing; create server elsewhere foreign data wrapper nothing;
    create foreign table "Shop".remote (id int) server elsewhere;
    create table "Shop".of_extension (id int primary key); alter extension plpgsql add table "Shop".of_extension;
    create schema other; create table other.secret (id serial primary key)"#;

/// The time from an empty machine to the first undone write.
const TWO_MINUTES: Duration = Duration::from_secs(120);

/// The privileges of a role on each relation outside of the system's schemas and the ledger.
async fn privileges(db: &Database, role: &str) -> Vec<String> {
    let sql = format!(
        "select format('%s %s', c.oid::regclass, string_agg(p.name, ',' order by p.place))
         from pg_class c join pg_namespace n on n.oid = c.relnamespace
         cross join unnest(array['usage', 'select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger'])
             with ordinality p (name, place)
         where c.relkind in ('r', 'p', 'v', 'm', 'f', 'S') and n.nspname !~ '^pg_|^information_schema$|^countersign$'
           and case when c.relkind = 'S'
                    then p.name in ('usage', 'select', 'update') and has_sequence_privilege('{role}', c.oid, p.name)
                    else p.name <> 'usage' and has_table_privilege('{role}', c.oid, p.name) end
         group by c.oid order by c.oid::regclass::text collate \"C\""
    );
    db.rows(&sql).await.concat()
}

async fn tracked(db: &Database) -> String {
    db.value("select string_agg(name, ' ' order by name collate \"C\") from countersign.tracked where is_current").await
}

/// A name that no other test on the cluster has: roles belong to the whole cluster.
fn named(db: &Database, role: &str) -> String {
    format!("{role}_{}", db.name())
}

/// Runs `init` with a configuration file to write.
async fn init(url: &str, arguments: &[&str], config: &Path) -> CommandOutput {
    let mut command = Command::new(countersign());
    command.env("DATABASE_URL", url).env("XDG_CONFIG_HOME", config_home()).args(["init", "--config"]).arg(config);
    run(command.args(arguments)).await
}

/// The names of the files in a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into()).collect()
}

/// The password in a configuration file.
fn password(config: &Path) -> String {
    let text = std::fs::read_to_string(config).unwrap();
    let (_, after) = text.split_once("password=").expect("a password");
    after.split([' ', '"', '\'']).next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_login_of_servers_gets_what_writes_of_the_tables_need_and_nothing_else() {
    let db = Database::empty("init_exact").await;
    db.run(&format!("{SHOP}; {FOREIGN}")).await;
    let writer = named(&db, "writer");
    let said = succeed(&db.url(), &["init", "--schema", "Shop", "--writer", &writer]).await;
    assert_eq!(
        privileges(&db, &writer).await,
        [
            r#""Shop"."Order Items" select,insert,update,delete"#,
            r#""Shop"."Order Items_id_seq" usage"#,
            r#""Shop".bare select,insert,update,delete"#,
            r#""Shop".customers select,insert,update,delete"#,
            r#""Shop".days select,insert,update,delete"#,
            r#""Shop".numbers usage"#,
            r#""Shop".owned usage"#,
        ]
    );
    let usage = format!(
        "select string_agg(nspname, ' ') from pg_namespace where nspname in ('Shop', 'other')
         and (has_schema_privilege('{writer}', oid, 'usage') or has_schema_privilege('{writer}', oid, 'create'))"
    );
    assert_eq!(db.value(&usage).await, "Shop");
    assert_eq!(db.value(&format!("select has_schema_privilege('{writer}', 'Shop', 'create')")).await, "f");
    assert_eq!(tracked(&db).await, r#""Shop"."Order Items" "Shop".bare "Shop".customers "Shop".days"#);
    for line in [
        &format!("granted  USAGE to {writer} on schema \"Shop\""),
        &format!(
            "granted  SELECT, INSERT, UPDATE, DELETE to {writer} on table \"Shop\".\"Order Items\", \"Shop\".bare,"
        ),
        "tracked  4 tables of Shop: \"Shop\".\"Order Items\", \"Shop\".bare, \"Shop\".customers, \"Shop\".days\n",
        "warning  \"Shop\".bare: no key: changes are recorded, and cannot be undone\n",
        "skipped  \"Shop\".of_extension belongs to the extension plpgsql\n",
        "skipped  \"Shop\".remote is a foreign table",
        &format!("Next: let servers log in as {writer} (\\password {writer} in psql)"),
        "countersign serve --config FILE\n",
    ] {
        assert!(said.contains(line), "no {line}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_init_grants_and_tracks_only_new_tables() {
    let db = Database::empty("init_again").await;
    db.run(SHOP).await;
    let writer = named(&db, "writer");
    let arguments = ["init", "--schema", "Shop", "--writer", &writer];
    succeed(&db.url(), &arguments).await;
    // An administrator's own choices.
    db.run(&format!("revoke delete on \"Shop\".bare from {writer}")).await;
    succeed(&db.url(), &["track", "\"Shop\".customers", "--all-writers"]).await;
    let shape = r#"select shape, all_writers from countersign.tracked where name = '"Shop".customers' and is_current"#;
    let before = db.rows(shape).await;
    db.run("create table \"Shop\".new (id serial primary key); create table \"Shop\".\"New\" (id int primary key)")
        .await;
    let said = succeed(&db.url(), &arguments).await;
    assert!(said.contains("tracked  2 new tables of Shop, 4 as before: \"Shop\".\"New\", \"Shop\".new\n"), "{said}");
    let granted = format!("SELECT, INSERT, UPDATE, DELETE to {writer} on table \"Shop\".\"New\", \"Shop\".new\n");
    assert!(said.contains(&granted), "{said}");
    assert!(said.contains(&format!("granted  USAGE to {writer} on sequence \"Shop\".new_id_seq\n")), "{said}");
    assert!(!said.contains("created ") && !said.contains("on schema") && !said.contains("Next:"), "{said}");
    assert_eq!(db.rows(shape).await, before, "a table that is tracked keeps its settings");
    let said = succeed(&db.url(), &arguments).await;
    assert!(said.contains("tracked  0 new tables of Shop, 6 as before\n") && !said.contains("granted"), "{said}");
    let sql = succeed(&db.url(), &[&arguments[..], &["--dry-run"]].concat()).await;
    assert!(!sql.contains("\"Shop\""), "there is nothing to do: {sql}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_prints_the_sql_and_writes_neither_the_database_nor_the_file() {
    let db = Database::empty("init_dry").await;
    db.run(SHOP).await;
    let writer = named(&db, "writer");
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--schema", "Shop", "--writer", &writer, "--dry-run"];
    let planned = init(&db.url(), &arguments, &folder.path().join("c.toml")).await.succeeded();
    for statement in [
        &format!("alter role \"{writer}\" password 'SCRAM-SHA-256$..';\n"),
        &format!("grant USAGE on schema \"Shop\" to \"{writer}\";\n"),
        &format!(
            "grant USAGE on sequence \"Shop\".\"Order Items_id_seq\", \"Shop\".numbers, \"Shop\".owned to \"{writer}\";\n"
        ),
        "select countersign.track('\"Shop\".\"Order Items\"', ",
    ] {
        assert!(planned.out.contains(statement), "no {statement}: {}", planned.out);
    }
    let roles = format!("select count(*) from pg_roles where rolname = '{writer}'");
    assert_eq!(db.value(&roles).await, "0");
    assert_eq!(db.value("select count(*) from pg_namespace where nspname = 'countersign'").await, "0");
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_file_is_refused_and_a_failed_init_leaves_none() {
    let db = Database::empty("init_refused").await;
    db.run(SHOP).await;
    let writer = named(&db, "writer");
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("countersign.toml");
    let unchanged = async || {
        let roles = format!("select count(*) from pg_roles where rolname = '{writer}'");
        assert_eq!(db.value(&roles).await, "0");
        assert_eq!(db.value("select count(*) from pg_namespace where nspname = 'countersign'").await, "0");
    };

    let failed = init(&db.url(), &["--schema", "shop", "--writer", &writer], &config).await;
    assert_eq!(failed.code, 1);
    assert!(failed.err.contains("there is no schema \"shop\" with tables of applications"), "{}", failed.err);
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new(), "no file is left");
    unchanged().await;

    std::fs::write(&config, "account = \"mine\"\n").unwrap();
    let refused = init(&db.url(), &["--schema", "Shop", "--writer", &writer], &config).await;
    assert_eq!((refused.code, refused.out.as_str()), (1, ""));
    for words in ["countersign.toml exists already", "to repeat init, leave --config out", "Nothing was changed"] {
        assert!(refused.err.contains(words), "{}", refused.err);
    }
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "account = \"mine\"\n");
    unchanged().await;

    // A dangling symbolic link counts as a file: nothing is written where it leads.
    let link = folder.path().join("link.toml");
    std::os::unix::fs::symlink(folder.path().join("target.toml"), &link).unwrap();
    let refused = init(&db.url(), &["--schema", "Shop", "--writer", &writer], &link).await;
    assert!(refused.code == 1 && refused.err.contains("exists already"), "{}", refused.err);
    let refused = init(&db.url(), &["--schema", "Shop", "--writer", &writer], &folder.path().join("no/c.toml")).await;
    assert!(refused.code == 1 && refused.err.contains("nothing was changed"), "{}", refused.err);
    unchanged().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_with_a_password_keeps_it_and_one_without_gets_one() {
    let db = Database::empty("init_password").await;
    db.run(SHOP).await;
    let (with, without, admin) = (named(&db, "with"), named(&db, "without"), named(&db, "admin"));
    db.run(&format!(
        "create role {with} login password 'of people'; create role {without} login; create role {admin} login createrole;
         grant countersign_owner to {admin}; alter database {} owner to {admin}",
        db.name()
    ))
    .await;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("countersign.toml");
    let stored = async |role: &str| {
        db.value(&format!("select coalesce(rolpassword, '') from pg_authid where rolname = '{role}'")).await
    };
    let before = stored(&with).await;
    let refused = init(&db.url(), &["--schema", "Shop", "--writer", &with], &config).await;
    assert!(
        refused.code == 1 && refused.err.contains(&format!("the login {with} has a password already")),
        "{}",
        refused.err
    );
    // CREATEROLE does not let a role see who has a password.
    let refused = init(&db.url_as(&admin), &["--schema", "Shop", "--writer", &without], &config).await;
    let words = format!("the role {admin} may not see whether it has a password: name another login with --writer");
    assert!(refused.code == 1 && refused.err.contains(&words), "{}", refused.err);
    assert_eq!((stored(&with).await, stored(&without).await), (before, String::new()));
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
    assert_eq!(db.value("select count(*) from pg_namespace where nspname = 'countersign'").await, "0");

    init(&db.url(), &["--schema", "Shop", "--writer", &without], &config).await.succeeded();
    assert!(stored(&without).await.starts_with("SCRAM-SHA-256$"));
    // Without --config, a password does not matter.
    succeed(&db.url(), &["init", "--schema", "Shop", "--writer", &with]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_login_may_not_do_is_printed_as_sql_for_the_owner_and_the_rest_is_done() {
    let db = Database::empty("init_owners").await;
    let (admin, other, writer) = (named(&db, "admin"), named(&db, "other"), named(&db, "writer"));
    db.run(&format!(
        "create role {admin} login createrole; create role {other} login; grant countersign_owner to {admin};
         alter database {} owner to {admin}; create schema \"Shop\" authorization {other};
         grant usage, create on schema \"Shop\" to {admin}; create table \"Shop\".\"Invoice\" (id serial primary key);
         alter table \"Shop\".\"Invoice\" owner to {other}",
        db.name()
    ))
    .await;
    run_as(&db, &admin, "create table \"Shop\".orders (id serial primary key)").await;
    let arguments = ["init", "--schema", "Shop", "--writer", &writer];
    let said = succeed(&db.url_as(&admin), &arguments).await;
    assert!(said.contains("tracked  1 table of Shop: \"Shop\".orders\n"), "{said}");
    assert!(said.contains(&format!("skipped  \"Shop\".\"Invoice\" belongs to the role {other}")), "{said}");
    let whose = format!("-- SQL for {other}, who owns these objects, or for a superuser:\n");
    let (_, block) = said.split_once(&whose).unwrap_or_else(|| panic!("no {whose}: {said}"));
    let (block, _) = block.split_once("Next:").unwrap();
    assert_eq!(
        block,
        format!(
            "grant USAGE on schema \"Shop\" to \"{writer}\";\n\
             grant SELECT, INSERT, UPDATE, DELETE on table \"Shop\".\"Invoice\" to \"{writer}\";\n\
             grant USAGE on sequence \"Shop\".\"Invoice_id_seq\" to \"{writer}\";\n\
             -- The next lines also need membership in countersign_owner:\n\
             select countersign.track('\"Shop\".\"Invoice\"');\n"
        )
    );
    let orders = [r#""Shop".orders select,insert,update,delete"#, r#""Shop".orders_id_seq usage"#];
    assert_eq!(privileges(&db, &writer).await, orders);
    let sql = succeed(&db.url_as(&admin), &[&arguments[..], &["--dry-run"]].concat()).await;
    assert!(sql.contains("-- select countersign.track('\"Shop\".\"Invoice\"');\n"), "{sql}");

    let (grants, tracking) = block.split_once("--").unwrap();
    run_as(&db, &other, grants).await;
    db.run(&format!("--{tracking}")).await;
    let said = succeed(&db.url_as(&admin), &arguments).await;
    assert!(said.contains("tracked  0 new tables of Shop, 2 as before\n"), "{said}");
    assert!(!said.contains("SQL for") && !said.contains("skipped  \"Shop\""), "{said}");
}

/// The database `shop` of the role `owner`, who is no superuser, on a cluster without any role of countersign. All
/// logins except the superuser have to give their passwords.
async fn machine() -> Database {
    let db = testkit::lone_database().await;
    let cluster = db.beside("postgres");
    cluster.run("drop database lone with (force)").await;
    for role in cluster.rows("select rolname from pg_roles where rolname like 'countersign%'").await.concat() {
        cluster.run(&format!("drop role {role}")).await;
    }
    cluster.run("create role owner login createrole password 'of the owner'").await;
    cluster.run("create database shop owner owner").await;
    cluster.run("alter system set log_statement = 'all'").await;
    let rules = "local all postgres trust\nlocal all all scram-sha-256\nhost all all all scram-sha-256\n";
    std::fs::write(cluster.value("show hba_file").await, rules).unwrap();
    cluster.run("select pg_reload_conf()").await;
    // The reload is a signal, which the server handles later.
    let url = cluster.url_as("owner");
    let is_refused = async || tokio_postgres::connect(&url, tokio_postgres::NoTls).await.is_err();
    poll::until("the owner is asked for its password", is_refused).await;
    db.beside("shop")
}

#[tokio::test(flavor = "multi_thread")]
async fn two_commands_lead_from_a_foreign_schema_to_an_undone_write_within_two_minutes() {
    let db = machine().await;
    let url = format!("{} password='of the owner'", db.url_as("owner"));
    let client = testkit::connect(&url).await;
    client.batch_execute(SHOP).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("my countersign.toml");
    let start = Instant::now();
    let made = init(&url, &["--schema", "Shop"], &config).await;
    assert_eq!((made.code, made.err.as_str()), (0, ""), "{}", made.out);
    assert!(!made.out.contains("warning  countersign") && !made.out.contains("-- SQL for"), "{}", made.out);

    // The file, and the places where its password is not.
    assert_eq!(std::fs::metadata(&config).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(files(folder.path()), [PathBuf::from("my countersign.toml")]);
    let password = password(&config);
    assert!(password.len() >= 40, "{password}");
    let log = std::fs::read_to_string(db.cluster().log_path()).unwrap();
    assert!(
        log.contains("alter role \"countersign_writer\" password 'SCRAM-SHA-256$"),
        "the control: statements are logged"
    );
    assert!(!made.out.contains(&password) && !log.contains(&password));

    // The printed command, in another folder and without the variables of this shell.
    let shown = config.display();
    let end = format!(
        "Next: countersign install --client cursor --config '{shown}'\n  or  countersign serve --config '{shown}'\n"
    );
    assert!(made.out.ends_with(&end), "{}", made.out);
    let with_config = |arguments: &[&str]| {
        let mut command = Command::new(countersign());
        command
            .env_remove("DATABASE_URL")
            .env("XDG_CONFIG_HOME", config_home())
            .env("HOME", folder.path())
            .current_dir("/");
        command.args(arguments).arg("--config").arg(&config).kill_on_drop(true);
        command
    };
    let doctor = run(&mut with_config(&["doctor", "--json"])).await;
    assert!(doctor.code == 0 && !doctor.out.contains("\"level\":\"problem\""), "{}{}", doctor.out, doctor.err);
    run(&mut with_config(&["install", "--client", "cursor"])).await.succeeded();
    let entry = std::fs::read_to_string(folder.path().join(".cursor/mcp.json")).unwrap();
    assert!(entry.contains("my countersign.toml") && !entry.contains(&password), "{entry}");

    // Nothing more is needed for a write that is tried, agreed to, and taken back.
    let server = Server::start(with_config(&["--log", "warn", "serve"])).await;
    let items = async || {
        let count = "select count(*)::int as n from \"Shop\".\"Order Items\"";
        server.succeed("query_database", json!({"query": count})).await["data"]["rows"][0]["n"].clone()
    };
    let agree = async |tool: &str, call: Value| {
        let shown = server.propose(tool, call).await;
        let id = shown["proposal_id"].as_str().unwrap();
        succeed(&url, &["proposals", "approve", id, "--yes"]).await;
        let answer = json!({"proposal_id": id, "digest": shown["digest"]});
        server.succeed("confirm_proposal", answer).await
    };
    let insert = json!({"sql": "insert into \"Shop\".\"Order Items\" (name) values ($1)", "params": ["pen"]});
    let added = agree("execute_sql", insert).await;
    assert_eq!(items().await, 1);
    agree("undo_mutation", added["meta"]["rollback"]["undo_params"].clone()).await;
    assert_eq!(items().await, 0);
    assert!(start.elapsed() < TWO_MINUTES, "{:?}", start.elapsed());
    server.close().await;

    // Repeated as the output says: without the file.
    let again = succeed(&url, &["init", "--schema", "Shop"]).await;
    assert!(again.contains("tracked  0 new tables of Shop, 4 as before\n"), "{again}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_variable_names_a_file_to_read_and_the_flag_one_to_write() {
    let db = Database::empty("init_variable").await;
    db.run(SHOP).await;
    let writer = named(&db, "writer");
    let folder = tempfile::tempdir().unwrap();
    let (read, written) = (folder.path().join("admin.toml"), folder.path().join("server.toml"));
    std::fs::write(&read, format!("database_url = {:?}\n", db.url())).unwrap();
    let mut command = Command::new(countersign());
    command.env_remove("DATABASE_URL").env("COUNTERSIGN_CONFIG", &read).env("XDG_CONFIG_HOME", config_home());
    let made = run(command.args(["init", "--schema", "Shop", "--writer", &writer, "--config"]).arg(&written)).await;
    assert_eq!((made.code, made.err.as_str()), (0, ""));
    let text = std::fs::read_to_string(&written).unwrap();
    assert!(text.contains(&format!("dbname={} user={writer} password=", db.name())), "{text}");
    // Without --schema, the flag names a file to read, as for every command.
    let mut command = Command::new(countersign());
    command.env_remove("DATABASE_URL").env("XDG_CONFIG_HOME", config_home()).arg("init").arg("--config").arg(&read);
    assert!(run(&mut command).await.out.contains("is ready"));
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_read_the_schemas_that_were_named_and_no_other() {
    let db = Database::empty("init_readers").await;
    db.run(&format!(
        "{SHOP}; create schema hr; create table hr.salary (id int primary key, amount int); create schema \"Crm\""
    ))
    .await;
    db.run("create table \"Crm\".\"Account\" (id int primary key); create table \"Crm\".lead (id int primary key)")
        .await;
    let writer = named(&db, "writer");
    let init = async |more: &[&str]| succeed(&db.url(), &[&["init", "--writer", &writer][..], more].concat()).await;
    let said = init(&["--schema", "Shop"]).await;
    assert!(
        said.contains("left     agents cannot read the other schemas (--reader-schema opens one): Crm, hr\n"),
        "{said}"
    );
    let reader = db.value("select role_name from countersign.reader_login where not for_callers").await;
    let readable = async || {
        db.value(&format!(
            "select coalesce(string_agg(c.oid::regclass::text, ' ' order by c.oid::regclass::text), '') from pg_class c
             join pg_namespace n on n.oid = c.relnamespace where c.relkind = 'r' and n.nspname in ('hr', 'Crm')
             and has_schema_privilege('{reader}', n.oid, 'usage') and has_table_privilege('{reader}', c.oid, 'select')"
        ))
        .await
    };
    assert_eq!(readable().await, "");
    // Not by a later `init` without a name, such as that of a new version.
    init(&[]).await;
    assert_eq!(readable().await, "");
    // A schema is opened by its name, to read alone or with writes.
    init(&["--reader-schema", "Crm"]).await;
    assert_eq!(readable().await, "\"Crm\".\"Account\" \"Crm\".lead");
    let wrote = format!("select has_table_privilege('{writer}', '\"Crm\".lead', 'insert')");
    assert_eq!(db.value(&wrote).await, "f");
    // What is revoked in an open schema stays revoked, and a schema that is made again is opened again.
    db.run(&format!("revoke select on \"Crm\".lead from {reader}")).await;
    init(&["--schema", "Crm"]).await;
    assert_eq!(readable().await, "\"Crm\".\"Account\"");
    db.run("drop schema \"Crm\" cascade; create schema \"Crm\"; create table \"Crm\".\"Account\" (id int primary key)")
        .await;
    init(&["--schema", "Crm"]).await;
    assert_eq!(readable().await, "\"Crm\".\"Account\"");
    for option in ["--schema", "--reader-schema"] {
        let refused = testkit::run_countersign(&db.url(), &["init", "--writer", &writer, option, "crm"]).await.err;
        assert!(
            refused.contains("there is no schema \"crm\"") && refused.contains("did you mean \"Crm\"?"),
            "{refused}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_is_removed_after_it_was_shown_what_that_does() {
    let db = Database::empty("uninstall").await;
    db.run(SHOP).await;
    let writer = named(&db, "writer");
    succeed(&db.url(), &["init", "--schema", "Shop", "--writer", &writer]).await;
    db.run("insert into \"Shop\".\"Order Items\" (name) values ('kept')").await;
    let readers = db.rows("select role_name from countersign.reader_login order by 1").await.concat();
    let uninstall = async |more: &[&str]| {
        testkit::run_countersign(&db.url(), &[&["uninstall", "--ledger"][..], more].concat()).await
    };
    // What uses the ledger is named, and nothing else is done.
    db.run("create policy own on \"Shop\".bare using (line = countersign.account())").await;
    let refused = uninstall(&["--run", db.name()]).await;
    assert!(refused.code == 1 && refused.err.contains("policy own on table \"Shop\".bare"), "{}", refused.err);
    db.run("drop policy own on \"Shop\".bare").await;
    let elsewhere = uninstall(&["--run", "postgres"]).await;
    assert!(elsewhere.code == 1 && elsewhere.err.contains("Nothing was changed"), "{}", elsewhere.err);
    let plan = uninstall(&[]).await.succeeded().out;
    for line in ["drop schema countersign cascade;", "-- 0 records go", "4 tracked tables", "--run uninstall"] {
        assert!(plan.contains(line), "{line}: {plan}");
    }
    assert_eq!(db.value("select count(*) from pg_namespace where nspname = 'countersign'").await, "1");
    let done = uninstall(&["--run", db.name()]).await.succeeded().out;
    assert!(done.starts_with("The ledger of uninstall is removed, with 0 records"), "{done}");
    assert!(done.contains(&format!("-- The role {writer} stays: `init` may not have made it.")), "{done}");
    assert_eq!(db.value("select count(*) from pg_namespace where nspname = 'countersign'").await, "0");
    assert_eq!(db.value("select count(*) from pg_trigger where tgname like '!countersign%'").await, "0");
    assert_eq!(privileges(&db, &writer).await, Vec::<String>::new());
    // The logins of reads are of this database; other roles are used by other databases.
    for reader in &readers {
        assert_eq!(
            db.value(&format!("select count(*) from pg_roles where rolname = '{reader}'")).await,
            "0",
            "{reader}"
        );
    }
    assert!(done.contains("countersign_owner stays: the database "), "{done}");
    assert_eq!(db.value("select name from \"Shop\".\"Order Items\"").await, "kept");
    let again = uninstall(&[]).await;
    assert!(again.code == 1 && again.err.contains("has no ledger"), "{}", again.err);
    succeed(&db.url(), &["init", "--schema", "Shop", "--writer", &writer]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tables_are_tracked_in_portions_that_are_kept_and_an_untracked_one_stays_so() {
    let db = Database::empty("init_portions").await;
    db.run(
        "create schema wide; do $$ begin for n in 100..219 loop
             execute format('create table wide.t%s (id int primary key)', n); end loop; end $$",
    )
    .await;
    let writer = named(&db, "writer");
    let arguments = ["init", "--schema", "wide", "--writer", &writer];
    // A table of the second portion is in use: meanwhile the first portion is there for everybody.
    let user = db.connect().await;
    user.batch_execute("begin; lock table wide.t210 in access share mode").await.unwrap();
    let running = tokio::spawn({
        let (url, arguments) = (db.url(), arguments.map(str::to_owned));
        async move { run_countersign(&url, &arguments.each_ref().map(String::as_str)).await }
    });
    db.until_value("select to_regclass('countersign.tracked') is not null", "t").await;
    db.until_value("select count(*) from countersign.tracked", "100").await;
    user.batch_execute("rollback").await.unwrap();
    let made = running.await.unwrap().succeeded();
    assert!(made.err.contains("tracking: 100 of 120 tables of wide\n"), "{}", made.err);
    assert!(made.out.contains("tracked  120 tables of wide: wide.t100,"), "{}", made.out);

    succeed(&db.url(), &["untrack", "wide.t150"]).await;
    db.run("create table wide.t300 (id int primary key)").await;
    let again = succeed(&db.url(), &arguments).await;
    assert!(again.contains("tracked  1 new table of wide, 119 as before: wide.t300\n"), "{again}");
    let skipped = "skipped  wide.t150 was untracked: `countersign track wide.t150` tracks it again\n";
    assert!(again.contains(skipped), "{again}");
}
