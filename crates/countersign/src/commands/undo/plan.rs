//! `countersign undo plan` and `countersign undo run`.

use std::process::ExitCode;

use anyhow::bail;
use ledger::operator::{UndoOutcome, UndoProgress};
use ledger::plans::{Plan, PlanReport, PlanRequest, PlanScope, SelectedWrite, Selection, StoredPlan};
use ledger::{FreezeScope, Ledger};
use review::{Summary, sentences};
use serde_json::{Value, json};
use types::{CellMasks, Conflict, Member, visible};

use super::args::{PlanArgs, RunArgs};
use super::{CONFLICTS, all_columns, refused, report, tell};
use crate::terminal::short_id::{only, short};
use crate::terminal::table::{json_line, to_the_second};
use crate::terminal::{effects, os_user, print_json, print_line, print_lines};

/// The maximum number of writes that a plan lists, and of rows in the JSON object. It counts the others.
const MAX_LISTED: usize = 20;
pub(super) const MAX_ROWS: u32 = 20;

/// The maximum number of rows from which a plan says what their columns become.
pub(super) const MAX_COMPARED: u32 = 10_000;

const NEVER_UNDONE: &str = "Not undone: sequences, NOTIFY, what left the database, and tables that are not tracked.";

pub(super) async fn make(ledger: &Ledger, arguments: PlanArgs) -> anyhow::Result<ExitCode> {
    let who = os_user::name();
    let scope = arguments.scope;
    if arguments.freeze {
        freeze(ledger, scope.account.as_deref(), scope.actor.as_deref(), &who).await?;
    }
    let request = PlanRequest {
        scope: PlanScope {
            account: scope.account,
            actor: scope.actor,
            session: scope.session,
            client: scope.client,
            tool: scope.tool,
            table: scope.table,
        },
        from: arguments.from,
        to: arguments.to,
        mode: arguments.mode,
    };
    let operator = ledger.operator();
    let (Plan { selection, writes, report }, stored) =
        operator.plan(&request, arguments.max_rows, &who).await.map_err(refused)?;
    let most = if arguments.json { MAX_ROWS } else { MAX_COMPARED };
    let most = Some(most).filter(|_| !arguments.full);
    let rows = operator.rows(&report.writes, &report.not_restored, most).await.map_err(refused)?;
    let rows = if arguments.json && !arguments.full { rows.shortened() } else { rows };
    let effects = rows.effects.map(all_columns);
    let plan = ShownPlan {
        rows: Summary::of_plan(effects.clone(), &rows.summary, &report.set_again),
        selection: &selection,
        writes: &writes,
        // An operator may see every column of what they undo.
        report: report.shown(&mut CellMasks::new(None)),
        stored: &stored,
    };
    if arguments.json {
        print_json(json!({
            "plan_id": stored.plan_id, "digest": stored.digest, "selection": plan.selection, "writes": plan.writes,
            "report": plan.report, "effects": effects, "summary": rows.summary, "parts": stored.parts,
            "not_undone": NEVER_UNDONE,
        }));
    } else {
        print_lines(shown(&plan, arguments.full));
    }
    Ok(if !plan.report.conflicts.is_empty() {
        ExitCode::from(CONFLICTS)
    } else if plan.report.is_ready {
        ExitCode::SUCCESS
    } else {
        // There is nothing to undo, so a script must not treat the output as a plan.
        ExitCode::FAILURE
    })
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

struct ShownPlan<'a> {
    selection: &'a Selection,
    writes: &'a [SelectedWrite],
    report: PlanReport<Value>,
    rows: Summary,
    stored: &'a StoredPlan,
}

