//! What monitoring sees: calls by outcome, pools, and what is open in the ledger; when the database does not answer,
//! too. What a server over HTTP does with it is not here.

mod documented;
mod ledger_states;
mod unreachable;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ledger::read::{ReadLimits, Reader, SearchPath};
use ledger::{ConnectOptions, Ledger, LedgerOptions};
use serde_json::{Value, json};
use testkit::{Database, arguments, database, poll, repository};
use tools::{LedgerScrape, Metrics, Registry, Services, Toolset};
use types::Principal;

/// What a server has, without a transport: its tools, over the logins that servers have.
pub(crate) struct World {
    pub(crate) services: Services,
    registry: Registry,
}

impl World {
    pub(crate) async fn new(db: &Database, read_sessions: usize) -> Self {
        let limits = ReadLimits { sessions: read_sessions, ..ReadLimits::default() };
        Self::over(ConnectOptions::parse(&db.writer_url()).unwrap(), limits).await
    }

    /// Like `new`, but over this connection string.
    pub(crate) async fn over(target: ConnectOptions, limits: ReadLimits) -> Self {
        let ledger = Ledger::new(target.clone(), LedgerOptions { sessions: 2, ..LedgerOptions::default() });
        let services = Services {
            reader: Some(Reader::new(ledger.reader_login().await.unwrap(), &SearchPath::default(), limits)),
            ..without_reader(&ledger)
        };
        let sources = ["social", "studio"].map(|name| {
            manifest::Source::read(repository().join(format!("manifests/{name}.toml"))).expect("a shipped manifest")
        });
        let names =
            manifest::ServerNames { builtin: &tools::builtin::NAMES, executors: &["delete_package_photo"], prefix: "" };
        let catalog = manifest::compile(&sources, &names, &ledger).await.unwrap();
        let tools = Toolset::new(&services, &catalog, &tools::native::executors().unwrap()).unwrap();
        Self { services, registry: Registry::of_one(Arc::new(tools)) }
    }

    /// Calls a tool; its envelope, if there is such a tool.
    pub(crate) async fn call(&self, tool: &str, json: Value) -> Option<Value> {
        let principal = Principal { actor: Some("an-actor".to_owned()), ..Principal::default() };
        let reply = self.registry.call(tool, arguments(json), principal).await?;
        Some(serde_json::from_str(&reply.envelope.into_json().unwrap()).unwrap())
    }

    async fn scrape(&self) -> Scraped {
        Scraped::parse(&self.services.metrics.render(&[self.services.gauges().await]))
    }
}

/// What tools work on, but for the read path.
pub(crate) fn without_reader(ledger: &Ledger) -> Services {
    Services {
        name: None,
        reader: None,
        has_ledger: true,
        scrape: LedgerScrape::new(Some(ledger.gauges())),
        ledger: ledger.clone(),
        call_deadline: Duration::from_secs(20),
        activity: tools::Activity::default(),
        metrics: Metrics::new(),
        masks: tools::MaskPolicy::default(),
        execute_sql: None,
        agent_confirms: true,
        console: None,
    }
}

/// Samples by name and labels, as they are written.
#[derive(Debug, PartialEq)]
pub(crate) struct Scraped(BTreeMap<String, f64>);

