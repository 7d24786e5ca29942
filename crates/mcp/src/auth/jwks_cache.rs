//! Where the issuer's keys come from, and when they are looked up again.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;

use super::AuthConfigError;
use super::jwk::{Algorithm, Jwks};
use super::jwks_fetch::{HttpsUrl, JwksFetcher};

/// Keys that are older than this are looked up again, while they still count.
const REFRESH_AFTER: Duration = Duration::from_secs(60 * 60);

/// Keys that could not be looked up for so long count no more: the issuer may have withdrawn one.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// Whatever tokens name, a key that is not there is looked up no more often than this.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(60);

/// The same while there are no keys at all.
pub(super) const FIRST_LOOKUP_INTERVAL: Duration = Duration::from_secs(5);

/// Where an issuer's keys stand (a JSON Web Key Set).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JwksSource {
    /// In a file, read when the authenticator is made.
    File(PathBuf),
    /// At an address, read when they are needed.
    Url(HttpsUrl),
}

/// The keys, wherever they are from.
#[derive(Debug)]
pub(super) enum JwksCache {
    Fixed(Arc<Jwks>),
    RemoteJwks(Arc<RemoteJwks>),
}

/// Why there is no key for a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyLookupError {
    /// The issuer has no such key.
    Unknown,
    /// The issuer could not be asked.
    Unavailable(String),
}

impl JwksCache {
    pub(super) fn new(source: &JwksSource) -> Result<Self, AuthConfigError> {
        match source {
            JwksSource::File(path) => Ok(Self::Fixed(Arc::new(read_file(path)?))),
            JwksSource::Url(url) => {
                let fetcher = JwksFetcher::new(url.clone()).map_err(AuthConfigError::Roots)?;
                Ok(Self::RemoteJwks(Arc::new(RemoteJwks::new(fetcher))))
            }
        }
    }

    /// A set that has a key for such a header.
    pub(super) async fn keys_for(&self, id: Option<&str>, algorithm: Algorithm) -> Result<Arc<Jwks>, KeyLookupError> {
        match self {
            Self::Fixed(keys) if keys.candidates(id, algorithm).is_empty() => Err(KeyLookupError::Unknown),
            Self::Fixed(keys) => Ok(Arc::clone(keys)),
            Self::RemoteJwks(remote) => remote.keys_for(id, algorithm).await,
        }
    }

    /// The keys that are valid now, without waiting for the issuer.
    pub(super) fn current(&self) -> Option<Arc<Jwks>> {
        match self {
            Self::Fixed(keys) => Some(Arc::clone(keys)),
            Self::RemoteJwks(remote) => remote.current(),
        }
    }
}

fn read_file(path: &Path) -> Result<Jwks, AuthConfigError> {
    let json = std::fs::read(path).map_err(|source| AuthConfigError::KeysNotRead { path: path.to_owned(), source })?;
    Jwks::parse(&json).map_err(|source| AuthConfigError::NoKeys { path: path.to_owned(), source })
}

/// Keys behind a URL.
#[derive(Debug)]
pub(super) struct RemoteJwks {
    fetcher: JwksFetcher,
    clock: Clock,
    state: Mutex<State>,
    /// Held while they are looked up: one at a time.
    refresh_lock: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct State {
    /// And when they were looked up.
    keys: Option<(Arc<Jwks>, Duration)>,
    /// When it was last tried, and why that failed, if it did.
    last_attempt: Option<(Duration, Option<String>)>,
}

impl RemoteJwks {
    pub(super) fn new(fetcher: JwksFetcher) -> Self {
        Self { fetcher, clock: Clock::default(), state: Mutex::default(), refresh_lock: Arc::default() }
    }

