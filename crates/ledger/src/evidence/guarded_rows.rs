//! The rows of recorded changes as a caller can read them now. Recorded values have no policies, so a caller is shown
//! those of a row only if a read of its own, in a transaction with its account, role and claims, returns the row.

use std::collections::HashMap;

use pg::value::text_array;
use pg::{ContextStatements, PipelineStatement, PooledSession, StatementResult};
use tokio::time::Instant;
use types::{CallerContext, Principal};

const ROWS_SQL: &str =
    "select n, image from countersign.rows_for_caller($1, $2::pg_catalog.int4[], $3::pg_catalog.text[])";

/// Whether recorded values of a table are shown to a caller only if the caller reads the row. A role may lack privileges
/// for any table.
pub(crate) const fn is_guarded(caller: &CallerContext, has_policy: bool) -> bool {
    has_policy || caller.role.is_some()
}

/// Rows to read as a caller, each with an id of the asker.
#[derive(Debug, Default)]
pub(crate) struct GuardedRows {
    asked: Vec<usize>,
    /// The ids of the rows with an image. A row without one was too long to be kept, and counts as not readable.
    read: Vec<usize>,
    shapes: Vec<String>,
    images: Vec<String>,
}

impl FromIterator<(usize, String, Option<String>)> for GuardedRows {
    fn from_iter<T: IntoIterator<Item = (usize, String, Option<String>)>>(rows: T) -> Self {
        let mut all = Self::default();
        for (id, shape, image) in rows {
            all.asked.push(id);
            if let Some(image) = image {
                all.read.push(id);
                all.shapes.push(shape);
                all.images.push(image);
            }
        }
        all
    }
}

impl GuardedRows {
    pub(crate) const fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = usize> {
        self.asked.iter().copied()
    }

    /// The read, for a transaction in which the settings of the caller are in force.
    pub(crate) fn params(&self, caller: &Principal) -> [Option<String>; 3] {
        let account = caller.account_id.as_str().to_owned();
        [Some(account), Some(text_array(&self.shapes)), Some(text_array(&self.images))]
    }

    /// The query of [`GuardedRows::params`].
    pub(crate) const fn step(params: &[Option<String>]) -> PipelineStatement<'_> {
        PipelineStatement::new(ROWS_SQL, params)
    }

    /// Reads the rows in a transaction of the caller.
    pub(crate) async fn read(
        &self,
        lease: &mut PooledSession,
        caller: &Principal,
        deadline: Instant,
    ) -> Result<StatementResult, pg::Error> {
        let (params, context) = (self.params(caller), ContextStatements::of(&caller.context));
        lease.run_one_for(context.as_ref(), Self::step(&params), deadline).await
    }

    /// The images of the rows that were read, by the id of the asker.
    pub(crate) fn images(&self, found: StatementResult) -> HashMap<usize, String> {
        let row = |row: Vec<Option<String>>| {
            let [number, image] = <[Option<String>; 2]>::try_from(row).ok()?;
            let place = number?.parse::<usize>().ok()?.checked_sub(1)?;
            Some((*self.read.get(place)?, image?))
        };
        found.rows.into_iter().filter_map(row).collect()
    }
}
