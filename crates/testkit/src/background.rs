//! A runtime for what outlives the runtime of a single test: idle connections and shared servers.

use std::sync::LazyLock;

use tokio::runtime::{Builder, Runtime};

/// The runtime. It ends with the process.
pub(crate) fn background() -> &'static Runtime {
    static BACKGROUND: LazyLock<Runtime> = LazyLock::new(|| {
        Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime for the test process")
    });
    &BACKGROUND
}
