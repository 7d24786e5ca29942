//! The read path: one statement, in a transaction that cannot write, within bounds (design.md section 4).

use std::sync::Arc;
use std::time::Duration;

use contract::{Column, PgType};
use postgres_protocol::message::backend::Message;
use serde_json::Value;
use tokio::time::Instant;
use tokio::time::error::Elapsed;

use crate::error::{Error, ServerError};
use crate::pool::{Lease, Pool};
use crate::session::{RawShape, Session, raw_row};
use crate::target::Target;
use crate::types::TypeCatalog;
use crate::value;

/// The bounds of a read.
#[derive(Debug, Clone)]
pub struct ReadLimits {
    /// Rows when the caller says nothing (promise D5-07).
    pub default_rows: u32,
    /// The most rows that a caller can ask for.
    pub max_rows: u32,
    /// Bytes of the result in text form, a single row included.
    pub max_bytes: usize,
    /// From the call to the answer, waiting for a connection included.
    pub deadline: Duration,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self { default_rows: 500, max_rows: 10_000, max_bytes: 1 << 20, deadline: Duration::from_secs(30) }
    }
}

/// What to read.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// One statement.
    pub sql: &'a str,
    /// `$1`, `$2`, ... as JSON.
    pub params: &'a [Value],
    /// Rows to return at the most; the default of [`ReadLimits`] if `None`.
    pub row_limit: Option<u32>,
}

/// What was read.
#[derive(Debug, Clone)]
pub struct ResultSet {
    /// The columns, their names made unique.
    pub columns: Vec<Column>,
    /// The rows, each as long as `columns`.
    pub rows: Vec<Vec<Value>>,
    /// Whether there was more than the limits on rows and bytes let through.
    pub truncated: bool,
}

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The statement returns no rows, so it is not a read.
    #[error("the statement returns no rows")]
    NoResultColumns,
    /// PostgreSQL would not let it write.
    #[error("{0}")]
    WouldWrite(Box<ServerError>),
    /// Its plan has a node that PostgreSQL would not run in a transaction that cannot write.
    #[error("the plan has a {0} node, which writes")]
    PlannedWrite(String),
    /// The parameters do not fit the statement.
    #[error("{0}")]
    Params(String),
    /// One row is larger than a whole answer may be.
    #[error("{0}")]
    TooLarge(Error),
    /// The rest: PostgreSQL's own errors, the connection, the deadline.
    #[error(transparent)]
    Database(#[from] Error),
}

/// Reads through a pool of its own, logged in as a role of its own.
#[derive(Debug, Clone)]
pub struct Reader {
    pool: Pool,
    types: Arc<TypeCatalog>,
    limits: ReadLimits,
}

/// The agent's statement has a name of its own, because looking up a type in between uses others.
const AGENT_STATEMENT: &str = "agent";

impl Reader {
    /// A reader of this database. Opens no connection yet.
    #[must_use]
    pub fn new(target: Target, limits: ReadLimits) -> Self {
        // One more layer: what runs outside our own transaction could not write either.
        let pool = Pool::new(target, vec![("default_transaction_read_only", "on")]);
        Self { pool, types: Arc::new(TypeCatalog::default()), limits }
    }

    /// The bounds.
    #[must_use]
    pub fn limits(&self) -> &ReadLimits {
        &self.limits
    }

