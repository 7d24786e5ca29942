//! Approval that the undo of a write needs: that of the write itself, unless its manifest declares another. An undo that makes a
//! write again needs the stricter of both. What a person undid, only a person reverses.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledger::{RecordStatus, Records, Undoable, UndoneTool};
use manifest::{ToolCatalog, UndoSpec};
use serde_json::{Value, json};
use types::{ApprovalRule, CorrelationId, ErrorCode, Failure, Tier};

use crate::builtin::execute_sql;
use crate::services::Services;
use crate::tool::Call;
use catalog::ledger_failure;

/// An approval that is needed: its tier, and who has to approve if that is approve.
#[derive(Debug, Clone)]
struct Agreement {
    tier: Tier,
    rule: ApprovalRule,
}

/// The approvals that undos of a tool's writes need.
#[derive(Debug, Clone)]
struct ToolTiers {
    /// The strictest that a write needs.
    write: Agreement,
    /// That of an undo by effects.
    undo: Agreement,
    /// The strictest that a call of the declared undo tool needs. `undo_mutation` does the same to the rows.
    undo_tool: Option<Agreement>,
    /// Why no agent undoes them, if the manifest says so.
    irreversible: Option<Arc<str>>,
}

/// The tiers of the undo of each tool's writes, and who has to approve it.
#[derive(Debug, Clone)]
pub(in crate::builtin) struct UndoTiers(Arc<BTreeMap<String, ToolTiers>>);

impl UndoTiers {
    pub(in crate::builtin) fn new(services: &Services, catalog: &ToolCatalog) -> Self {
        let agreement = |tier, rule: &ApprovalRule| Agreement { tier, rule: rule.clone() };
        let declared = catalog.tools.iter().filter(|spec| spec.access.writes()).map(|spec| {
            let undo_tool = catalog.undo_tool(spec);
            let tiers = ToolTiers {
                write: agreement(spec.strictest_tier(), &spec.rule),
                undo: agreement(spec.undo_tier, &spec.rule),
                undo_tool: undo_tool.map(|tool| agreement(tool.strictest_tier(), &tool.rule)),
                irreversible: match &spec.undo {
                    UndoSpec::Irreversible { why } => Some(why.as_str().into()),
                    UndoSpec::None | UndoSpec::Calls { .. } => None,
                },
            };
            (spec.name.clone(), tiers)
        });
        let any_statement = services.execute_sql.as_ref().map(|settings| {
            let needed = agreement(settings.tier, &ApprovalRule::default());
            let tiers = ToolTiers { write: needed.clone(), undo: needed, undo_tool: None, irreversible: None };
            (execute_sql::NAME.to_owned(), tiers)
        });
        Self(Arc::new(declared.chain(any_statement).collect()))
    }

    /// The strictest tier and rule of these writes of the caller's account. Each must be a success of a tool that the caller
    /// has, and no undo that a person made.
    pub(in crate::builtin) async fn strictest(
        &self,
        call: &Call,
        records: &Records,
        undo_tool: &str,
        writes: &[CorrelationId],
    ) -> Result<(Tier, ApprovalRule), Failure> {
        let found = records.undoable(&call.principal.account_id, writes).await;
        let found = found.map_err(|error| ledger_failure(&error))?;
        let named = || writes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        if found.is_empty() {
            return Err(Failure::new(
                ErrorCode::NotFound,
                format!("this account has no write with correlation_id {}", named()),
            ));
        }
        let mut strictest = Agreement { tier: Tier::Auto, rule: ApprovalRule::default() };
        for Undoable { status, tools, made_by_people, has_gap } in found {
            refuse_without_effect(undo_tool, &named, status)?;
            if let Some(undo) = made_by_people.first() {
                return Err(made_by_person(undo));
            }
            if has_gap {
                return Err(unknown_write());
            }
            for UndoneTool { tool, is_redo, is_undo } in &tools {
                let known = self.0.get(tool).filter(|_| call.tools.info(tool).is_some());
                let tiers = known.ok_or_else(|| not_served(tool))?;
                // What a declared undo has undone can be made again, whatever the manifest says of other calls of its tool.
                if let Some(why) = tiers.irreversible.as_ref().filter(|_| !is_undo) {
                    return Err(irreversible(tool, why));
                }
                let again = Some(&tiers.write).filter(|_| *is_redo);
                for needed in again.into_iter().chain([&tiers.undo]).chain(&tiers.undo_tool) {
                    strictest = strictest.with(needed)?;
                }
            }
        }
        Ok((strictest.tier, strictest.rule))
    }

