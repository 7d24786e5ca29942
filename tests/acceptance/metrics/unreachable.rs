//! A database that does not answer: the scrape does.

use std::time::{Duration, Instant};

use ledger::{ConnectOptions, Ledger, LedgerOptions};
use testkit::{Database, database};
use tokio::net::UnixListener;

use super::{Scraped, without_reader};

/// Scrapes three times at once a database that this names; it takes so long at most, and all three see the same.
async fn down(url: &str, at_most: Duration) {
    let ledger = Ledger::new(ConnectOptions::parse(url).unwrap(), LedgerOptions::default());
    let services = without_reader(&ledger);
    let render = async || services.metrics.render(&[services.gauges().await]);
    let begun = Instant::now();
    let texts = tokio::join!(render(), render(), render());
    assert!(begun.elapsed() < at_most, "{:?}", begun.elapsed());
    for text in [texts.0, texts.1, texts.2] {
        let scraped = Scraped::parse(&text);
        assert_eq!(scraped.of("countersign_database_up"), 0.0);
        assert_eq!(scraped.get("countersign_records_pending"), None, "nobody knows");
        assert!(!text.contains("proposal"), "{text}");
        assert_eq!(scraped.of(r#"countersign_pool_sessions_max{pool="write"}"#), 16.0);
        assert!(scraped.of("process_resident_memory_bytes") > 1e6);
    }
    let begun = Instant::now();
    render().await;
    assert!(begun.elapsed() < Duration::from_secs(1), "what was just asked is not asked again");
    ledger.gauges().drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_database_a_scrape_responds_at_once_and_reports_the_outage() {
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let url = format!("host={} port=5432 user=me dbname=shop", folder.path().display());
    down(&url, Duration::from_secs(2)).await;
    // One that takes the connection and says nothing.
    let _silent = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).unwrap();
    down(&url, Duration::from_secs(4)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrape_of_a_locked_ledger_ends_after_2_seconds_and_leaves_nothing_waiting() {
    let db = database().await;
    let client = db.lock("countersign.proposal").await;
    down(&db.writer_url(), Duration::from_secs(4)).await;
    assert_eq!(waiting(&db).await, "0", "the backend was told to stop");
    client.release().await;
}

async fn waiting(db: &Database) -> String {
    let sql = format!(
        "select count(*) from pg_stat_activity where datname = '{}' and wait_event_type = 'Lock' and query like '%unsealed%'",
        db.name()
    );
    db.value(&sql).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_is_counted_when_all_sessions_that_write_are_taken() {
    let db = database().await;
    let world = super::World::new(&db, 1).await;
    let client = db.lock("social.tweet_like").await;
    let world = std::sync::Arc::new(world);
    let calls: Vec<_> = (2..=4)
        .map(|id| {
            let world = std::sync::Arc::clone(&world);
            tokio::spawn(async move { world.call("like_tweet", serde_json::json!({"tweet_id": id})).await })
        })
        .collect();
    let stuck = |scraped: &Scraped| {
        scraped.of(r#"countersign_pool_sessions{pool="write",state="in_use"}"#) == 2.0
            && scraped.of(r#"countersign_pool_waiting{pool="write"}"#) == 1.0
    };
    let scraped = super::until(&world, stuck).await;
    assert_eq!(scraped.of("countersign_database_up"), 1.0);
    client.release().await;
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap()["success"], true);
    }
}
