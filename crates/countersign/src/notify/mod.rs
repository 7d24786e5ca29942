//! Posts notices about proposals to the operator's webhook. The ledger has the outbox ([`ledger::Notices`]). Writes
//! never wait for notices.
//!
//! ```text
//! claim: due, for LEASE ──> post ──> 2xx: removed
//!                                └─> anything else: due again, 1 s, 2 s, 4 s .. 10 min later
//! ```
//! If a server is killed while it sends, another server claims the notice after LEASE. The receiver may then get a
//! notice twice, with the same `webhook-id`.

mod message;
mod signature;

use std::io;
use std::time::Duration;

use clap::ValueEnum;
use http::Request;
use http_client::{HttpClient, HttpsUrl};
use ledger::{Notice, Notices};
use schemars::JsonSchema;
use serde::Deserialize;
use time::OffsetDateTime;
use tokio::task::JoinSet;
use tools::Activity;
use types::DatabaseLabel;

pub(crate) use signature::SigningSecret;

// The comments of the variants are their help.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NoticeForm {
    /// One JSON object.
    #[default]
    Json,
    /// A text for Slack.
    Slack,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotifySettings {
    pub(crate) url: HttpsUrl,
    pub(crate) form: NoticeForm,
    /// The secret for signatures; `None` for no signature.
    pub(crate) secret: Option<SigningSecret>,
    /// The address of a proposal's page, without its id.
    pub(crate) link_base: Option<String>,
}

/// The maximum number of notices that are sent at the same time.
const AT_ONCE: usize = 8;

/// How long claimed notices belong to a server. A request takes 5 s at most.
const LEASE: Duration = Duration::from_secs(30);

/// The pause after the first failure; it doubles after each one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// The number of attempts, about a day, after which a notice is given up.
const MAX_ATTEMPTS: u32 = 150;

/// Sends the notices of one ledger.
#[derive(Debug, Clone)]
pub(crate) struct Notifier {
    settings: NotifySettings,
    client: HttpClient,
    notices: Notices,
    /// The database of the ledger, where the server has several.
    database: Option<DatabaseLabel>,
}

impl Notifier {
    pub(crate) fn new(settings: NotifySettings, notices: Notices, database: Option<DatabaseLabel>) -> io::Result<Self> {
        Ok(Self { client: HttpClient::new(settings.url.clone())?, settings, notices, database })
    }

    /// Sends notices while the future is polled. Several servers may send at the same time.
    pub(crate) async fn run(self, activity: Activity) {
        let mut is_reachable = true;
        loop {
            match self.notices.claim(AT_ONCE, LEASE).await {
                Ok(claimed) => {
                    is_reachable = true;
                    let mut sending = JoinSet::new();
                    for notice in claimed {
                        let this = self.clone();
                        sending.spawn(async move { this.attempt(&notice).await });
                    }
                    while sending.join_next().await.is_some() {}
                }
                Err(error) if is_reachable => {
                    is_reachable = false;
                    tracing::warn!(%error, "notices cannot be read; will retry");
                }
                Err(_) => {}
            }
            activity.turn().await;
        }
    }

    async fn attempt(&self, notice: &Notice) {
        let sent = self.send(notice).await;
        let retry_in = match &sent {
            Ok(()) => None,
            Err(reason) if notice.attempt >= MAX_ATTEMPTS => {
                tracing::error!(notice_id = notice.notice_id, event = notice.event, "a notice was given up: {reason}");
                None
            }
            Err(reason) => {
                let pause = pause_after(notice.attempt);
                let (id, attempt, seconds) = (&notice.notice_id, notice.attempt, pause.as_secs());
                tracing::warn!(notice_id = id, attempt, seconds, "a notice was not delivered; will retry: {reason}");
                Some(pause)
            }
        };
        if let Err(error) = self.notices.settle(notice, retry_in).await {
            tracing::warn!(notice_id = notice.notice_id, %error, "whether a notice was delivered could not be stored");
        }
    }

    async fn send(&self, notice: &Notice) -> Result<(), String> {
        let body =
            message::body(notice, self.settings.form, self.settings.link_base.as_deref(), self.database.as_ref());
        // The time of this attempt: receivers refuse old timestamps.
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let headers = signature::headers(&notice.notice_id, now, &body, self.settings.secret.as_ref())?;
        let mut request =
            Request::post(self.settings.url.path()).body(body.into()).map_err(|error| error.to_string())?;
        request.headers_mut().extend(headers);
        let status = self.client.send(request).await.map_err(|error| error.to_string())?.status;
        if status.is_success() { Ok(()) } else { Err(format!("the receiver answered {status}")) }
    }
}

fn pause_after(attempt: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1))).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_are_bounded() {
        let seconds = [1, 2, 3, 10, 11, MAX_ATTEMPTS].map(|attempt| pause_after(attempt).as_secs());
        assert_eq!(seconds, [1, 2, 4, 512, 600, 600]);
    }
}
