//! What the pages work on.

use axum::http::Uri;
use ledger::Ledger;
use ledger::console::ConsoleSessions;
use ledger::proposals::Proposals;

/// The console of one ledger.
#[derive(Debug, Clone)]
pub struct Console {
    pub(crate) proposals: Proposals,
    pub(crate) sessions: ConsoleSessions,
    /// `http://127.0.0.1:7788`, as browsers send it.
    pub(crate) origin: String,
    /// `127.0.0.1:7788`, as browsers send it.
    pub(crate) host: String,
}

/// The reason why a text is no origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is no origin such as https://console.example.com (http:// is for this machine only)")]
pub struct OriginError;

impl Console {
    /// The console of a ledger, which browsers reach at this origin.
    ///
    /// # Errors
    /// [`OriginError`]: no `https` or loopback origin, or with a path.
    pub fn new(ledger: &Ledger, origin: &str) -> Result<Self, OriginError> {
        let uri: Uri = origin.parse().map_err(|_| OriginError)?;
        let (scheme, authority) = uri.scheme_str().zip(uri.authority()).ok_or(OriginError)?;
        let is_local = ["localhost", "127.0.0.1", "[::1]"].contains(&authority.host());
        let is_allowed = scheme == "https" || scheme == "http" && is_local;
        if !is_allowed || uri.path() != "/" || uri.query().is_some() || authority.as_str().contains('@') {
            return Err(OriginError);
        }
        let host = authority.as_str().to_ascii_lowercase();
        let origin = format!("{scheme}://{host}");
        Ok(Self { proposals: ledger.proposals(), sessions: ledger.console_sessions(), origin, host })
    }

    /// The address at which browsers reach it.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }
}
