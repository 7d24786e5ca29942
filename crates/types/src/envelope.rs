//! The envelope: the shape of every tool's answer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::{CellMasks, Conflicts, CorrelationId, DatabaseName, ErrorCode, Redaction, with_digits_as_text};

/// The version of the envelope and of the built-in tools, sent as `meta.tool_version`.
pub const TOOL_VERSION: &str = "1.0";

/// The answer of a tool: data, or an error that tells the model how to continue. It is serialized once, in the
/// transport.
#[derive(Debug, Clone)]
pub enum Envelope {
    /// The tool succeeded, or an identical call had succeeded before.
    Success {
        /// The tool's result, always a JSON object. It is kept as text, because a parsed tree of a large answer takes
        /// several times the memory.
        data: Box<RawValue>,
        /// The version, the elapsed time and, for a write, its correlation id and its undo.
        meta: Meta,
    },
    /// The tool failed. Nothing was written unless the message says so.
    Failure {
        /// The error, and what the agent should do.
        error: Failure,
        /// The version, the elapsed time and, if the call reached the gate, its correlation id.
        meta: Meta,
    },
}

/// `meta` of every envelope. Absent fields are omitted, never null.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Meta {
    /// [`TOOL_VERSION`], or the version of the manifest that declares the tool.
    pub tool_version: String,
    /// Wall-clock time from the call to the answer, in whole milliseconds.
    pub elapsed_ms: u64,
    /// The database that answered, and what it is used for, where the server has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<DatabaseName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// How far behind its primary the standby may have been that answered; only for reads from a standby.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standby: Option<StandbyAge>,
    /// The id of this attempt's record; only for writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<CorrelationId>,
    /// The number of rows that the write changed; successful writes only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_affected: Option<u64>,
    /// How to undo the write; successful writes only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollback: Option<Rollback>,
}

impl Meta {
    /// The `meta` of an answer that is not a write.
    #[must_use]
    pub fn new(tool_version: impl Into<String>, elapsed_ms: u64) -> Self {
        Self {
            tool_version: tool_version.into(),
            elapsed_ms,
            database: None,
            environment: None,
            standby: None,
            correlation_id: None,
            rows_affected: None,
            rollback: None,
        }
    }
}

/// `meta.standby`: what a standby that answered has received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StandbyAge {
    /// The time since the newest commit that it shows, by the clocks of both servers. It is at most that far behind,
    /// and less if nothing was committed since. Absent if it has replayed no commit since it was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind_ms: Option<u64>,
}

/// `meta.rollback`: how to undo the write. The server itself never calls these tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rollback {
    /// Whether a tool of this server undoes the write.
    pub reversible: bool,
    /// The tool to call first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo_tool: Option<String>,
    /// The arguments of that call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo_params: Option<Map<String, Value>>,
    /// All calls in order, the undo of the last change first. Only present if one call is not enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undo_calls: Vec<UndoCall>,
    /// Whether an undo is refused if the rows differ from what the write left, which requires that its tables are
    /// tracked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<bool>,
    /// The code of the conflict that prevents the undo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The tables with changed rows that no undo restores, because the table is not tracked or is a log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_restored: Vec<String>,
    /// By table, the columns that triggers set during the write, and set again when it is undone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set_by_triggers: BTreeMap<String, Vec<String>>,
    /// The same information as a sentence for people.
    pub note: String,
}

/// The tool that undoes a write by its recorded effects.
pub const UNDO_TOOL: &str = "undo_mutation";

/// The note of a receipt by which [`UNDO_TOOL`] undoes the write, for agents.
pub const UNDO_NOTE: &str = "Call undo_mutation to take it back, as long as its rows are as it left them.";

impl Rollback {
    /// A write that no tool of this server undoes. `why` is the operator's sentence from the manifest.
    #[must_use]
    pub fn irreversible(why: impl Into<String>) -> Self {
        Self { reversible: false, ..Self::reversible(Vec::new(), why) }
    }

    /// A write that [`UNDO_TOOL`] undoes by its recorded effects.
    #[must_use]
    pub fn by_effects() -> Self {
        let call = UndoCall { tool: UNDO_TOOL.to_owned(), params: Map::new() };
        // A claim: the SQL function `receipt` (48_receipts.sql) holds it against what the write did.
        Self { checked: Some(true), ..Self::reversible(vec![call], UNDO_NOTE) }
    }

