//! The state that all requests share, and their authentication.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use auth::{Authentication, Authenticator, CredentialKind, Identity, StrongerScopes};
use http::{HeaderMap, HeaderValue};
use http_server::{AttemptLimits, ConnectionLimits, TrustedProxies};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tools::ProfileView;
use tools::metrics::Metrics;
use types::AccountId;

use crate::active_backend::ActiveBackend;
use crate::client_address::ClientAddress;
use crate::error_response::HttpError;
use crate::host_check::{AllowedHosts, parse_origin};
use crate::quota::{AccountQuotas, AccountUsage, Accounts};
use crate::readiness::Readiness;
use crate::rejection_log::RejectionLog;
use crate::request_context::{Backend, view};
use crate::sse_sessions::SseSessions;

/// The longest time between two sweeps for idle sessions.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// The path of the metadata of OAuth (RFC 9728, section 3).
pub(crate) const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";

#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Allowed values of the Host header besides the names of loopback: `name` or `name:port`.
    pub allowed_hosts: Vec<String>,
    /// Origins whose pages may call the server: `https://name[:port]`.
    pub allowed_origins: Vec<String>,
    /// The URL at which clients reach the server, without a path. The metadata of OAuth contains it.
    pub public_url: Option<String>,
    /// The quotas of each account.
    pub quotas: AccountQuotas,
    pub connections: usize,
    /// The most concurrent connections of one address, or IPv6 network of 64 bits, except loopback and trusted
    /// proxies.
    pub connections_per_address: usize,
    /// Addresses and networks of the proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<String>,
}

pub struct AppState {
    pub(crate) hosts: AllowedHosts,
    accounts: Accounts,
    quotas: AccountQuotas,
    pub(crate) connections: Arc<ConnectionLimits>,
    pub(crate) proxies: TrustedProxies,
    pub(crate) has_warned_of_proxy: AtomicBool,
    failed_attempts: AttemptLimits,
    pub(crate) rejections: Arc<RejectionLog>,
    public_url: Option<String>,
    /// The current authenticator. Event streams check their credential again when it changes.
    pub(crate) authenticator: watch::Sender<Arc<Authenticator>>,
    /// The identity of all callers if the server requires no credentials.
    anonymous: Identity,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) metrics: Metrics,
    pub(crate) origins: Vec<HeaderValue>,
    pub(crate) sse: SseSessions,
    /// Requests without an answer.
    requests: TaskTracker,
    /// Cancelled when the server stops: running reads end soon, and questions to users are withdrawn.
    pub(crate) stop: CancellationToken,
    /// Cancelled when all requests have been answered. That ends the event streams.
    pub(crate) streams: CancellationToken,
}

pub(crate) struct AuthenticatedClient {
    pub(crate) identity: Identity,
    /// When its credential expires.
    pub(crate) expires: Option<OffsetDateTime>,
    pub(crate) stronger: StrongerScopes,
    pub(crate) account: Arc<AccountUsage>,
    pub(crate) active: Arc<ActiveBackend>,
}

impl AuthenticatedClient {
    /// The tools of the client's profile.
    pub(crate) fn tools(&self) -> ProfileView {
        self.active.backend.registry.view(view(&self.identity))
    }

    /// Whether the client has a tool of this name, and it only reads.
    pub(crate) fn has_reading_tool(&self, name: &str) -> bool {
        self.tools().registry().info(name).is_some_and(|info| info.hints.read_only)
    }
}

impl AppState {
    /// A state without a backend. `anonymous` is the identity of all callers if `authenticator` is empty.
    #[must_use]
    pub fn new(options: HttpOptions, authenticator: Authenticator, anonymous: Identity, metrics: Metrics) -> Arc<Self> {
        let HttpOptions { allowed_hosts, allowed_origins, public_url, quotas, .. } = options;
        let proxies = TrustedProxies::new(&options.trusted_proxies);
        let public_url = public_url.as_deref().and_then(parse_origin);
        let accounts = Accounts::new(quotas);
        accounts.set_shared(authenticator.has_multiple_accounts());
        let own = public_url.as_deref().and_then(|url| url.split("://").nth(1));
        let hosts: Vec<String> = own.map(str::to_owned).into_iter().chain(allowed_hosts).collect();
        Arc::new(Self {
            hosts: AllowedHosts::new(&hosts, &allowed_origins),
            quotas,
            accounts,
            connections: ConnectionLimits::new(options.connections, options.connections_per_address, proxies.clone()),
            proxies,
            has_warned_of_proxy: AtomicBool::new(false),
            failed_attempts: AttemptLimits::default(),
            rejections: RejectionLog::new(),
            public_url,
            authenticator: watch::Sender::new(Arc::new(authenticator)),
            anonymous,
            readiness: Readiness::new(),
            metrics,
            origins: allowed_origins.iter().filter_map(|text| parse_origin(text)?.parse().ok()).collect(),
            sse: SseSessions::default(),
            requests: TaskTracker::new(),
            stop: CancellationToken::new(),
            streams: CancellationToken::new(),
        })
    }

