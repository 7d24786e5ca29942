//! Undo of writes by their recorded effects: `undo_mutation` undoes one write, and `undo_run` executes a plan of
//! `undo_plan` (`plan`). Each undo is itself a write, and needs the strictest tier of the writes that it undoes
//! (`tiers`).

mod executor;
pub(super) mod plan;
mod tiers;

use std::sync::Arc;

use ledger::plans::Plans;
use ledger::proposals::NewProposal;
use ledger::undo::{NotRestored, SetAgain};
use ledger::{Records, WriteCall, WriteExecutor};
use manifest::Access;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use types::{CorrelationId, ErrorCode, Failure, ReasonRule, UNDO_TOOL};

pub(super) use executor::UndoExecutor;
pub(super) use tiers::UndoTiers;

use super::{Builtin, correlation_id};
use crate::approval_flow::ApprovalFlow;
use crate::schema::{AnyJson, arguments, builtin_info};
use crate::services::Services;
use crate::tool::{Annotations, Call, Prepared, Tool, ToolInfo, ToolResult, WriteTool};
use catalog::ledger_failure;

/// The two tools that undo writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UndoKind {
    /// `undo_mutation`: one write.
    Mutation,
    /// `undo_run`: the writes of a plan.
    Run,
}

impl UndoKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Mutation => UNDO_TOOL,
            Self::Run => "undo_run",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Mutation => "Undo a write",
            Self::Run => "Undo many writes",
        }
    }

    fn info(self) -> ToolInfo {
        let (name, title) = (self.name(), self.title());
        // The tool has no fixed tier, because the tier depends on the writes.
        let info = match self {
            Self::Mutation => builtin_info::<MutationArguments, MutationData>(name, title, MUTATION, Access::Write),
            Self::Run => builtin_info::<RunArguments, RunData>(name, title, RUN, Access::Admin),
        };
        let hints = Annotations { read_only: false, destructive: false, idempotent: true };
        ToolInfo { reason: Some(ReasonRule::Optional), hints, ..info }
    }
}

const MUTATION: &str = "Take back one write of this account, named by the correlation_id of its answer: every row \
    that it changed becomes what it was, or none: if something has changed one since, the answer is undo_conflict. It needs the agreement \
    that the write needed, and can itself be undone. Where meta.rollback names another undo_tool, call that.";

const RUN: &str = "Take back the writes of a plan that undo_plan has made: every row becomes what it was before them, or none, if \
    something has changed one since. It needs the strictest agreement that one of the writes needed, and can itself be undone with \
    undo_mutation.";

/// Arguments of `undo_mutation`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MutationArguments {
    /// meta.correlation_id of the write's answer: a UUID.
    correlation_id: String,
}

/// `data` of the answer of `undo_mutation`.
#[derive(Debug, Serialize, JsonSchema)]
struct MutationData {
    /// The write that was taken back.
    undone: String,
    /// How many rows are what they were before it.
    rows: u64,
    /// But for these columns, which triggers set again: by table, and the values in the first rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AnyJson")]
    set_again: Option<SetAgain>,
    /// Tables that triggers fill: how many of the rows that were added there stay (left), and how many more were added.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "AnyJson")]
    not_restored: Vec<NotRestored>,
}

/// Arguments of `undo_run`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunArguments {
    /// plan_id of undo_plan's answer: a UUID.
    plan_id: String,
    /// digest of the same answer: 64 hexadecimal digits.
    digest: String,
}

/// `data` of the answer of `undo_run`.
#[derive(Debug, Serialize, JsonSchema)]
struct RunData {
    /// How many writes were taken back.
    writes: usize,
    /// How many rows are what they were before them.
    rows: u64,
    /// But for these columns, which triggers set again: by table, and the values in the first rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AnyJson")]
    set_again: Option<SetAgain>,
    /// Tables that triggers fill: how many of the rows that were added there stay (left), and how many more were added.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "AnyJson")]
    not_restored: Vec<NotRestored>,
}

