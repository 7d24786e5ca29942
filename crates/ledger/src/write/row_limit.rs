//! The limit of the rows that the writes of a tool may change. The number of rows is known only at the end of a
//! write, so it is checked after `countersign.finish` (`migrations/baseline/77_policies.sql`). A write beyond the
//! limit is rolled back.

use pg::ServerError;
use serde::Deserialize;
use types::{ErrorCode, Failure, ToolLimit};

use crate::write::attempt::WriteCall;
use crate::write::executor::WriteOutput;
use crate::write::policy::NOT_LET_RUN;

pub(crate) const APPLY_SQL: &str = "select countersign.apply_row_limit($1, $2, $3, $4)";

/// The arguments of [`APPLY_SQL`]; `None` if the tool has no row limit.
pub(crate) fn arguments(call: &WriteCall, correlation_id: String) -> Option<[Option<String>; 4]> {
    let ToolLimit { rows, per_s, by, .. } = call.executor.limit()?;
    let by_actor = by == types::LimitScope::Actor;
    Some([Some(correlation_id), Some(rows?.to_string()), Some(per_s.to_string()), Some(by_actor.to_string())])
}

/// The DETAIL of the refusal, as JSON.
#[derive(Debug, Deserialize)]
struct Refusal {
    /// The number of rows of this write.
    rows: u64,
    /// The number of rows of earlier writes in the period.
    used: u64,
    /// `None` if the write alone has more rows than the limit.
    retry_after_s: Option<u64>,
}

/// The failure if the row limit refuses the write.
pub(crate) fn refusal(error: &ServerError, call: &WriteCall) -> Option<Failure> {
    let detail = error.detail.as_deref().filter(|_| error.sqlstate == NOT_LET_RUN)?;
    let Refusal { rows, used, retry_after_s } = serde_json::from_str(detail).ok()?;
    let ToolLimit { rows: Some(most), per_s, by, .. } = call.executor.limit()? else { return None };
    let Some(retry_after_s) = retry_after_s else {
        return Some(WriteOutput::wrong_row_count(&format!("at most {most} (limit.rows)"), rows));
    };
    let message = format!(
        "the write would have changed {rows} row(s), and {used} of the {most} rows of {} in {per_s} s for each {} are used; \
         nothing was written, and it is possible in {retry_after_s} s",
        call.tool,
        by.as_str()
    );
    let hint = format!("Repeat the call after {retry_after_s} seconds, or change fewer rows.");
    Some(Failure::new(ErrorCode::LimitReached, message).hint(hint))
}
