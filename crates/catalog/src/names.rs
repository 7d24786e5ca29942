//! The names of existing tables and functions, for hints about a name that does not exist. In a database with
//! thousands of tables, listing them takes longer than the failed query, so a list is cached for some seconds.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use read::{ReadError, Reader};
use tokio::sync::Mutex;
use tokio::time::Instant;
use types::CallerContext;

use crate::queries::{self, FunctionName, Listed, TableName};

/// How long a list is cached. In this time, a hint may name a table that was dropped.
const CACHED_FOR: Duration = Duration::from_secs(5);

/// The maximum number of tables that a query is assumed to mention.
const MAX_MENTIONED: usize = 20;

/// Finds names that one login may use. Clones share the cache.
#[derive(Debug, Clone)]
pub struct CatalogNames {
    reader: Reader,
    tables: Arc<Cached<TableName>>,
    functions: Arc<Cached<FunctionName>>,
}

impl CatalogNames {
    /// The names that the login of this reader may use.
    #[must_use]
    pub fn new(reader: Reader) -> Self {
        Self { reader, tables: Arc::default(), functions: Arc::default() }
    }

    /// The names that a caller with this role may use.
    #[must_use]
    pub fn for_caller(&self, context: &Arc<CallerContext>) -> Self {
        if context.role.is_none() { self.clone() } else { Self::new(self.reader.with_context(context)) }
    }

    pub(crate) fn reader(&self) -> &Reader {
        &self.reader
    }

    /// All tables or, if there are too many, those with a name of similar length to `wanted`.
    pub(crate) async fn tables(&self, wanted: &str) -> Result<Arc<[TableName]>, ReadError> {
        match self.tables.get(queries::table_names(&self.reader, None)).await? {
            Some(all) => Ok(all),
            None => Ok(queries::table_names(&self.reader, Some(wanted)).await?.rows.into()),
        }
    }

    /// The tables whose name is one of these words, which are in lower case.
    pub(crate) async fn mentioned_tables(&self, words: &HashSet<String>) -> Result<Vec<TableName>, ReadError> {
        match self.tables.get(queries::table_names(&self.reader, None)).await? {
            Some(all) => {
                let mentioned = all.iter().filter(|table| words.contains(&table.name.to_lowercase()));
                Ok(mentioned.take(MAX_MENTIONED).cloned().collect())
            }
            None => queries::mentioned_tables(&self.reader, words).await,
        }
    }

    /// All functions or, if there are too many, those with a name of similar length to `wanted`.
    pub(crate) async fn functions(&self, wanted: &str) -> Result<Arc<[FunctionName]>, ReadError> {
        match self.functions.get(queries::function_names(&self.reader, None)).await? {
            Some(all) => Ok(all),
            None => Ok(queries::function_names(&self.reader, Some(wanted)).await?.rows.into()),
        }
    }
}

#[derive(Debug)]
struct Cached<T>(Mutex<Option<CachedList<T>>>);

#[derive(Debug)]
struct CachedList<T> {
    since: Instant,
    /// `None` if the list is too long for one answer.
    rows: Option<Arc<[T]>>,
}

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Cached<T> {
    /// The list, read again if it is too old; `None` if it is too long for one answer. Concurrent callers share one
    /// query.
    async fn get(
        &self,
        read: impl Future<Output = Result<Listed<T>, ReadError>>,
    ) -> Result<Option<Arc<[T]>>, ReadError> {
        let mut cached = self.0.lock().await;
        if let Some(list) = cached.as_ref().filter(|list| list.since.elapsed() < CACHED_FOR) {
            return Ok(list.rows.clone());
        }
        let listed = read.await?;
        let rows = (!listed.is_cut).then(|| Arc::from(listed.rows));
        *cached = Some(CachedList { since: Instant::now(), rows: rows.clone() });
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_list_is_read_once_in_some_seconds_and_one_that_is_too_long_is_not_kept() {
        // P-1
        let (cached, reads) = (Cached::default(), Cell::new(0));
        let read = |is_cut| {
            let reads = &reads;
            async move {
                reads.set(reads.get() + 1);
                Ok(Listed { rows: vec![reads.get()], is_cut })
            }
        };
        assert_eq!(cached.get(read(false)).await.unwrap().as_deref(), Some(&[1][..]));
        assert_eq!(cached.get(read(false)).await.unwrap().as_deref(), Some(&[1][..]));
        tokio::time::advance(CACHED_FOR).await;
        assert_eq!(cached.get(read(true)).await.unwrap(), None);
        assert_eq!(cached.get(read(false)).await.unwrap(), None);
        assert_eq!(reads.get(), 2);
    }
}
