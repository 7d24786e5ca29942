//! Errors of sessions, in words for the operator. The crate `tools` derives its messages for agents from them.

use std::io;

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::ErrorFields;
use types::{ErrorCode, Failure};

/// An ErrorResponse or NoticeResponse (PostgreSQL manual, "Error and Notice Message Fields").
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerError {
    /// `ERROR`, `FATAL`, `NOTICE`, ...: the untranslated form.
    pub severity: String,
    /// SQLSTATE.
    pub sqlstate: String,
    /// The primary message.
    pub message: String,
    /// DETAIL.
    pub detail: Option<String>,
    /// HINT.
    pub hint: Option<String>,
    /// A position in the statement text, in characters, from 1.
    pub position: Option<u32>,
    /// CONTEXT: the function, trigger or COPY line in which the error occurred; `None` if it occurred in the
    /// statement itself.
    pub context: Option<String>,
    /// The constraint that was violated.
    pub constraint: Option<String>,
    /// The table that the error is about.
    pub table: Option<String>,
    /// The schema of that table.
    pub schema: Option<String>,
}

/// The maximum length of a field, in bytes; the rest is cut off. An error may quote a value of any size.
const MAX_FIELD_BYTES: usize = 8 * 1024;

fn shortened(bytes: &[u8]) -> String {
    match bytes.get(..MAX_FIELD_BYTES) {
        Some(start) if bytes.len() > MAX_FIELD_BYTES => {
            let mut text = String::from_utf8_lossy(start).into_owned();
            // The cut may have split a character.
            while text.ends_with(char::REPLACEMENT_CHARACTER) {
                text.pop();
            }
            text.push('…');
            text
        }
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// Text as the server sent it, checked to be UTF-8. With client encoding UTF8, PostgreSQL sends valid UTF-8 even from
/// a SQL_ASCII database. But a query can set another client encoding for the rows that follow.
///
/// # Errors
/// SQLSTATE 22021 (`character_not_in_repertoire`). After it, the caller must neither read nor send anything on this
/// connection.
pub(crate) fn utf8(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|_| {
        Error::Server(Box::new(ServerError {
            hint: Some(ENCODING_HINT.to_owned()),
            ..ServerError::synthetic("22021", "the answer is not UTF-8, which is the client encoding here")
        }))
    })
}

pub(crate) const ENCODING_HINT: &str =
    "Leave client_encoding as it is. convert_to(text, encoding) gives the bytes of a text in another encoding.";

impl ServerError {
    /// An error of this crate in the form of PostgreSQL's errors.
    pub(crate) fn synthetic(sqlstate: &str, message: impl Into<String>) -> Self {
        let (severity, sqlstate, message) = ("ERROR".to_owned(), sqlstate.to_owned(), message.into());
        Self { severity, sqlstate, message, ..Self::default() }
    }

    pub(crate) fn from_fields(mut fields: ErrorFields<'_>) -> io::Result<Self> {
        let mut error = Self::default();
        while let Some(field) = fields.next()? {
            let value = || shortened(field.value_bytes());
            match field.type_() {
                b'V' => error.severity = value(),
                b'C' => error.sqlstate = value(),
                b'M' => error.message = value(),
                b'D' => error.detail = Some(value()),
                b'H' => error.hint = Some(value()),
                b'W' => error.context = Some(value()),
                b'P' => error.position = value().parse().ok(),
                b'n' => error.constraint = Some(value()),
                b't' => error.table = Some(value()),
                b's' => error.schema = Some(value()),
                _ => {}
            }
        }
        Ok(error)
    }

    /// The message of an error about a bound value, with the number of the parameter. CONTEXT contains `portal ".."
    /// parameter $1 = '..'` in every language.
    pub(crate) fn about_parameter(&self) -> String {
        let context = self.context.as_deref().unwrap_or_default();
        let number = context.split('$').nth(1).map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest.get(..end).unwrap_or_default()
        });
        match number.filter(|number| !number.is_empty()) {
            Some(number) => format!("parameter ${number}: {}", self.message),
            None => self.message.clone(),
        }
    }

    /// Whether the statement itself, and not a function that it calls, no longer fits the database: a table, column,
    /// type or function is gone or has another type, or `*` has other columns. If the statement fitted before, the
    /// schema has changed.
    #[must_use]
    pub fn is_schema_drift(&self) -> bool {
        let analysed = self.position.is_some()
            && matches!(
                self.sqlstate.as_str(),
                "42703" | "42P01" | "42P10" | "3F000" | "42883" | "42804" | "42704" | "42601" | "42P18" | "42809"
            );
        // 0A000: "cached plan must not change result type".
        self.context.is_none() && (analysed || self.sqlstate == "0A000")
    }

    /// Whether a function may have failed because its session planned its statements before a column got another type:
    /// "type of parameter 3 (bigint) does not match that when preparing the plan". PL/pgSQL keeps such plans; another
    /// session has none of them.
    #[must_use]
    pub fn is_stale_function(&self) -> bool {
        self.context.is_some() && self.sqlstate == "42804"
    }

    /// Whether the same statement may succeed when it is repeated: a lost connection to another server (class 08),
    /// serialization failures and deadlocks (class 40), a lock that was not available (55P03), insufficient resources
    /// (class 53), a shutdown of the server or a cancelled query (class 57).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        let class = self.sqlstate.get(..2).unwrap_or_default();
        matches!(class, "08" | "40" | "53" | "57" | "58") || self.sqlstate == "55P03"
    }
}

