//! `preview_mutation`: shows the effect of a write tool without executing the write.

use std::collections::BTreeMap;
use std::sync::Arc;

use catalog::CatalogNames;
use ledger::proposals::{NewProposal, Proposals};
use ledger::{ExecutorRegistry, Gate, WriteCall};
use manifest::{Access, ToolCatalog};
use review::{RowMasks, sentences};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use types::{CellMasks, Effects, ErrorCode, Failure};

use super::execute_sql::ExecuteSql;
use super::undo::{UndoKind, UndoTiers, UndoTool};
use super::{Builtin, execute_sql};
use crate::manifest_tools::write::ManifestWrite;
use crate::mixed_script;
use crate::row_masking::{answer, refused_for_masks};
use crate::schema::{AnyJson, builtin_info, to_json};
use crate::services::Services;
use crate::tool::{Call, Tool, ToolInfo, ToolResult, WriteTool};

pub(super) const NAME: &str = "preview_mutation";

const DESCRIPTION: &str = "Show what a write tool would do with these params, without doing it: the result, the rows before \
    and after, how it could be undone, and warnings. The write is run and rolled back, so what would fail fails here in the \
    same way. Nothing is written or recorded; to write, call the tool itself. Ids that the database numbers are used up: the \
    real write gets others.";

const UNTRIED: &str = "preview_mutation: execute_sql cannot be previewed. A preview runs the write and takes it back, and \
    a statement of your own may do what no rollback takes back, such as a call of a function that acts outside of the \
    transaction";

const UNTRIED_HINT: &str = "Read first what it would touch, with a SELECT of the same WHERE.";

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The name of one of this server's write tools.
    tool: String,
    /// The arguments for that tool, as it would take them itself.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, AnyJson>")]
    params: Map<String, Value>,
}

/// `data` of the answer. Sensitive values read `[redacted]`.
#[derive(Debug, Serialize, JsonSchema)]
struct PreviewData {
    /// The write tool.
    tool: String,
    /// Every parameter that the write would have, also those that the server fills in.
    params: Map<String, Value>,
    /// What the write's data would be.
    #[schemars(with = "BTreeMap<String, AnyJson>")]
    result: Value,
    /// The rows before the write, or null if the tool does not look at them.
    before: Option<Value>,
    /// The same rows after it, those that would be gone left out; or null.
    after: Option<Value>,
    /// Every row of tracked tables that the write would change, by table and key; null if there is none.
    #[schemars(with = "AnyJson")]
    effects: Option<Effects<Value>>,
    /// How many rows the write would touch.
    rows_affected: u64,
    /// How the write could be undone.
    #[schemars(with = "BTreeMap<String, AnyJson>")]
    rollback: Value,
    /// The tier that the call would need, and the rule that requires it; null for a tool without rules.
    policy: Option<Value>,
    /// What a person should look at before this is written, such as words that mix scripts.
    warnings: Vec<String>,
    /// That nothing was written.
    message: &'static str,
}

struct PreviewMutation {
    gate: Gate,
    proposals: Proposals,
    /// All write tools. The caller's profile determines which of them the caller may preview. `execute_sql` only in mode
    /// `rows`.
    targets: BTreeMap<String, Box<dyn WriteTool>>,
    /// The names that hints about statements of the caller are made of; `None` if nothing is read.
    names: Option<CatalogNames>,
}

pub(super) fn tool(
    services: &Services,
    catalog: &ToolCatalog,
    executors: &ExecutorRegistry,
    tiers: &UndoTiers,
    names: Option<CatalogNames>,
) -> Box<dyn Tool> {
    let mut targets: BTreeMap<String, Box<dyn WriteTool>> = BTreeMap::new();
    for spec in catalog.tools.iter().filter(|spec| spec.access.writes()) {
        let Some(executor) = executors.get(&spec.name) else { continue };
        let tool = ManifestWrite::new(Arc::clone(spec), Arc::clone(executor), services);
        targets.insert(spec.name.clone(), Box::new(tool));
    }
    for kind in [UndoKind::Mutation, UndoKind::Run] {
        let Some(executor) = executors.get(kind.name()) else { continue };
        let tool = UndoTool::new(kind, services, tiers.clone(), Arc::clone(executor));
        targets.insert(kind.name().to_owned(), Box::new(tool));
    }
    let settings = services.execute_sql.as_ref().filter(|settings| settings.modifications.is_some());
    if let (Some(settings), Some(executor)) = (settings, executors.get(execute_sql::NAME)) {
        let tool = ExecuteSql::new(services, settings, executor, names.clone());
        targets.insert(execute_sql::NAME.to_owned(), Box::new(tool));
    }
    let (gate, proposals) = (services.ledger.gate(), services.ledger.proposals());
    let tool = PreviewMutation { gate, proposals, targets, names };
    let info = builtin_info::<Arguments, PreviewData>(NAME, "Preview a write", DESCRIPTION, Access::Write);
    // Error messages must not quote `params`, which may contain sensitive parameters of the previewed tool.
    let info = ToolInfo { sensitive: vec!["params".to_owned()], ..info };
    Builtin::boxed(info, tool, |tool, given, call| Box::pin(tool.preview(given, call)))
}

