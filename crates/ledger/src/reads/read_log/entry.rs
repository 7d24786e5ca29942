//! An entry of the log of reads, and its row in the table.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use pg::ReadFacts;
use sha2::{Digest, Sha256};
use types::Principal;

/// The maximum length of a stored text, in bytes.
const MAX_TEXT_BYTES: usize = 8 * 1024;

/// An estimate of the memory of an entry without its texts, in bytes.
const ENTRY_BYTES: usize = 400;

/// Microseconds since 1970 by the clock of this machine.
pub(super) fn micros_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// A read that has ended.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) read_at: i64,
    principal: Principal,
    tool: String,
    outcome: &'static str,
    duration_us: i64,
    /// SHA-256 of the text of the statement.
    fingerprint: Option<[u8; 32]>,
    /// The facts. They include the text of the statement only if texts are stored.
    facts: ReadFacts,
}

impl Entry {
    /// The entry of a read that began at `read_at` and took `duration_us`, both in microseconds.
    pub(super) fn new(
        mut principal: Principal,
        tool: String,
        (read_at, duration_us): (i64, i64),
        outcome: &'static str,
        mut facts: ReadFacts,
    ) -> Self {
        let fingerprint = facts.sql.as_ref().map(|sql| Sha256::digest(sql).into());
        // A label from a token issuer may contain any characters.
        [&mut facts.sql, &mut principal.actor].into_iter().flatten().for_each(bound);
        Self { read_at, principal, tool, outcome, duration_us, fingerprint, facts }
    }

    pub(super) fn without_text(mut self) -> Self {
        self.facts.sql = None;
        self
    }

    /// The memory that the entry takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let Principal { account_id, actor, client, .. } = &self.principal;
        let texts = [actor, &client.name, &client.version, &client.session_id, &client.trace_id, &self.facts.sql];
        let texts: usize = texts.into_iter().flatten().map(String::len).sum();
        let tables: usize = self.facts.tables.iter().flat_map(|tables| tables.iter()).map(String::len).sum();
        ENTRY_BYTES + self.tool.len() + account_id.as_str().len() + texts + tables
    }

    pub(super) fn tables(&self) -> Option<&Arc<[String]>> {
        self.facts.tables.as_ref()
    }

    pub(super) fn row<'a>(&'a self, tables: Option<Vec<&'a str>>) -> Row<'a> {
        let Principal { account_id, actor, client, .. } = &self.principal;
        Row {
            read_at: self.read_at,
            account_id: Some(account_id.as_str()),
            actor: actor.as_deref(),
            session_id: client.session_id.as_deref(),
            client_name: client.name.as_deref(),
            client_version: client.version.as_deref(),
            trace_id: client.trace_id.as_deref(),
            tool_name: Some(&self.tool),
            outcome: self.outcome,
            tables,
            row_count: self.facts.rows,
            row_bytes: self.facts.rows.map(|_| self.facts.row_bytes),
            duration_us: Some(self.duration_us),
            is_truncated: self.facts.rows.map(|_| self.facts.is_truncated),
            fingerprint: self.fingerprint.as_ref().map(bytea),
            query: self.facts.sql.as_deref(),
            ..Row::default()
        }
    }
}

/// A row in the form of the ledger's SQL function. Times are in microseconds.
#[derive(Debug, Default)]
pub(super) struct Row<'a> {
    pub(super) read_at: i64,
    pub(super) account_id: Option<&'a str>,
    pub(super) actor: Option<&'a str>,
    pub(super) session_id: Option<&'a str>,
    pub(super) client_name: Option<&'a str>,
    pub(super) client_version: Option<&'a str>,
    pub(super) trace_id: Option<&'a str>,
    pub(super) tool_name: Option<&'a str>,
    pub(super) outcome: &'a str,
    pub(super) tables: Option<Vec<&'a str>>,
    pub(super) row_count: Option<usize>,
    pub(super) row_bytes: Option<usize>,
    pub(super) duration_us: Option<i64>,
    pub(super) is_truncated: Option<bool>,
    pub(super) fingerprint: Option<String>,
    pub(super) query: Option<&'a str>,
    pub(super) entries: Option<u64>,
    pub(super) first_at: Option<i64>,
    pub(super) last_at: Option<i64>,
}

impl Row<'_> {
    /// A row that says how many reads are missing, and when the first and the last of them began.
    pub(super) fn of_loss(written_at: i64, entries: u64, (first_at, last_at): (i64, i64)) -> Self {
        Self {
            read_at: written_at,
            outcome: "lost",
            entries: Some(entries),
            first_at: Some(first_at),
            last_at: Some(last_at),
            ..Self::default()
        }
    }
}

/// Cuts a text to its maximum length at a character boundary, and replaces NUL, which PostgreSQL cannot store.
fn bound(text: &mut String) {
    if text.len() > MAX_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        text.shrink_to_fit();
    }
    if text.contains('\0') {
        *text = text.replace('\0', "\u{fffd}");
    }
}

/// Bytes in the text form of `bytea`.
fn bytea(bytes: &[u8; 32]) -> String {
    let mut text = String::with_capacity(66);
    text.push_str("\\x");
    for byte in bytes {
        // Writing to a String does not fail.
        let _written = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(sql: &str) -> Entry {
        let facts = ReadFacts { sql: Some(sql.to_owned()), ..ReadFacts::default() };
        Entry::new(Principal::default(), "query_database".to_owned(), (1, 2), "ok", facts)
    }

    #[test]
    fn a_text_is_cut_at_a_character_and_its_fingerprint_covers_all_of_it() {
        let text = format!("{}é and more", "x".repeat(MAX_TEXT_BYTES - 1));
        let long = entry(&text);
        assert_eq!(long.facts.sql.as_deref(), Some("x".repeat(MAX_TEXT_BYTES - 1).as_str()));
        assert_eq!(long.fingerprint, Some(Sha256::digest(&text).into()));
        assert_eq!(long.without_text().facts.sql, None);
    }

    #[test]
    fn a_row_has_no_nul_and_its_fingerprint_is_a_bytea() {
        let principal = Principal { actor: Some("a\0".to_owned()), ..Principal::default() };
        let facts = ReadFacts { sql: Some("select '\0'".to_owned()), ..ReadFacts::default() };
        let entry = Entry::new(principal, "query_database".to_owned(), (1, 2), "ok", facts);
        let row = entry.row(None);
        assert_eq!((row.actor, row.query), (Some("a\u{fffd}"), Some("select '\u{fffd}'")));
        let fingerprint = row.fingerprint.unwrap();
        assert!(fingerprint.starts_with("\\x") && fingerprint.len() == 66, "{fingerprint}");
    }
}
