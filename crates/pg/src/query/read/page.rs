//! The pages of a result: the rows of a query after a key.
//!
//! ```text
//! cut answer   description and plan of the text · the catalog     two round trips, once per text and session;
//!                                                                 one if the rows are not ordered
//! next page    the same, unless the session knows the order of the text · the read of the rows after the key
//! ```
//! A page is a separate read in its own transaction: it returns the rows that the query has at that time, after the
//! key.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant as Moment};

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;
use types::PgType;

use super::page_order::{PageKey, PageProblem, page_keys};
use super::page_plan::{SORT_MODE_SQL, planned_order};
use super::page_text::{as_part, chars_before, page_query, without_end};
use super::prepare::push_explain;
use super::{Paging, ReadError, ReadRequest, Reader, ResultSet, RowFormat, refusal};
use crate::client::error::Error;
use crate::client::session::{Session, StatementDescription};
use crate::client::wire::{Event, Purpose, row_texts};
use crate::query::plan::PlanResult;
use crate::query::referenced_objects::called;
use crate::query::value::{self, EncodeError};

/// The time limit for finding the order of a query whose rows have already arrived.
const ORDER_DEADLINE: Duration = Duration::from_secs(2);

/// How long before the call's deadline the search for an order ends, so that the rows are not lost.
const MARGIN: Duration = Duration::from_millis(100);

/// The maximum length of a key as JSON, in bytes. An index entry has less than 3 kB.
const MAX_KEY_BYTES: usize = 8 * 1024;

/// How to read the next rows.
#[derive(Debug)]
pub enum NextPage {
    /// The values of the ORDER BY columns in the last row, as JSON. The next page begins after them.
    After(Vec<Box<RawValue>>),
    /// The query cannot be continued by a key.
    Unavailable(PageProblem),
}

/// The order of the rows of a text, as found in a session.
#[derive(Debug)]
pub(super) struct PageOrder {
    params: Vec<Arc<PgType>>,
    /// The names of the result columns, which need not be unique.
    names: Vec<String>,
    keys: Result<Vec<PageKey>, PageProblem>,
    has_limit: bool,
}

impl Reader {
    /// Runs the read on this session. Also returns the order of the text, if it was found there.
    pub(super) async fn read_page(
        &self,
        session: &mut Session,
        deadline: Instant,
        request: &ReadRequest<'_>,
    ) -> Result<(ResultSet, Option<Arc<PageOrder>>), ReadError> {
        if let Paging::After(after) = request.paging {
            return self.read_behind(session, request, after).await;
        }
        let result = self.read_on(session, request).await?;
        let order = match request.paging {
            Paging::First if result.truncated_by.is_some() => self.order_after(session, deadline, request).await,
            _ => None,
        };
        Ok((result, order))
    }

    /// How to read the rows that were left out of this result.
    pub(super) async fn next_page(
        &self,
        deadline: Instant,
        request: &ReadRequest<'_>,
        (result, order): (&ResultSet, Option<Arc<PageOrder>>),
    ) -> NextPage {
        let order = match order {
            Some(order) => Some(order),
            None => self.order_of(order_deadline(deadline), request).await,
        };
        let next = order.map_or(Err(PageProblem::Unknown), |order| order.key_of_last_row(result, request.format));
        next.map_or_else(NextPage::Unavailable, NextPage::After)
    }

    async fn read_behind(
        &self,
        session: &mut Session,
        request: &ReadRequest<'_>,
        after: &[Value],
    ) -> Result<(ResultSet, Option<Arc<PageOrder>>), ReadError> {
        let sql = without_end(request.sql);
        let order = self.order_on(session, request).await?;
        session.await_reset().await?;
        value::encode_all(request.params, &order.params)?;
        let keys = order
            .keys
            .as_ref()
            .map_err(|problem| ReadError::Params(format!("`after` cannot be used with this query: {problem}")))?;
        let values = key_values(keys, after)?;
        let param_count = order.params.len();
        let text = page_query(sql, &order.names, keys, &values, param_count);
        let params = request.params.iter().cloned().chain(values.into_iter().flatten().map(Value::String));
        let page = ReadRequest {
            sql: &text,
            params: &params.collect::<Vec<_>>(),
            // The text of a page has the query's own LIMIT inside a subquery, so the plan's outermost node does not
            // show it.
            row_limit: request.row_limit.or(order.has_limit.then_some(self.limits.max_rows)),
            ..*request
        };
        let outcome = self.read_on(session, &page).await;
        let result = outcome.map_err(|error| in_own_text(error, chars_before(&order.names), param_count))?;
        Ok((result, Some(order)))
    }

