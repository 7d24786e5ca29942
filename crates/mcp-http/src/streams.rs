//! Event streams: counted per account, and ended when the credential that opened them becomes invalid.

use std::sync::Arc;
use std::time::Duration;

use auth::{AuthError, Authentication};
use http::{HeaderMap, header};
use time::OffsetDateTime;

use crate::error_response::HttpError;
use crate::response_body::PendingBody;
use crate::state::{AppState, AuthenticatedClient};

/// How often a credential is checked again, since the issuer may withdraw the key that signed it. A stream also ends
/// when its token expires, or when a reload removes the token.
const RECHECK_INTERVAL: Duration = Duration::from_secs(60);

/// The shortest delay between two checks: clocks are adjusted, and timers are not exact.
const MIN_RECHECK_DELAY: Duration = Duration::from_millis(100);

impl AppState {
    /// Makes a response an event stream of this client. `headers` are those of its request.
    pub(crate) fn open_stream(
        self: &Arc<Self>,
        client: &AuthenticatedClient,
        headers: &HeaderMap,
        pending: &mut PendingBody,
    ) -> Result<(), HttpError> {
        pending.keep_alive((client.account.acquire_stream()?, self.metrics.http().stream()));
        let credentials = headers.get_all(header::AUTHORIZATION).iter();
        let credentials: HeaderMap = credentials.map(|value| (header::AUTHORIZATION, value.clone())).collect();
        let (identity, stronger) = (client.identity.clone(), client.stronger.clone());
        let authentication = Authentication { identity, expires: client.expires, stronger };
        pending.end_when(Arc::clone(self).wait_until_invalid(credentials, authentication));
        Ok(())
    }

    /// Returns when these headers no longer authenticate this identity.
    async fn wait_until_invalid(self: Arc<Self>, headers: HeaderMap, mut last: Authentication) {
        let mut authenticators = self.authenticator.subscribe();
        loop {
            // Checked before the first wait too: a reload may have removed the token since the request was
            // authenticated.
            let authenticator = Arc::clone(&authenticators.borrow_and_update());
            let current = match authenticator.recognize(&headers) {
                Some(recognized) => Ok(recognized),
                None if authenticator.is_empty() => Ok(self.anonymous_authentication()),
                None => authenticator.identify(&headers).await,
            };
            let current = match current {
                Ok(current) => current,
                // The issuer is unreachable: the last result is valid until it expires.
                Err(AuthError::Unavailable { .. }) if !has_expired(&last) => last.clone(),
                Err(_) => break,
            };
            if current.identity != last.identity {
                break;
            }
            last = current;
            tokio::select! {
                _ = authenticators.changed() => {}
                () = tokio::time::sleep(recheck_delay(&last)) => {}
            }
        }
        let account = last.identity.principal.account_id.as_str();
        tracing::info!(account, "a stream was ended: its token has expired or is no longer valid");
    }
}

fn has_expired(authentication: &Authentication) -> bool {
    authentication.expires.is_some_and(|expires| expires <= OffsetDateTime::now_utc())
}

fn recheck_delay(authentication: &Authentication) -> Duration {
    let left = authentication.expires.map(|expires| expires - OffsetDateTime::now_utc());
    // The conversion fails for a negative duration: the token has expired.
    let left = left.map_or(RECHECK_INTERVAL, |left| Duration::try_from(left).unwrap_or_default());
    left.clamp(MIN_RECHECK_DELAY, RECHECK_INTERVAL)
}
