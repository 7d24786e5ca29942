//! MCP over HTTP: one listener, its routes, and what every request must pass before a tool hears of it.
//!
//! ```text
//! connection   TLS, header and write timeouts                       `listener`, `paced`
//!              at most so many of all and of each address           `connections`, `client_address`
//! address      Host, Origin, Sec-Fetch-Site                         `router` (every route), `addressed`
//! who          bearer token or JWT -> identity                      `crate::auth`, `attempts`
//! how much     rate, weight, streams, sessions, reads of the account `allowance`
//! message      content type, size, time, one strict parser          `body`
//! transport    /mcp (`streamable`, rmcp's), /sse and /message (`sse`)
//! ```
//! A request and its answer are an `exchange`: what it holds is let go when the answer has been written or the client has gone.
//! What rmcp calls without saying for whom finds that in the `visit` of its task.

mod addressed;
mod allowance;
mod attempts;
mod body;
mod client_address;
mod connections;
mod exchange;
mod listener;
mod paced;
mod pages;
mod probes;
mod readiness;
mod refusal;
mod refusal_log;
mod router;
mod session_ids;
mod sessions;
mod sse;
mod streamable;
mod streams;
mod turns;
mod visit;

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

use self::addressed::Addresses;
use self::allowance::Accounts;
use self::attempts::Attempts;
use self::client_address::{Caller, TrustedProxies};
use self::connections::Connections;
use self::readiness::Readiness;
use self::refusal::Refusal;
use self::refusal_log::RefusalLog;
use self::session_ids::SessionIds;
use self::sse::SseSessions;
use self::streamable::Streamable;
use crate::asking::Asking;
use crate::auth::{Admission, Authenticator, Identity};
use crate::server::Content;

pub(crate) use self::addressed::host_names_loopback;
pub use self::addressed::{host, origin};
pub use self::allowance::Allowances;
pub(crate) use self::allowance::{Account, ReadPlace, TooManyReads};
pub use self::client_address::proxy;
pub(crate) use self::exchange::Exchange;
pub use self::listener::{Tls, TlsError, read_tls, serve_http};
pub(crate) use self::session_ids::RecordedSession;

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
    pub allowances: Allowances,
    /// Connections at once.
    pub connections: usize,
    /// And of one address, or IPv6 network of 64 bits, but for loopback and trusted proxies.
    pub connections_per_address: usize,
    /// Addresses and networks of the proxies whose `X-Forwarded-For` counts.
    pub trusted_proxies: Vec<String>,
}

/// What can be asked whether it works.
pub type Check = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;

/// What is served once the database is there.
#[derive(Clone)]
pub struct Offer {
    /// The tools of all profiles.
    pub toolbox: LiveRegistry,
    /// What asks users.
    pub asking: Asking,
    /// Where the envelope stands.
    pub content: Content,
    /// What the tools work on, for its metrics.
    pub backends: Services,
    /// Whether the database answers; why not.
    pub check: Check,
}

/// Everything that requests share.
pub struct Site {
    addresses: Addresses,
    accounts: Accounts,
    allowances: Allowances,
    connections: Arc<Connections>,
    proxies: TrustedProxies,
    /// Once is enough.
    has_warned_of_proxy: AtomicBool,
    attempts: Attempts,
    refusals: Arc<RefusalLog>,
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
struct Open {
    offer: Offer,
    streamable: Streamable,
}

/// Somebody who may ask.
struct Guest {
    identity: Identity,
    /// When its credential expires.
    expires: Option<OffsetDateTime>,
    account: Arc<Account>,
    open: Arc<Open>,
}

/// How long an idle session may be overlooked at most.
const SWEEP: Duration = Duration::from_secs(30);

impl Site {
    /// A site that has nothing to offer yet. `anonymous` is who everybody is if `authenticator` knows no way to tell.
    #[must_use]
    pub fn new(options: HttpOptions, authenticator: Authenticator, anonymous: Identity, metrics: Metrics) -> Arc<Self> {
        let HttpOptions { allowed_hosts, allowed_origins, public_url, allowances, .. } = options;
        let proxies = TrustedProxies::new(&options.trusted_proxies);
        let public_url = public_url.as_deref().and_then(origin);
        let accounts = Accounts::new(allowances);
        accounts.are_several(authenticator.knows_several_accounts());
        let own = public_url.as_deref().and_then(|url| url.split("://").nth(1));
        let hosts: Vec<String> = own.map(str::to_owned).into_iter().chain(allowed_hosts).collect();
        Arc::new(Self {
            addresses: Addresses::new(&hosts, &allowed_origins),
            allowances,
            accounts,
            connections: Connections::new(options.connections, options.connections_per_address, proxies.clone()),
            proxies,
            has_warned_of_proxy: AtomicBool::new(false),
            attempts: Attempts::default(),
            refusals: RefusalLog::new(),
            public_url,
            authenticator: watch::Sender::new(Arc::new(authenticator)),
            anonymous,
            readiness: Readiness::new(),
            metrics,
            origins: allowed_origins.iter().filter_map(|text| origin(text)?.parse().ok()).collect(),
            sse: SseSessions::default(),
            requests: TaskTracker::new(),
            stop: CancellationToken::new(),
            streams: CancellationToken::new(),
        })
    }

