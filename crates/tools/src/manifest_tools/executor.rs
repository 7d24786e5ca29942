//! The executor of a manifest's write tool. It runs the tool's statements or its Rust executor, between the queries
//! `before` and `after` that capture row images.

use std::sync::Arc;

use ledger::{
    ExecutorError, PolicyCall, Rows, ToolPolicy, WriteExecutor, WriteFuture, WriteOutput, WriteRequest, WriteTx,
};
use manifest::{Conditions, Param, ParamSource, SetClause, ToolSpec};
use serde::Serialize;
use serde_json::{Map, Value, json};
use types::{ErrorCode, Failure, Tier, ToolLimit};

use crate::arguments::encode_param;
use crate::row_images::RowImages;
use crate::schema::to_json;
use crate::schema_drift;

pub(crate) struct ManifestExecutor {
    spec: Arc<ToolSpec>,
    /// A Rust executor, which replaces the statements.
    native: Option<Arc<dyn WriteExecutor>>,
    /// Whether the writes change only tracked tables, so that the ledger need not look for others.
    is_self_contained: bool,
    policy: Option<ToolPolicy>,
}

/// `data` of a tool that returns any number of rows.
#[derive(Debug, Serialize)]
struct RowsData {
    rows: Vec<Map<String, Value>>,
    row_count: usize,
}

#[derive(Clone, Copy)]
enum Run {
    Execute,
    Preview,
}

/// The result of the statements, or of the Rust executor.
struct WorkResult {
    data: Value,
    rows: Vec<Map<String, Value>>,
    rows_affected: u64,
}

impl ManifestExecutor {
    pub(crate) fn new(spec: Arc<ToolSpec>, native: Option<Arc<dyn WriteExecutor>>, is_self_contained: bool) -> Self {
        let policy = policy(&spec);
        Self { spec, native, is_self_contained, policy }
    }

    /// The parameters in PostgreSQL's text form.
    fn encode(&self, params: &Map<String, Value>) -> Result<Vec<Option<String>>, Failure> {
        let set = self.spec.set.as_ref();
        let is_set_to_null = |name: &str| set.is_some_and(|set| set.sets_null(params, name));
        let value = |name: &str| params.get(name).filter(|_| !is_set_to_null(name)).unwrap_or(&Value::Null);
        let encoded = self.spec.params.iter().map(|param| encode_param(&self.spec.name, param, value(&param.name)));
        encoded.collect()
    }

    /// Runs `before`, the work and `after`, in one round trip if the work consists of statements.
    async fn run(
        &self,
        tx: &mut WriteTx<'_>,
        request: &WriteRequest,
        run: Run,
    ) -> Result<(WorkResult, RowImages), ExecutorError> {
        let encoded = self.encode(&request.params)?;
        match &self.native {
            None => {
                let ran = self.run_statements(tx, &request.params, &encoded).await;
                let mut answers = ran.map_err(|error| self.with_forms(error))?;
                let before = self.spec.before.as_ref().map(|_| answers.remove(0).rows);
                let after = self.spec.after.as_ref().and_then(|_| answers.pop()).map(|answer| answer.rows);
                Ok((self.statements_result(answers)?, RowImages { before, after }))
            }
            Some(native) => {
                let before = capture(tx, self.spec.before.as_ref(), &encoded).await?;
                if let (Some(why), Some([])) = (&self.spec.not_found, before.as_deref()) {
                    return Err(Failure::new(ErrorCode::NotFound, why.clone()).into());
                }
                let working = match run {
                    Run::Execute => native.execute(tx, request),
                    Run::Preview => native.preview(tx, request),
                };
                let WriteOutput { data, rows_affected, .. } = working.await?;
                tx.run(&[SETTLE]).await?;
                let after = capture(tx, self.spec.after.as_ref(), &encoded).await?;
                Ok((WorkResult { data, rows: Vec::new(), rows_affected }, RowImages { before, after }))
            }
        }
    }

    /// Runs everything in one round trip. Deferred triggers run before `after` reads the rows.
    async fn run_statements(
        &self,
        tx: &mut WriteTx<'_>,
        params: &Map<String, Value>,
        encoded: &[Option<String>],
    ) -> Result<Vec<Rows>, ExecutorError> {
        let spec = &self.spec;
        let assigning = spec.set.as_ref().map(|set| self.assigning(set, params).map(|sql| (set.statement, sql)));
        let assigning = assigning.transpose()?;
        let statements: Vec<&manifest::StatementSpec> =
            spec.before.iter().chain(&spec.statements).chain(&spec.after).collect();
        let outcome = spec.after.as_ref().map(|_| statements.len() - 1);
        let mut steps: Vec<ledger::Statement<'_>> =
            statements.iter().map(|statement| step(statement, encoded)).collect();
        if let Some((index, sql)) = &assigning
            && let Some(step) = steps.get_mut(spec.before.iter().len() + index)
        {
            step.sql = sql;
        }
        if let Some(at) = outcome {
            steps.insert(at, SETTLE);
        }
        let mut answers = tx.run(&steps).await?;
        if let Some(at) = outcome {
            answers.remove(at);
        }
        check_shapes(&statements, &answers)?;
        Ok(answers)
    }

