//! `undo_mutation`: takes a write back by its recorded effects. It is a write of its own, and happens once for each write.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use contract::{CorrelationId, ErrorCode, Failure, Redaction, Rollback, TOOL_VERSION, UNDO_TOOL};
use ledger::proposals::Draft;
use ledger::{Attempt, Executor, Gate, Order, Records, Refusal, Statement, Status, Undoable, Work, Working, WriteTx};
use manifest::{Access, Catalog, Tier};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Backends, execute_sql, ledger_failure};
use crate::manifest_executor::agreement;
use crate::manifest_write::answer;
use crate::proposing::{Proposing, refuse_answer};
use crate::tool::{Call, Hints, Outcome, Tool, ToolInfo};

pub(super) const NAME: &str = UNDO_TOOL;

const TITLE: &str = "Undo a write";

const DESCRIPTION: &str = "Take back one write of this account, named by the correlation_id that its answer carried: every row \
    that it changed becomes what it was, or none: if something has changed one since, the answer is undo_conflict. It needs the agreement \
    that the write needed, and can itself be undone. Where meta.rollback names another undo_tool, call that.";

const UNDO_SQL: &str = "select countersign.undo(array[$1]::pg_catalog.uuid[]) as outcome";

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// meta.correlation_id of the write's answer: a UUID.
    correlation_id: String,
}

/// `data` of the answer.
#[derive(Debug, Serialize, JsonSchema)]
struct UndoData {
    /// The write that was taken back.
    undone: String,
    /// How many rows are what they were before it.
    rows: u64,
}

/// What `countersign.undo` says.
#[derive(Debug, Deserialize)]
struct Undo {
    #[serde(default)]
    rows: u64,
    #[serde(default)]
    conflicts: Vec<Value>,
}

/// Who has to agree before the writes of a tool are undone.
type Tiers = Arc<BTreeMap<String, Tier>>;

fn tiers(backends: &Backends, catalog: &Catalog) -> Tiers {
    let declared = catalog.tools.iter().filter(|spec| spec.access.writes()).map(|spec| (spec.name.clone(), spec.tier));
    let any_statement = backends.execute_sql.as_ref();
    let any_statement = any_statement.map(|settings| (execute_sql::NAME.to_owned(), execute_sql::tier(settings)));
    Arc::new(declared.chain(any_statement).collect())
}

/// The tool.
pub(super) struct UndoMutation {
    info: ToolInfo,
    gate: Gate,
    records: Records,
    executor: Arc<dyn Executor>,
    proposing: Proposing,
    tiers: Tiers,
}

impl UndoMutation {
    pub(super) fn new(backends: &Backends, catalog: &Catalog, executor: Arc<dyn Executor>) -> Self {
        let info = ToolInfo {
            name: NAME.to_owned(),
            title: Some(TITLE.to_owned()),
            description: DESCRIPTION.to_owned(),
            version: TOOL_VERSION.to_owned(),
            access: Access::Write,
            // That of the write, which is not known here.
            tier: None,
            input_schema: super::schema_of::<Arguments>(),
            output_schema: super::answer_schema::<UndoData>(),
            hints: Hints { read_only: false, destructive: false, idempotent: true },
            sensitive: Vec::new(),
            meta: Map::new(),
        };
        let (gate, records) = (backends.gate.clone(), backends.records.clone());
        let proposing = Proposing { proposals: backends.proposals.clone(), title: TITLE.to_owned() };
        Self { info, gate, records, executor, proposing, tiers: tiers(backends, catalog) }
    }

    /// What carries it out.
    pub(super) fn executor(&self) -> &Arc<dyn Executor> {
        &self.executor
    }

    /// The undo that these arguments order, and the write that it takes back.
    pub(super) fn order(arguments: Map<String, Value>, call: &Call) -> Result<(Order, CorrelationId), Failure> {
        let Arguments { correlation_id } = super::arguments(NAME, arguments)?;
        let write = CorrelationId::parse(&correlation_id).ok_or_else(|| {
            let message = format!("{NAME}: correlation_id must be a UUID like 3f0c1a52-9c1e-4c7e-8a55-0d9f6b1f2a34");
            Failure::new(ErrorCode::InvalidParams, message)
        })?;
        let params = Map::from_iter([("correlation_id".to_owned(), Value::from(write.to_string()))]);
        Ok((Order { principal: call.principal.clone(), params }, write))
    }