    /// Says why there is nothing to offer yet.
    pub fn not_yet(&self, reason: impl Into<String>) {
        self.readiness.not_yet(reason.into());
    }

    /// Calls can be answered from now on.
    pub fn open(&self, offer: Offer) {
        let ids = SessionIds::new(offer.asking.codec());
        let streamable = Streamable::new(ids, self.allowances, self.streams.clone(), self.metrics.clone());
        let sessions = Arc::downgrade(&streamable.sessions);
        self.readiness.open(Open { offer, streamable });
        let period = SWEEP.min(self.allowances.session_idle);
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
    pub fn authenticates(&self) -> bool {
        !self.authenticator().is_empty()
    }

    /// Whoever comes next is asked by this one.
    pub fn authenticate_by(&self, authenticator: Authenticator) {
        self.accounts.are_several(authenticator.knows_several_accounts());
        self.authenticator.send_replace(Arc::new(authenticator));
    }

    fn authenticator(&self) -> Arc<Authenticator> {
        Arc::clone(&self.authenticator.borrow())
    }

    /// Who sends this request. Its connection is one that counts from then on.
    async fn admit(&self, caller: &Caller, headers: &HeaderMap) -> Result<Admission, Refusal> {
        let authenticator = self.authenticator();
        let admission = if authenticator.is_empty() {
            self.anonymous_admission()
        } else if let Some(known) = authenticator.recognize(headers) {
            known
        } else {
            // Before a signature is verified.
            self.attempts.check(caller.network())?;
            authenticator.identify(headers).await.map_err(|refusal| {
                if refusal.is_failed_attempt() {
                    self.attempts.add_failure(caller.network());
                }
                Refusal::Unauthenticated { refusal, metadata_url: self.metadata_url() }
            })?
        };
        caller.connection.prove();
        Ok(admission)
    }

    fn anonymous_admission(&self) -> Admission {
        Admission { identity: self.anonymous.clone(), expires: None }
    }

    /// Who sends this request, and what there is for them; one more request of theirs.
    async fn guest(&self, caller: &Caller, headers: &HeaderMap) -> Result<Guest, Refusal> {
        let Admission { identity, expires } = self.admit(caller, headers).await?;
        let account = self.accounts.of(&identity.principal.account_id);
        account.request()?;
        Ok(Guest { identity, expires, account, open: self.readiness.wait().await? })
    }

    /// Kept for as long as a request is not answered.
    fn under_way(&self) -> TaskTrackerToken {
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
        self.authenticator().metadata(&resource(url))
    }
}

const STOPPING: &str = "the server is stopping";

/// RFC 9728, section 3.
const METADATA: &str = "/.well-known/oauth-protected-resource";

/// What clients call the server, and ask its issuer for tokens for (RFC 8707), if they find it at this address.
#[must_use]
pub fn resource(public_url: &str) -> String {
    format!("{}/mcp", public_url.trim_end_matches('/'))
}

/// The account of somebody who need not say who they are.
#[must_use]
pub fn anonymous(account_id: AccountId, actor: Option<String>, profile: String) -> Identity {
    Identity { principal: types::Principal { account_id, actor, ..Default::default() }, profile, credential: "none" }
}
