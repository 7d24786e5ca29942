//! `countersign proposals watch`.

use std::time::Duration;

use anyhow::{Context, ensure};
use futures_util::future::try_join_all;
use ledger::proposals::{ProposalStatus, ProposalSummary, ProposalWatch, Proposals};
use tokio::time::MissedTickBehavior;
use types::{ProposalId, visible};

use super::args::{ApproveArgs, WatchArgs};
use super::decide;
use super::list::state;
use super::{open, refused};
use crate::settings::{DatabaseSettings, Settings};
use crate::signals::EndSignals;
use crate::terminal::short_id;
use crate::terminal::table::to_the_second;
use crate::terminal::{
    about, current_database, is_interactive, is_output_terminal, json_text, print_error, try_print_line,
};

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Watches all databases at once.
pub(crate) async fn run(arguments: &WatchArgs, settings: &Settings) -> anyhow::Result<()> {
    let mut signals = EndSignals::listen()?;
    let is_json = arguments.json || !is_output_terminal();
    let asks = arguments.ask;
    ensure!(!asks || is_interactive(), "nobody can be asked here, since this is no terminal");
    ensure!(
        !asks || settings.databases.len() == 1,
        "--ask asks about the proposals of one database: name it with --database"
    );
    let watched = settings.databases.iter().map(async |database| {
        let watched = async { watch(&open(database).await?.proposals(), is_json, asks.then_some(database)).await };
        match &database.label {
            Some(label) => about(label, watched).await.with_context(|| label.to_string()),
            None => watched.await,
        }
    });
    tokio::select! {
        outcome = try_join_all(watched) => outcome.map(drop),
        _ = signals.recv() => Ok(()),
    }
}

/// Prints changes until the output is closed, and with `asks` shows each proposal that waits and asks whether to approve it.
/// If the ledger becomes unreachable, it is asked again.
async fn watch(proposals: &Proposals, is_json: bool, asks: Option<&DatabaseSettings>) -> anyhow::Result<()> {
    let mut watch = ProposalWatch::default();
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut has_looked, mut is_reachable) = (false, true);
    loop {
        ticks.tick().await;
        match proposals.changes(&mut watch).await {
            Ok(changed) => {
                for proposal in &changed {
                    let text = if is_json { json_text(proposal) } else { line(proposal) };
                    // Standard output has no reader any more.
                    if try_print_line(&text).is_err() {
                        return Ok(());
                    }
                    if let Some(settings) = asks.filter(|_| proposal.status == ProposalStatus::Pending) {
                        ask_about(proposal.proposal_id, settings).await;
                    }
                }
                (has_looked, is_reachable) = (true, true);
            }
            Err(failure) if !has_looked => return Err(refused(&failure)),
            Err(failure) if is_reachable => {
                is_reachable = false;
                print_error(&format!("the ledger cannot be read now, and is asked again: {}", failure.message));
            }
            Err(_) => {}
        }
    }
}

/// Shows the proposal and asks. What is not approved still waits.
async fn ask_about(id: ProposalId, settings: &DatabaseSettings) {
    let Ok(id) = short_id::parse(&id.to_string()) else { return };
    let arguments = ApproveArgs { id, digest: None, yes: false, name: None, full: false, wait: 0 };
    if let Err(error) = decide::approve(&arguments, settings).await {
        print_error(&format!("{error:#}"));
    }
}

/// One line: time, id, state, account, actor and description.
fn line(proposal: &ProposalSummary) -> String {
    let at = proposal.completed_at.as_ref().or(proposal.decided_at.as_ref());
    let at = at.or(proposal.approved_by.last().map(|last| &last.decided_at)).unwrap_or(&proposal.created_at);
    let actor = proposal.actor.as_deref().map(|actor| format!(" ({})", visible(actor))).unwrap_or_default();
    let database = current_database().map(|database| format!("{database}  ")).unwrap_or_default();
    format!(
        "{database}{}  {}  {}  {}{actor}: {}",
        to_the_second(at),
        proposal.proposal_id,
        state(proposal),
        visible(proposal.account_id.as_str()),
        visible(&proposal.description)
    )
}
