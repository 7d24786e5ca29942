//! `countersign undo plan` and `countersign undo run`.

use std::process::ExitCode;

use anyhow::bail;
use ledger::operator::{UndoOutcome, UndoProgress};
use ledger::plans::{Plan, Selection, StoredPlan};
use ledger::{FreezeScope, Ledger};
use serde_json::{Map, Value, json};
use types::visible;

use super::args::{PlanArgs, RunArgs};
use super::{CONFLICTS, refused, report, tell};
use crate::os_user;
use crate::short_id::{only, short};
use crate::table::{cell, json_line, to_the_second};
use crate::terminal::print_line;

/// Maximum number of writes that a plan lists.
const MOST_LISTED: usize = 20;

const NEVER_UNDONE: &str = "Not undone: sequences, NOTIFY, what left the database, and tables that are not tracked.";

pub(super) async fn make(ledger: &Ledger, arguments: PlanArgs) -> anyhow::Result<ExitCode> {
    let who = os_user::name();
    let scope = arguments.scope;
    if arguments.freeze {
        freeze(ledger, scope.account.as_deref(), scope.actor.as_deref(), &who).await?;
    }
    let selection = Selection {
        account: scope.account,
        actor: scope.actor,
        session: scope.session,
        client: scope.client,
        tool: scope.tool,
        table: scope.table,
        from: arguments.from,
        to: arguments.to,
    };
    let operator = ledger.operator();
    let (plan, stored) =
        operator.plan(&selection, arguments.mode.into(), arguments.max_rows, &who).await.map_err(refused)?;
    if arguments.json {
        print_line(&json_line(&json!({
            "plan_id": stored.plan_id, "digest": stored.digest, "selection": plan.selection, "writes": plan.writes,
            "report": plan.report, "parts": stored.parts, "not_undone": NEVER_UNDONE,
        })));
    } else {
        shown(&plan, &stored).iter().for_each(|line| print_line(line));
    }
    Ok(if !plan.conflicts().is_empty() { ExitCode::from(CONFLICTS) } else { ExitCode::SUCCESS })
}

async fn freeze(ledger: &Ledger, account: Option<&str>, actor: Option<&str>, who: &str) -> anyhow::Result<()> {
    let scope = match (account, actor) {
        (Some(account), _) => FreezeScope::Account(account.to_owned()),
        (None, Some(actor)) => FreezeScope::Actor(actor.to_owned()),
        (None, None) => bail!("--freeze stops an account or an actor: give --account or --actor as well"),
    };
    let frozen = ledger.freezes().freeze(&scope, who, Some("undo plan")).await;
    frozen.map_err(|error| refused(error.into()))?;
    print_line("Frozen: `countersign unfreeze` lets the writes go on.");
    Ok(())
}

fn shown(plan: &Plan, stored: &StoredPlan) -> Vec<String> {
    let inside = |write: &&Map<String, Value>| write.get("is_inside") == Some(&Value::Bool(true));
    let outside: Vec<&Map<String, Value>> = plan.writes.iter().filter(|write| !inside(write)).collect();
    let list = |name: &str| plan.report.get(name).and_then(Value::as_array).map_or(0, Vec::len);
    let (rows, conflicts) = (plan.rows(), plan.conflicts());
    let mut lines = vec![format!(
        "Writes{} that were completed from {} until before {}:",
        described(&plan.selection),
        to_the_second(&plan.selection.from),
        to_the_second(&plan.selection.to)
    )];
    let named: Vec<&Map<String, Value>> = plan.writes.iter().filter(inside).collect();
    lines.extend(named.iter().take(MOST_LISTED).map(|write| format!("  {}", one_write(write))));
    if named.len() > MOST_LISTED {
        lines.push(format!("  and {} more", named.len() - MOST_LISTED));
    }
    if !outside.is_empty() {
        lines.push("They began inside this time and were completed after it, and are not undone:".to_owned());
        lines.extend(outside.iter().map(|write| format!("  {}", one_write(write))));
    }
    let (added, left_out) = (list("added"), list("left_out"));
    let remark = |count: usize, words: &str| if count > 0 { format!(", {count} {words}") } else { String::new() };
    lines.push(format!(
        "{} writes{}{}, {}",
        list("writes"),
        remark(added, "of them added because they came later on the same rows"),
        remark(left_out, "left out because of conflicts"),
        report::summary(conflicts, rows)
    ));
    if !conflicts.is_empty() {
        lines.extend(report::lines("this plan", conflicts, rows).into_iter().skip(2));
        lines.push(String::new());
        lines.push(
            "The plan cannot run: --mode skip leaves out what conflicts, --mode cascade undoes later writes as well."
                .to_owned(),
        );
    } else if stored.parts.is_empty() {
        lines.push("There is nothing to undo.".to_owned());
    } else {
        let parts = stored.parts.len();
        let several = if parts > 1 { format!(" in {parts} transactions") } else { String::new() };
        lines.push(format!(
            "To undo them{several}: countersign undo run {} --digest {}",
            short(&stored.plan_id),
            stored.digest
        ));
    }
    lines.push(NEVER_UNDONE.to_owned());
    lines
}

