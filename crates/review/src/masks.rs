//! Applies masks to what is shown of writes: results, records, previews, conflicts and proposals.
//!
//! Rows are shown by column names, without their tables. So a value is masked if any masked column has the name of
//! its column. All other texts of the answer that contain the value are replaced.

use ledger::audit::{PlannedWrite, Record, RecordLine};
use ledger::proposals::{Preview, Proposal, ProposalCheck};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use types::{
    CellMasks, Conflict, Effects, ErrorCode, MESSAGE_HIDDEN, Masks, REDACTED, Redaction, Rollback, may_quote_values,
};

/// The keys of objects that contain columns of rows, or parameters of a call.
const ROWS: [&str; 4] = ["params", "columns", "key", "undo_params"];

/// The keys of rows in text form.
const SUMMARIES: [&str; 2] = ["params_summary", RESULT_SUMMARY];

const RESULT_SUMMARY: &str = "result_summary";

/// The keys of the two values of a changed column.
const VALUES_OF_A_CHANGE: [&str; 4] = ["before", "after", "expected", "found"];

/// The key of the conflicts in the record of an undo.
const CONFLICTS: &str = "error_detail";

const MASKED_UNDO: &str = "The undo needs values that are masked for this caller: ask the operator to undo the write.";

/// The keys of results of a tool, which have its own names for columns.
const RESULTS: [&str; 6] = ["result", "cached_result", "before", "after", "before_image", "after_image"];

/// A part of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Other,
    /// A row, or a list of rows.
    Row,
    /// A row, or a list of rows, as the statements of the tool return it.
    Result,
}

/// The masks of a caller, by column name.
#[derive(Debug)]
pub struct RowMasks<'a> {
    cells: CellMasks<'a>,
    /// The tool whose results are shown.
    tool: Option<String>,
}

impl<'a> RowMasks<'a> {
    /// The masks of a caller; `None` if the caller may see every column.
    #[must_use]
    pub fn new(masks: Option<&'a Masks>) -> Self {
        Self { cells: CellMasks::new(masks), tool: None }
    }

    /// The masks for what is shown of a call of this tool.
    #[must_use]
    pub fn of_tool(self, tool: &str) -> Self {
        Self { tool: Some(tool.to_owned()), ..self }
    }

    /// The effects of a write with their rows masked.
    #[must_use]
    pub fn effects(&mut self, effects: Effects) -> Effects<Value> {
        effects.shown(&mut self.cells)
    }

    /// Masks the rows in a value. `is_result` says whether the value itself is the result of the tool.
    pub fn mask(&mut self, value: &mut Value, is_result: bool) {
        self.part(value, if is_result { Part::Result } else { Part::Other });
    }