    /// A session of the reader's login, for questions of our own about that login.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn lease(&self) -> Result<Lease, Error> {
        self.pool.lease(Instant::now() + self.limits.deadline).await
    }

    /// Runs one read. Cancelling the future frees the backend.
    ///
    /// # Errors
    /// [`ReadError`]; nothing of the database has changed in any case.
    pub async fn query(&self, request: &ReadRequest<'_>) -> Result<ResultSet, ReadError> {
        let deadline = self.deadline();
        let outcome = self.attempt(deadline, request).await;
        if self.may_read_again(&outcome) { self.attempt(deadline, request).await } else { outcome }
    }

    async fn attempt(&self, deadline: Instant, request: &ReadRequest<'_>) -> Result<ResultSet, ReadError> {
        let mut lease = self.lease_until(deadline).await?;
        let outcome = tokio::time::timeout_at(deadline, self.query_on(lease.session(), request)).await;
        settle(lease, outcome)
    }

    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.limits.deadline
    }

    pub(crate) async fn lease_until(&self, deadline: Instant) -> Result<Lease, ReadError> {
        Ok(self.pool.lease(deadline).await?)
    }

    /// The session may have died in the pool (PostgreSQL restarted): a read can simply be tried on a fresh one.
    pub(crate) fn may_read_again<T>(&self, outcome: &Result<T, ReadError>) -> bool {
        let Err(ReadError::Database(Error::Lost(error))) = outcome else { return false };
        tracing::info!(%error, "a pooled connection was lost; reading again on a fresh one");
        self.pool.forget_idle();
        true
    }

    async fn query_on(&self, session: &mut Session, request: &ReadRequest<'_>) -> Result<ResultSet, ReadError> {
        let shape = self.prepare(session, request.sql).await?;
        let Some(raw_columns) = shape.columns else { return Err(ReadError::NoResultColumns) };
        let params = self.params(session, &shape.params, request.params).await?;
        let mut types = Vec::with_capacity(raw_columns.len());
        for column in &raw_columns {
            types.push(self.types.resolve(session, column.type_oid).await?);
        }
        let names = raw_columns.iter().map(|column| column.name.as_str());
        let columns: Vec<Column> =
            unique_names(names).into_iter().zip(types).map(|(name, ty)| Column { name, ty, not_null: false }).collect();
        let row_limit = request.row_limit.unwrap_or(self.limits.default_rows).min(self.limits.max_rows);
        self.fetch(session, AGENT_STATEMENT, columns, &params, row_limit).await
    }

    /// Opens the transaction and describes the agent's statement in it: one round trip, nothing of the agent's runs.
    pub(crate) async fn prepare(&self, session: &mut Session, sql: &str) -> Result<RawShape, ReadError> {
        session.connection.max_message_bytes = self.limits.max_bytes;
        let timeout_ms = self.limits.deadline.as_millis();
        // The first query fixes the mode: afterwards SET TRANSACTION READ WRITE is an error, whoever says it.
        session
            .connection
            .push_own_text(&format!(
                "begin read only; select set_config('statement_timeout', '{timeout_ms}', true), \
             set_config('lock_timeout', '{timeout_ms}', true), \
             set_config('idle_in_transaction_session_timeout', '{timeout_ms}', true)"
            ))
            .map_err(Error::Lost)?;
        session.push_describe(AGENT_STATEMENT, sql, &[]).map_err(Error::Lost)?;
        session.connection.flush().await.map_err(Error::Lost)?;
        session.finish().await?;
        session.receive_shape().await.map_err(refusal)
    }

    pub(crate) async fn params(
        &self,
        session: &mut Session,
        oids: &[u32],
        given: &[Value],
    ) -> Result<Vec<Option<String>>, ReadError> {
        if oids.len() != given.len() {
            return Err(ReadError::Params(format!(
                "the query takes {} parameter(s) and {} were given in params",
                oids.len(),
                given.len()
            )));
        }
        let mut params = Vec::with_capacity(given.len());
        for (index, (oid, json)) in oids.iter().zip(given).enumerate() {
            let ty: Arc<PgType> = self.types.resolve(session, *oid).await?;
            let text = value::encode(json, &ty)
                .map_err(|error| ReadError::Params(format!("parameter ${} {error}", index + 1)))?;
            params.push(text);
        }
        Ok(params)
    }

    /// Runs a prepared statement up to the limits and rolls back: one round trip.
    pub(crate) async fn fetch(
        &self,
        session: &mut Session,
        statement: &str,
        columns: Vec<Column>,
        params: &[Option<String>],
        row_limit: u32,
    ) -> Result<ResultSet, ReadError> {
        let connection = &mut session.connection;
        let one_more = i32::try_from(row_limit).unwrap_or(i32::MAX).saturating_add(1);
        connection.push_bind("", statement, params).map_err(Error::Lost)?;
        connection.push_execute("", one_more).map_err(Error::Lost)?;
        connection.push_sync();
        connection.push_own_text("rollback").map_err(Error::Lost)?;
        connection.flush().await.map_err(Error::Lost)?;

        let mut result = ResultSet { columns, rows: Vec::new(), truncated: false };
        let mut bytes = 0;
        let mut bound = false;
        let mut failure = None;
        loop {
            match connection.receive().await.map_err(too_large)? {
                Message::BindComplete => bound = true,
                Message::DataRow(body) => {
                    bytes += body.buffer().len();
                    if result.rows.len() == row_limit as usize {
                        result.truncated = true;
                    } else if bytes > self.limits.max_bytes {
                        // The rest is not worth waiting for: the caller's lease stops the server.
                        result.truncated = true;
                        return Ok(result);
                    } else {
                        let row = raw_row(&body).map_err(Error::Lost)?;
                        result.rows.push(decode_row(&row, &result.columns));
                    }
                }
                Message::ErrorResponse(body) if failure.is_none() => {
                    failure = Some(ServerError::from_fields(body.fields()).map_err(Error::Lost)?);
                }
                Message::ReadyForQuery(_) => break,
                _ => {}
            }
        }
        session.finish().await?;
        match failure {
            None => Ok(result),
            // PostgreSQL judges the parameters when they are bound; the statement has not started then.
            Some(error) if !bound && !params.is_empty() => Err(ReadError::Params(error.message)),
            Some(error) => Err(refusal(Error::Server(Box::new(error)))),
        }
    }
}

