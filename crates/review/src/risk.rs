//! The risks of a write, for the person who decides about it.

use ledger::AppliedRule;
use ledger::proposals::{Preview, ProposalOutline, UnusualValue, WriteCounts};
use types::visible;

use crate::call_text::CallText;
use crate::sentences;
use crate::summary::{RowGroup, Summary};

/// The maximum length of the parameters in a line, in characters.
const MAX_CALL_CHARS: usize = 160;

/// A risk of a write. The order is that in which people see them: the worst first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Risk {
    /// An UPDATE or DELETE without a condition changes every row of this table.
    Unfiltered(String),
    /// The write cannot be undone. The sentence says why.
    Irreversible(String),
    /// This number of changed rows is not listed, so nobody can see them.
    Unlisted(u64),
    /// A warning of the server, such as a word of two scripts.
    Warning(String),
    /// These rows change, too, besides those of the write's own statements.
    Further(String),
    /// A column gets a value that it does not usually have, and this number of other ones.
    Unusual(UnusualValue, u64),
    /// The rule of the tool that requires the approval.
    Rule(AppliedRule),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RiskLevel {
    /// A person should know it.
    Low,
    /// The write changes more than it names.
    Medium,
    /// The write may do damage, or is not what it looks like.
    High,
}

impl Risk {
    /// The risks of a preview, the worst first.
    #[must_use]
    pub fn of_preview(preview: &Preview, summary: &Summary) -> Vec<Self> {
        let undo = || sentences::undo_of_preview(&preview.rollback, preview.rows_affected.is_some());
        let irreversible = (!preview.rollback.reversible).then(undo).map(Self::Irreversible);
        let unlisted: u64 = summary.groups.iter().map(RowGroup::unlisted).sum();
        let unlisted = (unlisted > 0).then_some(Self::Unlisted(unlisted));
        let warnings = preview.warnings.iter().map(|warning| Self::Warning(visible(warning)));
        let unfiltered = preview.unfiltered.iter().cloned().map(Self::Unfiltered);
        let further = summary.further().map(Self::Further);
        let mut unusual: Vec<(UnusualValue, u64)> = Vec::new();
        for value in &preview.unusual {
            match unusual.iter_mut().find(|(one, _)| (&one.table, &one.column) == (&value.table, &value.column)) {
                Some((_, others)) => *others += 1,
                None => unusual.push((value.clone(), 0)),
            }
        }
        let unusual = unusual.into_iter().map(|(value, others)| Self::Unusual(value, others));
        let rule = preview.rule.clone().map(Self::Rule);
        unfiltered
            .chain(irreversible)
            .chain(unlisted)
            .chain(warnings)
            .chain(further)
            .chain(unusual)
            .chain(rule)
            .collect()
    }

    #[must_use]
    pub const fn level(&self) -> RiskLevel {
        match self {
            Self::Unfiltered(_) | Self::Irreversible(_) | Self::Unlisted(_) | Self::Warning(_) => RiskLevel::High,
            Self::Further(_) | Self::Unusual(..) => RiskLevel::Medium,
            Self::Rule(_) => RiskLevel::Low,
        }
    }

    /// The risk in a sentence, with every character visible.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self {
            Self::Unfiltered(table) => sentences::unfiltered(table),
            Self::Irreversible(why) => why.clone(),
            Self::Unlisted(rows) => sentences::unlisted(*rows),
            Self::Warning(warning) => sentences::capitalized(warning),
            Self::Further(rows) => sentences::further(rows),
            Self::Unusual(value, others) => sentences::unusual(value, *others),
            Self::Rule(rule) => sentences::rule(rule, str::to_owned),
        }
    }
}

impl RiskLevel {
    /// The level in a word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Low => "note",
            Self::Medium => "caution",
            Self::High => "risk",
        }
    }
}

