//! MCP over HTTP: one listener, its routes, and what every request must pass before a tool hears of it.
//!
//! ```text
//! connection   TLS, header and write timeouts                       `listener`, `min_throughput`
//!              at most so many of all and of each address           `connections`, `client_address`
//! address      Host, Origin, Sec-Fetch-Site                         `router` (every route), `host_check`
//! who          bearer token or JWT -> identity                      `crate::auth`, `failed_attempts`
//! how much     rate, weight, streams, sessions, reads of the account `quota`
//! message      content type, size, time, one strict parser          `body`
//! transport    /mcp (`streamable`, rmcp's), /sse and /message (`sse`)
//! ```
//! A request and its answer are an `response_scope`: what it holds is let go when the answer has been written or the client has gone.
//! What rmcp calls without saying for whom finds that in the `request_context` of its task.

mod body;
mod client_address;
mod connections;
mod error_response;
mod failed_attempts;
mod health;
mod host_check;
mod keyed_mutex;
mod listener;
mod min_throughput;
mod pages;
mod quota;
mod readiness;
mod rejection_log;
mod request_context;
mod response_scope;
mod router;
mod session_ids;
mod sessions;
mod sse;
mod streamable;
mod streams;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tools::metrics::Metrics;
use tools::{LiveRegistry, Services};
use types::AccountId;

use self::client_address::{ClientAddress, TrustedProxies};
use self::connections::ConnectionLimits;
use self::error_response::HttpError;
use self::failed_attempts::FailedAttempts;
use self::host_check::AllowedHosts;
use self::quota::Accounts;
use self::readiness::Readiness;
use self::rejection_log::RejectionLog;
use self::session_ids::SessionIdCodec;
use self::sse::SseSessions;
use self::streamable::StreamableHttp;
use crate::auth::{Authentication, Authenticator, Identity};
use crate::elicitation::Elicitation;
use crate::server::ResultContent;

pub use self::client_address::parse_proxy;
pub(crate) use self::host_check::is_loopback_host;
pub use self::host_check::{parse_host, parse_origin};
pub use self::listener::{ReloadableTls, TlsError, read_tls, serve_http};
pub use self::quota::AccountQuotas;
pub(crate) use self::quota::{AccountUsage, ReadLimitError, ReadPermit};
pub(crate) use self::response_scope::ResponseScope;
pub(crate) use self::session_ids::RecordSessionId;

/// How an operator wants HTTP to be served.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Names besides loopback's under which the server may be addressed: `name` or `name:port`.
    pub allowed_hosts: Vec<String>,
    /// The origins whose pages may call: `https://name[:port]`.
    pub allowed_origins: Vec<String>,
    /// Where clients find the server, without a path; for the metadata of OAuth.
    pub public_url: Option<String>,
    /// What each account may take.
    pub quotas: AccountQuotas,
    /// Connections at once.
    pub connections: usize,
    /// And of one address, or IPv6 network of 64 bits, but for loopback and trusted proxies.
    pub connections_per_address: usize,
    /// Addresses and networks of the proxies whose `X-Forwarded-For` counts.
    pub trusted_proxies: Vec<String>,
}

/// What can be asked whether it works.
pub type ReadinessCheck = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;

/// What is served once the database is there.
#[derive(Clone)]
pub struct Backend {
    /// The tools of all profiles.
    pub registry: LiveRegistry,
    /// What asks users.
    pub elicitation: Elicitation,
    /// Where the envelope stands.
    pub content: ResultContent,
    /// What the tools work on, for its metrics.
    pub services: Services,
    /// Whether the database answers; why not.
    pub check: ReadinessCheck,
}

/// Everything that requests share.
pub struct AppState {
    addresses: AllowedHosts,
    accounts: Accounts,
    quotas: AccountQuotas,
    connections: Arc<ConnectionLimits>,
    proxies: TrustedProxies,
    /// Once is enough.
    has_warned_of_proxy: AtomicBool,
    failed_attempts: FailedAttempts,
    refusals: Arc<RejectionLog>,
    public_url: Option<String>,
    /// The one that counts; streams look at it again when it changes.
    authenticator: watch::Sender<Arc<Authenticator>>,
    /// Who everybody is, where nobody has to say.
    anonymous: Identity,
    readiness: Arc<Readiness>,
    metrics: Metrics,
    origins: Vec<HeaderValue>,
    sse: SseSessions,
    /// Requests that are not answered yet.
    requests: TaskTracker,
    /// Cancelled when the server stops: reads come to an end soon, questions are given up.
    stop: CancellationToken,
    /// Cancelled when all requests have been answered: streams end.
    streams: CancellationToken,
}

/// What there is once the database is.
struct OpenBackend {
    backend: Backend,
    streamable: StreamableHttp,
}

/// Somebody who may ask.
struct AuthenticatedClient {
    identity: Identity,
    /// When its credential expires.
    expires: Option<OffsetDateTime>,
    account: Arc<AccountUsage>,
    open: Arc<OpenBackend>,
}

/// How long an idle session may be overlooked at most.
const SWEEP: Duration = Duration::from_secs(30);

