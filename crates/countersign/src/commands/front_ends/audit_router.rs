//! The executor of the front ends: sends reads to the database, and writes through the ledger if there is one.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use agent_cli::executor::{
    BoxFuture, DirectExecutor, ExecuteError, NamedSession, Query, QueryDescription, QueryEvent, QuerySummary,
    SqlExecutor, Transaction, TransactionOptions,
};
use ledger::read::Error;
use ledger::{Gate, Ledger, SchemaError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use types::Principal;

use super::error_hints::{HintedTransaction, hinted};
use super::ledger_executor::LedgerExecutor;

/// Whether writes are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AuditMode {
    /// If the database has a ledger.
    WhereThereIsOne,
    /// Always. Writes to a database without a ledger are refused.
    Always,
    Never,
}

/// The maximum number of concurrent writes of one session. It equals the number of its connections.
const WRITES: usize = 5;

const NOT_USABLE: &str = "Log in with a role that may write to the ledger (countersign_writer, or one that is granted it), or give \
     --no-audit where the configuration allows it.";

/// How long the absence of a ledger is cached: `countersign init` may create one.
const ABSENCE_TTL: Duration = Duration::from_secs(1);

/// The ledger of a session's database, if it has one.
#[derive(Clone)]
struct LedgerLookup {
    generation: u64,
    ledger: Option<LedgerExecutor>,
    at: Instant,
}

impl LedgerLookup {
    fn is_valid(&self, place: &NamedSession) -> bool {
        self.generation == place.generation && (self.ledger.is_some() || self.at.elapsed() < ABSENCE_TTL)
    }
}

/// Runs statements of the command line.
pub(super) struct AuditRouter {
    direct: DirectExecutor,
    audit: AuditMode,
    principal: Principal,
    settings: ledger::LedgerOptions,
    /// The ledgers of the sessions that have written.
    ledgers: Mutex<HashMap<String, LedgerLookup>>,
    /// All gates that were used. At the end of the process, the writes of each are awaited.
    gates: Mutex<Vec<Gate>>,
}

impl AuditRouter {
    pub(super) fn new(audit: AuditMode, principal: Principal, settings: ledger::LedgerOptions) -> Self {
        let settings = ledger::LedgerOptions { sessions: WRITES, ..settings };
        let (ledgers, gates) = (Mutex::default(), Mutex::default());
        Self { direct: DirectExecutor::default(), audit, principal, settings, ledgers, gates }
    }

    fn ledgers(&self) -> MutexGuard<'_, HashMap<String, LedgerLookup>> {
        self.ledgers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ledger of the session's database, if its writes are recorded.
    async fn ledger(&self, place: &NamedSession) -> Result<Option<LedgerExecutor>, ExecuteError> {
        if self.audit == AuditMode::Never {
            return Ok(None);
        }
        let known = self.ledgers().get(&place.session).filter(|known| known.is_valid(place)).cloned();
        if let Some(known) = known {
            return Ok(known.ledger);
        }
        // The checks do not run with the search path of the login.
        let ledger = Ledger::new(place.target.clone(), self.settings.clone());
        let found = ledger.exists().await.map_err(ExecuteError::from)?;
        let audited = match (found, self.audit) {
            (false, AuditMode::Always) => {
                return Err(ExecuteError::Ledger {
                    message: format!("the database \"{}\" has no ledger, so nothing is written", place.target.dbname),
                    hint: Some("Run `countersign init` on it first, or leave --audit away.".to_owned()),
                    retryable: false,
                });
            }
            (false, _) => None,
            (true, _) => {
                ledger.check().await.map_err(|error| unusable(&error))?;
                ledger.check_identity().await.map_err(|error| unusable(&error))?;
                let ledger = Ledger::interactive(place.target.clone(), self.settings.clone());
                let gate = ledger.gate();
                self.gates.lock().unwrap_or_else(PoisonError::into_inner).push(gate.clone());
                Some(LedgerExecutor::new(gate, self.principal.clone(), WRITES))
            }
        };
        let mut ledgers = self.ledgers();
        // The session may have moved to another server in the meantime.
        if ledgers.get(&place.session).is_none_or(|known| known.generation <= place.generation) {
            let found = LedgerLookup { generation: place.generation, ledger: audited.clone(), at: Instant::now() };
            ledgers.insert(place.session.clone(), found);
        }
        Ok(audited)
    }
}

impl AuditRouter {
    async fn route(
        &self,
        place: &NamedSession,
        query: Query,
        out: mpsc::Sender<QueryEvent>,
        cancel: CancellationToken,
    ) -> Result<QuerySummary, ExecuteError> {
        if query.read_only {
            return self.direct.query(place, query, out, cancel).await;
        }
        let ledger = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(ExecuteError::Cancelled),
            ledger = self.ledger(place) => ledger?,
        };
        match ledger {
            Some(ledger) => ledger.query(query, out, cancel).await,
            None => self.direct.query(place, query, out, cancel).await,
        }
    }
}

fn unusable(error: &SchemaError) -> ExecuteError {
    if let SchemaError::Database(Error::Connect(error)) = error {
        return ExecuteError::Connect(error.clone());
    }
    ExecuteError::Ledger {
        message: format!("the ledger cannot be used, so nothing is written: {error}"),
        hint: Some(NOT_USABLE.to_owned()),
        retryable: false,
    }
}

impl SqlExecutor for AuditRouter {
    fn query<'a>(
        &'a self,
        place: &'a NamedSession,
        query: Query,
        out: mpsc::Sender<QueryEvent>,
        cancel: CancellationToken,
    ) -> BoxFuture<'a, QuerySummary> {
        Box::pin(async move {
            let sql = query.sql.clone();
            match self.route(place, query, out, cancel).await {
                Err(error) => Err(hinted(place, &sql, error).await),
                answer => answer,
            }
        })
    }

    fn describe<'a>(
        &'a self,
        place: &'a NamedSession,
        sql: &'a str,
        cancel: CancellationToken,
    ) -> BoxFuture<'a, QueryDescription> {
        self.direct.describe(place, sql, cancel)
    }

    fn begin<'a>(&'a self, place: &'a NamedSession, begin: TransactionOptions) -> BoxFuture<'a, Box<dyn Transaction>> {
        Box::pin(async move {
            let ledger = if begin.read_only { None } else { self.ledger(place).await? };
            let transaction = match ledger {
                Some(ledger) => ledger.begin(begin).await?,
                None => self.direct.begin(place, begin).await?,
            };
            Ok(Box::new(HintedTransaction { transaction, place: place.clone() }) as Box<dyn Transaction>)
        })
    }

    fn forget(&self, session: &str) {
        self.direct.forget(session);
        self.ledgers().remove(session);
    }

    fn drain(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner).clone();
            for gate in gates {
                gate.drain().await;
            }
            self.direct.drain().await;
        })
    }
}