    /// Who has to agree to this undo: as for the write, or the strictest of several.
    pub(super) async fn tier(&self, call: &Call, write: CorrelationId) -> Result<Tier, Failure> {
        let found = self.records.undoable(&call.principal.account_id, write).await;
        let Some(Undoable { status, tools }) = found.map_err(|error| ledger_failure(&error))? else {
            let message = format!("this account has no write with correlation_id {write}");
            return Err(Failure::new(ErrorCode::NotFound, message));
        };
        refuse_without_effect(write, status)?;
        let mut tier = Tier::Auto;
        for tool in &tools {
            let known = self.tiers.get(tool).filter(|_| call.tools.info(tool).is_some());
            tier = tier.max(*known.ok_or_else(|| not_served(write, tool))?);
        }
        Ok(tier)
    }
}

fn refuse_without_effect(write: CorrelationId, status: Status) -> Result<(), Failure> {
    let (why, hint) = match status {
        Status::Success => return Ok(()),
        Status::Pending => {
            ("is still running", "Look at it with get_mutation_detail, and undo it once it has succeeded.")
        }
        Status::Failure => ("has failed and changed nothing", "There is nothing to undo."),
        Status::Duplicate => (
            "was answered from an earlier write and changed nothing itself",
            "Undo the write that answered it: get_mutation_detail names it as duplicate_of.",
        ),
    };
    Err(Failure::new(ErrorCode::InvalidParams, format!("{NAME}: {write} {why}")).hint(hint))
}

fn not_served(write: CorrelationId, tool: &str) -> Failure {
    let message =
        format!("{write} is a write of {tool}, which is not a tool of this profile or server; nothing was changed");
    Failure::new(ErrorCode::NotPermitted, message).hint("A person can undo it: countersign undo.")
}

impl Tool for UndoMutation {
    fn info(&self) -> &ToolInfo {
        &self.info
    }

    fn call(&self, mut call: Call) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        Box::pin(async move {
            let arguments = std::mem::take(&mut call.arguments);
            let (order, write) = Self::order(arguments, &call)?;
            let tier = self.tier(&call, write).await?;
            let (tool, executor) = (NAME.to_owned(), Arc::clone(&self.executor));
            let idempotency_key = Some(format!("undo:{write}"));
            if let Some(tier) = agreement(tier) {
                let tool_version = TOOL_VERSION.to_owned();
                let draft = Draft { order, tool, tool_version, tier, idempotency_key, executor };
                return self.proposing.call(&call, draft, Vec::new()).await;
            }
            refuse_answer(&call)?;
            let (redaction, deadline) = (Redaction::default(), call.deadline);
            let attempt = Attempt { order, tool, redaction, idempotency_key, deadline, executor, agreed: None };
            answer(NAME, self.gate.perform(attempt).await)
        })
    }
}

/// Takes back the write that the order names.
pub(super) struct UndoExecutor {
    tiers: Tiers,
}

impl UndoExecutor {
    pub(super) fn new(backends: &Backends, catalog: &Catalog) -> Self {
        Self { tiers: tiers(backends, catalog) }
    }
}

impl Executor for UndoExecutor {
    fn execute<'a>(&'a self, tx: &'a mut WriteTx<'_>, order: &'a Order) -> Working<'a> {
        Box::pin(async move {
            let write = order.params.get("correlation_id").and_then(Value::as_str).unwrap_or_default();
            let params = [Some(write.to_owned())];
            let rows = tx.run(&[Statement { sql: UNDO_SQL, params: &params, param_types: &[] }]).await?;
            let outcome = rows.into_iter().next().and_then(|rows| rows.rows.into_iter().next()?.remove("outcome"));
            let undo: Undo = serde_json::from_value(outcome.unwrap_or_default()).map_err(|error| {
                Refusal::from(Failure::new(ErrorCode::InternalError, format!("countersign.undo: {error}")))
            })?;
            if !undo.conflicts.is_empty() {
                return Err(ledger::undo_failure(undo.conflicts).into());
            }
            Ok(Work {
                data: json!(UndoData { undone: write.to_owned(), rows: undo.rows }),
                rows_affected: undo.rows,
                before: None,
                after: None,
                rollback: Rollback::by_effects(),
            })
        })
    }

    fn definition(&self) -> String {
        json!([NAME, TOOL_VERSION, self.tiers.iter().map(|(tool, tier)| (tool, tier.as_str())).collect::<Vec<_>>()])
            .to_string()
    }

    /// The tier of a proposal is that of the write that it undoes, and the definition has all of them.
    fn agrees_with(&self, _: ledger::proposals::Tier) -> bool {
        true
    }
}
