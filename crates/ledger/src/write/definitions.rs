//! The definitions that a write depends on: functions, and relations with their triggers, constraints, policies and
//! view definitions. A reviewer's approval is valid only while they do not change. The SQL is in
//! `migrations/baseline/60_definitions.sql`.

use pg::{PipelineStatement, StatementResult};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::write::caller_part::Rights;
use crate::write::executor::{WriteExecutor, WriteRequest};
use crate::write::failures::ExecutorError;
use crate::write::write_tx::WriteTx;

/// A definition, with its version at the time of the preview.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// `table`, `view`, `materialized view`, `foreign table` or `function`; or `operators` for all operators, casts
    /// and domains that are not built in.
    pub kind: String,
    /// For a relation, its schema and name, quoted as in SQL. For a function, its name, which stands for all
    /// functions of this name, whatever their schema and parameters.
    pub name: String,
    /// SHA-256 over the versions of its rows in the system catalogs, in hexadecimal.
    pub version: String,
}

const CURRENT_SQL: &str = "select * from countersign.current_definitions($1)";
pub(crate) const CHANGED_SQL: &str = "select countersign.changed_definitions($1) as definition";

/// The parameters of the search for the definitions that the transaction depends on.
pub(crate) fn search(executor: &dyn WriteExecutor, request: &WriteRequest) -> [Option<String>; 1] {
    // A native executor, or SQL from the caller, may name functions only in its parameters.
    let texts = [executor.definition(), Value::Object(request.params.clone()).to_string()];
    [Some(pg::value::text_array(&texts))]
}

pub(crate) fn search_step(params: &[Option<String>; 1]) -> PipelineStatement<'_> {
    PipelineStatement::new(CURRENT_SQL, params)
}

/// Parses the result of [`search_step`].
pub(crate) fn found(outcome: StatementResult) -> Vec<Definition> {
    let definition = |row: Vec<Option<String>>| {
        let [kind, name, version] = <[Option<String>; 3]>::try_from(row).ok()?;
        Some(Definition { kind: kind?, name: name?, version: version? })
    };
    outcome.rows.into_iter().filter_map(definition).collect()
}

/// The definitions that have changed since the preview, by kind and name.
pub(crate) async fn changed(tx: &mut WriteTx<'_>, definitions: &[Definition]) -> Result<Vec<String>, ExecutorError> {
    let params = [Some(serde_json::to_string(definitions).unwrap_or_default())];
    let rows = tx.run_with(Rights::Login, &[PipelineStatement::new(CHANGED_SQL, &params)]).await?;
    let name = |row: &serde_json::Map<String, Value>| row.get("definition")?.as_str().map(str::to_owned);
    Ok(rows.first().map(|rows| rows.rows.iter().filter_map(name).collect()).unwrap_or_default())
}
