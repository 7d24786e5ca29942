//! What a person has to know about a write before they agree to it. It is composed once. The terminal, the console, the
//! question of a client and the description for an agent show it.

use ledger::proposals::Preview;

use crate::risk::{Risk, RiskLevel};
use crate::sentences;
use crate::summary::{RowOrigin, Summary};

#[derive(Debug, Clone, PartialEq)]
pub struct Sheet {
    /// How many rows the write would change, in a sentence.
    pub count: String,
    /// The rows by table, and what their columns become.
    pub summary: Summary,
    /// The worst first.
    pub risks: Vec<Risk>,
    /// Whether and how the write could be undone, in a sentence.
    pub undo: String,
}

impl Sheet {
    /// The sheet of a preview that is shown as it is.
    #[must_use]
    pub fn of_preview(preview: &Preview) -> Self {
        Self::shown(preview, preview)
    }

    /// The sheet of a preview for a reader who sees `shown` of it.
    #[must_use]
    pub fn shown(whole: &Preview, preview: &Preview) -> Self {
        let summary = Summary::shown(whole, preview);
        let listed =
            summary.groups.iter().filter(|group| group.origin == RowOrigin::Statement).map(|group| group.count);
        let count = match (summary.count_sentence(), preview.rows_affected) {
            (_, None) => "It was not tried, so how many rows it would change is not known.".to_owned(),
            // Rows of tables that are not tracked, and rows that are already as they should be.
            (Some(count), Some(rows)) if rows > listed.sum() => {
                format!("{count} Its statements touch {}.", sentences::rows(rows))
            }
            (Some(count), Some(_)) => count,
            (None, Some(rows)) => format!("It would touch {}.", sentences::rows(rows)),
        };
        let undo = sentences::undo_of_preview(&preview.rollback, preview.rows_affected.is_some());
        Self { count, risks: Risk::of_preview(preview, &summary), undo, summary }
    }

    /// How many rows the write would change, in one or two sentences that name each table.
    #[must_use]
    pub fn counts(&self) -> Vec<String> {
        let further = self.summary.further().map(|rows| sentences::further(&rows));
        std::iter::once(self.count.clone()).chain(further).collect()
    }

    /// Whether a risk is so high that a person has to say that they have read it before they approve.
    #[must_use]
    pub fn has_high_risk(&self) -> bool {
        self.risks.iter().any(|risk| risk.level() == RiskLevel::High)
    }

    /// The dangers that neither the count nor the undo tells, in a sentence each.
    pub fn dangers(&self) -> impl Iterator<Item = String> {
        let is_told = |risk: &Risk| matches!(risk, Risk::Irreversible(_));
        self.risks.iter().filter(move |risk| risk.level() == RiskLevel::High && !is_told(risk)).map(Risk::sentence)
    }

    /// The sheet in one line, without rows.
    #[must_use]
    pub fn line(&self) -> String {
        let parts: Vec<String> = [self.count.clone(), self.undo.clone()].into_iter().chain(self.dangers()).collect();
        parts.join(" ")
    }
}
