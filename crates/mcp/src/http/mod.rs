//! MCP over HTTP: one listener, its routes, and what every request must pass before a tool hears of it.
//!
//! ```text
//! connection   TLS, header and write timeouts, at most so many      `listener`, `paced`
//! address      Host and Origin                                      `addressed`, every route
//! who          bearer token or JWT -> identity                      `crate::auth`
//! how much     rate, weight, streams, sessions, reads of the account `allowance`
//! message      content type, size, time, one strict parser          `body`
//! transport    /mcp (`streamable`, rmcp's), /sse and /message (`sse`)
//! ```
//! A request and its answer are an `exchange`: what it holds is let go when the answer has been written or the client has gone.
//! What rmcp calls without saying for whom finds that in the `visit` of its task.

mod addressed;
mod allowance;
mod body;
mod exchange;
mod listener;
mod paced;
mod probes;
mod refusal;
mod session_ids;
mod sessions;
mod sse;
mod streamable;
mod turns;
mod visit;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::middleware::{self, Next};
use axum::routing::{any, get, post};
use contract::AccountId;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tools::metrics::Metrics;
use tools::{Backends, Toolbox};
use tower_http::cors::{AllowHeaders, CorsLayer};

use self::addressed::Addresses;
use self::allowance::Accounts;
use self::refusal::Refusal;
use self::session_ids::SessionIds;
use self::sse::SseSessions;
use self::streamable::Streamable;
use crate::asking::Asking;
use crate::auth::{Authenticator, Identity};
use crate::server::Content;

pub use self::addressed::{host, origin};
pub use self::allowance::Allowances;
pub(crate) use self::allowance::{Account, ReadPlace, TooManyReads};
pub(crate) use self::exchange::Exchange;
pub use self::listener::{Tls, TlsError, read_tls, serve_http};

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
}

/// What can be asked whether it works.
pub type Check = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;

/// What is served once the database is there.
#[derive(Clone)]
pub struct Offer {
    /// The tools of all profiles.
    pub toolbox: Toolbox,
    /// What asks users.
    pub asking: Asking,
    /// Where the envelope stands.
    pub content: Content,
    /// What the tools work on, for its metrics.
    pub backends: Backends,
    /// Whether the database answers; why not.
    pub check: Check,
}

/// Everything that requests share.
pub struct Site {
    addresses: Addresses,
    accounts: Accounts,
    allowances: Allowances,
    connections: usize,
    public_url: Option<String>,
    authenticator: RwLock<Arc<Authenticator>>,
    /// Who everybody is, where nobody has to say.
    anonymous: Identity,
    phase: RwLock<Phase>,
    metrics: Metrics,
    /// What the database said when it was last asked.
    checked: tokio::sync::Mutex<Option<(Instant, Result<(), String>)>>,
    origins: Vec<HeaderValue>,
    sse: SseSessions,
    /// Requests that are not answered yet.
    requests: TaskTracker,
    /// Cancelled when the server stops: reads come to an end soon, questions are given up.
    stop: CancellationToken,
    /// Cancelled when all requests have been answered: streams end.
    streams: CancellationToken,
}

/// Where a server is in its life.
#[derive(Clone)]
enum Phase {
    /// Not yet: why.
    Starting(String),
    Open(Arc<Open>),
    Stopping,
}

/// What there is once the database is.
struct Open {
    offer: Offer,
    streamable: Streamable,
}

/// Somebody who may ask.
struct Guest {
    identity: Identity,
    account: Arc<Account>,
    open: Arc<Open>,
}

/// How long an idle session may be overlooked at most.
const SWEEP: Duration = Duration::from_secs(30);

/// How long the database has to say that it is there.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// How long what it said counts.
const CHECK_AGAIN: Duration = Duration::from_secs(1);

impl Site {
    /// A site that has nothing to offer yet. `anonymous` is who everybody is if `authenticator` knows no way to tell.
    #[must_use]
    pub fn new(options: HttpOptions, authenticator: Authenticator, anonymous: Identity, metrics: Metrics) -> Arc<Self> {
        let HttpOptions { allowed_hosts, allowed_origins, public_url, allowances, connections } = options;
        let public_url = public_url.as_deref().and_then(origin);
        let accounts = Accounts::new(allowances);
        accounts.are_several(authenticator.knows_several_accounts());
        let own = public_url.as_deref().and_then(|url| url.split("://").nth(1));
        let hosts: Vec<String> = own.map(str::to_owned).into_iter().chain(allowed_hosts).collect();
        Arc::new(Self {
            addresses: Addresses::new(&hosts, &allowed_origins),
            allowances,
            accounts,
            connections,
            public_url,
            authenticator: RwLock::new(Arc::new(authenticator)),
            anonymous,
            phase: RwLock::new(Phase::Starting("the server is starting".to_owned())),
            metrics,
            checked: tokio::sync::Mutex::default(),
            origins: allowed_origins.iter().filter_map(|text| origin(text)?.parse().ok()).collect(),
            sse: SseSessions::default(),
            requests: TaskTracker::new(),
            stop: CancellationToken::new(),
            streams: CancellationToken::new(),
        })
    }

    /// Says why there is nothing to offer yet.
    pub fn not_yet(&self, reason: impl Into<String>) {
        let mut phase = self.phase.write().unwrap_or_else(PoisonError::into_inner);
        if matches!(*phase, Phase::Starting(_)) {
            *phase = Phase::Starting(reason.into());
        }
    }

