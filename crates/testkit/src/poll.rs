//! Polls for a state, with an interval and a deadline.

use std::time::Duration;

/// The interval between two polls.
pub(crate) const INTERVAL: Duration = Duration::from_millis(5);

/// The time after which the test fails.
const DEADLINE: Duration = Duration::from_secs(30);

/// Polls until the condition is met. `what` names it in the panic message.
pub async fn until(what: &str, mut is_met: impl AsyncFnMut() -> bool) {
    until_some(what, async || is_met().await.then_some(())).await;
}

/// Like [`until`], with another deadline.
pub async fn until_within(deadline: Duration, what: &str, mut is_met: impl AsyncFnMut() -> bool) {
    some_within(deadline, what, async || is_met().await.then_some(())).await;
}

/// Like [`until_some`], with another deadline.
pub async fn some_within<T>(deadline: Duration, what: &str, value: impl AsyncFnMut() -> Option<T>) -> T {
    within(deadline, value).await.unwrap_or_else(|| panic!("not within {deadline:?}: {what}"))
}

/// Polls until there is a value. `what` names it in the panic message.
pub async fn until_some<T>(what: &str, value: impl AsyncFnMut() -> Option<T>) -> T {
    some_within(DEADLINE, what, value).await
}

/// Polls until there is a value; `None` if there is none before the deadline.
pub async fn within_deadline<T>(value: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    within(DEADLINE, value).await
}

async fn within<T>(deadline: Duration, mut value: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let polling = async {
        loop {
            if let Some(value) = value().await {
                return value;
            }
            tokio::time::sleep(INTERVAL).await;
        }
    };
    tokio::time::timeout(deadline, polling).await.ok()
}