    async fn keys_for(self: &Arc<Self>, id: Option<&str>, algorithm: Algorithm) -> Result<Arc<Jwks>, KeyLookupError> {
        let fits = |keys: &Arc<Jwks>| !keys.candidates(id, algorithm).is_empty();
        if let Some(keys) = self.current().filter(fits) {
            return Ok(keys);
        }
        let refresh_lock = Arc::clone(&self.refresh_lock).lock_owned().await;
        // Whoever had the turn before may have found it.
        let cached = self.cached();
        let pause = if cached.is_some() { LOOKUP_INTERVAL } else { FIRST_LOOKUP_INTERVAL };
        if !cached.is_some_and(|(keys, _)| fits(&keys)) && !self.attempted_within(pause) {
            // In a task of its own: a caller that goes away does not stop what others wait for.
            let _ = tokio::spawn(Arc::clone(self).refresh(refresh_lock)).await;
        }
        match self.cached().filter(|(keys, _)| fits(keys)) {
            Some((keys, _)) => Ok(keys),
            None => Err(self.last_failure().map_or(KeyLookupError::Unknown, KeyLookupError::Unavailable)),
        }
    }

    /// The keys that are valid now; old ones are looked up again meanwhile.
    fn current(self: &Arc<Self>) -> Option<Arc<Jwks>> {
        let (keys, age) = self.cached()?;
        if age >= REFRESH_AFTER {
            self.refresh_in_background();
        }
        Some(keys)
    }

    /// Looks them up while requests go on with those that there are.
    fn refresh_in_background(self: &Arc<Self>) {
        if self.attempted_within(LOOKUP_INTERVAL) {
            return;
        }
        if let Ok(refresh_lock) = Arc::clone(&self.refresh_lock).try_lock_owned() {
            tokio::spawn(Arc::clone(self).refresh(refresh_lock));
        }
    }

    async fn refresh(self: Arc<Self>, refresh_lock: OwnedMutexGuard<()>) {
        let found = self.fetcher.fetch().await.map_err(|error| error.to_string());
        let found = found.and_then(|json| Jwks::parse(&json).map_err(|error| error.to_string()));
        let now = self.clock.now();
        let url = self.fetcher.url().as_str();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Ok(keys) => {
                tracing::info!(url, keys = keys.len(), "the keys of the issuer were looked up");
                *state = State { keys: Some((Arc::new(keys), now)), last_attempt: Some((now, None)) };
            }
            Err(reason) => {
                tracing::warn!(url, "the keys of the issuer could not be looked up: {reason}");
                state.last_attempt = Some((now, Some(reason)));
            }
        }
        drop(state);
        drop(refresh_lock);
    }

    /// The keys that count, and how old they are.
    fn cached(&self) -> Option<(Arc<Jwks>, Duration)> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (keys, since) = state.keys.as_ref()?;
        let age = self.clock.now().saturating_sub(*since);
        (age < MAX_AGE).then(|| (Arc::clone(keys), age))
    }

    fn attempted_within(&self, pause: Duration) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.last_attempt.as_ref().is_some_and(|(at, _)| self.clock.now().saturating_sub(*at) < pause)
    }

    fn last_failure(&self) -> Option<String> {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .last_attempt
            .as_ref()
            .and_then(|(_, failure)| failure.clone())
    }
}

/// Time since the authenticator was made. Tests set it forward.
#[derive(Debug)]
struct Clock {
    start: Instant,
    #[cfg(test)]
    ahead: Mutex<Duration>,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            #[cfg(test)]
            ahead: Mutex::default(),
        }
    }
}

impl Clock {
    #[cfg(not(test))]
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    #[cfg(test)]
    fn now(&self) -> Duration {
        self.start.elapsed() + *self.ahead.lock().unwrap()
    }
}

#[cfg(test)]
impl RemoteJwks {
    pub(super) fn advance_clock(&self, by: Duration) {
        *self.clock.ahead.lock().unwrap() += by;
    }

    /// Waits for a look-up that is under way.
    pub(super) async fn refreshed(&self) {
        drop(self.refresh_lock.lock().await);
    }
}