    /// Calls can be answered from now on.
    pub fn open(&self, offer: Offer) {
        let ids = SessionIds::new(offer.asking.codec());
        let streamable = Streamable::new(ids, self.allowances, self.streams.clone(), self.metrics.clone());
        let sessions = Arc::downgrade(&streamable.sessions);
        let mut phase = self.phase.write().unwrap_or_else(PoisonError::into_inner);
        if matches!(*phase, Phase::Starting(_)) {
            *phase = Phase::Open(Arc::new(Open { offer, streamable }));
        }
        drop(phase);
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
        *self.authenticator.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(authenticator);
    }

    fn authenticator(&self) -> Arc<Authenticator> {
        Arc::clone(&self.authenticator.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn phase(&self) -> Phase {
        self.phase.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Who sends this request.
    async fn identity(&self, headers: &HeaderMap) -> Result<Identity, Refusal> {
        let authenticator = self.authenticator();
        if authenticator.is_empty() {
            return Ok(self.anonymous.clone());
        }
        let identity = authenticator.identify(headers).await;
        identity.map_err(|refusal| Refusal::Unauthenticated { refusal, metadata_url: self.metadata_url() })
    }

    /// Who sends this request, and what there is for them; one more request of theirs.
    async fn guest(&self, headers: &HeaderMap) -> Result<Guest, Refusal> {
        let identity = self.identity(headers).await?;
        let account = self.accounts.of(&identity.principal.account_id);
        account.request()?;
        match self.phase() {
            Phase::Open(open) => Ok(Guest { identity, account, open }),
            Phase::Starting(reason) => Err(Refusal::Unavailable(reason)),
            Phase::Stopping => Err(Refusal::Stopping),
        }
    }

    /// One more stream of this account, until what is returned is dropped.
    fn stream(&self, account: &Account) -> Result<impl Send + use<>, Refusal> {
        let permit = account.stream()?;
        Ok((permit, self.metrics.http().stream()))
    }

    /// Kept for as long as a request is not answered.
    fn under_way(&self) -> TaskTrackerToken {
        self.requests.token()
    }

    /// Whether calls can be answered now; why not. Anybody may ask, so the database is asked once a second at most, in a task
    /// that goes on without whoever asked.
    async fn is_ready(self: &Arc<Self>) -> Result<(), String> {
        let site = Arc::clone(self);
        let asking = tokio::spawn(async move {
            let mut last = site.checked.lock().await;
            match site.phase() {
                Phase::Starting(reason) => Err(reason),
                Phase::Stopping => Err(STOPPING.to_owned()),
                Phase::Open(open) => match &*last {
                    Some((at, checked)) if at.elapsed() < CHECK_AGAIN => checked.clone(),
                    _ => {
                        let checked = tokio::time::timeout(CHECK_TIMEOUT, (open.offer.check)()).await;
                        let too_late =
                            || Err(format!("the database did not answer within {} s", CHECK_TIMEOUT.as_secs()));
                        let checked = checked.unwrap_or_else(|_| too_late());
                        *last = Some((Instant::now(), checked.clone()));
                        checked
                    }
                },
            }
        });
        asking.await.unwrap_or_else(|_| Err("the check failed".to_owned()))
    }

    /// Answers all requests that are under way, takes no more, and then lets streams end.
    async fn drain(&self) {
        *self.phase.write().unwrap_or_else(PoisonError::into_inner) = Phase::Stopping;
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

    /// What lets pages of the allowed origins read answers.
    fn cross_origin(&self) -> CorsLayer {
        let session = HeaderName::from_static("mcp-session-id");
        CorsLayer::new()
            .allow_origin(self.origins.clone())
            .allow_methods([Method::GET, Method::POST, Method::DELETE])
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers([session, header::WWW_AUTHENTICATE, header::RETRY_AFTER])
    }

    fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/mcp", any(streamable::handle))
            .route("/sse", get(sse::open))
            .route("/message", post(sse::message))
            .route("/healthz", get(probes::healthz))
            .route("/readyz", get(probes::readyz))
            .route("/metrics", get(probes::metrics))
            .route(METADATA, get(probes::protected_resource))
            .route(&format!("{METADATA}/mcp"), get(probes::protected_resource))
            .layer(self.cross_origin())
            .layer(middleware::from_fn_with_state(Arc::clone(self), addressed_here))
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(self))
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

/// Before anything else, on every route; and what is counted of every answer.
async fn addressed_here(State(site): State<Arc<Site>>, request: Request<Body>, next: Next) -> Response<Body> {
    let route = route(request.uri().path());
    let response = match site.addresses.check(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(misaddressed) => Refusal::Misaddressed(misaddressed).response(),
    };
    let http = site.metrics.http();
    http.answered(route, response.status().as_u16());
    if let Some(reason) = response.extensions().get() {
        http.refused(*reason);
    }
    response
}

/// A path as metrics have it: never what somebody made up.
fn route(path: &str) -> &'static str {
    ["/mcp", "/sse", "/message", "/healthz", "/readyz", "/metrics"]
        .into_iter()
        .find(|route| *route == path)
        .unwrap_or(if path.starts_with(METADATA) { METADATA } else { "other" })
}

/// The account of somebody who need not say who they are.
#[must_use]
pub fn anonymous(account_id: AccountId, actor: Option<String>, profile: String) -> Identity {
    Identity { principal: contract::Principal { account_id, actor }, profile, credential: "none" }
}
