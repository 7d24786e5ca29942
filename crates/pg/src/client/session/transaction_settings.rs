//! The settings of one read's transaction.

use std::time::Duration;

/// The settings that a read transaction begins with.
#[derive(Debug, Clone, Default)]
pub(crate) struct TransactionSettings {
    /// The account on whose behalf it reads (see [`crate::ReadRequest`]).
    pub(crate) account: String,
    /// Its seal (see [`super::CallerSeal`]); empty where no ledger verifies it.
    pub(crate) caller: String,
    /// `statement_timeout` in milliseconds; 0 means no limit. It applies to each Execute.
    pub(crate) statement_timeout_ms: u128,
    /// `lock_timeout` in milliseconds; 0 means no limit.
    pub(crate) lock_timeout_ms: u128,
}

impl TransactionSettings {
    /// Settings for a read that may take this long.
    pub(crate) fn within(account: &str, timeout: Duration) -> Self {
        let (account, timeout_ms) = (account.to_owned(), timeout.as_millis());
        Self { account, caller: String::new(), statement_timeout_ms: timeout_ms, lock_timeout_ms: timeout_ms }
    }

    /// The parameters of the statement that makes these settings.
    pub(crate) fn params(&self) -> [Option<String>; 4] {
        let timeouts = [self.statement_timeout_ms, self.lock_timeout_ms].map(|timeout| Some(timeout.to_string()));
        let [statement_timeout, lock_timeout] = timeouts;
        [Some(self.account.clone()), statement_timeout, lock_timeout, Some(self.caller.clone())]
    }
}