fn shown(plan: &ShownPlan<'_>, full: bool) -> Vec<String> {
    let report = &plan.report;
    let (named, outside): (Vec<_>, Vec<_>) = plan.writes.iter().partition(|write| write.is_inside);
    let mut lines = vec![format!(
        "Writes{} that were completed from {} until before {}:",
        described(&plan.selection.scope),
        to_the_second(&plan.selection.from),
        to_the_second(&plan.selection.to)
    )];
    let most = if full { usize::MAX } else { MAX_LISTED };
    lines.extend(named.iter().take(most).map(|write| format!("  {}", one_write(write))));
    if named.len() > most {
        lines.push(format!("  and {} more", named.len() - most));
    }
    if named.is_empty() {
        lines.push("  none".to_owned());
    }
    if !outside.is_empty() {
        lines.push("They began inside this time and were completed after it, and are not undone:".to_owned());
        lines.extend(outside.iter().map(|write| format!("  {}", one_write(write))));
    }
    lines.extend(left_out(&report.left_out, most));
    let (added, left_out) = (report.added.len(), report.left_out.len());
    let remark = |count: usize, words: &str| if count > 0 { format!(", {count} {words}") } else { String::new() };
    lines.push(format!(
        "{} writes{}{}, {}",
        report.writes.len(),
        remark(added, "of them added because they came later on the same rows"),
        remark(left_out, "left out"),
        report::summary(&report.conflicts, report.rows)
    ));
    if !report.conflicts.is_empty() {
        lines.extend(report::lines("this plan", &report.conflicts, report.rows).into_iter().skip(2));
        lines.push(String::new());
        lines.push(
            "The plan cannot run: --mode skip leaves out what conflicts, --mode cascade undoes later writes as well."
                .to_owned(),
        );
    } else if !report.is_ready {
        lines.push("There is nothing to undo.".to_owned());
    } else {
        lines.extend(report::changes(&plan.rows, full));
        lines.extend(sentences::set_again(&plan.report.set_again));
        lines.extend(report::not_restored(&plan.report.not_restored));
        let parts = plan.stored.parts.len();
        let several = if parts > 1 { format!(" in {parts} transactions") } else { String::new() };
        lines.push(format!(
            "To undo them{several}: countersign undo run {} --digest {}",
            short(&plan.stored.plan_id),
            plan.stored.digest
        ));
    }
    lines.push(NEVER_UNDONE.to_owned());
    lines
}

/// The writes that are left out, with the reasons.
fn left_out(conflicts: &[Conflict<Value>], most: usize) -> Vec<String> {
    if conflicts.is_empty() {
        return Vec::new();
    }
    let mut lines = vec!["Left out:".to_owned()];
    lines.extend(conflicts.iter().take(most).map(|conflict| format!("  {}", reason(conflict))));
    if conflicts.len() > most {
        lines.push(format!("  and {} more (--full lists each)", conflicts.len() - most));
    }
    lines
}

/// `304511b1  set_pin: without an image of what was there before, shop.secret id=1`.
pub(super) fn reason(conflict: &Conflict<Value>) -> String {
    let key = match &conflict.key {
        Member::Absent => String::new(),
        key => format!(" {}", effects::key(key.get())),
    };
    let place = conflict.table.get().map(|table| format!(", {}{key}", visible(table))).unwrap_or_default();
    let message = conflict.message.get().map(|message| format!(": {}", visible(message))).unwrap_or_default();
    let id = conflict.write_id().map(|id| short(&id.to_string())).unwrap_or_default();
    let tool = conflict.write.get().and_then(|write| write.tool_name.get()).map(|tool| visible(tool));
    format!("{id}  {}: {}{place}{message}", tool.unwrap_or_default(), conflict.kind.words())
}

fn described(scope: &PlanScope) -> String {
    let parts = [
        ("of account", &scope.account),
        ("of actor", &scope.actor),
        ("of session", &scope.session),
        ("by client", &scope.client),
        ("of tool", &scope.tool),
        ("to table", &scope.table),
    ];
    parts.iter().filter_map(|(words, value)| Some(format!(" {words} {}", visible(value.as_ref()?)))).collect()
}

fn one_write(write: &SelectedWrite) -> String {
    let SelectedWrite { correlation_id, completed_at, tool_name, makes_again, .. } = write;
    let again: Vec<_> = makes_again.iter().flatten().map(|write| short(&write.to_string()).to_owned()).collect();
    let again = if again.is_empty() { String::new() } else { format!(", which made {} again", again.join(", ")) };
    format!("{}  {}  {}{again}", short(&correlation_id.to_string()), to_the_second(completed_at), visible(tool_name))
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
    if !plan.report.is_ready {
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
        let text = format!("The plan {} was executed before; nothing was changed.", short(&plan.plan_id));
        tell_plan(arguments, &plan, "undone_before", text);
        return Ok(ExitCode::from(CONFLICTS));
    }
    if done_before > 0 && !arguments.json {
        print_line(&format!("{done_before} parts had been undone before."));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the result of a plan of which nothing was undone now.
fn tell_plan(arguments: &RunArgs, plan: &StoredPlan, status: &str, text: String) {
    print_line(&if arguments.json {
        json_line(&json!({"status": status, "plan_id": plan.plan_id, "message": text}))
    } else {
        text
    });
}