pub(super) struct UndoTool {
    kind: UndoKind,
    records: Records,
    plans: Plans,
    executor: Arc<dyn WriteExecutor>,
    flow: ApprovalFlow,
    tiers: UndoTiers,
}

impl UndoTool {
    pub(super) fn new(kind: UndoKind, services: &Services, tiers: UndoTiers, executor: Arc<dyn WriteExecutor>) -> Self {
        Self {
            kind,
            records: services.ledger.records(),
            plans: services.ledger.plans(),
            executor,
            flow: ApprovalFlow::new(services),
            tiers,
        }
    }

    /// The tool itself. Its arguments stay unparsed, as in a preview.
    pub(super) fn boxed(self) -> Box<dyn Tool> {
        Builtin::boxed(self.kind.info(), self, |tool, given, call| Box::pin(undo(tool, given, call)))
    }

    /// The parameters and the idempotency key for the undo of a plan.
    async fn run(&self, given: Map<String, Value>, call: &Call) -> Result<(Map<String, Value>, String), Failure> {
        let name = self.kind.name();
        let RunArguments { plan_id, digest } = arguments(name, given)?;
        let unknown = || {
            let message = format!("this account has no plan {plan_id}; nothing was changed");
            Failure::new(ErrorCode::NotFound, message)
                .hint(format!("{} makes one, and it is kept for a day.", plan::NAME))
        };
        let id = CorrelationId::parse(&plan_id).ok_or_else(|| {
            let message = format!("{name}: plan_id is a UUID of 36 characters, as undo_plan answers it");
            Failure::new(ErrorCode::InvalidParams, message)
        })?;
        let found = self.plans.get(&call.principal.account_id, id).await;
        let plan = found.map_err(|error| ledger_failure(&error))?.ok_or_else(unknown)?;
        if plan.digest != digest {
            let message = format!("the digest is not that of the plan {}; nothing was changed", plan.plan_id);
            return Err(Failure::new(ErrorCode::DigestMismatch, message).hint("Send both as undo_plan answered them."));
        }
        let writes = plan.parts.into_iter().flat_map(|part| part.writes).map(|write| write.to_string());
        let writes: Vec<String> = writes.collect();
        let params = Map::from_iter([
            ("plan_id".to_owned(), plan.plan_id.into()),
            ("digest".to_owned(), plan.digest.into()),
            ("writes".to_owned(), writes.into()),
        ]);
        Ok((params, format!("undo:{digest}")))
    }
}

/// The parameters and the idempotency key for the undo of one write.
fn mutation(given: Map<String, Value>) -> Result<(Map<String, Value>, String), Failure> {
    let given: MutationArguments = arguments(UNDO_TOOL, given)?;
    let write = correlation_id(UNDO_TOOL, &given.correlation_id)?;
    // In PostgreSQL's spelling, so that the same id in other letter case is the same call.
    let params = Map::from_iter([("correlation_id".to_owned(), write.to_string().into())]);
    Ok((params, format!("undo:{write}")))
}

impl WriteTool for UndoTool {
    /// Fails if the arguments name no write or plan of the account, or a write that the caller cannot undo.
    fn prepare<'a>(&'a self, arguments: Map<String, Value>, call: &'a Call) -> Prepared<'a> {
        Box::pin(async move {
            let name = self.kind.name();
            let (params, idempotency_key) = match self.kind {
                UndoKind::Mutation => mutation(arguments)?,
                UndoKind::Run => self.run(arguments, call).await?,
            };
            let idempotency_key = Some(idempotency_key);
            let write = WriteCall { idempotency_key, ..call.write(name, params, &self.executor) };
            // The strictest tier of the writes that it undoes.
            let writes = self.kind.writes(&write.request)?;
            let (tier, rule) = self.tiers.strictest(call, &self.records, name, &writes).await?;
            Ok((write, NewProposal::builtin(self.kind.title(), tier, rule)))
        })
    }
}

async fn undo(tool: &UndoTool, given: Map<String, Value>, call: Call) -> ToolResult {
    let (write, proposal) = tool.prepare(given, &call).await?;
    tool.flow.write(&call, write, proposal).await
}