    /// If PostgreSQL rejected a value, adds to the error how arguments are written whose schemas do not say so.
    fn with_forms(&self, error: ExecutorError) -> ExecutorError {
        let is_value = |failure: &Failure| failure.code == ErrorCode::InvalidParams && failure.sqlstate.is_some();
        let form = |param: &Param| manifest::form(param).map(|form| format!("{}: {form}", param.name));
        match error {
            ExecutorError::Rejected(failure) if is_value(&failure) && failure.hint.is_none() => {
                let given = self.spec.params.iter().filter(|param| param.source == ParamSource::Argument);
                let forms: Vec<String> = given.filter_map(form).collect();
                let hint = (!forms.is_empty()).then(|| format!("The forms of arguments: {}.", forms.join("; ")));
                Failure { hint, ..failure }.into()
            }
            error => error,
        }
    }

    /// The statement with the assignments of this call.
    fn assigning(&self, set: &SetClause, params: &Map<String, Value>) -> Result<String, Failure> {
        set.sql(params).ok_or_else(|| {
            let why = format!("{}: no column to change is given", self.spec.name);
            let arguments: Vec<&str> = set.arguments().collect();
            Failure::new(ErrorCode::InvalidParams, why).hint(format!("Give at least one of {}.", arguments.join(", ")))
        })
    }

    /// The result of the statements, after a check of the number of changed rows.
    fn statements_result(&self, mut answers: Vec<Rows>) -> Result<WorkResult, Failure> {
        let rows_affected = answers.iter().map(|rows| rows.rows_affected).sum();
        let rows = answers.pop().unwrap_or_default().rows;
        let count = rows.len();
        if !self.spec.rows.allows(count as u64) {
            return Err(match (&self.spec.not_found, count) {
                (Some(why), 0) => Failure::new(ErrorCode::NotFound, why.clone()),
                _ => WriteOutput::wrong_row_count(self.spec.rows.as_str(), count as u64),
            });
        }
        let most = u64::max(rows_affected, count as u64);
        if let Some(allowed) = self.spec.max_rows.filter(|allowed| most > *allowed) {
            return Err(WriteOutput::wrong_row_count(&format!("at most {allowed} (max_rows)"), most));
        }
        let data = if self.spec.rows.is_single() {
            Value::Object(rows.first().cloned().unwrap_or_default())
        } else {
            to_json(&RowsData { row_count: count, rows: rows.clone() })?
        };
        Ok(WorkResult { data, rows, rows_affected })
    }

    fn write_output(
        &self,
        request: &WriteRequest,
        result: WorkResult,
        images: RowImages,
    ) -> Result<WriteOutput, Failure> {
        let captured = images.before.as_deref().unwrap_or_default();
        let mut rollback = manifest::rollback(&self.spec, &request.params, &result.rows, captured);
        rollback.checked = rollback.undo_tool.as_ref().map(|_| self.is_self_contained);
        let (before, after) = images.into_json(&self.spec.name)?;
        Ok(WriteOutput { before, after, ..WriteOutput::new(result.data, result.rows_affected, rollback) })
    }
}

/// The policy of a tool; `None` if it has neither rules nor a limit.
fn policy(spec: &ToolSpec) -> Option<ToolPolicy> {
    if spec.rules.is_empty() && spec.limit.is_none() {
        return None;
    }
    let Conditions { values, from } = Conditions::of(spec);
    Some(ToolPolicy {
        tool: spec.name.clone(),
        tier: spec.tier,
        rules: spec.rules.clone(),
        limit: spec.limit,
        param_types: spec.params.iter().map(|param| param.ty.oid).collect(),
        values,
        from,
    })
}

/// Runs deferred triggers before COMMIT, so that their errors can be reported.
const SETTLE: ledger::Statement<'_> = ledger::Statement::without_params("set constraints all immediate");

fn step<'s>(statement: &'s manifest::StatementSpec, encoded: &'s [Option<String>]) -> ledger::Statement<'s> {
    ledger::Statement { sql: &statement.sql, params: encoded, param_types: &statement.param_types }
}

