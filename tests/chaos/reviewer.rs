//! A person who decides on what an agent proposes, and stops writes now and then. Two people decide at once, or the
//! process is killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chaos_checker::{Arguments, Id, Outcome, Request};
use serde::Deserialize;
use testkit::poll;

use super::command::Person;
use super::fleet::Fleet;
use super::history::HistoryFile;
use super::load::Agent;

/// What a person approves and the worker of some server executes.
pub(super) const SCHEMA: &str = "
create table chaos.approved (id bigint generated always as identity primary key, text text not null);
grant select, insert on chaos.approved to countersign_writer;
select countersign.track('chaos.approved');
create role approver login in role countersign_approver;
";

pub(super) const TOOLS: &str = r#"
[[tool]]
name = "add_approved"
access = "write"
tier = "approve"
description = "Add what a person approves."
sql = "insert into chaos.approved (text) values ($1) returning id"
rows = "one"
undo = { irreversible = "No." }
param = [{ name = "text", description = "What it says." }]
"#;

/// Until a proposal is carried out after its approval. PostgreSQL may be down meanwhile.
const DEADLINE: Duration = Duration::from_secs(120);

/// For how long the writes of all agents are refused.
const FROZEN: Duration = Duration::from_millis(100);

/// What a person does with a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Approve,
    /// Two people at once.
    ApproveTwice,
    /// kill -9 of the process that approves, and once more.
    ApproveKilled,
    Reject,
    /// One person approves while another one rejects.
    Both,
    Leave,
    /// No proposal: all writes are refused for a moment.
    Freeze,
}

const DECISIONS: [Decision; 7] = [
    Decision::Approve,
    Decision::ApproveTwice,
    Decision::ApproveKilled,
    Decision::Reject,
    Decision::Both,
    Decision::Leave,
    Decision::Freeze,
];

pub(super) struct Reviewer {
    agent: Agent,
    approver: Person,
    operator: Person,
    rng: fastrand::Rng,
    proposals: usize,
}

/// A proposal as the command shows it.
#[derive(Deserialize)]
struct Shown {
    status: String,
}

impl Reviewer {
    /// `url` is that of the owner.
    pub(super) fn new(url: &str, fleet: &Arc<Fleet>, history: &Arc<HistoryFile>, rng: &mut fastrand::Rng) -> Self {
        let person = |name| Person::new(name, url.replace("user=postgres", &format!("user={name}")), history);
        let agent = Agent::new("proposing".to_owned(), fleet, history, rng.fork());
        Self { agent, approver: person("approver"), operator: person("olga"), rng: rng.fork(), proposals: 0 }
    }

    /// Decides in every way once, and goes on until it is told to stop.
    pub(super) async fn work(mut self, stopping: &AtomicBool) {
        let mut missing = DECISIONS.to_vec();
        self.rng.shuffle(&mut missing);
        while !missing.is_empty() || !stopping.load(Ordering::Relaxed) {
            let decision = missing.pop().unwrap_or_else(|| DECISIONS[self.rng.usize(..DECISIONS.len())]);
            self.decide(decision).await;
        }
    }

    /// Has an agent propose, decides, and waits until what was approved is carried out.
    pub(super) async fn decide(&mut self, decision: Decision) {
        if decision == Decision::Freeze {
            return self.freeze().await;
        }
        self.proposals += 1;
        let arguments = Arguments { text: Some(format!("approved-{}", self.proposals)), ..Arguments::default() };
        let call = Request::Write { tool: "add_approved".to_owned(), key: None, arguments };
        let Some(Outcome::Proposed { proposal }) = self.agent.until_outcome(&call, "").await else { return };
        let approve = || self.approver.begin(&Request::Approve { proposal: proposal.clone() }, &approval(&proposal));
        let reject = || self.approver.begin(&Request::Reject { proposal: proposal.clone() }, &rejection(&proposal));
        match decision {
            Decision::Leave | Decision::Freeze => return,
            Decision::Approve | Decision::Reject => {}
            Decision::ApproveTwice => drop(tokio::join!(approve().ended(), approve().ended())),
            Decision::Both => drop(tokio::join!(approve().ended(), reject().ended())),
            Decision::ApproveKilled => {
                let command = approve();
                tokio::time::sleep(Duration::from_millis(self.rng.u64(..150))).await;
                command.killed().await;
            }
        }
        // PostgreSQL may be down: a command is repeated until the proposal is decided.
        let is_over = async || {
            let shown = self.approver.look(&["proposals", "show", proposal.as_str(), "--json"]).await;
            if shown.code != Some(0) {
                return false;
            }
            match shown.object::<Shown>().status.as_str() {
                "pending" if decision == Decision::Reject => drop(reject().ended().await),
                "pending" => drop(approve().ended().await),
                status => return ENDS.contains(&status),
            }
            false
        };
        poll::until_within(DEADLINE, "the proposal is carried out or rejected", is_over).await;
    }

    /// Stops all writes of agents for a moment.
    async fn freeze(&self) {
        let freeze = async || {
            self.operator.begin(&Request::Freeze, &["freeze", "--account", "default"]).ended().await.code == Some(0)
        };
        poll::until_within(DEADLINE, "writes are refused", freeze).await;
        tokio::time::sleep(FROZEN).await;
        // The first answer may have been lost, and then there is nothing left to end.
        let unfreeze = async || {
            self.operator.begin(&Request::Unfreeze, &["unfreeze", "--account", "default"]).ended().await;
            let frozen = self.operator.look(&["freeze", "--list", "--json"]).await;
            frozen.code == Some(0) && frozen.out.is_empty()
        };
        poll::until_within(DEADLINE, "writes are allowed again", unfreeze).await;
    }
}

/// The states in which a proposal stays.
const ENDS: [&str; 5] = ["executed", "failed", "rejected", "stale", "expired"];

/// The worker executes it later, so the command does not wait.
fn approval(proposal: &Id) -> [&str; 6] {
    ["proposals", "approve", proposal.as_str(), "--yes", "--wait", "0"]
}

fn rejection(proposal: &Id) -> [&str; 3] {
    ["proposals", "reject", proposal.as_str()]
}
