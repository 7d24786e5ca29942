//! Patroni, etcd and HAProxy, configured as the page says: servers that are never restarted find the new primary, and
//! clients that repeat a call with its key write exactly once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::audit::audit;
use testkit::{HttpClient, HttpServer, Patroni, Role, Successes, long_form, poll, say, skip_without_patroni};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How many clients write at a time.
const WRITERS: usize = 4;

/// Between two attempts of a call, and between two calls of a client.
const PAUSE: Duration = Duration::from_millis(10);

/// A failover, and all that a server does before it answers.
const DEADLINE: Duration = Duration::from_secs(120);

/// Servers on the addresses of the page: of all nodes, and HAProxy's.
async fn servers(patroni: &Patroni, folder: &tempfile::TempDir) -> Vec<HttpServer> {
    let mut servers = Vec::new();
    for (name, settings) in [("nodes", patroni.settings()), ("haproxy", patroni.settings_through_haproxy())] {
        let path = folder.path().join(format!("{name}.toml"));
        std::fs::write(&path, settings).unwrap();
        let mut command = HttpServer::command(patroni.database());
        // The addresses of the file are the ones to use.
        command.env_remove("DATABASE_URL").arg("--config").arg(path).args(["--http-requests-per-s", "0"]);
        servers.push(HttpServer::start(command).await);
    }
    servers
}

/// Clients that write and read through all servers until they are stopped.
struct Load {
    writers: JoinSet<Vec<String>>,
    readers: JoinSet<()>,
    writes: Arc<Successes>,
    reads: Arc<Successes>,
    stopping: Arc<AtomicBool>,
}

impl Load {
    fn start(servers: &[HttpServer]) -> Self {
        let clients: Vec<HttpClient> = servers.iter().map(HttpServer::http_client).collect();
        let mut load = Self {
            writers: JoinSet::new(),
            readers: JoinSet::new(),
            writes: Arc::default(),
            reads: Arc::default(),
            stopping: Arc::default(),
        };
        for number in 0..WRITERS {
            let (clients, writes, stopping) = (clients.clone(), Arc::clone(&load.writes), Arc::clone(&load.stopping));
            load.writers.spawn(write(number, clients, writes, stopping));
        }
        for client in clients {
            load.readers.spawn(read(client, Arc::clone(&load.reads), Arc::clone(&load.stopping)));
        }
        load
    }

    /// Waits until clients write and read again. Says for how long they could not.
    async fn goes_on(&self, event: &str) {
        self.writes.more(DEADLINE, "writes", 50).await;
        self.reads.more(DEADLINE, "reads", 50).await;
        let (writes, reads) = (self.writes.take_longest_gap_s(), self.reads.take_longest_gap_s());
        say(&format!("Patroni, {event}: {writes:.1} s without writes, {reads:.1} s without reads"));
    }

    /// The texts that were acknowledged.
    async fn finish(mut self) -> BTreeSet<String> {
        self.stopping.store(true, Ordering::Relaxed);
        while let Some(ended) = self.readers.join_next().await {
            ended.unwrap();
        }
        self.writers.join_all().await.into_iter().flatten().collect()
    }
}

/// Writes one text after the other; each with one key, through one server after the other, until it is acknowledged.
async fn write(
    number: usize,
    clients: Vec<HttpClient>,
    writes: Arc<Successes>,
    stopping: Arc<AtomicBool>,
) -> Vec<String> {
    let mut acknowledged = Vec::new();
    while !stopping.load(Ordering::Relaxed) {
        let text = format!("patroni-{number}-{}", acknowledged.len());
        let call = json!({"text": text, "idempotency_key": text});
        let end = Instant::now() + DEADLINE;
        for client in clients.iter().cycle().skip(acknowledged.len()) {
            assert!(Instant::now() < end, "{text} is never acknowledged");
            let envelope = client.call("post_tweet", call.clone()).await;
            if envelope["success"] == true {
                break;
            }
            assert_eq!(envelope["error"]["retryable"], true, "{envelope}");
            tokio::time::sleep(PAUSE).await;
        }
        writes.add();
        acknowledged.push(text);
        tokio::time::sleep(PAUSE).await;
    }
    acknowledged
}