    /// The order of a text whose rows this session has just read. `None` if it was not found, or if rows are still
    /// arriving; then another session is needed.
    async fn order_after(
        &self,
        session: &mut Session,
        deadline: Instant,
        request: &ReadRequest<'_>,
    ) -> Option<Arc<PageOrder>> {
        if let Some((order, _)) = session.statements.get(&self.order_key(request.sql)) {
            return Some(order);
        }
        let is_under_way = session.connection.has_pending() && !session.connection.reset_pending();
        let deadline = order_deadline(deadline);
        if is_under_way || deadline <= Instant::now() {
            return None;
        }
        let found = tokio::time::timeout_at(deadline, async {
            session.await_reset().await?;
            self.order_on(session, request).await
        });
        found.await.ok()?.ok()
    }

    /// The order of a text, found on another session. `None` if it was not found: the rows are returned without it.
    async fn order_of(&self, deadline: Instant, request: &ReadRequest<'_>) -> Option<Arc<PageOrder>> {
        let mut lease = self.pool.acquire(deadline).await.ok()?;
        let outcome = tokio::time::timeout_at(deadline, self.order_on(lease.session(), request)).await;
        let outcome = self.give_back(lease, outcome).await;
        outcome.inspect_err(|error| tracing::debug!(%error, "the order of a cut result is not known")).ok()
    }

    /// The order of a text: the one that the session found within the last minute, otherwise the one that the
    /// database reports.
    async fn order_on(&self, session: &mut Session, request: &ReadRequest<'_>) -> Result<Arc<PageOrder>, ReadError> {
        let cache_key = self.order_key(request.sql);
        if let Some((order, _)) = session.statements.get::<PageOrder>(&cache_key) {
            return Ok(order);
        }
        session.settings = self.settings_for(request.account.unwrap_or_default());
        let seen = Moment::now();
        let name = session.statements.new_name();
        let found = self.look_up_order(session, &name, request).await;
        match found {
            Ok(order) => {
                self.push_abort_and_reset(session).await?;
                let order = Arc::new(order);
                session.statements.insert(&cache_key, Arc::clone(&order) as _, name, seen);
                Ok(order)
            }
            Err(error) => {
                session.statements.drop_name(name);
                Err(error)
            }
        }
    }

    async fn look_up_order(
        &self,
        session: &mut Session,
        name: &str,
        request: &ReadRequest<'_>,
    ) -> Result<PageOrder, ReadError> {
        let (described, planned) = self.plan_sorted(session, name, request).await?;
        let StatementDescription { params, columns } = described;
        let columns = columns.ok_or(ReadError::NoResultColumns)?;
        if params.len() != request.params.len() {
            return Err(EncodeError::of_count(params.len(), request.params.len()).into());
        }
        let is_plan = matches!(planned, Ok(PlanResult::Plan(_)));
        let params = if is_plan { self.types.resolve_all(session, &params).await? } else { Vec::new() };
        let names = columns.iter().map(|column| column.name.clone()).collect();
        let plan = match planned {
            Ok(PlanResult::Plan(plan)) => plan,
            Ok(PlanResult::Utility | PlanResult::Empty) => {
                return Ok(PageOrder { params, names, keys: Err(PageProblem::Text), has_limit: false });
            }
            Ok(PlanResult::Refused(_)) => {
                return Ok(PageOrder { params, names, keys: Err(PageProblem::Unknown), has_limit: false });
            }
            Err(problem) => return Ok(PageOrder { params, names, keys: Err(problem), has_limit: false }),
        };
        if called(&plan).iter().any(|call| call.name == "set_config") {
            return Ok(PageOrder { params, names, keys: Err(PageProblem::Settings), has_limit: false });
        }
        let (keys, has_limit) = match planned_order(&plan, columns.len()) {
            Ok(order) => (page_keys(&self.types, session, &columns, &order).await?, order.has_limit),
            Err(problem) => (Err(problem.into()), false),
        };
        Ok(PageOrder { params, names, keys, has_limit })
    }

    /// The key of an order in the session's statement cache. Texts of agents cannot contain U+0000.
    fn order_key(&self, sql: &str) -> String {
        format!("\0order\0{}", self.cache_key(sql))
    }