    /// All tiers, for the definition of an executor: the approval of an undo includes its tier.
    pub(in crate::builtin) fn definition(&self) -> Value {
        let tier = |needed: &Agreement| needed.tier.as_str();
        let tiers =
            |tool: &ToolTiers| [Some(tier(&tool.write)), Some(tier(&tool.undo)), tool.undo_tool.as_ref().map(tier)];
        json!(self.0.iter().map(|(tool, needed)| (tool, tiers(needed))).collect::<Vec<_>>())
    }
}

impl Agreement {
    /// What satisfies both.
    fn with(self, other: &Self) -> Result<Self, Failure> {
        let rule = if other.tier == Tier::Approve { both(self.rule, &other.rule)? } else { self.rule };
        Ok(Self { tier: self.tier.max(other.tier), rule })
    }
}

/// The rule that keeps to both.
fn both(rule: ApprovalRule, other: &ApprovalRule) -> Result<ApprovalRule, Failure> {
    if rule.approvers.is_some() && other.approvers.is_some() && rule.approvers != other.approvers {
        let message = "different groups have to approve the undo of these writes; nothing was changed";
        return Err(Failure::new(ErrorCode::NotPermitted, message).hint("Undo the writes of each tool by themselves."));
    }
    let approvers = rule.approvers.or_else(|| other.approvers.clone());
    Ok(ApprovalRule { approvals: rule.approvals.max(other.approvals), approvers })
}

fn refuse_without_effect(undo_tool: &str, named: &dyn Fn() -> String, status: RecordStatus) -> Result<(), Failure> {
    let (why, hint) = match status {
        RecordStatus::Success => return Ok(()),
        RecordStatus::Pending => {
            ("is still running", "Look at it with get_mutation_detail, and undo it once it has succeeded.")
        }
        RecordStatus::Failure => ("has failed and changed nothing", "There is nothing to undo."),
        RecordStatus::Duplicate => (
            "was answered from an earlier write and changed nothing itself",
            "Undo the write that answered it: get_mutation_detail names it as duplicate_of.",
        ),
    };
    Err(Failure::new(ErrorCode::InvalidParams, format!("{undo_tool}: {} {why}", named())).hint(hint))
}

fn not_served(tool: &str) -> Failure {
    let message = format!("a write of {tool}, which is not a tool of this profile or server; nothing was changed");
    Failure::new(ErrorCode::NotPermitted, message).hint("A person can undo it: countersign undo.")
}

fn irreversible(tool: &str, why: &str) -> Failure {
    let message = format!("nothing was changed, since the manifest says that no write of {tool} is undone: {why}");
    Failure::new(ErrorCode::NotPermitted, message).hint("A person may restore its rows: countersign undo.")
}

fn made_by_person(undo: &CorrelationId) -> Failure {
    let message = format!("a person made the undo {undo}, and an agent cannot reverse it; nothing was changed");
    Failure::new(ErrorCode::NotPermitted, message).hint(format!("A person can reverse it: countersign undo {undo}."))
}

fn unknown_write() -> Failure {
    let message = "the record of what would be made again was pruned, so which approval it needs is not known; nothing was changed";
    Failure::new(ErrorCode::NotPermitted, message).hint("A person can do it: countersign undo.")
}