    /// Binds the calls to this write: [`UNDO_TOOL`] takes the correlation id as an argument, other tools take it as
    /// part of their idempotency key. If there are several calls, each key ends with the number of the call.
    #[must_use]
    pub fn of_write(mut self, correlation_id: &str) -> Self {
        let name =
            |params: &mut Map<String, Value>, name: &str, value: String| params.insert(name.to_owned(), value.into());
        for (n, call) in self.undo_calls.iter_mut().enumerate() {
            name(&mut call.params, "idempotency_key", format!("undo:{correlation_id}/{}", n + 1));
        }
        match (self.undo_params.as_mut(), self.undo_calls.first(), self.undo_tool.as_deref()) {
            (Some(params), Some(first), _) => *params = first.params.clone(),
            (Some(params), None, Some(UNDO_TOOL)) => {
                name(params, "correlation_id", correlation_id.to_owned());
            }
            (Some(params), None, _) => {
                name(params, "idempotency_key", format!("undo:{correlation_id}"));
            }
            (None, ..) => {}
        }
        self
    }

    /// A write that these calls undo, in this order. Without calls there is nothing to undo.
    #[must_use]
    pub fn reversible(calls: Vec<UndoCall>, note: impl Into<String>) -> Self {
        let first = calls.first().cloned();
        let undo_calls = if calls.len() > 1 { calls } else { Vec::new() };
        let (undo_tool, undo_params) = first.map(|call| (call.tool, call.params)).unzip();
        Self {
            reversible: true,
            undo_tool,
            undo_params,
            undo_calls,
            checked: None,
            reason: None,
            not_restored: Vec::new(),
            set_by_triggers: BTreeMap::new(),
            note: note.into(),
        }
    }

    /// The calls with large numbers as text, so that a client which reads numbers as doubles can send them.
    #[must_use]
    pub fn for_clients(self) -> Self {
        let safe = |params: Map<String, Value>| -> Map<String, Value> {
            params.into_iter().map(|(name, value)| (name, with_digits_as_text(value))).collect()
        };
        let undo_calls = self.undo_calls.into_iter();
        let undo_calls = undo_calls.map(|call| UndoCall { params: safe(call.params), ..call }).collect();
        Self { undo_params: self.undo_params.map(safe), undo_calls, ..self }
    }

    /// The receipt for a caller who has no tool `missing`, which the undo needs.
    #[must_use]
    pub fn without_calls(self, missing: &str, correlation_id: &CorrelationId) -> Self {
        let note = if missing == UNDO_TOOL {
            let found = self.note.strip_prefix(UNDO_NOTE).unwrap_or_default();
            format!(
                "This profile has no {UNDO_TOOL}. A person can take the write back with `countersign undo \
                 {correlation_id}`, as long as its rows are as it left them.{found}"
            )
        } else {
            format!("This profile has no {missing}, which the undo of the write needs. With it: {}", self.note)
        };
        Self { undo_tool: None, undo_params: None, undo_calls: Vec::new(), note, ..self }
    }

    /// Replaces this advice by what the ledger found when it compared the advice with the effects of the write.
    /// `None` means that nothing was compared. The calls stay as they are, because the ledger's copy lacks sensitive
    /// values.
    #[must_use]
    pub fn with_ledger_findings(self, found: Option<Self>) -> Self {
        match found {
            Some(found) if found.reversible => {
                Self { undo_tool: self.undo_tool, undo_params: self.undo_params, undo_calls: self.undo_calls, ..found }
            }
            Some(found) => found,
            None => Self { checked: Some(false), ..self },
        }
    }
}

/// One call that undoes (part of) a write.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UndoCall {
    /// A write tool of the same server.
    pub tool: String,
    /// The arguments, ready to send.
    pub params: Map<String, Value>,
}

/// The failure of a call, for the agent. What only the operator may know is in the server's log.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Failure {
    pub code: ErrorCode,
    /// What was wrong and what to do, for the model. Contains no secret.
    pub message: String,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// The SQLSTATE, if PostgreSQL reported the error (PostgreSQL manual, appendix A).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sqlstate: Option<String>,
    /// PostgreSQL's DETAIL, or else the line of the query at `position` with a caret below the place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// PostgreSQL's HINT, or a hint of countersign.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The position in the query, in characters, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u32>,
    /// The rows that prevent an undo.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflicts: Option<Box<Conflicts>>,
}

