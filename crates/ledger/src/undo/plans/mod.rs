//! The undo of many writes. The writes are selected, compared with the current rows, and stored as a plan. Only a
//! stored plan is executed.

mod failing;
mod report;
mod rows;
mod unknown;

use std::sync::Arc;

use pg::{ContextStatements, PipelineStatement, WriterPool};
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use types::{AccountId, CallerContext, CorrelationId, IdPrefix, Moment, rfc3339};

pub use failing::{TrialFuture, TrialUndo, TriedUndo, is_of_the_rows};
pub use report::{
    Plan, PlanMode, PlanPart, PlanReport, PlanRows, PlanScope, PlanSummary, SelectedWrite, Selection, StoredPlan,
};
pub use unknown::SelectionError;

use crate::evidence::records::Records;
use crate::evidence::time_range::TimeRangeError;
use crate::evidence::values::array;
use crate::fingerprint::sha256_hex;
use crate::write::renewals::{self, Renewals, may_be_outdated};

#[derive(Debug, Clone)]
pub struct PlanRequest {
    /// Selects the writes.
    pub scope: PlanScope,
    /// Selects writes that were completed at or after this time.
    pub from: Moment,
    /// Selects writes that were completed before this time.
    pub to: Moment,
    /// How to treat writes that conflict.
    pub mode: PlanMode,
}

#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The request cannot match any write.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    #[error(transparent)]
    Database(#[from] pg::Error),
}

const SELECT_SQL: &str = concat!(
    "select s.correlation_id, s.tool_name, s.account_id, s.actor, ",
    crate::evidence::values::rfc3339!("s.completed_at"),
    " as completed_at, s.is_inside, s.makes_again, s.left_out \
     from countersign.selected_writes($1, $2, $3, $4, $5, $6, $7::timestamptz, $8::timestamptz, $9, $10) s"
);
const PLAN_SQL: &str = "select countersign.undo_plan($1::uuid[], $2, $3)";
const STORE_SQL: &str = "select countersign.store_plan($1, $2, $3, $4, $5, $6)";
const STORED_SQL: &str = "select p.plan_id, p.digest, p.parts, p.selection, p.report from countersign.stored_plan p \
    where p.plan_id between $1::uuid and $2::uuid and p.account_id is not distinct from $3";

/// Makes and stores plans: operators' plans for all writes, and accounts' plans for their own writes.
#[derive(Debug, Clone)]
pub struct Plans {
    writer: WriterPool,
    records: Records,
    /// The role and the claims of the caller, whose writes are selected and whose rows are compared; `None` for an
    /// operator.
    caller: Option<Arc<CallerContext>>,
}

impl Plans {
    pub(crate) const fn new(writer: WriterPool, records: Records) -> Self {
        Self { writer, records, caller: None }
    }

    /// Plans of the writes and the rows that a caller with this context sees.
    #[must_use]
    pub fn for_caller(&self, context: &Arc<CallerContext>) -> Self {
        Self { caller: Some(Arc::clone(context)), ..self.clone() }
    }

    /// Selects the writes and computes the consequences of their undo. In a plan of an account, `cascade` adds no
    /// writes of other accounts.
    ///
    /// # Errors
    /// [`PlanError`], also if the range of time is empty, or if the ledger does not know a name in the request.
    pub async fn compare(
        &self,
        account: Option<&AccountId>,
        request: &PlanRequest,
        deadline: Instant,
    ) -> Result<Plan, PlanError> {
        let PlanRequest { scope, from, to, mode } = request;
        let account = account.map(AccountId::as_str);
        let range = self.records.time_range(Some(*from), Some(*to)).await.map_err(|error| match error {
            TimeRangeError::Empty(empty) => PlanError::Selection(empty.into()),
            TimeRangeError::Database(error) => error.into(),
        })?;
        let [from, to] = [range.from, range.to].map(|end| end.map(rfc3339).unwrap_or_default());
        let mut selection = Selection { scope: scope.clone(), from, to };
        let mut writes = self.selected(&selection, account).await?;
        if writes.is_empty()
            && let Some(session) = self.session(scope, account).await?
        {
            selection.scope.session = Some(session);
            writes = self.selected(&selection, account).await?;
        }
        if writes.is_empty()
            && let Some(unknown) = self.unknown(&selection.scope, account).await?
        {
            return Err(unknown.into());
        }
        let inside = || writes.iter().filter(|write| write.is_inside);
        let undone: Vec<_> =
            inside().filter(|write| write.left_out.is_none()).map(|write| write.correlation_id).collect();
        let mut report = self.report(&undone, *mode, account, deadline).await?;
        report.left_out.splice(0..0, inside().filter_map(|write| write.left_out.clone()));
        Ok(Plan { selection, writes, report })
    }

