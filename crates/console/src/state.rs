//! The shared state of the pages.

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

#[derive(Debug, Clone)]
pub struct ConsoleParts<'a> {
    /// The ledger, over a login with the role `countersign_console`.
    pub ledger: &'a Ledger,
    /// The same ledger over a login with the role `countersign_operator`. Without it, nobody can undo writes or
    /// freeze accounts here.
    pub operator: Option<&'a Ledger>,
    /// The address at which browsers reach the console.
    pub origin: &'a str,
    /// The columns that are masked, and the key of their hashes.
    pub masks: Option<(Vec<MaskedColumn>, MaskKey)>,
    pub health: HealthCheck,
}

use crate::oidc::Oidc;

/// The default time since a sign-in within which a person may approve.
pub const APPROVE_WITHIN: Duration = Duration::from_secs(60 * 60);

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
    pub(crate) oidc: Option<Arc<Oidc>>,
    /// The time since a sign-in within which a person may approve; `None` for no limit.
    pub(crate) approve_within: Option<Duration>,
    pub(crate) proxies: TrustedProxies,
    /// Limits the sign-ins that a client begins.
    pub(crate) begun_sign_ins: Arc<AttemptLimits>,
}

/// The handles that change data on behalf of operators.
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
    /// The console of a ledger. `parts.origin` is the origin at which browsers reach it.
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

    /// Also lets people sign in at this provider.
    #[must_use]
    pub fn with_oidc(self, oidc: Option<Oidc>) -> Self {
        Self { oidc: oidc.map(Arc::new), ..self }
    }

    /// Sets the time since a sign-in within which a person may approve; `None` for the whole session.
    #[must_use]
    pub fn with_approve_within(self, approve_within: Option<Duration>) -> Self {
        Self { approve_within, ..self }
    }

    /// Trusts the X-Forwarded-For of these proxies, given as addresses and networks.
    #[must_use]
    pub fn with_trusted_proxies(self, proxies: &[String]) -> Self {
        Self { proxies: TrustedProxies::new(proxies), ..self }
    }

    /// Fetches the provider's metadata, if a provider is configured.
    pub async fn discover(&self) -> Result<(), OidcError> {
        match &self.oidc {
            Some(oidc) => oidc.provider.discover().await,
            None => Ok(()),
        }
    }

    /// The origin at which browsers reach the console.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }
}

/// An origin and its host, as browsers send them.
///
/// # Errors
/// [`OriginError`] if the text is neither an `https` nor a loopback origin, or has a path.
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