    /// Describes the text alone, parses it as a part of a statement, and plans it for its order, in one round trip.
    /// The text is not run.
    async fn plan_sorted(
        &self,
        session: &mut Session,
        name: &str,
        request: &ReadRequest<'_>,
    ) -> Result<(StatementDescription, Result<PlanResult, PageProblem>), ReadError> {
        let sql = without_end(request.sql);
        let pushed = session.push_whole(|session| {
            self.push_opening(session)?;
            let statement = session.connection.next_statement();
            session.connection.push_parse(name, sql, &[])?;
            session.connection.push_describe_statement(name)?;
            let part = session.connection.next_statement();
            session.connection.push_parse("", &as_part(sql), &[])?;
            session.push_unnamed(SORT_MODE_SQL, &[], &[])?;
            session.connection.push_execute("", 0)?;
            let explain = push_explain(session, name, request.params.len(), false)?;
            session.connection.push_sync(Purpose::Call);
            Ok::<_, Error>((statement, part, explain))
        });
        let (statement, part, explain) = pushed.inspect_err(|_| session.invalidate_boundary_statements())?;
        session.connection.flush().await.map_err(Error::Lost)?;
        let mut plan = None;
        let mut take = |event: &Event| {
            if let Event::Row(id, body) = event
                && *id == explain
            {
                plan = Some(PlanResult::parse(row_texts(body)?.first().copied().flatten()));
            }
            Ok(())
        };
        let (described, refused) = session.receive_description(&mut take).await?;
        let planned = match refused {
            None => Ok(plan.unwrap_or(PlanResult::Empty)),
            Some(refused) if refused.statement > part => {
                Ok(PlanResult::refused(refused.error).map_err(ReadError::Database)?)
            }
            Some(refused) if refused.statement == part => Err(PageProblem::Text),
            Some(refused) => {
                if refused.statement != statement {
                    session.invalidate_boundary_statements();
                }
                let refused_role = self.refused_role(session, refused.statement);
                return Err(refused_role.unwrap_or_else(|| refusal(refused.into())));
            }
        };
        Ok((described, planned))
    }
}

/// The deadline of the search for an order, before `deadline`, which ends the whole call.
fn order_deadline(deadline: Instant) -> Instant {
    let latest = deadline.checked_sub(MARGIN).unwrap_or(deadline);
    latest.min(Instant::now() + ORDER_DEADLINE)
}

impl PageOrder {
    /// The values of the last row for `after`.
    fn key_of_last_row(&self, result: &ResultSet, format: RowFormat) -> Result<Vec<Box<RawValue>>, PageProblem> {
        let keys = self.keys.as_ref().map_err(|problem| *problem)?;
        let row = result.rows.last().ok_or(PageProblem::Unknown)?;
        // The columns may have changed since the rows were read.
        if result.columns.len() != self.names.len() {
            return Err(PageProblem::Unknown);
        }
        let cells = cells(row, result, format).ok_or(PageProblem::Unknown)?;
        let value = |key: &PageKey| {
            let is_same = result.columns.get(key.index).is_some_and(|column| column.ty.oid == key.ty.oid);
            cells.get(key.index).filter(|_| is_same).map(|cell| (*cell).to_owned())
        };
        let values = keys.iter().map(value).collect::<Option<Vec<_>>>().ok_or(PageProblem::Unknown)?;
        let bytes: usize = values.iter().map(|value| value.get().len()).sum();
        if bytes > MAX_KEY_BYTES { Err(PageProblem::Type) } else { Ok(values) }
    }
}

/// The values of a row in the order of the columns.
fn cells<'a>(row: &'a str, result: &ResultSet, format: RowFormat) -> Option<Vec<&'a RawValue>> {
    match format {
        RowFormat::Array => serde_json::from_str(row).ok(),
        RowFormat::Object => {
            let cells: HashMap<String, &RawValue> = serde_json::from_str(row).ok()?;
            result.columns.iter().map(|column| cells.get(&column.name).copied()).collect()
        }
    }
}

/// The values of `after` in text form.
fn key_values(keys: &[PageKey], after: &[Value]) -> Result<Vec<Option<String>>, ReadError> {
    if keys.len() != after.len() {
        let (takes, got) = (keys.len(), after.len());
        let why = format!("`after` takes {takes} value(s) here, one for each column of ORDER BY, and has {got}");
        return Err(ReadError::Params(why));
    }
    let values = keys.iter().zip(after).enumerate().map(|(index, (key, value))| {
        let invalid = |why: String| ReadError::Params(format!("value {} of `after` {why}", index + 1));
        match value::encode_safe(value, &key.ty).map_err(|error| invalid(error.to_string()))? {
            None if key.not_null => Err(invalid("is never null".to_owned())),
            text => Ok(text),
        }
    });
    values.collect()
}

/// The error with its position counted in the agent's own text. If the error is about a parameter after the agent's
/// own parameters, it is reported as one about `after`.
fn in_own_text(error: ReadError, chars_before: u32, param_count: usize) -> ReadError {
    match error {
        ReadError::Params(why) => {
            let own = why.strip_prefix("parameter $").and_then(|rest| rest.split_once(": "));
            match own.and_then(|(number, rest)| Some((number.parse::<usize>().ok()?, rest))) {
                Some((number, rest)) if number > param_count => ReadError::Params(format!("`after`: {rest}")),
                _ => ReadError::Params(why),
            }
        }
        ReadError::Database(Error::Server(mut error)) => {
            error.position =
                error.position.and_then(|position| position.checked_sub(chars_before)).filter(|it| *it > 0);
            ReadError::Database(Error::Server(error))
        }
        error => error,
    }
}