impl AppState {
    /// A site that has nothing to backend yet. `anonymous` is who everybody is if `authenticator` knows no way to tell.
    #[must_use]
    pub fn new(options: HttpOptions, authenticator: Authenticator, anonymous: Identity, metrics: Metrics) -> Arc<Self> {
        let HttpOptions { allowed_hosts, allowed_origins, public_url, quotas, .. } = options;
        let proxies = TrustedProxies::new(&options.trusted_proxies);
        let public_url = public_url.as_deref().and_then(parse_origin);
        let accounts = Accounts::new(quotas);
        accounts.set_multiple_accounts(authenticator.has_multiple_accounts());
        let own = public_url.as_deref().and_then(|url| url.split("://").nth(1));
        let hosts: Vec<String> = own.map(str::to_owned).into_iter().chain(allowed_hosts).collect();
        Arc::new(Self {
            addresses: AllowedHosts::new(&hosts, &allowed_origins),
            quotas,
            accounts,
            connections: ConnectionLimits::new(options.connections, options.connections_per_address, proxies.clone()),
            proxies,
            has_warned_of_proxy: AtomicBool::new(false),
            failed_attempts: FailedAttempts::default(),
            refusals: RejectionLog::new(),
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

    /// Says why there is nothing to backend yet.
    pub fn set_starting(&self, reason: impl Into<String>) {
        self.readiness.set_starting(reason.into());
    }

    /// Calls can be answered from now on.
    pub fn open(&self, backend: Backend) {
        let ids = SessionIdCodec::new(backend.elicitation.codec());
        let streamable = StreamableHttp::new(ids, self.quotas, self.streams.clone(), self.metrics.clone());
        let sessions = Arc::downgrade(&streamable.sessions);
        self.readiness.open(OpenBackend { backend, streamable });
        let period = SWEEP.min(self.quotas.session_idle);
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(period);
            loop {
                ticks.tick().await;
                let Some(sessions) = sessions.upgrade() else { return };
                sessions.sweep().await;
            }
        });
    }

    /// Whether requests have to say who they come from.
    #[must_use]
    pub fn requires_credentials(&self) -> bool {
        !self.authenticator().is_empty()
    }

    /// Whoever comes next is asked by this one.
    pub fn replace_authenticator(&self, authenticator: Authenticator) {
        self.accounts.set_multiple_accounts(authenticator.has_multiple_accounts());
        self.authenticator.send_replace(Arc::new(authenticator));
    }

    fn authenticator(&self) -> Arc<Authenticator> {
        Arc::clone(&self.authenticator.borrow())
    }

    /// Who sends this request. Its connection is one that counts from then on.
    async fn authenticate(&self, caller: &ClientAddress, headers: &HeaderMap) -> Result<Authentication, HttpError> {
        let authenticator = self.authenticator();
        let authentication = if authenticator.is_empty() {
            self.anonymous_authentication()
        } else if let Some(known) = authenticator.recognize(headers) {
            known
        } else {
            // Before a signature is verified.
            self.failed_attempts.check(caller.network())?;
            authenticator.identify(headers).await.map_err(|error| {
                if error.is_failed_attempt() {
                    self.failed_attempts.add_failure(caller.network());
                }
                HttpError::Unauthenticated { error, metadata_url: self.metadata_url() }
            })?
        };
        caller.connection.mark_authenticated();
        Ok(authentication)
    }

    fn anonymous_authentication(&self) -> Authentication {
        Authentication { identity: self.anonymous.clone(), expires: None }
    }

    /// Who sends this request, and what there is for them; one more request of theirs.
    async fn authorize(&self, caller: &ClientAddress, headers: &HeaderMap) -> Result<AuthenticatedClient, HttpError> {
        let Authentication { identity, expires } = self.authenticate(caller, headers).await?;
        let account = self.accounts.get(&identity.principal.account_id);
        account.check_rate()?;
        Ok(AuthenticatedClient { identity, expires, account, open: self.readiness.wait().await? })
    }

    /// Kept for as long as a request is not answered.
    fn track_request(&self) -> TaskTrackerToken {
        self.requests.token()
    }

    /// Answers all requests that are under way, takes no more, and then lets streams end.
    async fn drain(&self) {
        self.readiness.stop();
        self.stop.cancel();
        self.requests.close();
        self.requests.wait().await;
        self.streams.cancel();
    }

    /// Where clients learn how to get a token.
    fn metadata_url(&self) -> Option<String> {
        let url = self.public_url.as_ref()?;
        self.metadata().map(|_| format!("{url}{METADATA}/mcp"))
    }

    fn metadata(&self) -> Option<serde_json::Value> {
        let url = self.public_url.as_ref()?;
        self.authenticator().metadata(&resource_uri(url))
    }
}

const STOPPING: &str = "the server is stopping";

/// RFC 9728, section 3.
const METADATA: &str = "/.well-known/oauth-protected-resource";

/// What clients call the server, and ask its issuer for tokens for (RFC 8707), if they find it at this address.
#[must_use]
pub fn resource_uri(public_url: &str) -> String {
    format!("{}/mcp", public_url.trim_end_matches('/'))
}

/// The account of somebody who need not say who they are.
#[must_use]
pub fn anonymous_identity(account_id: AccountId, actor: Option<String>, profile: String) -> Identity {
    Identity { principal: types::Principal { account_id, actor, ..Default::default() }, profile, credential: "none" }
}
