//! Finds the numbers in an answer of `execute_sql`, whose columns are known only from the answer itself.

use std::sync::Arc;

use serde_json::Value;
use types::{NumberFields, PgType, Scalar, TypeKind};

use crate::tool::EXECUTE_SQL;

/// The number fields of the rows, by the columns that the answer lists. This also works for an answer that comes from
/// the ledger. Domains are not resolved, since their names do not show their types. `None` for other tools, whose
/// columns are known.
pub(crate) fn listed_numbers(tool: &str, data: &Value) -> Option<Arc<NumberFields>> {
    if tool != EXECUTE_SQL {
        return None;
    }
    let mut fields = NumberFields::default();
    for column in data.get("columns").and_then(Value::as_array).into_iter().flatten() {
        let [name, ty] = ["name", "type"].map(|key| column.get(key).and_then(Value::as_str).unwrap_or_default());
        let scalar = match ty.trim_end_matches("[]") {
            "numeric" => Scalar::Numeric,
            "json" | "jsonb" => Scalar::Json,
            _ => continue,
        };
        fields.insert(name, &PgType { oid: 0, name: ty.to_owned(), kind: TypeKind::Scalar(scalar) });
    }
    Some(Arc::new(fields))
}
