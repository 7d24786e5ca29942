//! Streams of events: counted for their account, and ended when the credential that opened them is no longer valid.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, header};
use time::OffsetDateTime;

use super::error_response::HttpError;
use super::response_scope::ResponseScope;
use super::{AppState, AuthenticatedClient};
use crate::auth::{self, Authentication};

/// How often a credential is looked at again by itself: the issuer may have withdrawn the key that signed it. A token that
/// expires, or that a reload takes away, ends its streams at once.
const RECHECK_INTERVAL: Duration = Duration::from_secs(60);

/// The shortest pause between two looks: clocks are set, and timers are not exact.
const MIN_RECHECK_DELAY: Duration = Duration::from_millis(100);

impl AppState {
    /// Makes the answer of this exchange a stream of the guest's. `headers` are those of its request.
    pub(super) fn open_stream(
        self: &Arc<Self>,
        client: &AuthenticatedClient,
        headers: &HeaderMap,
        response_scope: &ResponseScope,
    ) -> Result<(), HttpError> {
        response_scope.keep_alive((client.account.acquire_stream()?, self.metrics.http().stream()));
        let shown = headers.get_all(header::AUTHORIZATION).iter();
        let shown: HeaderMap = shown.map(|value| (header::AUTHORIZATION, value.clone())).collect();
        let authentication = Authentication { identity: client.identity.clone(), expires: client.expires };
        response_scope.end_when(Arc::clone(self).wait_until_invalid(shown, authentication));
        Ok(())
    }

    /// Returns when these headers no longer stand for this identity.
    async fn wait_until_invalid(self: Arc<Self>, headers: HeaderMap, mut authentication: Authentication) {
        let mut authenticators = self.authenticator.subscribe();
        loop {
            // Also before the first wait: the token may have been taken away since the request was admitted.
            let authenticator = Arc::clone(&authenticators.borrow_and_update());
            let now = match authenticator.recognize(&headers) {
                Some(known) => Ok(known),
                None if authenticator.is_empty() => Ok(self.anonymous_authentication()),
                None => authenticator.identify(&headers).await,
            };
            let now = match now {
                Ok(now) => now,
                // The issuer cannot be asked: what was known is valid until it expires.
                Err(auth::AuthError::Unavailable { .. }) if !has_expired(&authentication) => authentication.clone(),
                Err(_) => break,
            };
            if now.identity != authentication.identity {
                break;
            }
            authentication = now;
            tokio::select! {
                _ = authenticators.changed() => {}
                () = tokio::time::sleep(recheck_delay(&authentication)) => {}
            }
        }
        let account = authentication.identity.principal.account_id.as_str();
        tracing::info!(account, "a stream was ended: its token has expired, or is not valid any more");
    }
}

fn has_expired(authentication: &Authentication) -> bool {
    authentication.expires.is_some_and(|expires| expires <= OffsetDateTime::now_utc())
}

fn recheck_delay(authentication: &Authentication) -> Duration {
    let left = authentication.expires.map(|expires| expires - OffsetDateTime::now_utc());
    // Less than nothing is left of one that has expired.
    let left = left.map_or(RECHECK_INTERVAL, |left| Duration::try_from(left).unwrap_or_default());
    left.clamp(MIN_RECHECK_DELAY, RECHECK_INTERVAL)
}