    /// Stores a plan, for a person or for an account.
    pub async fn store(
        &self,
        account: Option<&AccountId>,
        plan: &Plan,
        parts: Vec<PlanPart>,
        who: &str,
        deadline: Instant,
    ) -> Result<StoredPlan, pg::Error> {
        let digest = digest_of(&parts);
        let params = [
            account.map(|account| account.as_str().to_owned()),
            Some(json!(plan.selection).to_string()),
            Some(json!(parts).to_string()),
            Some(json!(plan.report.stored()).to_string()),
            Some(digest.clone()),
            Some(who.to_owned()),
        ];
        let plan_id = self.value(STORE_SQL, &params, deadline).await?;
        Ok(StoredPlan { plan_id, digest, parts, selection: plan.selection.clone(), report: plan.report.clone() })
    }

    /// The stored plan of the account with this id.
    pub async fn get(&self, account: &AccountId, id: CorrelationId) -> Result<Option<StoredPlan>, pg::Error> {
        Ok(self.stored([id.to_string(), id.to_string()], Some(account)).await?.into_iter().next())
    }

    /// The plans of operators whose id begins with `prefix`.
    pub async fn find(&self, prefix: &IdPrefix) -> Result<Vec<StoredPlan>, pg::Error> {
        self.stored(prefix.range(), None).await
    }

    /// The plans of `account`, or of operators if it is `None`, with an id in this range.
    async fn stored(
        &self,
        [low, high]: [String; 2],
        account: Option<&AccountId>,
    ) -> Result<Vec<StoredPlan>, pg::Error> {
        let params = [Some(low), Some(high), account.map(|account| account.as_str().to_owned())];
        let rows = self.records.objects(STORED_SQL, &params).await?;
        rows.into_iter().map(|row| parsed(Value::Object(row))).collect()
    }

    /// The consequences of undoing these writes.
    pub async fn report(
        &self,
        writes: &[CorrelationId],
        mode: PlanMode,
        account: Option<&str>,
        deadline: Instant,
    ) -> Result<PlanReport, pg::Error> {
        let params = [Some(array(writes)), Some(mode.as_str().to_owned()), account.map(str::to_owned)];
        let text = self.value(PLAN_SQL, &params, deadline).await?;
        serde_json::from_str(&text).map_err(unreadable)
    }

    async fn selected(&self, selection: &Selection, of_account: Option<&str>) -> Result<Vec<SelectedWrite>, pg::Error> {
        let Selection { scope, from, to } = selection.clone();
        let PlanScope { account, actor, session, client, tool, table } = scope;
        let context = self.caller.as_ref().map(|context| context.to_json().unwrap_or_default());
        let for_account = of_account.map(str::to_owned);
        let params = [account, actor, session, client, tool, table, Some(from), Some(to), context, for_account];
        let rows: Vec<Map<String, Value>> = self.records.objects(SELECT_SQL, &params).await?;
        rows.into_iter().map(|row| parsed(Value::Object(row))).collect()
    }

    pub(crate) async fn value(
        &self,
        sql: &str,
        params: &[Option<String>],
        deadline: Instant,
    ) -> Result<String, pg::Error> {
        let caller = self.caller.as_ref().and_then(|context| ContextStatements::of(context));
        let mut renewals = Renewals::default();
        loop {
            let mut lease = self.writer.acquire(deadline).await?;
            let statement = PipelineStatement::new(sql, params);
            match lease.run_one_for(caller.as_ref(), statement, deadline).await {
                Ok(answer) => return Ok(answer.rows.into_iter().flatten().flatten().next().unwrap_or_default()),
                Err(pg::Error::Server(error)) if may_be_outdated(Some(&error.sqlstate)) => {
                    if !renewals::is_renewed(&mut lease).await? || !renewals.begin(&self.writer) {
                        return Err(pg::Error::Server(error));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The digest of these parts, which must be confirmed before they are undone.
#[must_use]
pub fn digest_of(parts: &[PlanPart]) -> String {
    let digests: Vec<&str> = parts.iter().map(|part| part.digest.as_str()).collect();
    sha256_hex(&format!("countersign plan {}", digests.join(" ")))
}

fn parsed<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, pg::Error> {
    serde_json::from_value(value).map_err(unreadable)
}

fn unreadable(error: serde_json::Error) -> pg::Error {
    pg::Error::Lost(std::io::Error::other(error))
}
