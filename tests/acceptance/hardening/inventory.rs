//! The objects that `init` creates, in the form that `doctor` compares.

use testkit::{Database, repository};

/// `UPDATE_GOLDEN=1` writes what the migrations make; `init` refuses a ledger that differs, so they are applied by hand here.
#[tokio::test(flavor = "multi_thread")]
async fn the_expected_inventory_is_what_the_migrations_make() {
    let setup = repository().join("crates/ledger/src/setup");
    // Not `Database::empty`, which runs `init` on another database first.
    let maintenance = Database::existing("postgres");
    maintenance.run("create database inventory template template0").await;
    let db = maintenance.beside("inventory");
    // The table of refinery.
    let mut script = "set search_path = pg_catalog, pg_temp; create schema countersign;
        create table countersign.schema_history (version int4 primary key, name varchar(255), applied_on varchar(255),
            checksum varchar(255));\n"
        .to_owned();
    for (_, sql) in ledger::BASELINE {
        script.push_str(sql);
    }
    let inventory = std::fs::read_to_string(setup.join("inventory.sql")).unwrap();
    let client = db.connect().await;
    client.batch_execute(&script).await.unwrap();
    let rows = client.query(&inventory, &[]).await.unwrap();
    let found: String = rows.iter().map(|row| row.get::<_, String>(0) + "\n").collect();
    let path = setup.join("expected.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    assert_eq!(found, std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDEN=1 rewrites it");
}
