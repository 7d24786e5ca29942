//! A write tool of a manifest: its statements are its executor.

use std::pin::Pin;
use std::sync::Arc;

use contract::{ErrorCode, Failure, Principal, Rollback};
use ledger::{Attempt, Executor, Gate, Refusal, Reversal, Rows, Settled, Stopped, Work, WriteTx, read};
use manifest::{Catalog, ToolSpec, Undo};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::arguments::{effective, redaction};
use crate::drift;
use crate::images::Images;
use crate::tool::{Answer, Call, Hints, Outcome, Refused, Tool, ToolInfo};

/// The argument that every write tool has.
const IDEMPOTENCY_KEY: &str = "idempotency_key";

/// A tool that writes through the gate.
pub(crate) struct ManifestWrite {
    info: ToolInfo,
    spec: Arc<ToolSpec>,
    undo_spec: Option<Arc<ToolSpec>>,
    gate: Gate,
}

/// A call that is ready to be carried out.
pub(crate) struct Prepared {
    /// Every effective parameter.
    pub(crate) params: Map<String, Value>,
    /// The statements with their values.
    pub(crate) executor: Arc<dyn Executor>,
}

impl ManifestWrite {
    /// What it was made from.
    pub(crate) fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// The call with these arguments, which have been checked against the schema.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidParams`] for a value that has no form in PostgreSQL.
    pub(crate) fn prepare(&self, arguments: &Map<String, Value>, principal: &Principal) -> Result<Prepared, Failure> {
        let params = effective(&self.spec, arguments, principal);
        let executor = ManifestExecutor {
            spec: Arc::clone(&self.spec),
            undo_spec: self.undo_spec.clone(),
            principal: principal.clone(),
            encoded: encode(&self.spec, &params)?,
        };
        Ok(Prepared { params, executor: Arc::new(executor) })
    }

    pub(crate) fn new(spec: Arc<ToolSpec>, catalog: &Catalog, gate: Gate) -> Self {
        let undo_spec = match &spec.undo {
            Undo::Calls { tool, .. } => catalog.get(tool).cloned(),
            Undo::None | Undo::Irreversible { .. } => None,
        };
        let hints = Hints {
            read_only: false,
            destructive: matches!(spec.undo, Undo::Irreversible { .. }),
            // Within the window; beyond it the caller's key makes it so.
            idempotent: true,
        };
        Self { info: info(&spec, hints), spec, undo_spec, gate }
    }
}

/// What clients are told about a tool of a manifest.
pub(crate) fn info(spec: &ToolSpec, hints: Hints) -> ToolInfo {
    ToolInfo {
        name: spec.name.clone(),
        title: spec.title.clone(),
        description: spec.description.clone(),
        version: spec.version.clone(),
        access: spec.access,
        input_schema: spec.input_schema.clone(),
        output_schema: spec.output_schema.clone(),
        hints: hints.overridden(&spec.annotations),
        sensitive: spec.sensitive_params().map(|param| param.name.clone()).collect(),
        meta: spec.meta.clone(),
    }
}

/// `data` of a call that an identical one had made before (promises A4).
#[derive(Debug, Serialize)]
struct DuplicateData {
    duplicate: bool,
    original_correlation_id: contract::CorrelationId,
    cached_result: Value,
    message: String,
}

impl Tool for ManifestWrite {
    fn info(&self) -> &ToolInfo {
        &self.info
    }

    fn call(&self, call: Call) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        Box::pin(async move {
            let Prepared { params, executor } = self.prepare(&call.arguments, &call.principal)?;
            let key = call.arguments.get(IDEMPOTENCY_KEY).and_then(Value::as_str).map(str::to_owned);
            let attempt = Attempt {
                principal: call.principal,
                tool: self.spec.name.clone(),
                redaction: redaction(&self.spec, &params),
                params,
                idempotency_key: key,
                dedup_window: self.spec.dedup_window,
                deadline: call.deadline,
                executor,
            };
            answer(&self.spec.name, self.gate.perform(attempt).await)
        })
    }
}

/// The answer of any tool that writes: what came of its attempt at the gate.
pub(crate) fn answer(tool: &str, outcome: Result<Settled, Stopped>) -> Outcome {
    match outcome {
        Ok(Settled::Executed { correlation_id, data, rows_affected, rollback }) => {
            Answer::read(&data).map(|answer| Answer {
                correlation_id: Some(correlation_id),
                rows_affected: Some(rows_affected),
                rollback: Some(rollback),
                ..answer
            })
        }
        Ok(Settled::Duplicate { correlation_id, original, cached_result }) => {
            let data = DuplicateData {
                duplicate: true,
                original_correlation_id: original,
                cached_result,
                message: format!("Identical {tool} was already executed successfully. Returning cached result."),
            };
            Answer::read(&data).map(|answer| Answer { correlation_id: Some(correlation_id), ..answer })
        }
        Err(stopped) => Err(Refused { correlation_id: stopped.correlation_id, failure: stopped.failure }),
    }
}

