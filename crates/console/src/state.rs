//! What the pages work on.

use std::sync::Arc;
use std::time::Duration;

use auth::OidcError;
use axum::http::Uri;
use http_server::{AttemptLimits, TrustedProxies};
use ledger::console::ConsoleSessions;
use ledger::operator::Operator;
use ledger::proposals::Proposals;
use ledger::{Freezes, Ledger};
use review::RecordReader;
use types::{MaskKey, MaskedColumn};

use crate::health::HealthCheck;

/// What a console is made of.
#[derive(Debug, Clone)]
pub struct ConsoleParts<'a> {
    /// The ledger, over a login with the role `countersign_console`.
    pub ledger: &'a Ledger,
    /// The same ledger over a login with the role `countersign_operator`. Without it nobody undoes or freezes here.
    pub operator: Option<&'a Ledger>,
    /// The address at which browsers reach the console.
    pub origin: &'a str,
    /// The columns that are masked, and the key of their hashes.
    pub masks: Option<(Vec<MaskedColumn>, MaskKey)>,
    /// What the health page shows.
    pub health: HealthCheck,
}

use crate::oidc::Oidc;

/// The time since a sign-in within which the person approves, unless it is configured.
pub const APPROVE_WITHIN: Duration = Duration::from_secs(60 * 60);

/// The console of one ledger.
#[derive(Debug, Clone)]
pub struct Console {
    pub(crate) proposals: Proposals,
    pub(crate) sessions: ConsoleSessions,
    pub(crate) records: RecordReader,
    pub(crate) freezes: Freezes,
    pub(crate) operator: Option<ConsoleOperator>,
    pub(crate) health: HealthCheck,
    /// `http://127.0.0.1:7788`, as browsers send it.
    pub(crate) origin: String,
    /// `127.0.0.1:7788`, as browsers send it.
    pub(crate) host: String,
    /// The provider where people sign in.
    pub(crate) oidc: Option<Arc<Oidc>>,
    /// The time since a sign-in within which the person approves; `None` for any.
    pub(crate) approve_within: Option<Duration>,
    /// The proxies that name their clients.
    pub(crate) proxies: TrustedProxies,
    /// The sign-ins that were begun, by client.
    pub(crate) begun_sign_ins: Arc<AttemptLimits>,
}

/// What changes data for operators.
#[derive(Debug, Clone)]
pub(crate) struct ConsoleOperator {
    pub(crate) undo: Operator,
    pub(crate) freezes: Freezes,
}

/// The reason why a text is no origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is no origin such as https://console.example.com (http:// is for this machine only)")]
pub struct OriginError;

impl Console {
    /// The console of a ledger, which browsers reach at its origin.
    ///
    /// # Errors
    /// [`OriginError`]: no `https` or loopback origin, or with a path.
    pub fn new(parts: ConsoleParts<'_>) -> Result<Self, OriginError> {
        let ConsoleParts { ledger, operator, origin, masks, health } = parts;
        let (origin, host) = read_origin(origin)?;
        let operator = operator.map(|ledger| ConsoleOperator { undo: ledger.operator(), freezes: ledger.freezes() });
        Ok(Self {
            proposals: ledger.proposals(),
            sessions: ledger.console_sessions(),
            records: RecordReader::new(ledger.audit(), masks),
            freezes: ledger.freezes(),
            operator,
            health,
            origin,
            host,
            oidc: None,
            approve_within: Some(APPROVE_WITHIN),
            proxies: TrustedProxies::default(),
            begun_sign_ins: Arc::default(),
        })
    }

    /// Lets people sign in at a provider, too.
    #[must_use]
    pub fn with_oidc(self, oidc: Option<Oidc>) -> Self {
        Self { oidc: oidc.map(Arc::new), ..self }
    }

    /// Sets the time since a sign-in within which the person approves; `None` for the whole session.
    #[must_use]
    pub fn with_approve_within(self, approve_within: Option<Duration>) -> Self {
        Self { approve_within, ..self }
    }

    /// Takes the address of a client from these proxies, given as addresses and networks.
    #[must_use]
    pub fn with_trusted_proxies(self, proxies: &[String]) -> Self {
        Self { proxies: TrustedProxies::new(proxies), ..self }
    }

    /// Asks the provider, if there is one, what it is.
    ///
    /// # Errors
    /// It does not answer, or cannot be used.
    pub async fn discover(&self) -> Result<(), OidcError> {
        match &self.oidc {
            Some(oidc) => oidc.provider.discover().await,
            None => Ok(()),
        }
    }

    /// The address at which browsers reach it.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }
}

/// An origin and its host, as browsers send them.
///
/// # Errors
/// [`OriginError`]: no `https` or loopback origin, or with a path.
pub fn read_origin(origin: &str) -> Result<(String, String), OriginError> {
    let uri: Uri = origin.parse().map_err(|_| OriginError)?;
    let (scheme, authority) = uri.scheme_str().zip(uri.authority()).ok_or(OriginError)?;
    let is_local = ["localhost", "127.0.0.1", "[::1]"].contains(&authority.host());
    let is_allowed = scheme == "https" || scheme == "http" && is_local;
    if !is_allowed || uri.path() != "/" || uri.query().is_some() || authority.as_str().contains('@') {
        return Err(OriginError);
    }
    let host = authority.as_str().to_ascii_lowercase();
    Ok((format!("{scheme}://{host}"), host))
}
