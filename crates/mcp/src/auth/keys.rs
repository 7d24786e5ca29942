//! Where the issuer's keys come from, and when they are looked up again.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;

use super::AuthError;
use super::fetch::{Fetcher, WebUrl};
use super::jwk::{Algorithm, KeySet};

/// Keys that are older than this are looked up again, while they still count.
const FRESH_FOR: Duration = Duration::from_secs(60 * 60);

/// Keys that could not be looked up for so long count no more: the issuer may have withdrawn one.
const COUNT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// Whatever tokens name, a key that is not there is looked up no more often than this.
const BETWEEN_LOOKUPS: Duration = Duration::from_secs(60);

/// The same while there are no keys at all.
pub(super) const BETWEEN_FIRST_LOOKUPS: Duration = Duration::from_secs(5);

/// Where an issuer's keys stand (a JSON Web Key Set).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// In a file, read when the authenticator is made.
    File(PathBuf),
    /// At an address, read when they are needed.
    Url(WebUrl),
}

/// The keys, wherever they are from.
#[derive(Debug)]
pub(super) enum Keys {
    Fixed(Arc<KeySet>),
    Remote(Arc<Remote>),
}

/// Why there is no key for a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoKey {
    /// The issuer has no such key.
    Unknown,
    /// The issuer could not be asked.
    Unavailable(String),
}

impl Keys {
    pub(super) fn of(source: &KeySource) -> Result<Self, AuthError> {
        match source {
            KeySource::File(path) => Ok(Self::Fixed(Arc::new(read(path)?))),
            KeySource::Url(url) => {
                let fetcher = Fetcher::new(url.clone()).map_err(AuthError::Roots)?;
                Ok(Self::Remote(Arc::new(Remote::new(fetcher))))
            }
        }
    }

    /// A set that has a key for such a header.
    pub(super) async fn with(&self, id: Option<&str>, algorithm: Algorithm) -> Result<Arc<KeySet>, NoKey> {
        match self {
            Self::Fixed(keys) if keys.fitting(id, algorithm).is_empty() => Err(NoKey::Unknown),
            Self::Fixed(keys) => Ok(Arc::clone(keys)),
            Self::Remote(remote) => remote.with(id, algorithm).await,
        }
    }

    /// The keys that are valid now, without waiting for the issuer.
    pub(super) fn current(&self) -> Option<Arc<KeySet>> {
        match self {
            Self::Fixed(keys) => Some(Arc::clone(keys)),
            Self::Remote(remote) => remote.current(),
        }
    }
}

fn read(path: &Path) -> Result<KeySet, AuthError> {
    let json = std::fs::read(path).map_err(|source| AuthError::KeysNotRead { path: path.to_owned(), source })?;
    KeySet::parse(&json).map_err(|source| AuthError::NoKeys { path: path.to_owned(), source })
}

/// Keys behind a URL.
#[derive(Debug)]
pub(super) struct Remote {
    fetcher: Fetcher,
    clock: Clock,
    state: Mutex<State>,
    /// Held while they are looked up: one at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct State {
    /// And when they were looked up.
    keys: Option<(Arc<KeySet>, Duration)>,
    /// When it was last tried, and why that failed, if it did.
    tried: Option<(Duration, Option<String>)>,
}

impl Remote {
    pub(super) fn new(fetcher: Fetcher) -> Self {
        Self { fetcher, clock: Clock::default(), state: Mutex::default(), turn: Arc::default() }
    }

    async fn with(self: &Arc<Self>, id: Option<&str>, algorithm: Algorithm) -> Result<Arc<KeySet>, NoKey> {
        let fits = |keys: &Arc<KeySet>| !keys.fitting(id, algorithm).is_empty();
        if let Some(keys) = self.current().filter(fits) {
            return Ok(keys);
        }
        let turn = Arc::clone(&self.turn).lock_owned().await;
        // Whoever had the turn before may have found it.
        let standing = self.standing();
        let pause = if standing.is_some() { BETWEEN_LOOKUPS } else { BETWEEN_FIRST_LOOKUPS };
        if !standing.is_some_and(|(keys, _)| fits(&keys)) && !self.tried_within(pause) {
            // In a task of its own: a caller that goes away does not stop what others wait for.
            let _ = tokio::spawn(Arc::clone(self).look_up(turn)).await;
        }
        match self.standing().filter(|(keys, _)| fits(keys)) {
            Some((keys, _)) => Ok(keys),
            None => Err(self.last_failure().map_or(NoKey::Unknown, NoKey::Unavailable)),
        }
    }

    /// The keys that are valid now; old ones are looked up again meanwhile.
    fn current(self: &Arc<Self>) -> Option<Arc<KeySet>> {
        let (keys, age) = self.standing()?;
        if age >= FRESH_FOR {
            self.look_up_behind();
        }
        Some(keys)
    }

    /// Looks them up while requests go on with those that there are.
    fn look_up_behind(self: &Arc<Self>) {
        if self.tried_within(BETWEEN_LOOKUPS) {
            return;
        }
        if let Ok(turn) = Arc::clone(&self.turn).try_lock_owned() {
            tokio::spawn(Arc::clone(self).look_up(turn));
        }
    }

    async fn look_up(self: Arc<Self>, turn: OwnedMutexGuard<()>) {
        let found = self.fetcher.fetch().await.map_err(|error| error.to_string());
        let found = found.and_then(|json| KeySet::parse(&json).map_err(|error| error.to_string()));
        let now = self.clock.now();
        let url = self.fetcher.url().as_str();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Ok(keys) => {
                tracing::info!(url, keys = keys.len(), "the keys of the issuer were looked up");
                *state = State { keys: Some((Arc::new(keys), now)), tried: Some((now, None)) };
            }
            Err(reason) => {
                tracing::warn!(url, "the keys of the issuer could not be looked up: {reason}");
                state.tried = Some((now, Some(reason)));
            }
        }
        drop(state);
        drop(turn);
    }

    /// The keys that count, and how old they are.
    fn standing(&self) -> Option<(Arc<KeySet>, Duration)> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (keys, since) = state.keys.as_ref()?;
        let age = self.clock.now().saturating_sub(*since);
        (age < COUNT_FOR).then(|| (Arc::clone(keys), age))
    }

    fn tried_within(&self, pause: Duration) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.tried.as_ref().is_some_and(|(at, _)| self.clock.now().saturating_sub(*at) < pause)
    }

    fn last_failure(&self) -> Option<String> {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .tried
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
impl Remote {
    pub(super) fn later(&self, by: Duration) {
        *self.clock.ahead.lock().unwrap() += by;
    }

    /// Waits for a look-up that is under way.
    pub(super) async fn settled(&self) {
        drop(self.turn.lock().await);
    }
}