/// The parameters in PostgreSQL's text form. Done before the gate: what does not fit leaves no record (A1-17).
fn encode(spec: &ToolSpec, params: &Map<String, Value>) -> Result<Vec<Option<String>>, Failure> {
    spec.params
        .iter()
        .map(|param| {
            let value = params.get(&param.name).unwrap_or(&Value::Null);
            read::encode(value, &param.ty).map_err(|error| {
                let why = if param.sensitive {
                    format!("is no {} that can be stored", param.ty.name)
                } else {
                    error.to_string()
                };
                Failure::new(ErrorCode::InvalidParams, format!("{}: argument \"{}\" {why}", spec.name, param.name))
            })
        })
        .collect()
}

/// The statements of one call.
struct ManifestExecutor {
    spec: Arc<ToolSpec>,
    undo_spec: Option<Arc<ToolSpec>>,
    principal: Principal,
    encoded: Vec<Option<String>>,
}

/// `data` of a tool that returns any number of rows.
#[derive(Debug, Serialize)]
struct RowsData {
    rows: Vec<Map<String, Value>>,
    row_count: usize,
}

impl Executor for ManifestExecutor {
    fn execute<'a>(
        &'a self,
        tx: &'a mut WriteTx<'_>,
        params: &'a Map<String, Value>,
    ) -> Pin<Box<dyn Future<Output = Result<Work, Refusal>> + Send + 'a>> {
        Box::pin(async move {
            let statements: Vec<ledger::Statement<'_>> = self
                .statements()
                .map(|statement| ledger::Statement {
                    sql: &statement.sql,
                    params: &self.encoded,
                    param_types: &statement.param_types,
                })
                .collect();
            let mut answers = tx.run(&statements).await?;
            for (statement, answer) in self.statements().zip(&answers) {
                drift::check(&statement.shape, &answer.columns)?;
            }
            let before = self.spec.before.as_ref().map(|_| answers.remove(0).rows);
            let after = self.spec.after.as_ref().and_then(|_| answers.pop()).map(|answer| answer.rows);
            let rows_affected = answers.iter().map(|rows| rows.rows_affected).sum();
            let result = answers.pop().unwrap_or_default();
            self.work(params, result, Images { before, after }, rows_affected).map_err(Refusal::from)
        })
    }
}

impl ManifestExecutor {
    /// In the order in which they run.
    fn statements(&self) -> impl Iterator<Item = &manifest::Statement> {
        self.spec.before.iter().chain(&self.spec.statements).chain(&self.spec.after)
    }

    fn work(
        &self,
        params: &Map<String, Value>,
        result: Rows,
        images: Images,
        rows_affected: u64,
    ) -> Result<Work, Failure> {
        let count = result.rows.len();
        if !self.spec.rows.allows(count as u64) {
            return Err(Work::wrong_row_count(self.spec.rows.as_str(), count as u64));
        }
        let most = rows_affected.max(count as u64);
        if let Some(allowed) = self.spec.max_rows.filter(|allowed| most > *allowed) {
            return Err(Work::wrong_row_count(&format!("at most {allowed} (max_rows)"), most));
        }
        let captured = images.before.as_deref().unwrap_or_default();
        let rollback = manifest::rollback(&self.spec, params, &result.rows, captured);
        let reversals = self.reversals(&rollback);
        let data = if self.spec.rows.is_single() {
            Value::Object(result.rows.into_iter().next().unwrap_or_default())
        } else {
            let data = RowsData { row_count: count, rows: result.rows };
            serde_json::to_value(data).map_err(|error| Failure::new(ErrorCode::InternalError, error.to_string()))?
        };
        let (before, after) = images.into_json(&self.spec.name)?;
        Ok(Work { data, rows_affected, before, after, rollback, reversals })
    }

    /// The undo calls as the ledger will see them when they come: with every effective parameter.
    fn reversals(&self, rollback: &Rollback) -> Vec<Reversal> {
        let Some(undo_spec) = &self.undo_spec else { return Vec::new() };
        let first = rollback.undo_params.iter().filter(|_| rollback.undo_calls.is_empty());
        let calls = rollback.undo_calls.iter().map(|call| &call.params).chain(first);
        calls
            .map(|arguments| Reversal {
                tool: undo_spec.name.clone(),
                params: effective(undo_spec, arguments, &self.principal),
            })
            .collect()
    }
}
