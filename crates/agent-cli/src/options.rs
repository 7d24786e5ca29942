//! Options of one query, and their resolution against the configuration.

use std::time::Duration;

use clap::Args;
use pg::{Query, RowDelivery};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::CliError;

pub const DEFAULT_BATCH_ROWS: u64 = 1000;
/// Default size of a batch, in bytes of JSON.
pub const DEFAULT_BATCH_BYTES: u64 = 262_144;
/// Maximum of PostgreSQL's timeouts, in milliseconds: 24 days.
pub const MAX_TIMEOUT_MS: u64 = 2_147_483_647;

const MAX_BATCH_ROWS: u64 = 1_000_000;
/// Minimum and maximum size of a batch, in bytes.
const BATCH_BYTES: (u64, u64) = (1024, 64 << 20);
const MAX_INLINE_ROWS: u64 = 10_000_000;
const MAX_INLINE_BYTES: u64 = 1 << 30;

/// A struct of options: its own ones, then those that a pipe's configuration has, too. The comments are the help texts.
macro_rules! with_limits {
    ($(#[$attribute:meta])* pub struct $name:ident { $($own:tt)* }) => {
        $(#[$attribute])*
        pub struct $name {
            $($own)*
            /// Milliseconds that a statement may take; 0 is no limit. Default: 30000.
            #[arg(long, value_name = "MS")]
            pub statement_timeout_ms: Option<u64>,
            /// Milliseconds that a statement may wait for a lock; 0 is no limit. Default: 5000.
            #[arg(long, value_name = "MS")]
            pub lock_timeout_ms: Option<u64>,
            /// The most rows of a result that is not streamed. Default: 1000.
            #[arg(long, value_name = "ROWS")]
            pub inline_max_rows: Option<u64>,
            /// The most bytes of a result that is not streamed. Default: 1048576.
            #[arg(long, value_name = "BYTES")]
            pub inline_max_bytes: Option<u64>,
        }
    };
}

with_limits! {
    /// `options` of a query, and flags; `None` means the configured value.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Args, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Options {
        /// Send rows as they arrive instead of all at once.
        #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
        pub stream_rows: Option<bool>,
        /// Rows in a batch of a stream. Default: 1000.
        #[arg(long, value_name = "ROWS")]
        pub batch_rows: Option<u64>,
        /// A batch ends with the row that reaches this number of bytes. Default: 262144.
        #[arg(long, value_name = "BYTES")]
        pub batch_bytes: Option<u64>,
        /// Whether the query runs in a read-only transaction; default true. The flags are in `args`.
        #[arg(skip)]
        pub read_only: Option<bool>,
    }
}

with_limits! {
    /// The options that are flags of a pipe.
    #[derive(Debug, Args)]
    pub struct LimitArgs {}
}

impl From<LimitArgs> for Options {
    fn from(limits: LimitArgs) -> Self {
        let LimitArgs { statement_timeout_ms, lock_timeout_ms, inline_max_rows, inline_max_bytes } = limits;
        Self { statement_timeout_ms, lock_timeout_ms, inline_max_rows, inline_max_bytes, ..Self::default() }
    }
}

/// Configured values for options that a query leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Defaults {
    /// Maximum number of rows of an inline result.
    pub inline_max_rows: u64,
    /// Maximum size of an inline result, in bytes of its rows.
    pub inline_max_bytes: u64,
    /// `statement_timeout`, in milliseconds; 0 disables it.
    pub statement_timeout_ms: u64,
    /// `lock_timeout`, in milliseconds; 0 disables it.
    pub lock_timeout_ms: u64,
}

impl Default for Defaults {
    fn default() -> Self {
        Self { inline_max_rows: 1000, inline_max_bytes: 1_048_576, statement_timeout_ms: 30_000, lock_timeout_ms: 5000 }
    }
}

