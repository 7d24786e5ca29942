//! What the console has of one database.

use std::fmt::Display;
use std::time::Duration;

use ledger::console::ConsoleSessions;
use ledger::operator::Operator;
use ledger::proposals::Proposals;
use ledger::schema_changes::SchemaChanges;
use ledger::{Freezes, Ledger, SchemaError};
use review::RecordReader;
use tokio::sync::OnceCell;
use types::{DatabaseLabel, ErrorCode, Failure, MaskKey, MaskedColumn};

use crate::health::HealthCheck;

/// How long a page of several databases waits for each.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The handles of one database.
#[derive(Debug, Clone)]
pub struct DatabaseParts<'a> {
    /// The name and the environment; `None` for the only database of a configuration without tables for several.
    pub label: Option<DatabaseLabel>,
    /// The ledger, over a login with the role `countersign_console`.
    pub ledger: &'a Ledger,
    /// The same ledger over a login with the role `countersign_operator`. Without it, nobody can undo writes or
    /// freeze accounts here.
    pub operator: Option<&'a Ledger>,
    /// The columns that are masked, and the key of their hashes.
    pub masks: Option<(Vec<MaskedColumn>, MaskKey)>,
    pub health: HealthCheck,
}

/// A database of the console.
#[derive(Debug)]
pub struct ConsoleDatabase {
    pub(crate) label: Option<DatabaseLabel>,
    /// The path before that of each page: nothing, or `/databases/shop`.
    pub(crate) base: String,
    pub(crate) proposals: Proposals,
    pub(crate) schema_changes: SchemaChanges,
    pub(crate) sessions: ConsoleSessions,
    pub(crate) records: RecordReader,
    pub(crate) freezes: Freezes,
    pub(crate) operator: Option<ConsoleOperator>,
    pub(crate) health: HealthCheck,
    ledger: Ledger,
    operator_ledger: Option<Ledger>,
    /// The origin of the console, which the ledger keeps.
    origin: String,
    opened: OnceCell<()>,
}

/// The handles that change data on behalf of operators.
#[derive(Debug, Clone)]
pub(crate) struct ConsoleOperator {
    pub(crate) undo: Operator,
    pub(crate) freezes: Freezes,
}

/// Why a database does not answer the console.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error(transparent)]
    Ledger(#[from] SchemaError),
    #[error("the operator's login: {0}")]
    Operator(#[source] SchemaError),
    #[error("the operator's login reaches another ledger than the one that the console shows")]
    OtherLedger,
    #[error("{0}")]
    Database(#[from] ledger::read::Error),
    /// The ledger's own refusal.
    #[error("{}", .0.message)]
    Refused(Failure),
    #[error("it did not answer within {} seconds", ANSWER_WITHIN.as_secs())]
    Timeout,
}

impl DatabaseError {
    /// Whether the database could not be asked. It may answer later.
    pub(crate) const fn is_silence(&self) -> bool {
        match self {
            Self::Ledger(SchemaError::Database(_)) | Self::Database(_) | Self::Timeout => true,
            Self::Refused(failure) => matches!(failure.code, ErrorCode::DbError | ErrorCode::DatabaseUnavailable),
            _ => false,
        }
    }
}

impl From<Failure> for DatabaseError {
    fn from(failure: Failure) -> Self {
        Self::Refused(failure)
    }
}

impl ConsoleDatabase {
    pub(crate) fn new(parts: DatabaseParts<'_>, origin: &str, is_one_of_several: bool) -> Self {
        let DatabaseParts { label, ledger, operator, masks, health } = parts;
        let base = label.as_ref().filter(|_| is_one_of_several).map(|label| format!("/databases/{}", label.name));
        Self {
            label,
            base: base.unwrap_or_default(),
            proposals: ledger.proposals(),
            schema_changes: ledger.schema_changes(),
            sessions: ledger.console_sessions(),
            records: RecordReader::new(ledger.audit(), masks),
            freezes: ledger.freezes(),
            operator: operator.map(|ledger| ConsoleOperator { undo: ledger.operator(), freezes: ledger.freezes() }),
            health,
            ledger: ledger.clone(),
            operator_ledger: operator.cloned(),
            origin: origin.to_owned(),
            opened: OnceCell::new(),
        }
    }

    /// The name and the environment.
    #[must_use]
    pub fn label(&self) -> Option<&DatabaseLabel> {
        self.label.as_ref()
    }

    /// Checks, once, that the ledger was made for this database: a decision in a copy would apply to a proposal of
    /// the original. Also notes the address of the console in it. Each request checks again until this succeeds.
    pub async fn open(&self) -> Result<(), DatabaseError> {
        self.opened.get_or_try_init(|| self.check()).await.map(|&()| ())
    }

    async fn check(&self) -> Result<(), DatabaseError> {
        self.ledger.check().await?;
        self.ledger.check_identity().await?;
        if let Some(operator) = &self.operator_ledger {
            operator.check().await.map_err(DatabaseError::Operator)?;
            operator.check_identity().await.map_err(DatabaseError::Operator)?;
            if operator.audit().ledger_id().await? != self.ledger.audit().ledger_id().await? {
                return Err(DatabaseError::OtherLedger);
            }
        }
        Ok(self.sessions.note_address(&self.origin).await?)
    }

    /// What the database answers, if it does so in time.
    pub(crate) async fn ask<T>(
        &self,
        question: impl Future<Output = Result<T, impl Into<DatabaseError>>>,
    ) -> Result<T, DatabaseError> {
        let answer = async {
            self.open().await?;
            question.await.map_err(Into::into)
        };
        let answer = tokio::time::timeout(ANSWER_WITHIN, answer).await.unwrap_or(Err(DatabaseError::Timeout));
        if let Err(error) = &answer {
            tracing::warn!(database = self.name(), %error, "the ledger cannot be asked");
        }
        answer
    }

    /// The path of a page of the database.
    pub(crate) fn path(&self, page: impl Display) -> String {
        format!("{}{page}", self.base)
    }

    fn name(&self) -> Option<&str> {
        self.label.as_ref().map(|label| label.name.as_str())
    }
}
