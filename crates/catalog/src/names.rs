//! The names of the tables and functions that exist, for hints about one that does not. In a database with thousands of
//! tables, listing them takes longer than the query that failed, so a list is kept for some seconds.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ledger::read::{ReadError, Reader};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::queries::{self, FunctionName, Listed, TableName};

/// Until then, a hint may name a table that was dropped meanwhile.
const KEPT_FOR: Duration = Duration::from_secs(5);

/// Tables that a query mentions, at the most.
const MAX_MENTIONED: usize = 20;

/// Finds names with the rights of one login. Clones share what they keep.
#[derive(Debug, Clone)]
pub struct CatalogNames {
    reader: Reader,
    tables: Arc<Kept<TableName>>,
    functions: Arc<Kept<FunctionName>>,
}

impl CatalogNames {
    /// The names that the login of this reader may use.
    #[must_use]
    pub fn new(reader: Reader) -> Self {
        Self { reader, tables: Arc::default(), functions: Arc::default() }
    }

    pub(crate) fn reader(&self) -> &Reader {
        &self.reader
    }

    /// All tables; of very many, those with a name about as long as `wanted`.
    pub(crate) async fn tables(&self, wanted: &str) -> Result<Arc<[TableName]>, ReadError> {
        match self.tables.get(queries::table_names(&self.reader, None)).await? {
            Some(all) => Ok(all),
            None => Ok(queries::table_names(&self.reader, Some(wanted)).await?.rows.into()),
        }
    }

    /// Tables whose name is one of these words, which are in lower case.
    pub(crate) async fn mentioned_tables(&self, words: &HashSet<String>) -> Result<Vec<TableName>, ReadError> {
        match self.tables.get(queries::table_names(&self.reader, None)).await? {
            Some(all) => {
                let mentioned = all.iter().filter(|table| words.contains(&table.name.to_lowercase()));
                Ok(mentioned.take(MAX_MENTIONED).cloned().collect())
            }
            None => queries::mentioned_tables(&self.reader, words).await,
        }
    }

    /// All functions; of very many, those with a name about as long as `wanted`.
    pub(crate) async fn functions(&self, wanted: &str) -> Result<Arc<[FunctionName]>, ReadError> {
        match self.functions.get(queries::function_names(&self.reader, None)).await? {
            Some(all) => Ok(all),
            None => Ok(queries::function_names(&self.reader, Some(wanted)).await?.rows.into()),
        }
    }
}

/// A list that was read, if one was.
#[derive(Debug)]
struct Kept<T>(Mutex<Option<KeptList<T>>>);

#[derive(Debug)]
struct KeptList<T> {
    since: Instant,
    /// `None`: too long for an answer.
    rows: Option<Arc<[T]>>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Kept<T> {
    /// The list, read anew if it is old; `None` if it is too long for an answer. Callers that come at the same time wait for
    /// one answer.
    async fn get(
        &self,
        read: impl Future<Output = Result<Listed<T>, ReadError>>,
    ) -> Result<Option<Arc<[T]>>, ReadError> {
        let mut kept = self.0.lock().await;
        if let Some(list) = kept.as_ref().filter(|list| list.since.elapsed() < KEPT_FOR) {
            return Ok(list.rows.clone());
        }
        let listed = read.await?;
        let rows = (!listed.is_cut).then(|| Arc::from(listed.rows));
        *kept = Some(KeptList { since: Instant::now(), rows: rows.clone() });
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
        let (kept, reads) = (Kept::default(), Cell::new(0));
        let read = |is_cut| {
            let reads = &reads;
            async move {
                reads.set(reads.get() + 1);
                Ok(Listed { rows: vec![reads.get()], is_cut })
            }
        };
        assert_eq!(kept.get(read(false)).await.unwrap().as_deref(), Some(&[1][..]));
        assert_eq!(kept.get(read(false)).await.unwrap().as_deref(), Some(&[1][..]));
        tokio::time::advance(KEPT_FOR).await;
        assert_eq!(kept.get(read(true)).await.unwrap(), None);
        assert_eq!(kept.get(read(false)).await.unwrap(), None);
        assert_eq!(reads.get(), 2);
    }
}