impl Defaults {
    /// Returns these values, except for those that the options have.
    #[must_use]
    pub fn with(self, options: &Options) -> Self {
        Self {
            inline_max_rows: options.inline_max_rows.unwrap_or(self.inline_max_rows),
            inline_max_bytes: options.inline_max_bytes.unwrap_or(self.inline_max_bytes),
            statement_timeout_ms: options.statement_timeout_ms.unwrap_or(self.statement_timeout_ms),
            lock_timeout_ms: options.lock_timeout_ms.unwrap_or(self.lock_timeout_ms),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResolvedOptions {
    /// Whether the query runs in a read-only transaction.
    pub read_only: bool,
    /// `statement_timeout`; zero disables it.
    pub statement_timeout: Duration,
    /// `lock_timeout`; zero disables it.
    pub lock_timeout: Duration,
    /// Whether rows are sent inline or in batches, and their limits.
    pub delivery: RowDelivery,
}

impl ResolvedOptions {
    /// The query with these options.
    pub(crate) fn query(self, sql: String, params: Vec<Value>, params_are_texts: bool) -> Query {
        let Self { read_only, statement_timeout, lock_timeout, delivery } = self;
        Query { sql, params, params_are_texts, read_only, statement_timeout, lock_timeout, delivery }
    }
}

impl Options {
    /// Resolves the options of a query against the configuration, which they take precedence over.
    #[must_use]
    pub fn resolve(&self, defaults: &Defaults) -> ResolvedOptions {
        let limits = defaults.with(self);
        let delivery = if self.stream_rows.unwrap_or(false) {
            RowDelivery::Batches {
                rows: size(self.batch_rows.unwrap_or(DEFAULT_BATCH_ROWS)),
                bytes: size(self.batch_bytes.unwrap_or(DEFAULT_BATCH_BYTES)),
            }
        } else {
            RowDelivery::Inline { max_rows: size(limits.inline_max_rows), max_bytes: size(limits.inline_max_bytes) }
        };
        ResolvedOptions {
            read_only: self.read_only.unwrap_or(true),
            statement_timeout: Duration::from_millis(limits.statement_timeout_ms),
            lock_timeout: Duration::from_millis(limits.lock_timeout_ms),
            delivery,
        }
    }

    /// Checks that every number is within its bounds.
    ///
    /// # Errors
    /// [`CliError`] with the first option that is out of bounds, and the bounds.
    pub fn check(&self) -> Result<(), CliError> {
        for (name, value) in [
            ("batch_rows", self.batch_rows),
            ("batch_bytes", self.batch_bytes),
            ("statement_timeout_ms", self.statement_timeout_ms),
            ("lock_timeout_ms", self.lock_timeout_ms),
            ("inline_max_rows", self.inline_max_rows),
            ("inline_max_bytes", self.inline_max_bytes),
        ] {
            value.map_or(Ok(()), |value| in_bounds(name, value))?;
        }
        Ok(())
    }
}

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Checks that the value of an option is within its bounds.
pub(crate) fn in_bounds(name: &str, value: u64) -> Result<(), CliError> {
    let (least, most) = match name {
        "batch_rows" => (1, MAX_BATCH_ROWS),
        "batch_bytes" => BATCH_BYTES,
        "inline_max_rows" => (0, MAX_INLINE_ROWS),
        "inline_max_bytes" => (0, MAX_INLINE_BYTES),
        "transaction_timeout_ms" => (1, MAX_TIMEOUT_MS),
        _ => (0, MAX_TIMEOUT_MS),
    };
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(CliError::invalid(format!("{name} is {value}; it is a whole number from {least} to {most}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_without_options_reads_within_the_defaults() {
        let resolved = Options::default().resolve(&Defaults::default());
        let expected = ResolvedOptions {
            read_only: true,
            statement_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(5),
            delivery: RowDelivery::Inline { max_rows: 1000, max_bytes: 1_048_576 },
        };
        assert_eq!(resolved, expected);
        let streamed = Options { stream_rows: Some(true), ..Options::default() }.resolve(&Defaults::default());
        assert_eq!(streamed.delivery, RowDelivery::Batches { rows: 1000, bytes: 262_144 });
    }

    #[test]
    fn options_of_a_query_take_precedence_over_the_configuration() {
        let defaults =
            Defaults { inline_max_rows: 2, inline_max_bytes: 3, statement_timeout_ms: 4, lock_timeout_ms: 5 };
        let configured = Options::default().resolve(&defaults);
        assert_eq!(configured.delivery, RowDelivery::Inline { max_rows: 2, max_bytes: 3 });
        assert_eq!((configured.statement_timeout.as_millis(), configured.lock_timeout.as_millis()), (4, 5));
        let own = Options {
            read_only: Some(false),
            statement_timeout_ms: Some(0),
            lock_timeout_ms: Some(7),
            inline_max_rows: Some(8),
            inline_max_bytes: Some(9),
            ..Options::default()
        };
        let resolved = own.resolve(&defaults);
        assert!(!resolved.read_only && resolved.statement_timeout.is_zero());
        assert_eq!(resolved.lock_timeout.as_millis(), 7);
        assert_eq!(resolved.delivery, RowDelivery::Inline { max_rows: 8, max_bytes: 9 });
    }

    #[test]
    fn numbers_out_of_bounds_are_refused_with_the_bounds() {
        for (name, bad, good) in [
            ("batch_rows", 0, 1),
            ("batch_bytes", 1023, 1024),
            ("statement_timeout_ms", 2_147_483_648, 2_147_483_647),
            ("lock_timeout_ms", 2_147_483_648, 0),
            ("inline_max_rows", 10_000_001, 0),
            ("transaction_timeout_ms", 0, 60_000),
        ] {
            let error = in_bounds(name, bad).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{name} is {bad}; it is a whole number from ")), "{error}");
            assert!(in_bounds(name, good).is_ok(), "{name}");
        }
        assert!(Options { batch_bytes: Some(5), ..Options::default() }.check().is_err());
    }
}
