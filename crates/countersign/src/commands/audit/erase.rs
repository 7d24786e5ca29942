//! `countersign audit erase`: one person proposes to erase values, another one approves, and then they are erased.

use std::process::ExitCode;

use anyhow::{Context, ensure};
use ledger::audit::{Audit, ErasurePlan, ErasureScope};
use ledger::proposals::Proposal;
use review::sentences::count;
use types::{ProposalId, visible};

use super::args::EraseArgs;
use super::prune::removal_failed;
use super::{find, open, verify};
use crate::settings::DatabaseSettings;
use crate::terminal::short_id;
use crate::terminal::{ask, is_interactive, os_user, print_line, print_lines};

const MAY_NOT: &str =
    "this login may not erase: use one with the role countersign_operator or countersign_approver, which no server has";
/// The context of another error, before an erasure and while it runs.
const NOTHING: &str = "nothing was erased";
const REPEAT: &str = "not everything was erased; what was is recorded in the ledger, and it can be run again";

pub(super) async fn run(arguments: EraseArgs, settings: &DatabaseSettings) -> anyhow::Result<ExitCode> {
    if let Some(id) = &arguments.request {
        let audit = open(settings).await?;
        let found = short_id::only(id, audit.find_erasures(id, short_id::LOOKED_FOR).await?, ToString::to_string)?;
        let found = found.with_context(|| {
            format!("no erasure has the id {}: `countersign proposals list` has those that there are", id.as_str())
        })?;
        execute(&audit, found).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let audit = open(settings).await?;
    let scope = scope(&audit, &arguments).await?;
    verify::seal(&audit).await?;
    let plan = audit.erasure_plan(&scope).await.map_err(|error| failed(error, NOTHING))?;
    print_lines(described(&plan, &scope, arguments.plan));
    let Some(reason) = arguments.reason.filter(|_| !arguments.plan) else { return Ok(ExitCode::SUCCESS) };
    if !arguments.yes {
        ensure!(is_interactive(), "nobody can be asked here, since this is no terminal: give --yes to propose this");
        ensure!(ask("Propose it? Type yes:").await? == "yes", "not proposed, since the answer was not yes");
    }
    let id = audit.propose_erasure(&scope, &os_user::name(), &reason).await.map_err(|error| failed(error, NOTHING))?;
    print_line(&format!(
        "Proposed as {id} and not erased yet: another person approves it with `countersign proposals approve {id}`"
    ));
    Ok(ExitCode::FAILURE)
}

async fn scope(audit: &Audit, arguments: &EraseArgs) -> anyhow::Result<ErasureScope> {
    if let Some((name, table, key)) = &arguments.row {
        return Ok(audit.erasure_of_row(name, table, &key.0).await?);
    }
    if let Some((table, column)) = &arguments.column {
        return Ok(audit.erasure_of_column(table, column).await?);
    }
    if let Some(actor) = &arguments.actor {
        return Ok(ErasureScope::actor(actor));
    }
    let id = arguments.record.as_ref().context("give --row, --column, --actor, --record or --request")?;
    Ok(ErasureScope::record(find(audit, id).await?))
}

/// The plan in words.
fn described(plan: &ErasurePlan, scope: &ErasureScope, with_ids: bool) -> Vec<String> {
    let mut lines = vec![format!("Erasing {} from the ledger:", visible(&scope.words))];
    for found in plan.found.iter().flatten() {
        lines.push(format!("  {}: {}", visible(&found.place), count(found.rows, "row")));
    }
    if plan.found.is_none() {
        lines.push("  nothing was found".to_owned());
    }
    for looked in plan.looked_for.iter().flatten() {
        let values = format!("{} of {}", count(looked.values, "value"), visible(&looked.column));
        lines.push(match &looked.why_not {
            None => format!("Looked for as text everywhere: {values}."),
            Some(why) => format!("Not looked for as text: {values} ({why})."),
        });
    }
    let lost = plan.lose_undo.as_deref().unwrap_or_default();
    lines.push(format!("No longer undone afterwards: {}.", count(lost.len() as u64, "write")));
    lines.extend(lost.iter().filter(|_| with_ids).map(|id| format!("  {id}")));
    for waiting in plan.waiting.iter().flatten() {
        let example = waiting.example.as_deref().filter(|_| with_ids).map(|id| format!(" ({id})")).unwrap_or_default();
        lines.push(format!("Not decided yet, so nothing can be erased: {}{example}.", visible(&waiting.place)));
    }
    if plan.named > 0 {
        lines.push(format!(
            "Stays: the name in {} of the log.",
            if plan.named == 1 { "1 entry".to_owned() } else { format!("{} entries", plan.named) }
        ));
    }
    lines.push("Stays: that there was a write, when, by which account, and the digests of its parts.".to_owned());
    lines.push("Stays: the row in its own table. Not reached: exported bundles, backups, copies.".to_owned());
    lines.push("The bytes are gone after VACUUM of the schema, and when no WAL has them any more.".to_owned());
    lines
}

/// Whether a proposal is one of an erasure.
pub(crate) fn is_erasure(proposal: &Proposal) -> bool {
    proposal.tool_name == ledger::audit::ERASE_TOOL
}

/// Executes an approved erasure, or goes on with it.
pub(crate) async fn execute(audit: &Audit, id: ProposalId) -> anyhow::Result<()> {
    verify::seal(audit).await?;
    let erased = audit.erase(id).await.map_err(|error| failed(error, REPEAT))?;
    verify::seal(audit).await?;
    ensure!(
        erased.unsealed == 0 && !erased.is_incomplete,
        "{} lost values, and others have them still: {}. `countersign audit erase --request {id}` goes on",
        count(erased.rows.unsigned_abs(), "row"),
        if erased.is_incomplete { "they were changed meanwhile" } else { "they are not sealed yet" }
    );
    print_line(&format!("Erased: {} of the ledger lost values.", count(erased.rows.unsigned_abs(), "row")));
    Ok(())
}

fn failed(error: ledger::read::Error, otherwise: &'static str) -> anyhow::Error {
    removal_failed(error.into(), MAY_NOT, otherwise)
}
