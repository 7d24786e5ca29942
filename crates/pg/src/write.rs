//! Sessions that may write. Only `ledger` uses this: whoever wants to write goes through its gate, and no crate beyond
//! `ledger` depends on this one, but for the wiring in the binary (`tests/tests/architecture.rs` holds that).

use std::sync::Arc;

use contract::{Column, Describe, DescribeError, PgType, StatementShape};
use tokio::time::Instant;

use crate::columns::unique_names;
use crate::error::{Error, ServerError};
use crate::pool::{Lease, Pool};
use crate::session::RawColumn;
use crate::target::Target;
use crate::types::TypeCatalog;

/// A pool of sessions that may write, and the types of their database.
#[derive(Debug, Clone)]
pub struct Writer {
    pool: Pool,
    types: Arc<TypeCatalog>,
}

/// How long describing a statement may wait for a session.
const DESCRIBE_DEADLINE: std::time::Duration = std::time::Duration::from_secs(30);

const NOT_NULL_SQL: &str =
    "select attnotnull from pg_catalog.pg_attribute where attrelid = $1 and attnum = $2 and not attisdropped";

impl Writer {
    /// A writer on this database. Opens no connection yet.
    #[must_use]
    pub fn new(target: Target) -> Self {
        // What a manifest does not qualify is looked up in PostgreSQL's own schema and nowhere else, so that no table
        // put in front of the search path can take a write (attack MA07).
        Self { pool: Pool::new(target, vec![("search_path", "pg_catalog")]), types: Arc::default() }
    }

    /// A session, before `deadline`.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn lease(&self, deadline: Instant) -> Result<Lease, Error> {
        self.pool.lease(deadline).await
    }

    /// After a lost connection: the other sessions of the pool may be lost as well.
    pub fn forget_idle(&self) {
        self.pool.forget_idle();
    }

    /// The result columns with their types, names made unique.
    ///
    /// # Errors
    /// Whatever the session says when a type has to be looked up.
    pub async fn columns(&self, lease: &mut Lease, raw: &[RawColumn]) -> Result<Vec<Column>, Error> {
        let mut columns = Vec::with_capacity(raw.len());
        for (name, raw) in unique_names(raw.iter().map(|column| column.name.as_str())).into_iter().zip(raw) {
            let ty = self.types.resolve(lease.session(), raw.type_oid).await?;
            columns.push(Column { name, ty, not_null: false });
        }
        Ok(columns)
    }

    async fn shape(&self, sql: &str, param_types: &[u32]) -> Result<StatementShape, Error> {
        let mut lease = self.lease(Instant::now() + DESCRIBE_DEADLINE).await?;
        let raw = lease.session().describe("", sql, param_types).await?;
        let mut params: Vec<Arc<PgType>> = Vec::with_capacity(raw.params.len());
        for oid in raw.params {
            params.push(self.types.resolve(lease.session(), oid).await?);
        }
        let columns = match raw.columns {
            None => None,
            Some(raw) => {
                let mut columns = self.columns(&mut lease, &raw).await?;
                for (column, raw) in columns.iter_mut().zip(&raw) {
                    column.not_null = is_not_null(&mut lease, raw).await?;
                }
                Some(columns)
            }
        };
        Ok(StatementShape { params, columns })
    }
}

async fn is_not_null(lease: &mut Lease, column: &RawColumn) -> Result<bool, Error> {
    let Some((table, number)) = column.source else { return Ok(false) };
    let params = [Some(table.to_string()), Some(number.to_string())];
    let rows = lease.session().rows(NOT_NULL_SQL, &params).await?;
    Ok(rows.first().and_then(|row| row.first()).is_some_and(|flag| flag.as_deref() == Some("t")))
}

impl Describe for Writer {
    async fn describe(&self, sql: &str, param_types: &[u32]) -> Result<StatementShape, DescribeError> {
        self.shape(sql, param_types).await.map_err(|error| match error {
            Error::Server(error) => {
                let ServerError { message, sqlstate, hint, position, .. } = *error;
                DescribeError::Refused { message, sqlstate, hint, position }
            }
            other => DescribeError::Unavailable(other.to_string()),
        })
    }
}
