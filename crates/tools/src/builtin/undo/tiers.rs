//! The approval that the undo of a write needs: that of the write itself, unless its manifest declares another one.
//! An undo that makes a write again needs the stricter of the two. Only a person can reverse what a person has
//! undone.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledger::{RecordStatus, Records, Undoable, UndoneTool};
use manifest::{ToolCatalog, UndoSpec};
use serde_json::{Value, json};
use types::{ApprovalRule, CorrelationId, ErrorCode, Failure, Tier};

use crate::builtin::{execute_sql, no_write};
use crate::services::Services;
use crate::tool::Call;
use catalog::ledger_failure;

/// A required approval: the tier, and who must approve if the tier is `approve`.
#[derive(Debug, Clone)]
struct Agreement {
    tier: Tier,
    rule: ApprovalRule,
}

/// The approvals that undoing a tool's writes requires.
#[derive(Debug, Clone)]
struct ToolTiers {
    /// The strictest approval that a write of the tool can need.
    write: Agreement,
    /// The approval for an undo by effects.
    undo: Agreement,
    /// The strictest approval that a call of the declared undo tool can need. `undo_mutation` changes the same rows,
    /// so it needs no less.
    undo_tool: Option<Agreement>,
    /// The manifest's reason why agents must not undo the writes, if there is one.
    irreversible: Option<Arc<str>>,
}

/// The tiers for undoing the writes of each tool, and who must approve.
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

    /// The strictest tier and rule for undoing these writes of the caller's account. Each write must be a success of
    /// a tool that the caller has, and must not be an undo that a person made.
    pub(in crate::builtin) async fn strictest(
        &self,
        call: &Call,
        records: &Records,
        undo_tool: &str,
        writes: &[CorrelationId],
    ) -> Result<(Tier, ApprovalRule), Failure> {
        let found = records.undoable(&call.principal, writes).await;
        let found = found.map_err(|error| ledger_failure(&error))?;
        let named = || writes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        if found.is_empty() {
            return Err(no_write(&named()));
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
                // The writes that a declared undo has undone can be made again, even if the manifest declares other
                // calls of its tool irreversible.
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

    /// All tiers, for the definition of the executor: the approval of an undo covers its tier.
    pub(in crate::builtin) fn definition(&self) -> Value {
        let tier = |needed: &Agreement| needed.tier.as_str();
        let tiers =
            |tool: &ToolTiers| [Some(tier(&tool.write)), Some(tier(&tool.undo)), tool.undo_tool.as_ref().map(tier)];
        json!(self.0.iter().map(|(tool, needed)| (tool, tiers(needed))).collect::<Vec<_>>())
    }
}

impl Agreement {
    /// The requirement that satisfies both.
    fn with(self, other: &Self) -> Result<Self, Failure> {
        let rule = if other.tier == Tier::Approve { combined_rule(self.rule, &other.rule)? } else { self.rule };
        Ok(Self { tier: self.tier.max(other.tier), rule })
    }
}

fn combined_rule(rule: ApprovalRule, other: &ApprovalRule) -> Result<ApprovalRule, Failure> {
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
