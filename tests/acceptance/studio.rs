//! The shipped studio manifest and its schema: what belongs to one tenant is neither seen nor changed by another, by
//! row level security alone, by the foreign keys alone, and by the statements alone.

mod packages;
mod reads;
mod sessions;
mod statements;

use testkit::{Database, config_home, countersign, database, repository};
use tokio::process::Command;
use tokio_postgres::Client;

/// The tables of the schema, with an insert that gives a row to `$tenant`; all of them would fit but for the tenant.
const TABLES: [(&str, &str); 5] = [
    ("studio", "insert into studio.studio values ($tenant, 'Another', 'UTC', 'EUR') on conflict do nothing"),
    (
        "package",
        "insert into studio.package (tenant_id, title, description, price, duration_minutes) values ($tenant, 'New', '', 1, 60)",
    ),
    (
        "package_photo",
        "insert into studio.package_photo (tenant_id, package_id, position, caption, media_type, data) \
         select $tenant, case when $tenant = 'default' then 1 else 6 end, 9, '', 'image/gif', '\\x00'",
    ),
    (
        "working_hours",
        "insert into studio.working_hours values ($tenant, 7, '09:00', '10:00') on conflict (tenant_id, weekday) do nothing",
    ),
    (
        "booking",
        "insert into studio.booking (tenant_id, package_title, customer, starts_at, ends_at) \
         values ($tenant, 'New', 'Somebody', '2099-06-04 14:00+00', '2099-06-04 15:00+00')",
    ),
];

/// A session with the rights of the servers' login, which itself changes tracked tables only within recorded writes.
async fn writer(db: &Database) -> Client {
    let role = format!("writer_{}", db.name());
    db.run(&format!(
        "do $$ begin create role {role} login in role countersign_writer; exception when duplicate_object or unique_violation then end $$"
    ))
    .await;
    let url = db.url_as(&role);
    testkit::connect(&url).await
}

async fn count(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}")).get(0)
}

/// The SQLSTATE of a statement that is refused; `00000` if it is not.
async fn sqlstate(client: &Client, sql: &str) -> String {
    match client.batch_execute(sql).await {
        Ok(()) => "00000".to_owned(),
        Err(error) => error.as_db_error().unwrap_or_else(|| panic!("{sql}: {error}")).code().code().to_owned(),
    }
}

/// A database in which the policies refuse bookings and nothing else does: the trigger, which sees no hours of others
/// either, would be first.
async fn without_trigger() -> Database {
    let db = database().await;
    db.run("alter table studio.booking disable trigger booking_in_time").await;
    db
}

const AS_DEFAULT: &str = "set countersign.account_id = 'default'";

