//! Agents that write and read, and repeat lost calls until they are answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chaos_checker::{Arguments, Id, Outcome, Request};
use serde::Deserialize;
use serde_json::Value;
use testkit::long_form;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::fleet::Fleet;
use super::history::HistoryFile;

/// How many agents there are. Each has texts and tweets of its own, so it knows what must become of them.
pub(super) const AGENTS: usize = 8;
/// Between two attempts of a call: PostgreSQL may be down for a while.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a call is repeated before an agent gives up on it: longer than a call that waits for another one, and than servers take
/// to come back on a machine that runs everything else as well.
const TIMEOUT: Duration = Duration::from_secs(300);

/// How long an agent thinks between two calls, at most, in milliseconds. More calls would find nothing that these do not, and take the
/// processors from the faults.
pub(super) fn think_ms() -> u64 {
    long_form::variable("COUNTERSIGN_CHAOS_THINK_MS").unwrap_or(100)
}

pub(super) struct Load {
    agents: JoinSet<()>,
    stopping: Arc<AtomicBool>,
}

impl Load {
    pub(super) fn start(fleet: &Arc<Fleet>, history: &Arc<HistoryFile>, rng: &mut fastrand::Rng) -> Self {
        let stopping = Arc::<AtomicBool>::default();
        let mut agents = JoinSet::new();
        for number in 0..AGENTS {
            let agent = Agent::new(format!("agent-{number}"), fleet, history, rng.fork());
            agents.spawn(agent.work(number, Arc::clone(&stopping)));
        }
        Self { agents, stopping }
    }

    /// Lets every agent finish what it has begun.
    pub(super) async fn finish(self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.agents.join_all().await;
    }
}

#[derive(Clone)]
pub(super) struct Agent {
    name: String,
    fleet: Arc<Fleet>,
    history: Arc<HistoryFile>,
    rng: fastrand::Rng,
    /// Which tweets it likes.
    likes: BTreeMap<i64, bool>,
}

/// The data of a write that has inserted a row.
#[derive(Deserialize)]
struct Inserted {
    id: i64,
}

impl Agent {
    pub(super) fn new(name: String, fleet: &Arc<Fleet>, history: &Arc<HistoryFile>, rng: fastrand::Rng) -> Self {
        Self { name, fleet: Arc::clone(fleet), history: Arc::clone(history), rng, likes: BTreeMap::new() }
    }