    fn part(&mut self, value: &mut Value, part: Part) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.part(item, part)),
            Value::Object(fields) => self.fields(fields, part),
            _ => {}
        }
    }

    fn fields(&mut self, fields: &mut Map<String, Value>, part: Part) {
        if part == Part::Other {
            hide_error(fields);
            // A record has the name of its tool.
            if let Some(tool) = fields.get("tool_name").and_then(Value::as_str) {
                self.tool = Some(tool.to_owned());
            }
        }
        for (name, value) in fields {
            match part {
                Part::Row | Part::Result if self.cells.masks_column(name) => self.mask_value(name, value),
                Part::Row => self.part(value, part),
                Part::Result => self.result(name, value),
                Part::Other if SUMMARIES.contains(&name.as_str()) => {
                    if let Value::String(text) = value {
                        let part = if name == RESULT_SUMMARY { Part::Result } else { Part::Row };
                        *text = self.summary(std::mem::take(text), part);
                    }
                }
                Part::Other if name == CONFLICTS && value.is_array() => self.mask_conflicts(value),
                Part::Other if RESULTS.contains(&name.as_str()) => self.part(value, Part::Result),
                Part::Other if ROWS.contains(&name.as_str()) => self.part(value, Part::Row),
                Part::Other => self.part(value, part),
            }
        }
    }

    /// Masks a column of a result, or the rows of a result with several.
    fn result(&mut self, name: &str, value: &mut Value) {
        if let Some(tool) = &self.tool {
            *value = self.cells.result(tool, name, value.take());
        }
        self.part(value, Part::Result);
    }

    /// Masks the conflicts of a recorded undo. A value that cannot be parsed as conflicts is not shown.
    fn mask_conflicts(&mut self, detail: &mut Value) {
        *detail = match Vec::<Conflict>::deserialize(&*detail) {
            Ok(found) => found.into_iter().map(|one| json!(one.shown(&mut self.cells))).collect(),
            Err(_) => REDACTED.into(),
        };
    }

    /// Masks a row in the form of a JSON text, which may be cut.
    fn summary(&mut self, text: String, part: Part) -> String {
        match serde_json::from_str(&text) {
            Ok(mut row) => {
                self.part(&mut row, part);
                row.to_string()
            }
            Err(_) => REDACTED.to_owned(),
        }
    }

    fn mask_value(&mut self, column: &str, value: &mut Value) {
        match value {
            Value::Object(change)
                if !change.is_empty() && change.keys().all(|key| VALUES_OF_A_CHANGE.contains(&key.as_str())) =>
            {
                change.values_mut().for_each(|value| self.mask_value(column, value));
            }
            _ => *value = self.cells.value(column, value.take()),
        }
    }

    /// A proposal with its parameters, rows and other values masked. Texts about it must be made from the result.
    #[must_use]
    pub fn masked_proposal(masks: &'a Masks, mut proposal: Proposal) -> Proposal {
        let mut rows = Self::new(Some(masks)).of_tool(&proposal.tool_name);
        let check = proposal.check.take().map(|check| Self::check(masks, check, &proposal));
        let error_message = masked_error(proposal.error_code.as_deref(), proposal.error_message.take());
        let Proposal { mut params, preview, title, .. } = proposal;
        let given = params.clone();
        let Preview { mut result, mut before, mut after, effects, rollback, .. } = preview;
        rows.fields(&mut params, Part::Row);
        rows.mask(&mut result, true);
        for part in [&mut before, &mut after].into_iter().flatten() {
            rows.mask(part, true);
        }
        let effects = effects.map(|effects| effects.map(|column, value| rows.cells.value(column, value)));
        let rollback = rows.masked_rollback(rollback);
        let redaction = rows.redaction();
        let text = |text: String| if redaction.text(&text) == text { text } else { REDACTED.to_owned() };
        let kept = |part: Option<Value>| part.map(|part| redaction.value(&part));
        let params = redaction.params(&params);
        // A title may have values of parameters.
        let title = if params == given { title } else { proposal.tool_name.clone() };
        Proposal {
            params,
            title,
            preview: Preview {
                result: redaction.value(&result),
                before: kept(before),
                after: kept(after),
                effects: effects.map(|effects| effects.redacted(&redaction)),
                rollback,
                warnings: preview.warnings.into_iter().map(text).collect(),
                // A digest of few rows could be guessed.
                agreed_rows: None,
                further_rows: None,
                further_text: None,
                cut_texts: Vec::new(),
                labels: Vec::new(),
                ..preview
            },
            check: check.map(|check| ProposalCheck { difference: check.difference.map(text), ..check }),
            error_message,
            ..proposal
        }
    }

    /// The check of this proposal with the preview that it found masked.
    fn check(masks: &'a Masks, check: ProposalCheck, proposal: &Proposal) -> ProposalCheck {
        let masked = |preview| Self::masked_proposal(masks, Proposal { preview, ..proposal.clone() }).preview;
        // Without a preview the check found the error of the write.
        let difference = match (&check.found, check.difference) {
            (None, Some(_)) => Some(MESSAGE_HIDDEN.to_owned()),
            (_, difference) => difference,
        };
        ProposalCheck { found: check.found.map(masked), difference, ..check }
    }

    /// A record with its rows masked.
    #[must_use]
    pub fn record(masks: &'a Masks, record: Record) -> Record {
        let mut rows = Self::new(Some(masks)).of_tool(&record.tool_name);
        let mut masked = |value: Option<Value>, part: Part| {
            value.map(|mut value| {
                rows.part(&mut value, part);
                value
            })
        };
        let (params, result) = (masked(record.params, Part::Row), masked(record.result, Part::Result));
        let images = [record.before_image, record.after_image].map(|image| masked(image, Part::Result));
        let [before_image, after_image] = images;
        let (rollback_action, error_detail) = (masked(record.rollback_action, Part::Other), record.error_detail);
        let error_detail = error_detail.map(|mut detail| {
            match detail.is_array() {
                true => rows.mask_conflicts(&mut detail),
                false => rows.mask(&mut detail, false),
            }
            detail
        });
        let effects = record.effects.map(|effects| effects.map(|column, value| rows.cells.value(column, value)));
        let redaction = rows.redaction();
        let kept = |part: Option<Value>| part.map(|part| redaction.value(&part));
        let text = |text: Option<String>| text.map(|text| redaction.whole_text(text));
        Record {
            tool_name: redaction.whole_text(record.tool_name),
            account_id: redaction.whole_text(record.account_id),
            actor: text(record.actor),
            idempotency_key: text(record.idempotency_key),
            params: kept(params),
            result: kept(result),
            before_image: kept(before_image),
            after_image: kept(after_image),
            rollback_action: kept(rollback_action),
            error_message: text(record.error_message),
            error_detail: kept(error_detail),
            approval: kept(record.approval),
            effects: effects.map(|effects| effects.redacted(&redaction)),
            undo_obstacles: record
                .undo_obstacles
                .map(|obstacles| obstacles.into_iter().map(|obstacle| obstacle.redacted(&redaction)).collect()),
            ..record
        }
    }

    /// A line of a list of records with its rows masked.
    #[must_use]
    pub fn record_line(masks: &'a Masks, line: RecordLine) -> RecordLine {
        let mut rows = Self::new(Some(masks)).of_tool(&line.tool_name);
        let params_summary = line.params_summary.map(|text| rows.summary(text, Part::Row));
        let result_summary = line.result_summary.map(|text| rows.summary(text, Part::Result));
        let redaction = rows.redaction();
        let text = |text: Option<String>| text.map(|text| redaction.whole_text(text));
        RecordLine {
            tool_name: redaction.whole_text(line.tool_name),
            account_id: redaction.whole_text(line.account_id),
            actor: text(line.actor),
            params_summary: text(params_summary),
            result_summary: text(result_summary),
            error_message: text(line.error_message),
            approval: line.approval.map(|approval| redaction.value(&approval)),
            ..line
        }
    }

    /// A write of an undo plan with its rows masked.
    #[must_use]
    pub fn planned_write(masks: &'a Masks, write: PlannedWrite) -> PlannedWrite {
        let mut rows = Self::new(Some(masks));
        let params_summary = write.params_summary.map(|text| rows.summary(text, Part::Row));
        let redaction = rows.redaction();
        let text = |text: Option<String>| text.map(|text| redaction.whole_text(text));
        PlannedWrite {
            tool_name: redaction.whole_text(write.tool_name),
            account_id: redaction.whole_text(write.account_id),
            actor: text(write.actor),
            params_summary: text(params_summary),
            ..write
        }
    }

    /// A redaction that replaces the masked texts wherever else they occur.
    #[must_use]
    pub fn redaction(&self) -> Redaction {
        self.cells.redaction()
    }

    /// The advice for an undo, without calls whose arguments would be masked: such a call would write the masks into
    /// the rows.
    #[must_use]
    pub fn masked_rollback(&mut self, rollback: Rollback) -> Rollback {
        let calls = rollback.undo_params.iter().chain(rollback.undo_calls.iter().map(|call| &call.params));
        let mut is_masked = false;
        for params in calls {
            let mut masked = Value::Object(params.clone());
            self.part(&mut masked, Part::Row);
            is_masked |= masked != Value::Object(params.clone());
        }
        if is_masked {
            Rollback {
                undo_tool: None,
                undo_params: None,
                undo_calls: Vec::new(),
                note: MASKED_UNDO.to_owned(),
                ..rollback
            }
        } else {
            rollback
        }
    }
}