impl std::fmt::Display for ServerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.message, self.sqlstate)
    }
}

/// The reason why there is no connection. Each variant needs another remedy.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectError {
    #[error("Cannot connect to database at [{place}]: {reason}")]
    Unreachable {
        place: String,
        reason: String,
        /// Whether a server that is being started or restarted may cause the same error.
        is_transient: bool,
    },
    #[error("Cannot connect to database at [{place}]: no answer within {timeout_ms} ms")]
    TimedOut { place: String, timeout_ms: u128 },
    /// The log has the reason, since an agent reads this error and the program may have written anything.
    #[error("Cannot connect to database at [{place}]: the password command printed no password, and the log says why")]
    PasswordCommand { place: String },
    #[error("Authentication failed - check connection string credentials ({0})")]
    Authentication(String),
    #[error("{0} - check the database name in the connection string")]
    DatabaseMissing(String),
    /// A pooler answered, but the configuration does not mention one. Start-up settings and prepared statements of a
    /// session would be missing, or belong to another client.
    #[error(
        "the connection to [{place}] goes through a connection pooler ({reason}): say so with pooler = \"transaction\" \
         (--pooler transaction, COUNTERSIGN_POOLER), or connect to PostgreSQL itself (docs/setup/pgbouncer.md)"
    )]
    Pooled { place: String, reason: String },
    #[error("the database at [{place}] refused the connection: {error}")]
    Refused { place: String, error: Box<ServerError> },
}

impl ConnectError {
    /// Whether another server of the same target may be tried: this one reported nothing about the login.
    pub(crate) fn tries_the_next(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::PasswordCommand { .. } => true,
            Self::Refused { error, .. } => error.sqlstate == CANNOT_CONNECT_NOW,
            Self::Authentication(_) | Self::DatabaseMissing(_) | Self::Pooled { .. } => false,
        }
    }

    /// Whether no server answered. The login was not checked then.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        self.tries_the_next()
    }

    /// Whether the next attempt may succeed: the server is shutting down, starting up, or has no free connection.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { is_transient, .. } => *is_transient,
            Self::TimedOut { .. } | Self::PasswordCommand { .. } => true,
            Self::Refused { error, .. } => {
                error.sqlstate.starts_with("57")
                    || matches!(error.sqlstate.as_str(), TOO_MANY_CONNECTIONS | PROTOCOL_VIOLATION)
            }
            Self::Authentication(_) | Self::DatabaseMissing(_) | Self::Pooled { .. } => false,
        }
    }

    /// Whether a PostgreSQL server reported the error. A pooler without a server gives no reason.
    pub(crate) fn is_server_response(&self) -> bool {
        matches!(self, Self::Refused { error, .. } if error.sqlstate != PROTOCOL_VIOLATION)
    }

    /// Whether the same call may succeed later without a change of the configuration.
    fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::PasswordCommand { .. } => true,
            Self::Refused { error, .. } => error.is_retryable(),
            Self::Authentication(_) | Self::DatabaseMissing(_) | Self::Pooled { .. } => false,
        }
    }

    /// One error for all servers that were tried.
    pub(crate) fn of_all(place: String, mut failures: Vec<Self>) -> Self {
        if failures.len() == 1 {
            return failures.remove(0);
        }
        let is_transient = failures.iter().any(Self::is_transient);
        let mut reasons: Vec<String> = failures.iter().map(ToString::to_string).collect();
        reasons.dedup();
        let reason = match reasons.as_slice() {
            [] => "its name stands for no address".to_owned(),
            // The addresses of one name, with the same reason.
            [_] => return failures.remove(0),
            reasons => reasons.join("; "),
        };
        Self::Unreachable { place, reason, is_transient }
    }
}

/// The failure of a call that has no connection, in words for the agent.
impl From<&ConnectError> for Failure {
    fn from(error: &ConnectError) -> Self {
        let failure = Self::new(ErrorCode::DatabaseUnavailable, error.to_string());
        if error.is_retryable() {
            return failure;
        }
        Self { retryable: false, ..failure }.hint(TELL_THE_OPERATOR)
    }
}

const TELL_THE_OPERATOR: &str =
    "Calling again does not help. Tell the operator: the message says what to correct in how the server connects.";

/// protocol_violation: the only SQLSTATE that PgBouncer uses. PostgreSQL does not report it to a client that starts a
/// session.
pub(crate) const PROTOCOL_VIOLATION: &str = "08P01";
const CANNOT_CONNECT_NOW: &str = "57P03";
const TOO_MANY_CONNECTIONS: &str = "53300";

/// An error of a session.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// PostgreSQL refused a statement. The session can be used further.
    #[error("{0}")]
    Server(Box<ServerError>),
    #[error("the connection to the database was lost: {0}")]
    Lost(#[from] io::Error),
    #[error("a row of {size} bytes is larger than the {limit} bytes allowed")]
    MessageTooLarge { size: usize, limit: usize },
    #[error("a row of more than {limit} values is larger than allowed")]
    TooManyValues { limit: usize },
    /// The deadline passed before the work was done.
    #[error("the deadline passed")]
    Deadline,
    #[error("the receiver of the rows is gone")]
    ReceiverDropped,
    #[error("all {sessions} connections of this server were in use until the deadline")]
    PoolTimeout { sessions: usize },
}

impl Error {
    /// The error of PostgreSQL, if PostgreSQL reported it.
    #[must_use]
    pub fn server_error(&self) -> Option<&ServerError> {
        match self {
            Self::Server(error) => Some(error),
            _ => None,
        }
    }
}
