//! A hot standby that agents read from is promoted in the middle of reads and writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use testkit::{Database, HttpClient, HttpServer, Standby, lone_database, long_form, say};
use tokio::task::JoinSet;

use super::HANDSHAKE;
use super::fleet::{are_accounted_for, sweep, until_written, write};
use crate::standby::{both, reader_url};

/// Two servers whose clients read and write until enough is written.
struct Traffic {
    servers: Vec<HttpServer>,
    written: Arc<AtomicU32>,
    writers: JoinSet<Vec<(String, String)>>,
    readers: JoinSet<BTreeMap<String, usize>>,
}

/// How many writes there are. The failover comes after a third of them.
fn enough() -> u32 {
    long_form::choose(90, 300)
}

impl Traffic {
    async fn start(db: &Database, database_url: &str, read_url: &str) -> Self {
        let one = || async {
            let mut command = HttpServer::command(db);
            command.env("DATABASE_URL", database_url).args(["--read-url", read_url, "--http-requests-per-s", "0"]);
            HttpServer::start(command).await
        };
        let servers = futures_util::future::join_all([one(), one()]).await;
        let written = Arc::new(AtomicU32::new(0));
        let (mut writers, mut readers) = (JoinSet::new(), JoinSet::new());
        for name in 0..6 {
            let server = &servers[name % 2];
            let client = if name < 3 { server.http_client() } else { server.session(HANDSHAKE).await };
            readers.spawn(read(client.clone(), Arc::clone(&written)));
            writers.spawn(write(client, name, Arc::clone(&written), enough()));
        }
        Self { servers, written, writers, readers }
    }

    /// The receipts. Each server reads and is ready in the end, and what its clients were told meanwhile is printed.
    async fn end(self, name: &str) -> Vec<(String, String)> {
        let receipts = self.writers.join_all().await.into_iter().flatten().collect();
        let mut told = BTreeMap::<String, usize>::new();
        for (what, times) in self.readers.join_all().await.into_iter().flatten() {
            *told.entry(what).or_default() += times;
        }
        say(&format!("{name}: reads were told {told:?}"));
        for server in &self.servers {
            server.until_ready().await;
            let read = server.http_client().call("query_database", json!({"query": "select 1 as n"})).await;
            assert_eq!(read["success"], true, "{read}");
        }
        receipts
    }
}

/// Reads until enough is written: rows, or a named error that says to come again. How often what was told.
async fn read(client: HttpClient, written: Arc<AtomicU32>) -> BTreeMap<String, usize> {
    let mut told = BTreeMap::<String, usize>::new();
    let mut id = 1_000_000;
    while written.load(Ordering::Relaxed) < enough() {
        id += 1;
        let query = json!({"query": "select count(*) as n from social.tweet"});
        let message = client.try_call(id, "query_database", &query).await.expect("the server stays").message();
        let envelope = &message["result"]["structuredContent"];
        let what = match envelope["success"] == true {
            true => "rows".to_owned(),
            false => {
                assert_eq!(envelope["error"]["retryable"], true, "{message}");
                envelope["error"]["code"].as_str().unwrap().to_owned()
            }
        };
        *told.entry(what).or_default() += 1;
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_promoted_beside_its_primary_keeps_answering_reads_and_writes_are_unaffected() {
    let primary = lone_database().await;
    let standby = Standby::of(&primary, &[]).await;
    let traffic = Traffic::start(&primary, &primary.writer_url(), &reader_url(&standby.database)).await;
    until_written(&traffic.written, enough() / 3).await;
    // Without waiting in a statement of its own, which the recovery that it waits for may cancel.
    standby.database.run("select pg_promote(wait => false)").await;
    standby.database.first_value("select 1 where not pg_is_in_recovery()").await;
    let receipts = traffic.end("promoted").await;
    are_accounted_for(&primary, receipts).await;
    let failed = "select count(*) from countersign.mutation where status not in ('success', 'duplicate')";
    assert_eq!(primary.value(failed).await, "0");
}

/// The standby confirms each commit, so whatever was acknowledged is there after the failover.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_in_the_middle_of_reads_and_writes_loses_none_and_doubles_none() {
    let primary = lone_database().await;
    let standby = Standby::of(&primary, &[]).await;
    primary.run("alter system set synchronous_standby_names = '*'").await;
    primary.run("select pg_reload_conf()").await;
    primary.first_value("select 1 from pg_stat_replication where sync_state = 'sync'").await;
    let (first, second) = (&primary, &standby.database);
    let writing = both(second, first, ledger::DEFAULT_WRITER, "read-write");
    let reading = both(second, first, "countersign_reader", "prefer-standby");
    let traffic = Traffic::start(&primary, &writing, &reading).await;
    until_written(&traffic.written, enough() / 3).await;
    primary.cluster().stop_immediate().unwrap();
    second.run("select pg_promote()").await;
    let sweeping = tokio::spawn(sweep(second.clone()));
    let receipts = traffic.end("failover").await;
    sweeping.abort();
    are_accounted_for(second, receipts).await;
}