/// Hides the error of a record, if its message may quote values.
pub fn hide_error(record: &mut Map<String, Value>) {
    let text = |name: &str| record.get(name).and_then(Value::as_str);
    if may_quote_values(text("error_sqlstate"), text("error_message").unwrap_or_default()) {
        record.insert("error_message".to_owned(), MESSAGE_HIDDEN.into());
    }
}

/// The error of a proposal for a caller with masks. Its SQLSTATE is in the record of the attempt, so no message of an
/// error of a statement is shown.
#[must_use]
pub fn masked_error(code: Option<&str>, message: Option<String>) -> Option<String> {
    let is_of_statement = [ErrorCode::SqlError, ErrorCode::InvalidParams].iter().any(|of| code == Some(of.as_str()));
    message.map(|message| if is_of_statement { MESSAGE_HIDDEN.to_owned() } else { message })
}

#[cfg(test)]
mod tests {
    use types::{Mask, MaskKey, MaskedColumn, Secret, shown_conflicts};

    use super::*;

    fn masks() -> Masks {
        let of = |column: &str, mask| MaskedColumn {
            schema: "shop".to_owned(),
            table: "customers".to_owned(),
            column: column.to_owned(),
            mask,
        };
        Masks::new(vec![of("email", Mask::Partial), of("age", Mask::Null)], MaskKey::new(Secret::new("key")))
    }

