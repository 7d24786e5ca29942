//! The reads of the comparison, the same for all sides.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

/// A text that is the same each time, with a parameter.
pub(crate) const BY_KEY: &str = "select id, account_id, text from social.tweet where id = $1";

/// A query with [`LARGE_ROWS`] rows.
pub(crate) const LARGE: &str =
    "select i as id, 'row number ' || i as text, i * 1.5 as price from generate_series(1, 10000) i";

pub(crate) const LARGE_ROWS: u32 = 10_000;

/// One read.
#[derive(Debug)]
pub(crate) enum Call {
    /// The text that is the same each time, for this key.
    Seen(i64),
    /// A row by its key, in a text that no side has seen.
    New(i64, String),
    /// The query with many rows.
    Large,
}

/// What the texts of a case are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Texts {
    New,
    Seen,
}

impl Texts {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::New => "new text",
            Self::Seen => "seen text",
        }
    }

    /// The read of this number in its round. The numbers in new texts go on through all rounds and sides.
    pub(crate) fn call(self, number: usize) -> Call {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let id = i64::try_from(number % 20).unwrap() + 1;
        match self {
            Self::Seen => Call::Seen(id),
            Self::New => {
                let count = COUNT.fetch_add(1, Ordering::Relaxed);
                Call::New(id, format!("select id, account_id, text from social.tweet where id = {id} and {count} >= 0"))
            }
        }
    }
}

impl Call {
    /// The arguments of countersign's `query_database`.
    pub(crate) fn arguments(&self) -> Value {
        match self {
            Self::Seen(id) => json!({"query": BY_KEY, "params": [id]}),
            Self::New(_, text) => json!({"query": text}),
            Self::Large => json!({"query": LARGE, "row_limit": LARGE_ROWS}),
        }
    }

    /// The arguments of a peer's tool, which has no parameters: twenty texts stand for the one that all have seen.
    pub(crate) fn peer_arguments(&self) -> Value {
        match self {
            Self::Seen(id) => json!({"sql": BY_KEY.replace("$1", &id.to_string())}),
            Self::New(_, text) => json!({"sql": text}),
            Self::Large => json!({"sql": LARGE}),
        }
    }

    /// Panics unless an answer has the rows.
    pub(crate) fn check_answer(&self, answer: &[u8]) {
        match self {
            Self::Large => check_large_answer(answer),
            Self::Seen(_) | Self::New(..) => check_row_answer(answer),
        }
    }
}

/// Panics unless an answer has a row of `social.tweet`.
pub(crate) fn check_row_answer(answer: &[u8]) {
    let has = |wanted: &[u8]| answer.windows(wanted.len()).any(|part| part == wanted);
    let is_good = has(b"account_id") && !has(b"\"isError\":true") && !has(b"\"error\":{");
    assert!(is_good, "{}", String::from_utf8_lossy(answer));
}

/// Panics unless an answer ends with the last row of [`LARGE`]. The rest of the megabyte is not searched, which would take
/// longer than some servers do.
fn check_large_answer(answer: &[u8]) {
    let end = &answer[answer.len().saturating_sub(2000)..];
    let last = b"row number 10000";
    assert!(end.windows(last.len()).any(|part| part == last), "{}", String::from_utf8_lossy(end));
}
