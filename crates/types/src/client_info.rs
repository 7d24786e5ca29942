//! The client of a call.

use serde::{Deserialize, Serialize};

/// The maximum length of the name and of the version, in characters.
const MAX_CHARS: usize = 100;

/// The client of a call, as the client describes itself. It is evidence for people; no permission depends on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientInfo {
    /// `clientInfo.name` of MCP, or the name of the command that made the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `clientInfo.version` of MCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Identifies the session among the sessions of all servers. Knowing it grants no access to the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The trace that the call belongs to: the trace-id of W3C Trace Context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
}

impl ClientInfo {
    /// A client with this name and version. Each is cut to 100 characters; an empty one becomes `None`.
    #[must_use]
    pub fn new(name: &str, version: &str) -> Self {
        // PostgreSQL cannot store a NUL.
        let bounded = |text: &str| {
            let text: String = text.chars().take(MAX_CHARS).map(|c| if c == '\0' { '\u{fffd}' } else { c }).collect();
            Some(text).filter(|text| !text.is_empty())
        };
        Self { name: bounded(name), version: bounded(version), ..Self::default() }
    }

    /// The same client in a new session.
    #[must_use]
    pub fn in_session(self) -> Self {
        Self { session_id: Some(uuid::Uuid::new_v4().simple().to_string()), ..self }
    }

    /// The JSON object that a record stores; `None` if all fields are absent.
    #[must_use]
    pub fn to_json(&self) -> Option<String> {
        if *self == Self::default() {
            return None;
        }
        serde_json::to_string(self).ok()
    }
}

/// The trace-id of a `traceparent` (W3C Trace Context, section 3.2.2); `None` if the value is not valid.
#[must_use]
pub fn trace_id(traceparent: &str) -> Option<&str> {
    let mut fields = traceparent.split('-');
    let (version, trace_id, parent_id, flags) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let is_hex = |field: &str, length| {
        field.len() == length && field.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_zero = |field: &str| field.bytes().all(|byte| byte == b'0');
    let is_valid = is_hex(version, 2)
        && version != "ff"
        && is_hex(trace_id, 32)
        && !is_zero(trace_id)
        && is_hex(parent_id, 16)
        && !is_zero(parent_id)
        && is_hex(flags, 2)
        // Version 00 ends here; later versions may add fields.
        && (version != "00" || fields.next().is_none());
    is_valid.then_some(trace_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_valid_traceparent_has_a_trace_id() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        for valid in [format!("00-{id}-00f067aa0ba902b7-01"), format!("01-{id}-00f067aa0ba902b7-01-later")] {
            assert_eq!(trace_id(&valid), Some(id), "{valid}");
        }
        for invalid in [
            String::new(),
            id.to_owned(),
            format!("ff-{id}-00f067aa0ba902b7-01"),
            format!("00-{id}-00f067aa0ba902b7-01-more"),
            format!("00-{id}-0000000000000000-01"),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01".to_owned(),
            format!("00-{id}-00f067aa0ba902b7"),
        ] {
            assert_eq!(trace_id(&invalid), None, "{invalid}");
        }
    }

    #[test]
    fn what_a_client_says_is_bounded_and_can_be_stored() {
        let client = ClientInfo::new(&"\u{1f600}".repeat(500), "");
        assert_eq!(client.name.as_ref().map(|name| name.chars().count()), Some(100));
        assert_eq!(client.version, None);
        assert_eq!(ClientInfo::default().to_json(), None);
        assert_eq!(ClientInfo::new("a\0b", "1").to_json().unwrap(), "{\"name\":\"a\u{fffd}b\",\"version\":\"1\"}");
    }
}
