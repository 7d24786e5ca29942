//! Rules and limits of a tool, as serde reads them.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_spanned::Spanned;
use types::{LimitScope, RuleAction, Tier};

use super::ToolDeclaration;

/// A rule: calls for which the condition holds need agreement, or are refused. The strictest rule that matches counts:
/// `deny`, then `approve`, then `confirm`, then the tier of the tool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleDeclaration {
    /// An SQL expression of type boolean over `param.x` (the parameters) and `principal.x` (`account_id`, `actor`), such as
    /// `param.amount > 100`. NULL counts as true. It reads no table and calls no volatile function.
    #[schemars(with = "String")]
    pub(crate) when: Option<Spanned<String>>,
    /// `confirm` (the caller's user must agree), `approve` (somebody else must agree) or `deny` (the call is refused).
    #[schemars(with = "RuleAction")]
    pub(crate) then: Option<Spanned<RuleAction>>,
    /// Why, for agents and reviewers; at most 200 characters.
    #[schemars(with = "Option<String>", length(min = 1, max = 200))]
    pub(crate) message: Option<Spanned<String>>,
    /// The keys whose values were refused.
    #[serde(skip)]
    pub(crate) refused: Vec<String>,
}

impl RuleDeclaration {
    /// Whether the file does not have this key, or it is empty, and that is all that is wrong with it.
    pub(crate) fn lacks(&self, key: &str, empty: bool) -> bool {
        empty && !self.refused.iter().any(|refused| refused == key)
    }
}

/// The most calls in a period, the most rows that they change, or both. A call that is answered as a duplicate or refused
/// does not count.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitDeclaration {
    /// How many calls: 1 to 10000.
    #[schemars(with = "Option<u32>", range(min = 1, max = 10_000))]
    pub(crate) calls: Option<Spanned<i64>>,
    /// How many rows: 1 to 1000000, counted as `rows_affected` of the answers.
    #[schemars(with = "Option<u32>", range(min = 1, max = 1_000_000))]
    pub(crate) rows: Option<Spanned<i64>>,
    /// The period before each call: a whole number and `s`, `m` or `h`, such as `15m`; at most `24h`.
    #[schemars(with = "String", regex(pattern = "^[1-9][0-9]{0,4}[smh]$"))]
    pub(crate) per: Spanned<String>,
    /// Whose calls are counted together: `account` (the default) or `actor` (of an account).
    #[serde(default)]
    pub(crate) by: LimitScope,
}

impl ToolDeclaration {
    /// Whether somebody must agree before it writes, by its tier or by a rule. The place where it says so.
    pub(crate) fn needs_agreement(&self) -> Option<std::ops::Range<usize>> {
        let tier = self.tier.as_ref().filter(|tier| *tier.get_ref() > Tier::Auto).map(Spanned::span);
        let mut rules = self.rule.iter().filter_map(|rule| rule.then.as_ref());
        let rule = || rules.find(|then| then.get_ref().tier().is_some()).map(Spanned::span);
        tier.or_else(rule).filter(|_| self.is(true))
    }
}