#[tokio::test(flavor = "multi_thread")]
async fn the_shipped_manifest_fits_the_shipped_schema_for_the_login_that_init_makes() {
    let db = database().await;
    let mut command = Command::new(countersign());
    command.env("DATABASE_URL", db.writer_url()).args(["check", "--manifest"]);
    let output = command.arg(repository().join("manifests/studio.toml")).output().await.unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    // The summary counts the tools that need agreement and says that no executor is missing.
    let expected = "6 tools fit the database, 6 of them write. \
                    Tools that need agreement: 5 (4 confirm, 1 approve); every executor is there.";
    assert!(output.status.success() && said.contains(expected), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn init_adds_the_schema_of_the_demo_that_is_missing_and_leaves_the_other_as_it_is() {
    let db = database().await;
    let (studio, mut social) = (db.contents("studio").await, db.social().await);
    db.run("drop schema studio cascade; delete from social.media").await;
    social.retain(|row| row[0] != "media");
    for said in ["\"studio\" and its data are loaded", "\"studio\" exists already"] {
        let mut command = Command::new(countersign());
        command.env("DATABASE_URL", db.url()).env("XDG_CONFIG_HOME", config_home());
        let output = command.args(["init", "--demo"]).output().await.unwrap();
        let out = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(out.contains(said) && out.contains("\"social\" exists already"), "{out}");
        assert_eq!((db.contents("studio").await, db.social().await), (studio.clone(), social.clone()));
    }
    let client = writer(&db).await;
    client.batch_execute(AS_DEFAULT).await.unwrap();
    assert_eq!(count(&client, "select count(*) from studio.package").await, 3, "servers may use it");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_account_the_server_sees_no_row_and_makes_none() {
    let db = without_trigger().await;
    let client = writer(&db).await;
    for setting in ["reset countersign.account_id", "set countersign.account_id = ''"] {
        client.batch_execute(setting).await.unwrap();
        for (table, insert) in TABLES {
            let all = format!("select count(*) from studio.{table}");
            assert!(db.value(&all).await.parse::<i64>().unwrap() > 0, "{table} has rows");
            assert_eq!(count(&client, &all).await, 0, "{table}");
            let insert = insert.replace("$tenant", "'default'");
            assert_eq!(sqlstate(&client, &insert).await, "42501", "{insert}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_sees_only_its_own_rows() {
    let db = database().await;
    let client = writer(&db).await;
    client.batch_execute(AS_DEFAULT).await.unwrap();
    for (table, _) in TABLES {
        let own = format!("select count(*) from studio.{table} where tenant_id = 'default'");
        let seen = count(&client, &format!("select count(*) from studio.{table}")).await;
        assert_eq!(seen.to_string(), db.value(&own).await, "{table}");
        assert!(seen > 0, "{table}");
        let foreign = format!("select count(*) from studio.{table} where tenant_id <> 'default'");
        assert_eq!(count(&client, &foreign).await, 0, "{table}");
        assert_ne!(db.value(&foreign).await, "0", "{table} has rows of others");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_cannot_change_delete_make_or_give_away_rows_of_another() {
    let db = without_trigger().await;
    let client = writer(&db).await;
    client.batch_execute(AS_DEFAULT).await.unwrap();
    let before = db.contents("studio").await;
    for (table, insert) in TABLES {
        for sql in [
            format!("update studio.{table} set tenant_id = tenant_id where tenant_id = 'north.light'"),
            format!("delete from studio.{table} where tenant_id = 'north.light'"),
        ] {
            assert_eq!(client.execute(&sql, &[]).await.unwrap(), 0, "{sql}");
        }
        for sql in [
            insert.replace("$tenant", "'north.light'"),
            format!("update studio.{table} set tenant_id = 'north.light' where tenant_id = 'default'"),
        ] {
            assert_eq!(sqlstate(&client, &sql).await, "42501", "{sql}");
        }
    }
    assert_eq!(db.contents("studio").await, before);
    // The same inserts are fine with the tenant's own name, so it is the tenant that was refused.
    for (_, insert) in TABLES {
        assert_eq!(sqlstate(&client, &insert.replace("$tenant", "'default'")).await, "00000", "{insert}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_row_points_to_another_tenants() {
    // As the owner, whom row level security does not hold.
    let db = database().await;
    let client = db.connect().await;
    for sql in [
        "update studio.package_photo set package_id = 6, position = 9 where tenant_id = 'default' and photo_id = 1",
        "update studio.booking set package_id = 6 where tenant_id = 'default' and booking_id = 2",
        "update studio.package set tenant_id = 'north.light' where tenant_id = 'default' and package_id = 1",
    ] {
        assert_eq!(sqlstate(&client, sql).await, "23503", "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shipped_future_bookings_satisfy_the_rules_of_booking() {
    // The seed switches the trigger off for the one that is over.
    let db = database().await;
    let client = db.connect().await;
    let to_come = "update studio.booking set starts_at = starts_at where booking_id > 1";
    assert_eq!(client.execute(to_come, &[]).await.unwrap(), 5);
    assert_eq!(sqlstate(&client, "update studio.booking set starts_at = starts_at").await, "23514");
    let numbers = "select count(*) from studio.package_photo o where position <> (select count(*) from studio.package_photo b \
                   where b.tenant_id = o.tenant_id and b.package_id = o.package_id and b.position <= o.position)";
    assert_eq!(db.value(numbers).await, "0", "positions have no gaps");
}
