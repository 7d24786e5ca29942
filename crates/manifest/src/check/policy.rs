//! Checks the rules and the limit of a tool, as far as that is possible without the database.

use types::Tier;

use crate::Diagnostics;
use crate::file::{RuleDeclaration, ToolDeclaration};
use crate::parse::ParsedTool;
use crate::policy::seconds;

const MAX_RULES: usize = 50;

const MAX_CALLS: i64 = 10_000;

const MAX_ROWS: i64 = 1_000_000;

/// Maximum length of a rule's message, in characters.
const LONGEST_MESSAGE: usize = 200;

pub(super) fn check(parsed: &ParsedTool<'_>, tool: &ToolDeclaration, diagnostics: &mut Diagnostics) {
    let name_at = || tool.name.span();
    if tool.is(false) && !tool.rule.is_empty() {
        diagnostics.0.push(parsed.diagnostic(name_at(), "a read needs no agreement: rule is for writes"));
    }
    if tool.rule.len() > MAX_RULES {
        diagnostics.0.push(parsed.diagnostic(name_at(), format!("a tool has at most {MAX_RULES} rules")));
    }
    for (index, rule) in tool.rule.iter().enumerate() {
        RuleCheck { parsed, tool, rule, number: index + 1, diagnostics }.run();
    }
    limit(parsed, tool, diagnostics);
}

struct RuleCheck<'a, 's, 'm> {
    parsed: &'a ParsedTool<'s>,
    tool: &'a ToolDeclaration,
    rule: &'a RuleDeclaration,
    /// The number of the rule, from 1.
    number: usize,
    diagnostics: &'m mut Diagnostics,
}

impl RuleCheck<'_, '_, '_> {
    fn run(mut self) {
        let rule = self.rule;
        let start = rule.then.as_ref().map_or_else(|| self.tool.name.span(), serde_spanned::Spanned::span);
        match &rule.when {
            None if rule.lacks("when", true) => {
                self.note(start.clone(), "a rule needs when, such as when = \"param.amount > 100\"");
            }
            Some(when) if when.get_ref().trim().is_empty() => {
                self.note(when.span(), "when is empty: use true for every call")
            }
            _ => {}
        }
        if rule.lacks("then", rule.then.is_none()) {
            let at = rule.when.as_ref().map_or(start, serde_spanned::Spanned::span);
            self.note(at, "a rule needs then = \"confirm\", \"approve\" or \"deny\"");
        }
        if let Some(then) = &rule.then {
            let tier = self.tool.tier.as_ref().map_or(Tier::Auto, |tier| *tier.get_ref());
            if then.get_ref().tier().is_some_and(|required| required <= tier) {
                let message = format!(
                    "every call of a tool of tier {} needs that agreement already: then = \"{}\" changes nothing",
                    tier.as_str(),
                    then.get_ref().as_str()
                );
                self.note(then.span(), &message);
            }
        }
        if let Some(message) = &rule.message {
            let length = message.get_ref().trim().chars().count();
            if length == 0 || length > LONGEST_MESSAGE {
                self.note(message.span(), &format!("message has 1 to {LONGEST_MESSAGE} characters"));
            }
        }
    }

    fn note(&mut self, at: std::ops::Range<usize>, message: &str) {
        self.diagnostics.0.push(self.parsed.diagnostic(at, format!("rule {}: {message}", self.number)));
    }
}

fn limit(parsed: &ParsedTool<'_>, tool: &ToolDeclaration, diagnostics: &mut Diagnostics) {
    let Some(limit) = &tool.limit else { return };
    let mut note = |at, message: String| diagnostics.0.push(parsed.diagnostic(at, message));
    if tool.is(false) {
        note(limit.span(), "the configuration limits reads: limit is for writes".to_owned());
    }
    let (at, limit) = (limit.span(), limit.get_ref());
    if limit.calls.is_none() && limit.rows.is_none() {
        note(at, "limit: say calls, rows or both, such as calls = 50".to_owned());
    }
    for (key, number, most) in [("calls", &limit.calls, MAX_CALLS), ("rows", &limit.rows, MAX_ROWS)] {
        if let Some(number) = number.as_ref().filter(|number| !(1..=most).contains(number.get_ref())) {
            note(number.span(), format!("limit: {key} is 1 to {most}"));
        }
    }
    let tier = tool.tier.as_ref().filter(|tier| *tier.get_ref() > Tier::Auto);
    if let (Some(rows), Some(tier)) = (&limit.rows, tier) {
        let tier = tier.get_ref().as_str();
        note(
            rows.span(),
            format!("limit: rows refuses no write that was agreed to, and every write of tier {tier} is"),
        );
    }
    if seconds(limit.per.get_ref()).is_none() {
        note(limit.per.span(), "limit: per is a period of at most 24h, such as \"30s\", \"15m\" or \"1h\"".to_owned());
    }
}