fn described(selection: &Selection) -> String {
    let parts = [
        ("of account", &selection.account),
        ("of actor", &selection.actor),
        ("of session", &selection.session),
        ("by client", &selection.client),
        ("of tool", &selection.tool),
        ("to table", &selection.table),
    ];
    parts.iter().filter_map(|(words, value)| Some(format!(" {words} {}", visible(value.as_ref()?)))).collect()
}

fn one_write(write: &Map<String, Value>) -> String {
    let text = |name: &str| cell(write.get(name));
    format!("{}  {}  {}", short(&text("correlation_id")), to_the_second(&text("completed_at")), text("tool_name"))
}

pub(super) async fn run(ledger: &Ledger, arguments: &RunArgs) -> anyhow::Result<ExitCode> {
    let (operator, who) = (ledger.operator(), os_user::name());
    let plans = operator.stored_plans(&arguments.plan).await.map_err(refused)?;
    let Some(plan) = only(&arguments.plan, plans, |plan: &StoredPlan| plan.plan_id.clone())? else {
        bail!("there is no plan {}: `countersign undo plan` makes one", arguments.plan.as_str());
    };
    if plan.digest != arguments.digest {
        bail!("the digest is not that of the plan {}, so nothing was changed", plan.plan_id);
    }
    if !plan.is_ready {
        bail!("the plan {} has conflicts, or nothing to undo: make another one", plan.plan_id);
    }
    let mut done_before = 0;
    for (number, part) in plan.parts.iter().enumerate() {
        let subject = if plan.parts.len() == 1 {
            format!("the plan {}", short(&plan.plan_id))
        } else {
            format!("part {} of {} of the plan {}", number + 1, plan.parts.len(), short(&plan.plan_id))
        };
        let outcome = match operator.run_part(&plan, part, &who).await.map_err(refused)? {
            UndoProgress::Before => {
                done_before += 1;
                continue;
            }
            UndoProgress::Stale => {
                let text = format!(
                    "Nothing was changed: {subject} is stale, since other rows would be changed now. Make another plan."
                );
                tell_plan(arguments, &plan, "stale", text);
                return Ok(ExitCode::from(CONFLICTS));
            }
            UndoProgress::Done(outcome) => outcome,
        };
        if arguments.json {
            super::tell_json(&outcome)
        } else {
            tell(&subject, &outcome)
        }
        if matches!(outcome, UndoOutcome::Conflicts { .. }) {
            return Ok(super::exit_code(&outcome));
        }
    }
    if done_before == plan.parts.len() {
        let text = format!("The plan {} was carried out before; nothing was changed.", short(&plan.plan_id));
        tell_plan(arguments, &plan, "undone_before", text);
        return Ok(ExitCode::from(CONFLICTS));
    }
    if done_before > 0 && !arguments.json {
        print_line(&format!("{done_before} parts had been undone before."));
    }
    Ok(ExitCode::SUCCESS)
}

/// The result of a plan of which nothing was undone now.
fn tell_plan(arguments: &RunArgs, plan: &StoredPlan, status: &str, text: String) {
    print_line(&if arguments.json {
        json_line(&json!({"status": status, "plan_id": plan.plan_id, "message": text}))
    } else {
        text
    });
}