impl Scraped {
    pub(crate) fn parse(text: &str) -> Self {
        assert!(text.ends_with("# EOF\n"), "{text}");
        let samples = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        });
        Self(samples.collect())
    }

    pub(crate) fn get(&self, sample: &str) -> Option<f64> {
        self.0.get(sample).copied()
    }

    pub(crate) fn of(&self, sample: &str) -> f64 {
        self.get(sample).unwrap_or_else(|| panic!("{sample} is not among {:#?}", self.0.keys()))
    }

    /// Those that begin like this and are not zero.
    fn counted(&self, prefix: &str) -> Vec<(&str, f64)> {
        let found = self.0.iter().filter(|(name, value)| name.starts_with(prefix) && **value != 0.0);
        found.map(|(name, value)| (name.as_str(), *value)).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_counted_once_by_its_outcome_and_labels_hold_none_of_its_data() {
    let db = database().await;
    let world = World::new(&db, 2).await;
    let before = world.scrape().await;
    assert!(!before.0.keys().any(|sample| sample.contains("tool=")), "only what was used: {before:#?}");
    let package = json!({"package_id": 1, "title": "MARK", "description": "MARK", "price": 1, "duration_minutes": 60});
    for (tool, arguments) in [
        ("query_database", json!({"query": "select 'MARK'"})),
        ("query_database", json!({"query": "select MARK"})),
        ("query_database", json!({"query": "delete from social.tweet"})),
        ("query_database", json!({"MARK": 1})),
        ("like_tweet", json!({"tweet_id": 2, "idempotency_key": "MARK"})),
        ("like_tweet", json!({"tweet_id": 2, "idempotency_key": "MARK"})),
        ("upsert_package", package),
        ("get_mutation_detail", json!({"correlation_id": "00000000-0000-4000-8000-000000000000"})),
    ] {
        assert!(world.call(tool, arguments).await.is_some(), "{tool}");
    }
    for unknown in ["MARK", "like_tweet\"} 1", "countersign"] {
        assert_eq!(world.call(unknown, json!({})).await, None);
    }
    let scraped = world.scrape().await;
    for outcome in ["commit_outcome_unknown", "internal_error"] {
        let sample = format!("countersign_tool_calls_total{{tool=\"like_tweet\",outcome=\"{outcome}\"}}");
        assert_eq!(scraped.of(&sample), 0.0);
    }
    let expected = [
        ("get_mutation_detail", "not_found"),
        ("like_tweet", "duplicate"),
        ("like_tweet", "success"),
        ("query_database", "invalid_params"),
        ("query_database", "not_read_only"),
        ("query_database", "sql_error"),
        ("query_database", "success"),
        ("upsert_package", "proposed"),
    ]
    .map(|(tool, outcome)| (format!("countersign_tool_calls_total{{tool=\"{tool}\",outcome=\"{outcome}\"}}"), 1.0));
    let counted = scraped.counted("countersign_tool_calls_total");
    assert_eq!(counted, expected.each_ref().map(|(name, count)| (name.as_str(), *count)));
    assert_eq!(scraped.of(r#"countersign_tool_call_duration_seconds_count{tool="query_database"}"#), 4.0);
    assert_eq!(scraped.of("countersign_calls_in_flight"), 0.0);
    let text = world.services.metrics.render(&[world.services.gauges().await]);
    let counters: Vec<&str> = text.lines().filter(|line| line.starts_with("countersign_tool_calls_total")).collect();
    assert!(counters.is_sorted(), "{counters:#?}");
    let buckets: Vec<&str> =
        text.lines().filter(|line| line.contains("_bucket{") && line.contains("like_tweet")).collect();
    assert!(buckets[0].contains("0.001") && buckets.last().unwrap().contains("+Inf"), "{buckets:#?}");
    for hidden in ["MARK", "an-actor", "default", "delete"] {
        assert!(!text.replace("delete_", "").contains(hidden), "{hidden}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn running_waiting_and_abandoned_calls_are_counted() {
    let db = database().await;
    let world = Arc::new(World::new(&db, 1).await);
    // One has the session, four wait for it, two for room.
    let calls: Vec<_> = (0..7)
        .map(|_| {
            let world = Arc::clone(&world);
            tokio::spawn(async move { world.call("query_database", json!({"query": "select pg_sleep(19)"})).await })
        })
        .collect();
    let read = |what: &str| format!("countersign_pool_{what}");
    let is_full = |scraped: &Scraped| {
        scraped.of(&read(r#"waiting{pool="read"}"#)) == 6.0
            && scraped.of(&read(r#"sessions{pool="read",state="in_use"}"#)) == 1.0
    };
    let full = until(&world, is_full).await;
    assert_eq!(full.of(&read(r#"sessions_max{pool="read"}"#)), 1.0);
    assert_eq!(full.of(&read(r#"sessions_max{pool="write"}"#)), 2.0);
    assert_eq!(full.of(&read(r#"waiting{pool="write"}"#)), 0.0);
    assert_eq!(full.of("countersign_calls_in_flight"), 7.0);
    assert_eq!(full.counted("countersign_tool_calls_total"), []);
    for call in calls {
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
    }
    let nobody_waits = |scraped: &Scraped| {
        scraped.of(&read(r#"waiting{pool="read"}"#)) == 0.0
            && scraped.of(&read(r#"sessions{pool="read",state="in_use"}"#)) == 0.0
    };
    let after = until(&world, nobody_waits).await;
    assert_eq!(after.of("countersign_calls_in_flight"), 0.0);
    let cancelled = r#"countersign_tool_calls_total{tool="query_database",outcome="cancelled"}"#;
    assert_eq!(after.counted("countersign_tool_calls_total"), [(cancelled, 7.0)]);
    assert_eq!(after.of(r#"countersign_tool_call_duration_seconds_count{tool="query_database"}"#), 7.0);
}

/// Asks until it is like this; within the deadlines of calls.
async fn until(world: &World, like_this: impl Fn(&Scraped) -> bool) -> Scraped {
    poll::until_some("the metrics are as wanted", async || Some(world.scrape().await).filter(&like_this)).await
}