    fn answer(data: &Value, is_row: bool) -> Value {
        let masks = masks();
        let (mut rows, mut data) = (RowMasks::new(Some(&masks)), data.clone());
        rows.mask(&mut data, is_row);
        rows.redaction().value(&data)
    }

    #[test]
    fn a_column_that_is_named_by_value_is_masked_in_a_recorded_conflict() {
        // S-1
        let record = |email: [&str; 3]| {
            let [to_restore, left, now] = email;
            json!({"error_detail": [{"code": "changed_since", "table": "shop.customers", "key": {"id": 1}, "columns": [
                {"name": "email", "to_restore": to_restore, "left": left, "now": now},
                {"name": "note", "to_restore": "a", "now": "b"},
            ]}]})
        };
        let masked = record(["a***@x.org", "b***@x.org", "c***@x.org"]);
        assert_eq!(answer(&record(["a@x.org", "b@x.org", "c@x.org"]), false), masked);
        let unknown = json!({"error_detail": [{"code": "of tomorrow", "email": "a@x.org"}]});
        assert_eq!(answer(&unknown, false), json!({"error_detail": "[redacted]"}));
        // Nothing is masked: an empty list is not a masked value.
        assert_eq!(answer(&json!({"added": [], "left_out": {}}), false), json!({"added": [], "left_out": {}}));
    }

    #[test]
    fn columns_are_masked_in_rows_and_their_texts_elsewhere() {
        let record = json!({
            "age": "of the record, not of a row", "description": "changes alice@x.org to bob@x.org",
            "params": {"email": "bob@x.org", "id": 1},
            "before_image": [{"id": 1, "email": "alice@x.org", "age": 30}],
            "effects": {"count": 1, "rows": [{"table": "shop.customers", "key": {"id": 1}, "change": "update",
                "columns": {"email": {"before": "alice@x.org", "after": "bob@x.org"}}}]},
        });
        let expected = json!({
            "age": "of the record, not of a row", "description": "[redacted]",
            "params": {"email": "b***@x.org", "id": 1},
            "before_image": [{"id": 1, "email": "a***@x.org", "age": null}],
            "effects": {"count": 1, "rows": [{"table": "shop.customers", "key": {"id": 1}, "change": "update",
                "columns": {"email": {"before": "a***@x.org", "after": "b***@x.org"}}}]},
        });
        assert_eq!(answer(&record, false), expected);
    }

    #[test]
    fn the_result_of_a_tool_is_a_row_or_a_list_of_rows() {
        assert_eq!(answer(&json!({"email": "a@x.org", "age": 3}), true), json!({"email": "a***@x.org", "age": null}));
        let page = json!({"rows": [{"email": "a@x.org"}], "row_count": 1});
        assert_eq!(answer(&page, true), json!({"rows": [{"email": "a***@x.org"}], "row_count": 1}));
    }

    #[test]
    fn no_undo_is_offered_whose_arguments_would_be_masked() {
        let offered = |params: Value| {
            let params = params.as_object().unwrap().clone();
            let call = types::UndoCall { tool: "set_email".to_owned(), params };
            let mut rows = masks();
            rows.columns.truncate(1);
            RowMasks::new(Some(&rows)).masked_rollback(Rollback::reversible(vec![call], "Call set_email.")).undo_tool
        };
        assert_eq!(offered(json!({"id": 1, "email": "a@x.org"})), None);
        assert_eq!(offered(json!({"id": 1})).as_deref(), Some("set_email"));
    }

    #[test]
    fn a_caller_with_masks_gets_the_same_of_every_kind_of_conflict_and_change() {
        let conflicts: Vec<Conflict> =
            serde_json::from_str(include_str!("../../../tests/golden/review/conflicts.json")).unwrap();
        let effects: Effects = serde_json::from_str(include_str!("../../../tests/golden/review/effects.json")).unwrap();
        let masks = masks();
        let mut cells = CellMasks::new(Some(&masks));
        let effects = effects.shown(&mut cells).redacted(&cells.redaction());
        let said = json!({"conflicts": shown_conflicts(Some(&masks), conflicts), "effects": effects});
        let said = serde_json::to_string_pretty(&said).unwrap() + "\n";
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/review/masked.json"), &said)
                .unwrap();
        }
        assert_eq!(said, include_str!("../../../tests/golden/review/masked.json"));
    }
}
