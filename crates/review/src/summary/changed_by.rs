//! Who changed a row after a proposal was made.

use types::{CorrelationId, RowHistoryEntry, visible};

#[derive(Debug, Clone, PartialEq)]
pub enum ChangedBy {
    Write {
        correlation_id: CorrelationId,
        /// Its tool, its account with the actor, and when it ended, in words.
        who: String,
    },
    /// Something else than countersign.
    Outside {
        /// The login and the application, if the ledger records them.
        origin: Option<String>,
    },
}

impl ChangedBy {
    /// The writer in words: `set_price of anna (default), 2026-11-23 18:04 UTC`.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Write { who, .. } => who.clone(),
            Self::Outside { origin: None } => "not through countersign".to_owned(),
            Self::Outside { origin: Some(origin) } => format!("not through countersign ({})", visible(origin.trim())),
        }
    }

    #[must_use]
    pub fn record(&self) -> Option<CorrelationId> {
        if let Self::Write { correlation_id, .. } = self { Some(*correlation_id) } else { None }
    }
}

impl<V> From<&RowHistoryEntry<V>> for ChangedBy {
    /// An entry without an account is a write of another account than that of the agent who reads it.
    fn from(entry: &RowHistoryEntry<V>) -> Self {
        let Some(correlation_id) = entry.correlation_id else { return Self::Outside { origin: entry.origin.clone() } };
        let writer = match (entry.account_id.as_deref().map(visible), entry.actor.as_deref().map(visible)) {
            (Some(account), Some(actor)) => format!("{actor} ({account})"),
            (Some(account), None) => account,
            (None, _) => "another account".to_owned(),
        };
        let tool = entry.tool_name.as_deref().map_or_else(|| "a write".to_owned(), visible);
        let minute = |at: &String| format!(", {} UTC", at.chars().take(16).collect::<String>().replace('T', " "));
        let at = entry.changed_at.as_ref().map(minute).unwrap_or_default();
        Self::Write { correlation_id, who: format!("{tool} of {writer}{at}") }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_writer_is_named_by_tool_account_and_actor_or_is_outside() {
        let words = |of: Value| {
            let mut entry = json!({"correlation_id": null, "tool_name": null, "account_id": null, "actor": null, "client_name": null,
                "changed_at": "2026-11-23T18:04:05.123Z", "origin": null, "table": "t", "key": null, "change": "update", "columns": {}});
            entry.as_object_mut().unwrap().extend(of.as_object().unwrap().clone());
            ChangedBy::from(&serde_json::from_value::<RowHistoryEntry<Value>>(entry).unwrap()).words()
        };
        let id = "3f0c1a52-9c1e-4c7e-8a55-0d9f6b1f2a34";
        assert_eq!(
            words(json!({"correlation_id": id, "tool_name": "set\u{202e}", "account_id": "default", "actor": "anna"})),
            "set\\u202e of anna (default), 2026-11-23 18:04 UTC"
        );
        assert_eq!(words(json!({"correlation_id": id})), "a write of another account, 2026-11-23 18:04 UTC");
        assert_eq!(words(json!({"origin": " postgres psql"})), "not through countersign (postgres psql)");
        assert_eq!(words(json!({})), "not through countersign");
    }
}
