//! The cached keys of the issuer, and when they are fetched again.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http_client::{HttpClient, HttpUrl, HttpsUrl};
use tokio::sync::OwnedMutexGuard;

use crate::AuthConfigError;
use crate::issuer_metadata::IssuerMetadata;
use crate::jwk::{Algorithm, Jwks};

/// The age after which keys are fetched again. They remain valid meanwhile.
const REFRESH_AFTER: Duration = Duration::from_secs(60 * 60);

/// The age after which keys are no longer valid: the issuer may have withdrawn one.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// The shortest interval between fetches for missing keys, whatever keys tokens name.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(60);

/// The interval while there are no keys at all.
pub(crate) const FIRST_LOOKUP_INTERVAL: Duration = Duration::from_secs(5);

const ACCEPT: &str = "application/json, application/jwk-set+json";

/// The source of an issuer's keys (a JSON Web Key Set).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JwksSource {
    /// A file, read when the authenticator is created.
    File(PathBuf),
    /// A URL, fetched when keys are needed.
    Url(HttpsUrl),
    /// The metadata of this issuer, which name the URL. Both are fetched when keys are needed.
    Metadata(HttpsUrl),
}

#[derive(Debug)]
pub(crate) enum JwksCache {
    Fixed(Arc<Jwks>),
    RemoteJwks(Arc<RemoteJwks>),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KeyLookupError {
    /// The issuer has no such key.
    Unknown,
    /// The issuer cannot be reached; the text is the reason.
    Unavailable(String),
}

impl JwksCache {
    pub(crate) fn new(source: &JwksSource) -> Result<Self, AuthConfigError> {
        let source = match source {
            JwksSource::File(path) => return Ok(Self::Fixed(Arc::new(read_file(path)?))),
            JwksSource::Url(url) => HttpClient::new(url.clone()).map(RemoteSource::Jwks),
            JwksSource::Metadata(issuer) => {
                IssuerMetadata::new(issuer.clone()).map(|metadata| RemoteSource::Metadata(Box::new(metadata)))
            }
        };
        Ok(Self::RemoteJwks(Arc::new(RemoteJwks::new(source.map_err(AuthConfigError::Roots)?))))
    }

    /// The key set, once it has a key for this header.
    pub(crate) async fn keys_for(&self, id: Option<&str>, algorithm: Algorithm) -> Result<Arc<Jwks>, KeyLookupError> {
        match self {
            Self::Fixed(keys) if keys.candidates(id, algorithm).is_empty() => Err(KeyLookupError::Unknown),
            Self::Fixed(keys) => Ok(Arc::clone(keys)),
            Self::RemoteJwks(remote) => remote.keys_for(id, algorithm).await,
        }
    }

    /// The valid keys, without waiting for the issuer.
    pub(crate) fn current(&self) -> Option<Arc<Jwks>> {
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

#[derive(Debug)]
enum RemoteSource {
    Jwks(HttpClient),
    Metadata(Box<IssuerMetadata>),
}

impl RemoteSource {
    /// Fetches the keys from their URL. The error is the reason why there are none.
    async fn fetch(&self) -> Result<(HttpUrl, Jwks), String> {
        let client = match self {
            Self::Jwks(client) => client.clone(),
            Self::Metadata(metadata) => {
                HttpClient::new(metadata.jwks_url().await?).map_err(|error| error.to_string())?
            }
        };
        let url = client.url().clone();
        let json = client.get(ACCEPT).await.map_err(|error| format!("{}: {error}", url.as_str()))?;
        let keys = Jwks::parse(&json).map_err(|error| format!("{}: {error}", url.as_str()))?;
        Ok((url, keys))
    }
}

#[derive(Debug)]
pub(crate) struct RemoteJwks {
    source: RemoteSource,
    clock: Clock,
    state: Mutex<State>,
    /// Held during a fetch, so that one runs at a time.
    refresh_lock: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct State {
    /// The keys, and when they were fetched.
    keys: Option<(Arc<Jwks>, Duration)>,
    /// The time of the last fetch, and its error if it failed.
    last_attempt: Option<(Duration, Option<String>)>,
}

impl RemoteJwks {
    fn new(source: RemoteSource) -> Self {
        Self { source, clock: Clock::default(), state: Mutex::default(), refresh_lock: Arc::default() }
    }

    async fn keys_for(self: &Arc<Self>, id: Option<&str>, algorithm: Algorithm) -> Result<Arc<Jwks>, KeyLookupError> {
        let fits = |keys: &Arc<Jwks>| !keys.candidates(id, algorithm).is_empty();
        if let Some(keys) = self.current().filter(fits) {
            return Ok(keys);
        }
        let refresh_lock = Arc::clone(&self.refresh_lock).lock_owned().await;
        // The previous holder of the lock may have fetched the key.
        let cached = self.cached();
        let pause = if cached.is_some() { LOOKUP_INTERVAL } else { FIRST_LOOKUP_INTERVAL };
        if !cached.is_some_and(|(keys, _)| fits(&keys)) && !self.attempted_within(pause) {
            // In a separate task: a caller that goes away must not stop a fetch that others wait for.
            let _ = tokio::spawn(Arc::clone(self).refresh(refresh_lock)).await;
        }
        match self.cached().filter(|(keys, _)| fits(keys)) {
            Some((keys, _)) => Ok(keys),
            None => Err(self.last_failure().map_or(KeyLookupError::Unknown, KeyLookupError::Unavailable)),
        }
    }

    /// The valid keys. Starts a fetch in the background if they are old.
    fn current(self: &Arc<Self>) -> Option<Arc<Jwks>> {
        let (keys, age) = self.cached()?;
        if age >= REFRESH_AFTER {
            self.refresh_in_background();
        }
        Some(keys)
    }

    fn refresh_in_background(self: &Arc<Self>) {
        if self.attempted_within(LOOKUP_INTERVAL) {
            return;
        }
        if let Ok(refresh_lock) = Arc::clone(&self.refresh_lock).try_lock_owned() {
            tokio::spawn(Arc::clone(self).refresh(refresh_lock));
        }
    }

    async fn refresh(self: Arc<Self>, refresh_lock: OwnedMutexGuard<()>) {
        let found = self.source.fetch().await;
        let now = self.clock.now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Ok((url, keys)) => {
                tracing::info!(url = url.as_str(), keys = keys.len(), "the issuer's keys were fetched");
                *state = State { keys: Some((Arc::new(keys), now)), last_attempt: Some((now, None)) };
            }
            Err(reason) => {
                tracing::warn!("the issuer's keys could not be fetched: {reason}");
                state.last_attempt = Some((now, Some(reason)));
            }
        }
        drop(state);
        drop(refresh_lock);
    }

    /// The valid keys and their age.
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

/// Time since the authenticator was created. Tests advance it.
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
    pub(crate) fn advance_clock(&self, by: Duration) {
        *self.clock.ahead.lock().unwrap() += by;
    }

    /// Waits for a running fetch.
    pub(crate) async fn refreshed(&self) {
        drop(self.refresh_lock.lock().await);
    }
}