    async fn work(mut self, number: usize, stopping: Arc<AtomicBool>) {
        let mut tweet = None;
        let think_ms = think_ms();
        for count in 0.. {
            if stopping.load(Ordering::Relaxed) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(self.rng.u64(..think_ms))).await;
            match (self.rng.u8(..15), tweet) {
                (0..4, Some(tweet)) => self.like_or_unlike(tweet, count).await,
                (4..6, _) => self.add_entry(number, count).await,
                (6..8, _) => self.add_to_total(number, count).await,
                (8, _) => self.query(number, count).await,
                _ => tweet = self.post(number, count).await,
            }
        }
    }

    /// Posts a text of its own, perhaps with a key, perhaps several times over; perhaps deletes it and posts it again.
    /// The tweet, if it is there in the end.
    async fn post(&mut self, number: usize, count: usize) -> Option<i64> {
        // No spaces: it is also the key.
        let text = format!("chaos-{number}-{count}");
        let key = (self.rng.u8(..3) == 0).then(|| text.clone());
        let arguments = Arguments { text: Some(text), ..Arguments::default() };
        let call = Request::Write { tool: "post_tweet".to_owned(), key, arguments };
        let (data, receipt) = match self.rng.u8(..4) {
            0 => self.at_once_twice(&call).await?,
            1 => {
                self.until_acknowledged(&call).await?;
                self.until_acknowledged(&call).await?
            }
            _ => self.until_acknowledged(&call).await?,
        };
        let Inserted { id: tweet } = Inserted::deserialize(&data).expect("an id");
        if self.rng.u8(..6) > 0 {
            return Some(tweet);
        }
        let undo = if self.rng.bool() {
            let arguments = Arguments { id: Some(tweet), ..Arguments::default() };
            let declared = Request::Undo { tool: "delete_tweet".to_owned(), of: receipt, arguments };
            self.until_acknowledged(&declared).await?.1
        } else {
            self.at_once_twice(&undo_of(receipt)).await?.1
        };
        if self.rng.bool() {
            self.at_once_twice(&undo_of(undo)).await?;
            return Some(tweet);
        }
        // What was undone is neither answered as done nor done again.
        self.until_answered(&call, "superseded").await;
        None
    }

    async fn like_or_unlike(&mut self, tweet: i64, count: usize) {
        let likes = self.likes.get(&tweet).copied().unwrap_or_default();
        let tool = if likes { "unlike_tweet" } else { "like_tweet" };
        let key = format!("{tool}-{tweet}-{count}");
        let arguments = Arguments { id: Some(tweet), ..Arguments::default() };
        let call = Request::Write { tool: tool.to_owned(), key: Some(key), arguments };
        if self.until_acknowledged(&call).await.is_some() {
            self.likes.insert(tweet, !likes);
        }
    }

    async fn add_entry(&mut self, number: usize, count: usize) {
        let key = format!("entry-{number}-{count}");
        let arguments = Arguments { text: Some(key.clone()), ..Arguments::default() };
        self.write_once("add_entry", key, arguments).await;
    }

    /// To one that half of the agents add to, for a while.
    async fn add_to_total(&mut self, number: usize, count: usize) {
        let key = format!("total-{number}-{count}");
        let (total, amount) = (count / 16 * 2 + number % 2, self.rng.u8(1..10));
        let id = Some(total.try_into().expect("a small number"));
        self.write_once("add_to_total", key, Arguments { id, amount: Some(amount.into()), text: None }).await;
    }

    /// Writes what the operator may take back at any moment: then a repeated call is refused, because it has happened.
    async fn write_once(&mut self, tool: &str, key: String, arguments: Arguments) {
        let call = Request::Write { tool: tool.to_owned(), key: Some(key), arguments };
        self.until_answered(&call, "superseded").await;
    }

    /// Reads, every other time with a statement that would write.
    async fn query(&mut self, number: usize, count: usize) {
        let call = if self.rng.bool() {
            Request::Query { sql: "select count(*) from social.tweet".to_owned() }
        } else {
            let text = format!("read-{number}-{count}");
            let insert =
                format!("insert into social.tweet (account_id, text) values ('default', '{text}') returning id");
            Request::WritingQuery { sql: format!("with added as ({insert}) select id from added"), text }
        };
        self.until_answered(&call, "not_read_only").await;
    }

    /// Sends one call through two servers at once.
    async fn at_once_twice(&mut self, call: &Request) -> Option<(Value, Id)> {
        let mut twin = Self { rng: self.rng.fork(), ..self.clone() };
        tokio::join!(self.until_acknowledged(call), twin.until_acknowledged(call)).0
    }

    /// Calls on one server after the other until there is an answer that counts; the data of the write and its receipt, whoever
    /// made it.
    async fn until_acknowledged(&mut self, call: &Request) -> Option<(Value, Id)> {
        self.until_answered(call, "").await
    }

    /// The same, where a failure with this code counts, too.
    async fn until_answered(&mut self, call: &Request, accepted: &str) -> Option<(Value, Id)> {
        match self.until_outcome(call, accepted).await? {
            Outcome::Done { receipt, data } | Outcome::Repeated { original: receipt, data, .. } => {
                Some((data, receipt))
            }
            _ => None,
        }
    }

    /// Calls on one server after the other until one has decided; its answer.
    pub(super) async fn until_outcome(&mut self, call: &Request, accepted: &str) -> Option<Outcome> {
        let first = self.rng.usize(..self.fleet.len());
        let end = Instant::now() + TIMEOUT;
        for attempt in (0..).take_while(|_| Instant::now() < end) {
            let server = (first + attempt) % self.fleet.len();
            let outcome = self.fleet.ask(&self.history, &self.name, server, call).await;
            match &outcome {
                Outcome::Lost | Outcome::InDoubt { .. } | Outcome::Refused { retryable: true, .. } => {}
                // The operator allows writes again.
                Outcome::Refused { code, .. } if code == "account_frozen" => {}
                Outcome::Refused { code, .. } if code != accepted => {
                    self.history.surprise(format!("{call:?} failed for good: {outcome:?}"));
                    return None;
                }
                _ => return Some(outcome),
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.history.surprise(format!("{call:?} was never answered"));
        None
    }
}

fn undo_of(of: Id) -> Request {
    Request::Undo { tool: "undo_mutation".to_owned(), of, arguments: Arguments::default() }
}
