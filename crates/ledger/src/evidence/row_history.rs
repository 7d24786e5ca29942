//! Recorded changes of rows, and what made them.

use serde::Deserialize;
use serde_json::Value;
use types::{CorrelationId, RowHistoryEntry};

use crate::evidence::effects::RecordedChange;
use crate::evidence::records::Records;
use crate::evidence::values::rfc3339;

const BEGIN_SQL: &str = concat!(
    "select e.correlation_id, r.tool_name, r.account_id, r.actor, r.client_name, ",
    rfc3339!("coalesce(r.completed_at, e.changed_at)"),
    " as changed_at, e.origin, t.name, e.op::text as op, coalesce(e.key_before, e.key) as key, e.before, e.after, \
     e.secret_before is distinct from e.secret_after as has_sensitive_changes, to_json(coalesce(e.unchanged, '{}')) as unchanged, to_json(t.columns) as columns, to_json(t.sensitive) as sensitive \
     from ("
);
const END_SQL: &str = ") e join countersign.tracked t on t.shape = e.shape \
     left join countersign.record r on r.correlation_id = e.correlation_id \
     order by e.position desc limit $3::bigint";

/// The newest of these changes, newest first. `changes` is a query for rows of `countersign.effect`; the third
/// parameter is the maximum number.
pub(crate) async fn newest(
    records: &Records,
    changes: &str,
    params: &[Option<String>; 3],
) -> Result<Vec<RowHistoryEntry>, pg::Error> {
    let changes = records.objects(&format!("{BEGIN_SQL}{changes}{END_SQL}"), params).await?.into_iter();
    let parsed = changes.map(|change| serde_json::from_value(Value::Object(change)).map(HistoryRow::entry));
    parsed.collect::<Result<_, _>>().map_err(|error| pg::Error::Lost(std::io::Error::other(error)))
}

#[derive(Deserialize)]
struct HistoryRow {
    correlation_id: Option<CorrelationId>,
    tool_name: Option<String>,
    account_id: Option<String>,
    actor: Option<String>,
    client_name: Option<String>,
    changed_at: Option<String>,
    origin: Option<String>,
    #[serde(flatten)]
    change: RecordedChange,
}

impl HistoryRow {
    fn entry(self) -> RowHistoryEntry {
        let Self { correlation_id, tool_name, account_id, actor, client_name, changed_at, origin, change } = self;
        let effect = change.effect();
        RowHistoryEntry { correlation_id, tool_name, account_id, actor, client_name, changed_at, origin, effect }
    }
}