async fn read(client: HttpClient, reads: Arc<Successes>, stopping: Arc<AtomicBool>) {
    while !stopping.load(Ordering::Relaxed) {
        let envelope = client.call("query_database", json!({"query": "select count(*) from social.tweet"})).await;
        match envelope["success"] == true {
            true => reads.add(),
            false => assert_eq!(envelope["error"]["retryable"], true, "{envelope}"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The texts in the table, and the keys of the successes in the ledger. Each must be there once.
async fn written(patroni: &Patroni) -> [BTreeSet<String>; 2] {
    let db = patroni.database();
    let texts = db.rows("select text from social.tweet where text like 'patroni-%'").await.concat();
    let keys =
        "select idempotency_key from countersign.record where status = 'success' and idempotency_key is not null";
    let keys = db.rows(keys).await.concat();
    [texts, keys].map(|found| {
        let distinct: BTreeSet<String> = found.iter().cloned().collect();
        assert_eq!(distinct.len(), found.len(), "one is there twice");
        distinct
    })
}

async fn is_standby(server: &HttpServer) -> Value {
    let query = json!({"query": "select pg_is_in_recovery() as it"});
    server.http_client().call("query_database", query).await["data"]["rows"][0]["it"].clone()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn a_switchover_and_a_killed_primary_lose_no_acknowledged_write_and_double_none() {
    if skip_without_patroni() {
        return;
    }
    let patroni = Patroni::start(true).await;
    let folder = tempfile::tempdir().unwrap();
    let servers = servers(&patroni, &folder).await;
    for server in &servers {
        assert_eq!(is_standby(server).await, true, "reads go to a standby");
    }
    let load = Load::start(&servers);
    load.goes_on("before").await;

    let before = patroni.node_with(Role::Leader).await;
    patroni.switchover().await;
    load.goes_on("switchover").await;
    patroni.until_whole().await;
    let after = patroni.node_with(Role::Leader).await;
    assert_ne!(before, after);

    patroni.signal_postmaster(after, Signal::SIGKILL);
    load.goes_on("kill -9 of the postmaster").await;
    patroni.until_whole().await;

    let acknowledged = load.finish().await;
    assert!(acknowledged.len() >= 150, "{}", acknowledged.len());
    for found in written(&patroni).await {
        assert_eq!(found, acknowledged);
    }
    let key = patroni.signing_key().display().to_string();
    audit(patroni.database(), &["seal", "--signing-key", &key]).await;
    let said = audit(patroni.database(), &["verify"]).await;
    let records = patroni.database().value("select count(*) from countersign.record").await;
    assert!(said.contains(&format!("{records} records in ")), "{said}");
    for server in &servers {
        server.until_ready().await;
        assert_eq!(is_standby(server).await, true, "reads go to a standby again");
    }
}

/// Both standbys are away, something is acknowledged, and the primary is lost with it. Then the standbys come back alone.
async fn lose_the_primary_while_it_is_alone(patroni: &mut Patroni, server: &HttpServer) -> usize {
    let primary = patroni.node_with(Role::Leader).await;
    let standbys: Vec<usize> = (0..3).filter(|number| *number != primary).collect();
    for standby in &standbys {
        patroni.kill_node(*standby).await;
    }
    let call = json!({"text": "patroni-alone", "idempotency_key": "patroni-alone"});
    let acknowledged = async || server.http_client().call("post_tweet", call.clone()).await["success"] == true;
    poll::until_within(DEADLINE, "the lonely primary takes writes", acknowledged).await;
    patroni.kill_node(primary).await;
    for standby in standbys {
        patroni.start_node(standby);
    }
    primary
}

/// Every server refuses to write on, until the ledger is forked.
async fn stop_and_fork(patroni: &Patroni, servers: &[HttpServer], folder: &tempfile::TempDir) {
    let post = async |server: &HttpServer| server.http_client().call("post_tweet", json!({"text": "after"})).await;
    for server in servers {
        let refused = post(server).await;
        let message = refused["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("are missing, at least 1 ("), "{refused}");
    }
    let key = folder.path().join("next.key").display().to_string();
    audit(patroni.database(), &["fork", "--yes", "--restored", "--signing-key", &key]).await;
    for server in servers {
        let written = post(server).await;
        assert_eq!(written["success"], true, "{written}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn without_synchronous_mode_a_lost_write_is_noticed_and_with_it_none_is_lost() {
    if long_form::is_left_out() || skip_without_patroni() {
        return;
    }
    for is_synchronous in [false, true] {
        let mut patroni = Patroni::start(is_synchronous).await;
        let folder = tempfile::tempdir().unwrap();
        let servers = servers(&patroni, &folder).await;
        let lost = lose_the_primary_while_it_is_alone(&mut patroni, &servers[0]).await;
        if is_synchronous {
            // None of the standbys may become the primary: only the node that has the write.
            patroni.until_without_primary().await;
            patroni.start_node(lost);
            patroni.until_whole().await;
            assert_eq!(patroni.node_with(Role::Leader).await, lost);
        } else {
            poll::until_within(DEADLINE, "a standby is the primary", async || patroni.takes_writes().await).await;
            patroni.start_node(lost);
            patroni.until_whole().await;
            stop_and_fork(&patroni, &servers, &folder).await;
        }
        let expected: BTreeSet<String> = is_synchronous.then(|| "patroni-alone".to_owned()).into_iter().collect();
        assert_eq!(written(&patroni).await, [expected.clone(), expected], "synchronous_mode: {is_synchronous}");
    }
}
