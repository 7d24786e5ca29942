//! Streams of events: counted for their account, and ended when the credential that opened them is no longer valid.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, header};
use time::OffsetDateTime;

use super::exchange::Exchange;
use super::refusal::Refusal;
use super::{Guest, Site};
use crate::auth::{self, Admission};

/// How often a credential is looked at again by itself: the issuer may have withdrawn the key that signed it. A token that
/// expires, or that a reload takes away, ends its streams at once.
const CHECK_PERIOD: Duration = Duration::from_secs(60);

/// The shortest pause between two looks: clocks are set, and timers are not exact.
const MIN_PAUSE: Duration = Duration::from_millis(100);

impl Site {
    /// Makes the answer of this exchange a stream of the guest's. `headers` are those of its request.
    pub(super) fn open_stream(
        self: &Arc<Self>,
        guest: &Guest,
        headers: &HeaderMap,
        exchange: &Exchange,
    ) -> Result<(), Refusal> {
        exchange.hold((guest.account.stream()?, self.metrics.http().stream()));
        let shown = headers.get_all(header::AUTHORIZATION).iter();
        let shown: HeaderMap = shown.map(|value| (header::AUTHORIZATION, value.clone())).collect();
        let admission = Admission { identity: guest.identity.clone(), expires: guest.expires };
        exchange.end_after(Arc::clone(self).until_invalid(shown, admission));
        Ok(())
    }

    /// Returns when these headers no longer stand for this identity.
    async fn until_invalid(self: Arc<Self>, headers: HeaderMap, mut admission: Admission) {
        let mut authenticators = self.authenticator.subscribe();
        loop {
            // Also before the first wait: the token may have been taken away since the request was admitted.
            let authenticator = Arc::clone(&authenticators.borrow_and_update());
            let now = match authenticator.recognize(&headers) {
                Some(known) => Ok(known),
                None if authenticator.is_empty() => Ok(self.anonymous_admission()),
                None => authenticator.identify(&headers).await,
            };
            let now = match now {
                Ok(now) => now,
                // The issuer cannot be asked: what was known is valid until it expires.
                Err(auth::Refusal::Unavailable { .. }) if !has_expired(&admission) => admission.clone(),
                Err(_) => break,
            };
            if now.identity != admission.identity {
                break;
            }
            admission = now;
            tokio::select! {
                _ = authenticators.changed() => {}
                () = tokio::time::sleep(pause(&admission)) => {}
            }
        }
        let account = admission.identity.principal.account_id.as_str();
        tracing::info!(account, "a stream was ended: its token has expired, or is not valid any more");
    }
}

fn has_expired(admission: &Admission) -> bool {
    admission.expires.is_some_and(|expires| expires <= OffsetDateTime::now_utc())
}

fn pause(admission: &Admission) -> Duration {
    let left = admission.expires.map(|expires| expires - OffsetDateTime::now_utc());
    // Less than nothing is left of one that has expired.
    let left = left.map_or(CHECK_PERIOD, |left| Duration::try_from(left).unwrap_or_default());
    left.clamp(MIN_PAUSE, CHECK_PERIOD)
}
