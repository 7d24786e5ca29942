//! The reads and writes of the comparison, the same for all sides.

use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::{Value, json};

/// A text that is the same each time, with a parameter.
pub(crate) const BY_KEY: &str = "select id, account_id, text from social.tweet where id = $1";

/// A query with [`LARGE_ROWS`] rows.
pub(crate) const LARGE: &str =
    "select i as id, 'row number ' || i as text, i * 1.5 as price from generate_series(1, 10000) i";

pub(crate) const LARGE_ROWS: u32 = 10_000;

/// The table of the writes, with its manifest. The changes of its copy `tracked_item` are recorded.
pub(crate) const ITEMS: &str = "\
create schema bench; \
create table bench.item (id bigint primary key, n bigint); \
insert into bench.item select g, 0 from generate_series(1, 10000) g; \
create table bench.tracked_item (like bench.item including all); \
insert into bench.tracked_item select * from bench.item; \
select countersign.track('bench.tracked_item'); \
grant usage on schema bench to countersign_writer; \
grant select, update on bench.item, bench.tracked_item to countersign_writer; \
vacuum analyze bench.item, bench.tracked_item";

/// The tools of the writes.
pub(crate) const TOOLS: &str = r#"
[[tool]]
name = "set_item"
access = "write"
description = "Set the number of an item."
sql = "update bench.item set n = $2 where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "n", description = "The number." }]
undo = { irreversible = "There is no tool for it." }

[[tool]]
name = "set_tracked_item"
access = "write"
description = "Set the number of an item, and record the change."
sql = "update bench.tracked_item set n = $2 where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "n", description = "The number." }]
"#;

/// The write of the sides without tools of their own.
pub(crate) const UPDATE: &str = "update bench.item set n = $2 where id = $1 returning id";

/// One call.
#[derive(Debug)]
pub(crate) enum Call {
    /// The text that is the same each time, for this key.
    Seen(i64),
    /// A row by its key, in a text that no side has seen.
    New(i64, String),
    /// The query with many rows.
    Large,
    /// A new number for the row with this id, by the tool of this name. Each id occurs once in 10,000 calls, so writes under
    /// way do not wait for each other.
    Write(&'static str, i64, i64),
}

/// What the texts of a case are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Texts {
    New,
    Seen,
    /// Writes. Only the tool of this repository's server records them.
    Write,
    /// Writes of which that tool also records the rows.
    TrackedWrite,
}

impl Texts {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::New => "new text",
            Self::Seen => "seen text",
            Self::Write => "write",
            Self::TrackedWrite => "tracked write",
        }
    }

    pub(crate) fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::TrackedWrite)
    }

    /// The call of this number in its round. The numbers in new texts go on through all rounds and sides.
    pub(crate) fn call(self, number: usize) -> Call {
        static COUNT: AtomicI64 = AtomicI64::new(1);
        let id = i64::try_from(number % 20).unwrap() + 1;
        let write = |tool| {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            Call::Write(tool, count % 10_000 + 1, count)
        };
        match self {
            Self::Write => write("set_item"),
            Self::TrackedWrite => write("set_tracked_item"),
            Self::Seen => Call::Seen(id),
            Self::New => {
                let count = COUNT.fetch_add(1, Ordering::Relaxed);
                Call::New(id, format!("select id, account_id, text from social.tweet where id = {id} and {count} >= 0"))
            }
        }
    }
}

impl Call {
    /// The call of a tool of countersign.
    pub(crate) fn params(&self) -> Value {
        let (name, arguments) = match self {
            Self::Seen(id) => ("query_database", json!({"query": BY_KEY, "params": [id]})),
            Self::New(_, text) => ("query_database", json!({"query": text})),
            Self::Large => ("query_database", json!({"query": LARGE, "row_limit": LARGE_ROWS})),
            Self::Write(tool, id, n) => (*tool, json!({"id": id, "n": n})),
        };
        json!({"name": name, "arguments": arguments})
    }

    /// The text for a tool that runs SQL and has no parameters: twenty texts stand for the one that all have seen.
    pub(crate) fn sql(&self) -> String {
        match self {
            Self::Seen(id) => BY_KEY.replace("$1", &id.to_string()),
            Self::New(_, text) => text.clone(),
            Self::Large => LARGE.to_owned(),
            Self::Write(_, id, n) => UPDATE.replace("$1", &id.to_string()).replace("$2", &n.to_string()),
        }
    }

    /// Panics unless an answer has the rows.
    pub(crate) fn check_answer(&self, answer: &[u8]) {
        match self {
            Self::Large => check_large_answer(answer),
            Self::Seen(_) | Self::New(..) | Self::Write(..) => check_row_answer(answer),
        }
    }
}

/// Panics unless an answer has a row.
pub(crate) fn check_row_answer(answer: &[u8]) {
    let has = |wanted: &[u8]| answer.windows(wanted.len()).any(|part| part == wanted);
    let is_good = has(b"\"id\\\"") && !has(b"\"isError\":true") && !has(b"\"error\":{");
    assert!(is_good, "{}", String::from_utf8_lossy(answer));
}

/// Panics unless an answer ends with the last row of [`LARGE`]. The rest of the megabyte is not searched, which would take
/// longer than some servers do.
fn check_large_answer(answer: &[u8]) {
    let end = &answer[answer.len().saturating_sub(2000)..];
    let last = b"row number 10000";
    assert!(end.windows(last.len()).any(|part| part == last), "{}", String::from_utf8_lossy(end));
}