/// The message of an error that may quote masked values.
pub const MESSAGE_HIDDEN: &str =
    "the database refused it, and its message is not shown, since it may have values that are masked for the caller";

/// Whether the message of an error of PostgreSQL may quote values of rows: one that a function or trigger raised (class
/// P0), or a data exception (class 22) that quotes something.
#[must_use]
pub fn may_quote_values(sqlstate: Option<&str>, message: &str) -> bool {
    match sqlstate.and_then(|sqlstate| sqlstate.get(..2)) {
        Some("P0") => true,
        Some("22") => message.contains('"'),
        _ => false,
    }
}

impl Failure {
    /// A failure whose `retryable` is the default of the code.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            retryable: code.retryable(),
            sqlstate: None,
            detail: None,
            hint: None,
            position: None,
            conflicts: None,
        }
    }

    /// Replaces sensitive values.
    #[must_use]
    pub fn redacted(self, redaction: &Redaction) -> Self {
        if redaction.is_empty() {
            return self;
        }
        let text = |text: Option<String>| text.map(|text| redaction.text(&text));
        let conflicts = self.conflicts.map(|conflicts| Box::new(conflicts.redacted(redaction)));
        let message = redaction.text(&self.message);
        Self { message, detail: text(self.detail), hint: text(self.hint), conflicts, ..self }
    }

    /// The failure with the viewer's masks applied to its conflicts. A viewer with masks gets no message that may quote
    /// values.
    #[must_use]
    pub fn shown(self, mut masks: CellMasks<'_>) -> Self {
        let conflicts = self.conflicts.map(|conflicts| Box::new(conflicts.shown(&mut masks)));
        let mut shown = Self { conflicts, ..self };
        if masks.has_any() && may_quote_values(shown.sqlstate.as_deref(), &shown.message) {
            shown = Self { message: MESSAGE_HIDDEN.to_owned(), hint: None, detail: None, ..shown };
        }
        shown.redacted(&masks.redaction())
    }

    /// Sets the hint; an earlier one is lost.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl Envelope {
    /// Whether `success` is true.
    #[must_use]
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Success { .. })
    }

    /// The envelope as JSON text. The data may be large, so the text is moved and not copied.
    pub fn into_json(self) -> serde_json::Result<String> {
        let (beginning, mut json, meta) = match self {
            Self::Success { data, meta } => (r#"{"success":true,"data":"#, String::from(Box::<str>::from(data)), meta),
            Self::Failure { error, meta } => (r#"{"success":false,"error":"#, serde_json::to_string(&error)?, meta),
        };
        json.insert_str(0, beginning);
        json.push_str(r#","meta":"#);
        json.push_str(&serde_json::to_string(&meta)?);
        json.push('}');
        Ok(json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_answers_without_the_keys_of_a_write() {
        let data = RawValue::from_string(r#"{"n":1}"#.to_owned()).unwrap();
        let envelope = Envelope::Success { data, meta: Meta::new(TOOL_VERSION, 3) };
        assert_eq!(
            envelope.into_json().unwrap(),
            r#"{"success":true,"data":{"n":1},"meta":{"tool_version":"1.0","elapsed_ms":3}}"#
        );
    }

    #[test]
    fn several_undo_calls_are_listed_and_the_first_one_repeated_at_the_top() {
        let call = |id: u8| UndoCall {
            tool: "delete_tweet".into(),
            params: Map::from_iter([("tweet_id".to_owned(), Value::from(id))]),
        };
        let rollback = serde_json::to_value(Rollback::reversible(vec![call(2), call(1)], "Delete them")).unwrap();
        assert_eq!(rollback["undo_params"]["tweet_id"], 2);
        assert_eq!(rollback["undo_calls"].as_array().unwrap().len(), 2);
        let one = serde_json::to_value(Rollback::reversible(vec![call(1)], "Delete it")).unwrap();
        assert_eq!(one.get("undo_calls"), None);
    }
}
