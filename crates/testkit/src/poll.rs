//! Polls for a state, with an interval and a deadline.

use std::time::Duration;

/// The interval between two polls.
const INTERVAL: Duration = Duration::from_millis(5);

/// The time after which the test fails.
const DEADLINE: Duration = Duration::from_secs(30);

/// Polls until the condition is met. `what` names it in the panic message.
pub async fn until(what: &str, mut is_met: impl AsyncFnMut() -> bool) {
    until_some(what, async || is_met().await.then_some(())).await;
}

/// Polls until there is a value. `what` names it in the panic message.
pub async fn until_some<T>(what: &str, value: impl AsyncFnMut() -> Option<T>) -> T {
    within_deadline(value).await.unwrap_or_else(|| panic!("not within {DEADLINE:?}: {what}"))
}

/// Polls until there is a value; `None` if there is none before the deadline.
pub async fn within_deadline<T>(mut value: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let polling = async {
        loop {
            if let Some(value) = value().await {
                return value;
            }
            tokio::time::sleep(INTERVAL).await;
        }
    };
    tokio::time::timeout(DEADLINE, polling).await.ok()
}
