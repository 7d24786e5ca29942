//! Hints for errors on the command line, the same as for an agent's query.

use agent_cli::executor::{BoxFuture, ExecuteError, NamedSession, Query, QueryEvent, QuerySummary, Transaction};
use ledger::read::{ReadLimits, Reader, SearchPath};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use types::{ErrorCode, Failure};

use catalog::{CatalogNames, HINT_TIMEOUT};

/// If PostgreSQL refused the statement, adds the hint from the catalog to the error. The names are read over a
/// separate connection, which is closed afterwards.
pub(super) async fn hinted(place: &NamedSession, sql: &str, error: ExecuteError) -> ExecuteError {
    let ExecuteError::Sql(mut error) = error else { return error };
    let failure = Failure {
        sqlstate: Some(error.sqlstate.clone()),
        hint: error.hint.clone(),
        position: error.position,
        ..Failure::new(ErrorCode::SqlError, error.message.clone())
    };
    let limits = ReadLimits { sessions: 1, ..ReadLimits::default() };
    let names = CatalogNames::new(Reader::new(place.target.clone(), &SearchPath::default(), limits));
    error.hint = catalog::corrected(&names, sql, failure, Instant::now() + HINT_TIMEOUT).await.hint;
    ExecuteError::Sql(error)
}

/// A transaction that adds hints to errors. The hints do not take uncommitted changes of the transaction into
/// account.
pub(super) struct HintedTransaction {
    pub(super) transaction: Box<dyn Transaction>,
    pub(super) place: NamedSession,
}

impl Transaction for HintedTransaction {
    fn query<'a>(
        &'a mut self,
        query: Query,
        out: mpsc::Sender<QueryEvent>,
        cancel: CancellationToken,
    ) -> BoxFuture<'a, QuerySummary> {
        Box::pin(async move {
            let sql = query.sql.clone();
            match self.transaction.query(query, out, cancel).await {
                Err(error) => Err(hinted(&self.place, &sql, error).await),
                answer => answer,
            }
        })
    }

    fn correlation_id(&self) -> Option<String> {
        self.transaction.correlation_id()
    }

    fn commit(self: Box<Self>) -> BoxFuture<'static, QuerySummary> {
        self.transaction.commit()
    }

    fn roll_back(self: Box<Self>) -> BoxFuture<'static, QuerySummary> {
        self.transaction.roll_back()
    }
}
