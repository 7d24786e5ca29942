//! What every face says in the same words.

use ledger::AppliedRule;
use types::visible;

/// The number of characters of an id in a list.
const SHOWN: usize = 8;

/// An id as a list shows it.
#[must_use]
pub fn short_id(id: &str) -> String {
    id.chars().take(SHOWN).collect()
}

/// `1 row`, `3 rows`.
#[must_use]
pub fn rows(count: u64) -> String {
    format!("{count} row{}", if count == 1 { "" } else { "s" })
}

/// The rule of a tool that requires an approval. `condition` gives the condition its form.
#[must_use]
pub fn rule(rule: &AppliedRule, condition: impl Fn(&str) -> String) -> String {
    let message = rule.message.as_ref().map(|message| format!(": {}", visible(message))).unwrap_or_default();
    let condition = condition(&visible(&rule.when));
    format!("Rule {} of the tool requires approval (if {condition}){message}", rule.number)
}
