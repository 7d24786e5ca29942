//! Agents that write, repeat lost calls until they are acknowledged, and keep a journal of the answers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::fleet::Fleet;

/// One answer to one call.
pub(super) struct Answer {
    pub(super) call: String,
    pub(super) envelope: Value,
}

/// What all agents were told, and what the tables must look like for it.
#[derive(Default)]
pub(super) struct Journal {
    pub(super) answers: Vec<Answer>,
    /// How many rows there must be of each text.
    pub(super) tweets: BTreeMap<String, usize>,
    /// The keys of writes that must have happened once. Whether they still stand is up to the operator.
    pub(super) written: Vec<String>,
    /// Which tweets the account must like.
    pub(super) likes: BTreeMap<i64, bool>,
    /// Acknowledgements that no agent should get.
    pub(super) surprises: Vec<String>,
    pub(super) lost_answers: usize,
}

/// How many agents there are. Each has texts and tweets of its own, so it knows what must become of them.
const AGENTS: usize = 8;
/// How long an agent thinks between two calls, at most.
const THINK_MS: u64 = 100;
/// Between two attempts of a call: PostgreSQL may be down for a while.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a call is repeated before an agent gives up on it: longer than a call that waits for another one, and than servers take
/// to come back on a machine that runs everything else as well.
const TIMEOUT: Duration = Duration::from_secs(300);

pub(super) struct Load {
    agents: JoinSet<()>,
    journal: Arc<Mutex<Journal>>,
    stopping: Arc<AtomicBool>,
}

impl Load {
    pub(super) fn start(fleet: &Arc<Fleet>, rng: &mut fastrand::Rng) -> Self {
        let (journal, stopping) = (Arc::<Mutex<Journal>>::default(), Arc::<AtomicBool>::default());
        let mut agents = JoinSet::new();
        for number in 0..AGENTS {
            let agent = Agent { number, fleet: Arc::clone(fleet), journal: Arc::clone(&journal), rng: rng.fork() };
            agents.spawn(agent.work(Arc::clone(&stopping)));
        }
        Self { agents, journal, stopping }
    }

    pub(super) fn journal(&self) -> &Arc<Mutex<Journal>> {
        &self.journal
    }

    /// Lets every agent finish what it has begun.
    pub(super) async fn finish(self) -> Journal {
        self.stopping.store(true, Ordering::Relaxed);
        self.agents.join_all().await;
        std::mem::take(&mut *self.journal.lock().unwrap())
    }
}

#[derive(Clone)]
struct Agent {
    number: usize,
    fleet: Arc<Fleet>,
    journal: Arc<Mutex<Journal>>,
    rng: fastrand::Rng,
}

impl Agent {
    async fn work(mut self, stopping: Arc<AtomicBool>) {
        let mut tweet = None;
        for count in 0.. {
            if stopping.load(Ordering::Relaxed) {
                return;
            }
            // Agents think. More calls would find nothing that these do not, and take the processors from the faults.
            tokio::time::sleep(Duration::from_millis(self.rng.u64(..THINK_MS))).await;
            match (self.rng.u8(..14), tweet) {
                (0..4, Some(tweet)) => self.like_or_unlike(tweet).await,
                (4..6, _) => self.add_entry(count).await,
                (6..8, _) => self.add_to_total(count).await,
                _ => tweet = self.post(count).await,
            }
        }
    }

    /// Posts a text of its own, perhaps with a key, perhaps several times over; perhaps deletes it and posts it again.
    /// The tweet, if it is there in the end.
    async fn post(&mut self, count: usize) -> Option<i64> {
        // No spaces: it is also the key.
        let text = format!("chaos-{}-{count}", self.number);
        let keyed = self.rng.u8(..3) == 0;
        let call = if keyed { json!({"text": text, "idempotency_key": text}) } else { json!({"text": text}) };
        let (data, receipt) = match self.rng.u8(..4) {
            0 => self.at_once_twice("post_tweet", &call).await?,
            1 => {
                self.until_acknowledged("post_tweet", &call).await?;
                self.until_acknowledged("post_tweet", &call).await?
            }
            _ => self.until_acknowledged("post_tweet", &call).await?,
        };
        let tweet = data["id"].as_i64().expect("an id");
        self.expect_tweets(&text, 1);
        if self.rng.u8(..6) > 0 {
            return Some(tweet);
        }
        let undo = if self.rng.bool() {
            let declared = json!({"tweet_id": tweet, "idempotency_key": format!("undo:{receipt}")});
            self.until_acknowledged("delete_tweet", &declared).await?.1
        } else {
            let receipt = json!({"correlation_id": receipt});
            self.at_once_twice("undo_mutation", &receipt).await?.1
        };
        self.expect_tweets(&text, 0);
        if self.rng.bool() {
            let redo = json!({"correlation_id": undo});
            self.at_once_twice("undo_mutation", &redo).await?;
            self.expect_tweets(&text, 1);
            return Some(tweet);
        }
        // What was undone is neither answered as done nor done again.
        if let Some(again) = self.until_answered("post_tweet", &call, "superseded").await {
            self.surprise(format!("post_tweet {call} was undone, and is answered with {again:?}"));
        }
        None
    }