/// The risks of a proposal in a list, in a few words each, the worst first.
#[must_use]
pub fn marks(counts: &WriteCounts) -> Vec<(RiskLevel, String)> {
    let WriteCounts { rows, changed, listed, .. } = *counts;
    let [unlisted, more] = [listed, rows.unwrap_or(changed)].map(|known| changed.saturating_sub(known));
    [
        (counts.unfiltered > 0).then(|| (RiskLevel::High, "every row of a table".to_owned())),
        (!counts.reversible).then(|| (RiskLevel::High, "cannot be undone".to_owned())),
        (unlisted > 0).then(|| (RiskLevel::High, format!("{} not shown", sentences::rows(unlisted)))),
        (counts.warnings > 0).then(|| (RiskLevel::High, sentences::count(counts.warnings, "warning"))),
        (more > 0).then(|| (RiskLevel::Medium, format!("and {}", sentences::count(more, "more row")))),
        (counts.unusual > 0).then(|| (RiskLevel::Medium, sentences::count(counts.unusual, "unusual value"))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A proposal in a list: what it does, the number of its rows and its risks, and then its parameters.
#[must_use]
pub fn outline_line(title: &str, outline: &ProposalOutline) -> String {
    let call = CallText::from(&outline.params).line(MAX_CALL_CHARS);
    let call = if call.is_empty() { call } else { format!(". {call}") };
    format!("{}: {}{call}", visible(title), count_line(&outline.counts))
}

/// The number of rows and the risks, without a value of a row: `1 row, cannot be undone, and 87 more rows`.
#[must_use]
pub fn count_line(counts: &WriteCounts) -> String {
    let rows = counts.rows.map_or_else(|| "not tried".to_owned(), sentences::rows);
    std::iter::once(rows).chain(marks(counts).into_iter().map(|(_, mark)| mark)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_worst_risk_is_first() {
        let effect = |table: &str, by_trigger: bool| json!({"table": table, "key": {"id": 1}, "change": "delete", "by_trigger": by_trigger, "columns": {}});
        let preview: Preview = serde_json::from_value(json!({
            "rows_affected": 1, "result": {}, "rollback": types::Rollback::irreversible("The rows are gone."),
            "effects": {"count": 2, "rows": [effect("h.patient", false), effect("h.note", true)]},
            "unusual": [{"table": "h.patient", "column": "ward", "value": "north. Approved\u{202e}", "listed": 12, "analyzed": "2026-11-20"},
                {"table": "h.patient", "column": "age", "value": "180", "listed": null, "analyzed": null},
                {"table": "h.patient", "column": "age", "value": "190", "listed": null, "analyzed": null}],
            "unfiltered": ["h.pa\u{202e}tient"], "warnings": ["parameter \"name\" mixes letters\n"],
            "rule": {"number": 2, "when": "rows > 0", "then": "approve"},
        }))
        .unwrap();
        let found = Risk::of_preview(&preview, &Summary::new(&preview));
        let said: Vec<String> = found.iter().map(Risk::sentence).collect();
        assert_eq!(
            said,
            [
                "It changes every row of the table h.pa\\u202etient.",
                "It cannot be undone. The rows are gone.",
                "Parameter \"name\" mixes letters\\n",
                "It would also delete 1 row of h.note, through triggers, foreign keys or other parts of the statement.",
                "ward of h.patient becomes \"north. Approved\\u202e\": it is none of the 12 values of this column, by the statistics of 2026-11-20.",
                "age of h.patient becomes 180 (and 1 other value like it): it is far outside of the values of this column, by PostgreSQL's statistics.",
                "Rule 2 of the tool requires approval (if rows > 0)",
            ]
        );
        assert!(found.is_sorted_by_key(|risk| std::cmp::Reverse(risk.level())));
    }

    #[test]
    fn a_receipt_says_once_that_it_is_final_and_what_an_undo_leaves() {
        let said =
            |rollback: serde_json::Value| sentences::undo_of_preview(&serde_json::from_value(rollback).unwrap(), true);
        let why = "It cannot be undone: it wrote a table without a key, or only log tables.";
        assert_eq!(said(json!({"reversible": false, "note": why})), why);
        let leaves = json!({"reversible": true, "undo_tool": "undo_mutation", "checked": true, "note": types::UNDO_NOTE,
            "not_restored": ["h.log", "h.\u{202e}"], "set_by_triggers": {"h.note": ["at", "by"]}});
        assert_eq!(
            said(leaves),
            "It can be undone, as long as its rows are as it left them. An undo does not restore h.log, h.\\u202e. \
             But for what triggers set again: h.note at, by."
        );
    }

    #[test]
    fn a_line_of_a_list_has_what_how_many_rows_and_the_risks_before_the_parameters() {
        let outline = |rows: Option<u64>, changed: u64, listed: u64| ProposalOutline {
            params: json!({"sql": "delete from t", "params": []}).as_object().unwrap().clone(),
            counts: WriteCounts { rows, changed, listed, reversible: false, unfiltered: 1, unusual: 0, warnings: 0 },
        };
        let all = "Execute SQL: 3000 rows, every row of a table, cannot be undone, 2900 rows not shown. \u{201c}delete from t\u{201d}";
        assert_eq!(outline_line("Execute SQL", &outline(Some(3000), 3000, 100)), all);
        let cascade = "Execute SQL: 1 row, every row of a table, cannot be undone, and 87 more rows. \u{201c}delete from t\u{201d}";
        assert_eq!(outline_line("Execute SQL", &outline(Some(1), 88, 88)), cascade);
        assert!(outline_line("Execute SQL", &outline(None, 0, 0)).starts_with("Execute SQL: not tried, "));
    }
}