/// Checks that the statements still return the declared columns.
fn check_shapes(statements: &[&manifest::StatementSpec], answers: &[Rows]) -> Result<(), Failure> {
    for (statement, answer) in statements.iter().zip(answers) {
        schema_drift::check(&statement.shape, &answer.columns)?;
    }
    Ok(())
}

/// Captures the rows of an image; `None` if the tool captures none.
async fn capture(
    tx: &mut WriteTx<'_>,
    query: Option<&manifest::StatementSpec>,
    encoded: &[Option<String>],
) -> Result<Option<Vec<Map<String, Value>>>, ExecutorError> {
    let Some(query) = query else { return Ok(None) };
    let answers = tx.run(&[step(query, encoded)]).await?;
    check_shapes(&[query], &answers)?;
    Ok(answers.into_iter().next().map(|answer| answer.rows))
}

impl WriteExecutor for ManifestExecutor {
    /// Checks that every parameter of the tool is present with its type, that there are no others, and that
    /// server-filled parameters have the values of the caller.
    fn check(&self, request: &WriteRequest) -> Result<(), Failure> {
        let spec = &self.spec;
        let wrong = |why: String| Failure::new(ErrorCode::InvalidParams, format!("{}: {why}", spec.name));
        if let Some(unknown) = request.params.keys().find(|name| spec.param(name).is_none()) {
            return Err(wrong(format!("unknown argument \"{unknown}\"")));
        }
        for param in &spec.params {
            let value = request.params.get(&param.name);
            let value = value.ok_or_else(|| wrong(format!("missing argument \"{}\"", param.name)))?;
            if let ParamSource::Principal(field) = &param.source
                && value.as_str() != request.principal.field(field)
            {
                return Err(wrong(format!("\"{}\" is another account's", param.name)));
            }
        }
        self.encode(&request.params)?;
        if let Some(set) = &spec.set {
            self.assigning(set, &request.params)?;
        }
        self.native.as_ref().map_or(Ok(()), |native| native.check(request))
    }

    fn execute<'a>(&'a self, tx: &'a mut WriteTx<'_>, request: &'a WriteRequest) -> WriteFuture<'a> {
        Box::pin(async move {
            let (result, images) = self.run(tx, request, Run::Execute).await?;
            self.write_output(request, result, images).map_err(ExecutorError::from)
        })
    }

    fn preview<'a>(&'a self, tx: &'a mut WriteTx<'_>, request: &'a WriteRequest) -> WriteFuture<'a> {
        Box::pin(async move {
            let (result, images) = self.run(tx, request, Run::Preview).await?;
            self.write_output(request, result, images).map_err(ExecutorError::from)
        })
    }

    fn preview_is_binding(&self) -> bool {
        self.native.as_ref().is_none_or(|native| native.preview_is_binding())
    }

    fn row_key(&self) -> &[String] {
        self.spec.before.as_ref().map(|before| before.shape.key.as_slice()).unwrap_or_default()
    }

    fn policy(&self, request: &WriteRequest) -> Result<Option<PolicyCall<'_>>, Failure> {
        let Some(policy) = &self.policy else { return Ok(None) };
        Ok(Some(PolicyCall { policy, params: self.encode(&request.params)? }))
    }

    fn limit(&self) -> Option<ToolLimit> {
        self.spec.limit
    }

    fn tier(&self) -> Tier {
        self.spec.tier
    }

    fn supports_tier(&self, tier: Tier) -> bool {
        tier == self.spec.tier || self.spec.rules.iter().any(|rule| rule.then.tier() == Some(tier))
    }

    fn definition(&self) -> String {
        let spec = &self.spec;
        let texts = |statements: &mut dyn Iterator<Item = &manifest::StatementSpec>| -> Vec<Value> {
            statements.map(|statement| json!([statement.sql, statement.param_types])).collect()
        };
        let native = self.native.as_ref().map(|native| native.definition());
        let params: Vec<&str> = spec.params.iter().map(|param| param.name.as_str()).collect();
        let rules: Vec<_> = spec.rules.iter().map(|rule| (&rule.when, rule.then, &rule.message)).collect();
        json!([
            spec.name,
            params,
            texts(&mut spec.before.iter()),
            texts(&mut spec.statements.iter()),
            texts(&mut spec.after.iter()),
            spec.rows.as_str(),
            spec.max_rows,
            format!("{:?}", spec.undo),
            native,
            spec.tier,
            // The arguments that the operator allows.
            *spec.input_schema,
            rules,
        ])
        .to_string()
    }

    fn dedup_window(&self) -> std::time::Duration {
        self.spec.dedup_window
    }
}
