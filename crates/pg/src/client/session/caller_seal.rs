//! What shows the database on whose behalf a read runs.
//!
//! A query may find a way to change a setting, and to change it back before it ends. So the account, the role and the
//! claims of the caller are sealed with a key of the ledger (`migrations/baseline/78_callers.sql`), and the functions
//! `countersign.account` and `countersign.claim` believe nothing else. A caller can read its own seal, and use it again
//! for ten minutes. It cannot make another one.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use sha2::{Digest, Sha256};
use types::{CallerContext, Secret};

/// Seals callers with the key of a ledger.
#[derive(Debug, Clone)]
pub struct CallerSeal {
    key: Secret,
}

impl CallerSeal {
    /// `key` is the value of `countersign.caller_key()`.
    #[must_use]
    pub const fn new(key: Secret) -> Self {
        Self { key }
    }

    /// The value of the setting `countersign.caller`: the seal in hexadecimal digits, and what is sealed.
    pub(crate) fn seal(&self, account: &str, context: Option<&CallerContext>) -> String {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let claims = context.map(|context| &context.claims);
        let role = context.and_then(|context| context.role.as_ref());
        self.sealed(&json!({"account": account, "role": role, "claims": claims, "at": at}).to_string())
    }

    fn sealed(&self, caller: &str) -> String {
        let seal = Sha256::new().chain_update(self.key.expose()).chain_update(Sha256::digest(caller)).finalize();
        let mut sealed = String::with_capacity(2 * seal.len() + 1 + caller.len());
        for byte in seal {
            // Writing to a String cannot fail.
            let _ = write!(sealed, "{byte:02x}");
        }
        sealed.push(' ');
        sealed.push_str(caller);
        sealed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_depends_on_the_key_and_on_everything_that_is_sealed() {
        let seal = |key: &str, caller: &str| CallerSeal::new(Secret::new(key.to_owned())).sealed(caller);
        // `select encode(sha256('key'::bytea || sha256('{"account":"a"}'::bytea)), 'hex')`
        let expected = "2e9b504737a64c387ab338f0bb4bf005a8d429f4ca2d9460045037910ea9330a";
        let sealed = seal("key", "{\"account\":\"a\"}");
        assert!(sealed.starts_with(expected) && sealed.ends_with(" {\"account\":\"a\"}"), "{sealed}");
        assert_ne!(seal("key", "a").get(..64), seal("key", "b").get(..64));
        assert_ne!(seal("key", "a").get(..64), seal("other", "a").get(..64));
    }
}
