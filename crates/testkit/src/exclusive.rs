//! Tests run in parallel, except those that measure time.

use std::cell::RefCell;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The lock of the machine. Tests with a database hold it shared; tests that measure time hold it exclusively.
static MACHINE: RwLock<()> = RwLock::const_new(());

#[expect(dead_code, reason = "held until it is dropped")]
enum Held {
    Shared(RwLockReadGuard<'static, ()>),
    Exclusive(RwLockWriteGuard<'static, ()>),
}

thread_local! {
    /// The guard of the current test. libtest runs each test on a separate thread, which drops the guard at its end.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Waits until no other test uses a database, and keeps other tests waiting until this test has ended. For tests that
/// measure wall-clock time; call it first in the body of the test.
pub async fn exclusive() {
    // If two tests kept their shared lock while they wait for each other, they would wait forever.
    HELD.with_borrow_mut(|held| *held = None);
    let held = Held::Exclusive(MACHINE.write().await);
    HELD.with_borrow_mut(|this| *this = Some(held));
}

/// Waits until no other test is exclusive, unless this test already holds the lock.
pub(crate) async fn shared() {
    if HELD.with_borrow(Option::is_none) {
        let held = Held::Shared(MACHINE.read().await);
        HELD.with_borrow_mut(|this| *this = Some(held));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use tokio::runtime::Builder;

    use super::{MACHINE, exclusive, shared};

    fn block_on(test: impl Future<Output = ()>) {
        Builder::new_current_thread().build().unwrap().block_on(test);
    }

    #[test]
    fn an_exclusive_test_begins_when_the_others_have_ended_and_they_can_go_on_until_then() {
        let (events, received) = mpsc::channel();
        block_on(shared());
        let of_exclusive = events.clone();
        let waiting = thread::spawn(move || {
            block_on(exclusive());
            of_exclusive.send("exclusive").unwrap();
        });
        while MACHINE.try_read().is_ok() {
            thread::yield_now();
        }
        // A second database of the same test does not wait for the test that waits for it.
        block_on(shared());
        events.send("shared").unwrap();
        super::HELD.take();
        waiting.join().unwrap();
        assert_eq!(received.try_iter().collect::<Vec<_>>(), ["shared", "exclusive"]);
    }
}
