//! Schemas that exist without us: the demo's, and pgbench's.

use std::fs;

use serde_json::json;
use testkit::{Database, database, repository, run_countersign};

use super::{Scaffolded, kept};

/// As `pgbench -i` makes them, with ten accounts.
const PGBENCH: &str = "
create table pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
create table pgbench_tellers (tid int not null, bid int, tbalance int, filler char(84)) with (fillfactor = 100);
create table pgbench_accounts (aid int not null, bid int, abalance int, filler char(84)) with (fillfactor = 100);
create table pgbench_branches (bid int not null, bbalance int, filler char(88)) with (fillfactor = 100);
insert into pgbench_branches (bid, bbalance) values (1, 0);
insert into pgbench_tellers (tid, bid, tbalance) select n, 1, 0 from generate_series(1, 10) n;
insert into pgbench_accounts (aid, bid, abalance, filler) select n, 1, 0, '' from generate_series(1, 10) n;
alter table pgbench_branches add primary key (bid);
alter table pgbench_tellers add primary key (tid);
alter table pgbench_accounts add primary key (aid);
";

#[tokio::test(flavor = "multi_thread")]
async fn the_tables_of_pgbench() {
    let db = Database::empty("scaffold_pgbench").await;
    run_countersign(&db.url(), &["init"]).await.succeeded();
    db.run(PGBENCH).await;
    let bench = Scaffolded::new(&db, "public").await;
    let names = ["accounts", "branches", "tellers"]
        .map(|table| ["insert", "update", "delete"].map(|verb| format!("{verb}_pgbench_{table}")));
    let served = bench.server.tool_names().await;
    let written: Vec<&String> = served.iter().filter(|name| name.contains("pgbench")).collect();
    assert_eq!(written, names.as_flattened().iter().collect::<Vec<_>>());

    bench.written_and_undone("insert_pgbench_accounts", json!({"aid": 11, "bid": 1, "abalance": 5})).await;
    bench.written_and_undone("update_pgbench_accounts", json!({"aid": 3, "abalance": -7, "filler": "x"})).await;
    bench
        .written_and_undone("update_pgbench_tellers", json!({"tid": 3, "set_null": ["bid", "filler", "tbalance"]}))
        .await;
    bench.written_and_undone("insert_pgbench_branches", json!({"bid": 2})).await;
    bench.approved_and_undone("delete_pgbench_accounts", json!({"aid": 10})).await;
    let long = json!({"aid": 11, "filler": "x".repeat(85)});
    let refused = bench.server.fail("insert_pgbench_accounts", long, "invalid_params").await;
    assert!(refused["message"].as_str().unwrap().contains("longer than 84 characters"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_of_a_social_network() {
    let db = database().await;
    let social = Scaffolded::new(&db, "social").await;
    let tweet = json!({"account_id": "default", "text": "scaffolded"});
    let data = social.written_and_undone("insert_tweet", tweet.clone()).await;
    assert!(data["id"].is_i64() && data["created_at"].is_string(), "{data}");
    assert_eq!(social.property("insert_tweet", "text").await["maxLength"], 280);
    let id =
        db.value("select min(id) from social.tweet where in_reply_to_id is not null").await.parse::<i64>().unwrap();
    social.written_and_undone("update_tweet", json!({"id": id, "text": "changed"})).await;
    social.written_and_undone("update_tweet", json!({"id": id, "set_null": ["in_reply_to_id"]})).await;
    let text = kept(&social, "insert_tweet", tweet, "select text from social.tweet order by id desc limit 1").await;
    assert_eq!(text, "scaffolded");
    let id = db.value("select max(id) from social.tweet").await.parse::<i64>().unwrap();
    social.approved_and_undone("delete_tweet", json!({"id": id})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_of_photo_studios() {
    // The policies of row level security apply to these tools as well.
    let db = database().await;
    let studio = Scaffolded::new(&db, "studio").await;
    let package = json!({"tenant_id": "default", "title": "Scaffolded", "description": "", "price": "12.50", "duration_minutes": 30});
    let data = studio.written_and_undone("insert_package", package).await;
    assert_eq!(data["price"].to_string(), "12.50");
    let minutes = studio.property("insert_package", "duration_minutes").await;
    assert_eq!((&minutes["minimum"], &minutes["maximum"]), (&json!(15), &json!(720)));
    assert_eq!(studio.property("insert_studio", "currency").await["pattern"], "^[A-Z]{3}$");
    let types = studio.property("insert_package_photo", "media_type").await;
    assert_eq!(types["enum"], json!(["image/gif", "image/jpeg", "image/png", "image/webp"]));
    studio.written_and_undone("update_package", json!({"tenant_id": "default", "package_id": 1, "price": 1})).await;
    let hours = json!({"tenant_id": "default", "weekday": 2, "set_null": ["opens", "closes"]});
    studio.written_and_undone("update_working_hours", hours).await;
    let none = json!({"tenant_id": "north.light", "package_id": 6, "price": 1});
    studio.server.fail("update_package", none, "not_found").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scaffolded_manifest_is_the_golden_file() {
    let db = database().await;
    let written = super::scaffold(&db, "studio", &["--table", "booking", "--table", "package_photo"]).await;
    let path = repository().join("tests/golden/scaffold/studio.toml");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &written.out).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written.out, expected, "it has changed; if that is meant, UPDATE_GOLDEN=1 writes it");
}