    /// Sets the reason why there is no backend yet.
    pub fn set_starting(&self, reason: impl Into<String>) {
        self.readiness.set_starting(reason.into());
    }

    /// Serves calls from this backend from now on.
    pub fn open(&self, backend: Backend) {
        let active = ActiveBackend::new(backend, self.quotas, self.streams.clone(), self.metrics.clone());
        let sessions = Arc::downgrade(&active.sessions);
        self.readiness.open(active);
        let period = SWEEP_INTERVAL.min(self.quotas.session_idle);
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(period);
            loop {
                ticks.tick().await;
                let Some(sessions) = sessions.upgrade() else { return };
                sessions.sweep().await;
            }
        });
    }

    /// Whether requests must carry credentials.
    #[must_use]
    pub fn requires_credentials(&self) -> bool {
        !self.authenticator().is_empty()
    }

    /// Authenticates requests with this authenticator from now on.
    pub fn replace_authenticator(&self, authenticator: Authenticator) {
        self.accounts.set_shared(authenticator.has_multiple_accounts());
        self.authenticator.send_replace(Arc::new(authenticator));
    }

    fn authenticator(&self) -> Arc<Authenticator> {
        Arc::clone(&self.authenticator.borrow())
    }

    /// Authenticates a request, and marks its connection as authenticated.
    pub(crate) async fn authenticate(
        &self,
        caller: &ClientAddress,
        headers: &HeaderMap,
    ) -> Result<Authentication, HttpError> {
        let authenticator = self.authenticator();
        let authentication = if authenticator.is_empty() {
            self.anonymous_authentication()
        } else if let Some(recognized) = authenticator.recognize(headers) {
            recognized
        } else {
            // Checked before a signature is verified.
            self.failed_attempts.check(caller.network())?;
            authenticator.identify(headers).await.map_err(|error| {
                if error.is_failed_attempt() {
                    self.failed_attempts.count(caller.network());
                }
                HttpError::Unauthenticated { error, metadata_url: self.metadata_url() }
            })?
        };
        caller.connection.mark_authenticated();
        Ok(authentication)
    }

    pub(crate) fn anonymous_authentication(&self) -> Authentication {
        Authentication { identity: self.anonymous.clone(), expires: None, stronger: StrongerScopes::default() }
    }

    /// Authenticates a request, counts it against the rate of its account, and waits for the backend.
    pub(crate) async fn authorize(
        &self,
        caller: &ClientAddress,
        headers: &HeaderMap,
    ) -> Result<AuthenticatedClient, HttpError> {
        let Authentication { identity, expires, stronger } = self.authenticate(caller, headers).await?;
        let account = self.accounts.get(&identity.principal.account_id);
        account.check_rate()?;
        Ok(AuthenticatedClient { identity, expires, stronger, account, active: self.readiness.wait().await? })
    }

    /// A token to hold until a request has been answered.
    pub(crate) fn track_request(&self) -> TaskTrackerToken {
        self.requests.token()
    }

    /// Rejects new requests, waits for the answers of the running ones, then ends the event streams.
    pub(crate) async fn drain(&self) {
        self.readiness.stop();
        self.stop.cancel();
        self.requests.close();
        self.requests.wait().await;
        self.streams.cancel();
    }

    pub(crate) fn metadata_url(&self) -> Option<String> {
        let url = self.public_url.as_ref()?;
        self.metadata().map(|_| format!("{url}{METADATA_PATH}/mcp"))
    }

    pub(crate) fn metadata(&self) -> Option<serde_json::Value> {
        let url = self.public_url.as_ref()?;
        self.authenticator().metadata(&resource_uri(url))
    }
}

/// The resource identifier of a server at this URL: clients ask the issuer for a token for it (RFC 8707).
#[must_use]
pub fn resource_uri(public_url: &str) -> String {
    format!("{}/mcp", public_url.trim_end_matches('/'))
}

/// The identity of callers without credentials.
#[must_use]
pub fn anonymous_identity(account_id: AccountId, actor: Option<String>, profile: String) -> Identity {
    let principal = types::Principal { account_id, actor, ..Default::default() };
    Identity { principal, profile, databases: None, credential: CredentialKind::None }
}