fn decode_row(row: &[Option<String>], columns: &[Column]) -> Vec<Value> {
    row.iter().zip(columns).map(|(text, column)| value::decode(text.as_deref(), &column.ty)).collect()
}

/// SQLSTATE 25006, `read_only_sql_transaction`: the statement would have written.
pub(crate) fn refusal(error: Error) -> ReadError {
    match error {
        Error::Server(error) if error.sqlstate == "25006" => ReadError::WouldWrite(error),
        error => ReadError::Database(error),
    }
}

fn too_large(error: Error) -> ReadError {
    match error {
        error @ Error::MessageTooLarge { .. } => ReadError::TooLarge(error),
        error => ReadError::Database(error),
    }
}

/// `a`, `a` becomes `a`, `a_2`; a name that is taken by then is passed over.
#[must_use]
pub fn unique_names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let names: Vec<&str> = names.collect();
    let mut taken: std::collections::HashSet<String> = std::collections::HashSet::new();
    let mut next: std::collections::HashMap<&str, usize> = std::collections::HashMap::new();
    names
        .iter()
        .map(|name| {
            let mut unique = (*name).to_owned();
            while !taken.insert(unique.clone()) {
                let count = next.entry(name).or_insert(1);
                *count += 1;
                let candidate = format!("{name}_{count}");
                // Not a name that a later column bears by right.
                unique = if names.contains(&candidate.as_str()) { (*name).to_owned() } else { candidate };
            }
            unique
        })
        .collect()
}

/// What became of a read, and of the session it ran on.
pub(crate) fn settle<T>(mut lease: Lease, outcome: Result<Result<T, ReadError>, Elapsed>) -> Result<T, ReadError> {
    let Ok(outcome) = outcome else {
        lease.discard();
        return Err(ReadError::Database(Error::Deadline));
    };
    // A refused statement leaves an open transaction behind: cleaning up ends it. Only an answer that is still on its
    // way cannot be cleaned up.
    if outcome.is_ok() || lease.session().connection.owed == 0 {
        clean_later(lease);
    } else {
        lease.discard();
    }
    outcome
}

/// Gives the session back once nothing of the call is left in it: after the answer, so that nobody waits for it.
fn clean_later(mut lease: Lease) {
    tokio::spawn(async move {
        let session = lease.session();
        if session.connection.owed > 0 {
            return lease.discard();
        }
        let cleaned = async {
            if !session.is_idle() {
                session.batch("rollback").await?;
            }
            session.discard_all().await
        };
        if cleaned.await.is_err() {
            lease.discard();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_the_same_name_are_told_apart() {
        let names = |names: &[&str]| unique_names(names.iter().copied());
        assert_eq!(names(&["a", "b", "a", "a"]), ["a", "b", "a_2", "a_3"]);
        assert_eq!(names(&["a", "a", "a_2"]), ["a", "a_3", "a_2"]);
        assert_eq!(names(&["?column?", "?column?"]), ["?column?", "?column?_2"]);
    }
}
