//! The shared state of the pages: what the console has of each database, and what it has once.

use std::sync::Arc;
use std::time::Duration;

use auth::OidcError;
use axum::http::Uri;
use http_server::{AttemptLimits, TrustedProxies};
use ledger::console::ConsolePerson;

use crate::database::{ConsoleDatabase, DatabaseParts};
use crate::frame::Frame;
use crate::oidc::Oidc;

/// The default time since a sign-in within which a person may approve.
pub const APPROVE_WITHIN: Duration = Duration::from_secs(60 * 60);

/// The console of one or several databases.
#[derive(Debug, Clone)]
pub struct Console {
    /// Never empty.
    pub(crate) databases: Vec<Arc<ConsoleDatabase>>,
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

/// The state of the pages of one database.
#[derive(Debug, Clone)]
pub(crate) struct DatabaseState {
    pub(crate) console: Arc<Console>,
    pub(crate) database: Arc<ConsoleDatabase>,
}

/// The reason why a text is no origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is no origin such as https://console.example.com (http:// is for this machine only)")]
pub struct OriginError;

impl Console {
    /// The console of these databases, one or more. `origin` is the address at which browsers reach it.
    pub fn new(origin: &str, databases: Vec<DatabaseParts<'_>>) -> Result<Self, OriginError> {
        let (origin, host) = read_origin(origin)?;
        let are_several = databases.len() > 1;
        let open = |parts| Arc::new(ConsoleDatabase::new(parts, &origin, are_several));
        Ok(Self {
            databases: databases.into_iter().map(open).collect(),
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

    /// The databases, in the order of the configuration.
    pub fn databases(&self) -> impl Iterator<Item = &ConsoleDatabase> {
        self.databases.iter().map(AsRef::as_ref)
    }

    pub(crate) fn has_several(&self) -> bool {
        self.databases.len() > 1
    }
}

impl DatabaseState {
    /// What surrounds a page of the database, for this person.
    pub(crate) fn frame<'a>(&'a self, person: &'a ConsolePerson) -> Frame<'a> {
        Frame { person: Some(&person.name), database: Some(&self.database), has_several: self.console.has_several() }
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
