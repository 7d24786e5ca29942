//! The definitions that a write depends on: relations with their triggers, constraints, policies and view definitions, and
//! functions. What a person agrees to holds only while they stay as they are. The SQL is in `migrations/baseline/60_definitions.sql`.

use pg::{PipelineStatement, StatementResult};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::write::executor::{WriteExecutor, WriteRequest};
use crate::write::failures::ExecutorError;
use crate::write::write_tx::{Statement, WriteTx};

/// A definition, and its version when a write was previewed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// `table`, `view`, `materialized view`, `foreign table`, `function`, or `operators` for all operators, casts and domains
    /// that PostgreSQL does not ship.
    pub kind: String,
    /// The schema and name of a relation, quoted as SQL needs it; the name of a function, whatever its schema and parameters.
    pub name: String,
    /// SHA-256 over the versions of its rows in the system catalogs, in hexadecimal digits.
    pub version: String,
}

const CURRENT_SQL: &str = "select * from countersign.current_definitions($1)";
pub(crate) const CHANGED_SQL: &str = "select countersign.changed_definitions($1) as definition";

/// The step that lists the definitions that the transaction depends on so far, and its parameters.
pub(crate) fn search(executor: &dyn WriteExecutor, request: &WriteRequest) -> [Option<String>; 1] {
    // A native executor or a statement of the caller's own may name functions in its parameters only.
    let texts = [executor.definition(), Value::Object(request.params.clone()).to_string()];
    [Some(pg::value::text_array(&texts))]
}

pub(crate) fn search_step(params: &[Option<String>; 1]) -> PipelineStatement<'_> {
    PipelineStatement { sql: CURRENT_SQL, params, param_types: &[] }
}

/// The definitions in the result of [`search_step`].
pub(crate) fn found(outcome: StatementResult) -> Vec<Definition> {
    let definition = |row: Vec<Option<String>>| {
        let [kind, name, version] = <[Option<String>; 3]>::try_from(row).ok()?;
        Some(Definition { kind: kind?, name: name?, version: version? })
    };
    outcome.rows.into_iter().filter_map(definition).collect()
}

/// The definitions that have changed since, each by kind and name.
pub(crate) async fn changed(tx: &mut WriteTx<'_>, definitions: &[Definition]) -> Result<Vec<String>, ExecutorError> {
    let params = [Some(serde_json::to_string(definitions).unwrap_or_default())];
    let rows = tx.run(&[Statement { sql: CHANGED_SQL, params: &params, param_types: &[] }]).await?;
    let name = |row: &serde_json::Map<String, Value>| row.get("definition")?.as_str().map(str::to_owned);
    Ok(rows.first().map(|rows| rows.rows.iter().filter_map(name).collect()).unwrap_or_default())
}
