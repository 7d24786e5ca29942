//! The rules and the limit of a tool, as text and metadata for clients.

use serde_json::{Value, json};
use types::{Rule, RuleAction, ToolLimit};

/// Sentences about the rules and the limit, each after a space; empty if there are none.
pub(crate) fn sentences(rules: &[Rule], limit: Option<ToolLimit>) -> String {
    let mut text = String::new();
    for (index, rule) in rules.iter().enumerate() {
        let what = match rule.then {
            RuleAction::Confirm => "the user has to agree first",
            RuleAction::Approve => "somebody else has to approve it first",
            RuleAction::Deny => "the call is refused",
        };
        let why =
            rule.message.as_ref().map_or_else(String::new, |message| format!(" ({})", message.trim_end_matches('.')));
        text += &format!(" Rule {}: if {}, {what}{why}.", index + 1, rule.when);
    }
    if let Some(limit) = limit {
        text += &format!(" Limit: {} for each {}.", amount(limit), limit.by.as_str());
    }
    text
}

/// The rules in `_meta`.
pub(crate) fn rules(rules: &[Rule]) -> Value {
    let rules = rules.iter().enumerate().map(
        |(index, rule)| json!({"number": index + 1, "when": rule.when, "then": rule.then, "message": rule.message}),
    );
    rules.collect()
}

fn amount(limit: ToolLimit) -> String {
    let period = match limit.per_s {
        seconds if seconds % 3600 == 0 => format!("{} h", seconds / 3600),
        seconds if seconds % 60 == 0 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    };
    format!("{} in {period}", limit.amount())
}

#[cfg(test)]
mod tests {
    use types::LimitScope;

    use super::*;

    #[test]
    fn a_tool_says_its_rules_and_its_limit() {
        let rule = |then, message: Option<&str>| Rule {
            when: "param.amount > 100".to_owned(),
            then,
            message: message.map(str::to_owned),
        };
        let limit = ToolLimit { calls: Some(50), rows: Some(1000), per_s: 5400, by: LimitScope::Actor };
        assert_eq!(
            sentences(&[rule(RuleAction::Approve, None), rule(RuleAction::Deny, Some("Too much."))], Some(limit)),
            " Rule 1: if param.amount > 100, somebody else has to approve it first. Rule 2: if param.amount > 100, the call is \
             refused (Too much). Limit: 50 calls and 1000 rows in 90 min for each actor."
        );
        assert_eq!(sentences(&[], None), "");
    }
}