impl PreviewMutation {
    /// The tool with this name, if the caller's profile has it.
    fn target(&self, name: &str, call: &Call) -> Result<&dyn WriteTool, Failure> {
        let callers = call.tools.as_ref();
        let is_callers = |name: &str| callers.info(name).is_some();
        if name == execute_sql::NAME && is_callers(name) {
            if call.masks.is_some() {
                return Err(refused_for_masks(name));
            }
            let untried = || Failure::new(ErrorCode::InvalidParams, UNTRIED).hint(UNTRIED_HINT);
            return self.targets.get(name).map(Box::as_ref).ok_or_else(untried);
        }
        if let Some(failure) = callers.unfit(name) {
            return Err(failure);
        }
        self.targets.get(name).map(Box::as_ref).filter(|_| is_callers(name)).ok_or_else(|| {
            let known: Vec<&str> = self.targets.keys().map(String::as_str).filter(|name| is_callers(name)).collect();
            let message = format!("{NAME}: \"{name}\" is not a write tool of this server");
            let hint = if known.is_empty() {
                "This server has no write tools.".to_owned()
            } else {
                format!("Its write tools are: {}.", known.join(", "))
            };
            Failure::new(ErrorCode::InvalidParams, message).hint(hint)
        })
    }

    async fn preview(&self, given: Arguments, call: Call) -> ToolResult {
        let target = self.target(&given.tool, &call)?;
        let params = match &call.database {
            Some(database) => database.inner_arguments(&given.tool, given.params)?,
            None => given.params,
        };
        let params = call.tools.check(&given.tool, params)?;
        let (write, NewProposal { mut warnings, .. }) = target.prepare(params, &call).await?;
        warnings.extend(mixed_script::warnings(&write));
        let WriteCall { request, redaction, executor, .. } = write;
        executor.check(&request)?;
        let policy = self.proposals.preview_policy(executor.as_ref(), &request, call.deadline).await;
        let policy = policy.map_err(|failure| failure.redacted(&redaction))?;
        let (work, effects) = match self.gate.preview(executor.as_ref(), &request, call.deadline).await {
            Ok(work) => work,
            Err(failure) if given.tool == execute_sql::NAME => {
                return Err(execute_sql::corrected(self.names.as_ref(), &request, failure, call.deadline).await.into());
            }
            Err(failure) => return Err(failure.redacted(&redaction).into()),
        };
        warnings.extend(work.unfiltered.iter().map(|table| sentences::unfiltered(table)));
        let rollback = work.rollback.for_clients();
        let rollback = match &call.database {
            Some(database) => database.rollback(rollback),
            None => rollback,
        };
        let redaction = redaction.with_images(&[work.before.as_ref(), work.after.as_ref()]);
        let kept = |value: Option<Value>| value.map(|value| redaction.value(&value));
        let mut rows = RowMasks::new(call.masks.as_deref()).of_tool(&given.tool);
        let effects = effects.map(|effects| {
            let masked = CellMasks::new(call.masks.as_deref());
            rows.effects(effects.redacted(&redaction).seen()).without_masked_updates(&masked)
        });
        let mut data = to_json(&PreviewData {
            params: redaction.params(&request.params),
            result: redaction.value(&work.data),
            rows_affected: work.rows_affected,
            rollback: redaction.value(&to_json(&rollback)?),
            before: kept(work.before),
            after: kept(work.after),
            effects: None,
            policy: policy.map(|applied| json!({"tier": applied.tier, "rule": applied.rule})),
            warnings,
            message: "Nothing was written.",
            tool: given.tool,
        })?;
        rows.mask(&mut data, false);
        if let (Some(data), Some(effects)) = (data.as_object_mut(), effects) {
            data.insert("effects".to_owned(), to_json(&effects)?);
        }
        answer(&data, &rows.redaction())
    }
}