    async fn like_or_unlike(&mut self, tweet: i64) {
        let likes = self.journal.lock().unwrap().likes.get(&tweet).copied().unwrap_or_default();
        let tool = if likes { "unlike_tweet" } else { "like_tweet" };
        let key = format!("{tool}-{tweet}-{}", self.rng.u64(..));
        if self.until_acknowledged(tool, &json!({"tweet_id": tweet, "idempotency_key": key})).await.is_some() {
            self.journal.lock().unwrap().likes.insert(tweet, !likes);
        }
    }

    async fn add_entry(&mut self, count: usize) {
        let key = format!("entry-{}-{count}", self.number);
        self.write_once("add_entry", json!({"text": key, "idempotency_key": key}), key).await;
    }

    /// To one that half of the agents add to, for a while.
    async fn add_to_total(&mut self, count: usize) {
        let key = format!("total-{}-{count}", self.number);
        let (total, amount) = (count / 16 * 2 + self.number % 2, self.rng.u8(1..10));
        self.write_once("add_to_total", json!({"id": total, "amount": amount, "idempotency_key": key}), key).await;
    }

    /// Writes what the operator may take back at any moment: then a repeated call is refused, because it has happened.
    async fn write_once(&mut self, tool: &str, arguments: Value, key: String) {
        self.until_answered(tool, &arguments, "superseded").await;
        self.journal.lock().unwrap().written.push(key);
    }

    fn expect_tweets(&self, text: &str, rows: usize) {
        self.journal.lock().unwrap().tweets.insert(text.to_owned(), rows);
    }

    /// Sends one call through two servers at once.
    async fn at_once_twice(&mut self, tool: &str, call: &Value) -> Option<(Value, String)> {
        let mut twin = Self { rng: self.rng.fork(), ..self.clone() };
        let (mine, its) = tokio::join!(self.until_acknowledged(tool, call), twin.until_acknowledged(tool, call));
        if mine != its {
            self.surprise(format!("{tool} {call}: one caller was told {mine:?}, the other {its:?}"));
        }
        mine
    }

    /// Calls on one server after the other until there is an answer that counts; the data of the write and its receipt, whoever
    /// made it.
    async fn until_acknowledged(&mut self, tool: &str, arguments: &Value) -> Option<(Value, String)> {
        self.until_answered(tool, arguments, "").await
    }

    /// The same, where a failure with this code counts, too.
    async fn until_answered(&mut self, tool: &str, arguments: &Value, code: &str) -> Option<(Value, String)> {
        let first = self.rng.usize(..self.fleet.len());
        let end = Instant::now() + TIMEOUT;
        for attempt in (0..).take_while(|_| Instant::now() < end) {
            let server = (first + attempt) % self.fleet.len();
            let Ok(envelope) = self.fleet.call(server, tool, arguments.clone()).await else {
                self.journal.lock().unwrap().lost_answers += 1;
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let call = format!("{tool} {arguments}");
            self.journal.lock().unwrap().answers.push(Answer { call: call.clone(), envelope: envelope.clone() });
            let data = &envelope["data"];
            if envelope["success"] == true {
                self.fleet.writes().add();
                let is_duplicate = data["duplicate"] == true;
                let receipt =
                    if is_duplicate { &data["original_correlation_id"] } else { &envelope["meta"]["correlation_id"] };
                let data = if is_duplicate { &data["cached_result"] } else { data };
                return Some((data.clone(), receipt.as_str().expect("a receipt").to_owned()));
            }
            if envelope["error"]["code"] == code {
                return None;
            }
            if envelope["error"]["retryable"] != true {
                self.surprise(format!("{call} failed for good: {}", envelope["error"]));
                return None;
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.surprise(format!("{tool} {arguments} was never acknowledged"));
        None
    }

    fn surprise(&self, what: String) {
        self.journal.lock().unwrap().surprises.push(what);
    }
}
