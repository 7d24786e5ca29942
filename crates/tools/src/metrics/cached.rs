//! A cached value, so that frequent requests cause only occasional queries.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// The lifetime of a value. Prometheus scrapes every 15 s or less often, but two Prometheus servers scrape at
/// different times.
const KEPT: Duration = Duration::from_secs(5);

/// The last result, even if the query returned no value.
pub(super) struct Cached<T> {
    last: Mutex<Option<(Instant, Option<T>)>>,
}

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self { last: Mutex::default() }
    }
}

impl<T: Clone> Cached<T> {
    /// The value. Concurrent callers wait for the same query. The future must be polled to its end; if a caller drops
    /// it, the next caller repeats the query.
    pub(super) async fn get<F: Future<Output = Option<T>>>(&self, ask: impl FnOnce() -> F) -> Option<T> {
        let mut last = self.last.lock().await;
        match &*last {
            Some((at, answer)) if at.elapsed() < KEPT => answer.clone(),
            _ => {
                let answer = ask().await;
                *last = Some((Instant::now(), answer.clone()));
                answer
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_who_want_it_at_once_ask_once_and_it_counts_for_5_seconds_even_if_there_is_none() {
        let (cached, asked) = (Cached::default(), AtomicU32::new(0));
        let get = || {
            cached.get(|| async {
                tokio::time::sleep(Duration::from_secs(2)).await;
                let asked = asked.fetch_add(1, Ordering::Relaxed) + 1;
                (asked != 2).then_some(asked)
            })
        };
        let begun = Instant::now();
        assert_eq!(tokio::join!(get(), get(), get()), (Some(1), Some(1), Some(1)));
        assert_eq!(begun.elapsed(), Duration::from_secs(2), "nobody waits longer than one question takes");
        tokio::time::advance(Duration::from_millis(4999)).await;
        assert_eq!(get().await, Some(1));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(tokio::join!(get(), get()), (None, None), "a failure is kept as well");
        tokio::time::advance(KEPT).await;
        assert_eq!(get().await, Some(3));
    }
}
