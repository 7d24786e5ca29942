//! Approval that the undo of a write needs: that of the write itself, unless its manifest declares another.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledger::{RecordStatus, Records, Undoable};
use manifest::ToolCatalog;
use serde_json::{Value, json};
use types::{ApprovalRule, CorrelationId, ErrorCode, Failure, Tier};

use crate::builtin::execute_sql;
use crate::services::Services;
use crate::tool::Call;
use catalog::ledger_failure;

/// The tier of the undo of each tool's writes, and who has to approve it.
#[derive(Debug, Clone)]
pub(in crate::builtin) struct UndoTiers(Arc<BTreeMap<String, (Tier, ApprovalRule)>>);

impl UndoTiers {
    pub(in crate::builtin) fn new(services: &Services, catalog: &ToolCatalog) -> Self {
        let declared = catalog.tools.iter().filter(|spec| spec.access.writes());
        let declared = declared.map(|spec| (spec.name.clone(), (spec.undo_tier, spec.rule.clone())));
        let any_statement = services.execute_sql.as_ref();
        let any_statement =
            any_statement.map(|settings| (execute_sql::NAME.to_owned(), (settings.tier, ApprovalRule::default())));
        Self(Arc::new(declared.chain(any_statement).collect()))
    }

    /// The strictest tier and rule of these writes of the caller's account. Each must be a success of a tool that the caller
    /// has.
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
        let (mut tier, mut rule) = (Tier::Auto, ApprovalRule::default());
        for Undoable { status, tools } in found {
            refuse_without_effect(undo_tool, &named, status)?;
            for tool in &tools {
                let known = self.0.get(tool).filter(|_| call.tools.info(tool).is_some());
                let (other, needed) = known.ok_or_else(|| not_served(tool))?;
                tier = tier.max(*other);
                if *other == Tier::Approve {
                    rule = both(rule, needed)?;
                }
            }
        }
        Ok((tier, rule))
    }

    /// All tiers, for the definition of an executor: the approval of an undo includes its tier.
    pub(in crate::builtin) fn definition(&self) -> Value {
        json!(self.0.iter().map(|(tool, (tier, _))| (tool, tier.as_str())).collect::<Vec<_>>())
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
