//! JSON text that is written into other JSON as it is.

use serde::{Serialize, Serializer};
use serde_json::{Number, Value};

/// JSON text, written verbatim wherever it is serialized as JSON.
///
/// `RawValue` would parse the text once more when it is made. serde_json has one other type that holds JSON text: with
/// `arbitrary_precision` it keeps a number as its text, and writes that unchecked. So this must not be read as a number, nor
/// pass through `serde_json::to_value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonText(Number);

impl JsonText {
    /// The text has to be valid JSON, which is not checked.
    #[must_use]
    pub fn from_unchecked(json: String) -> Self {
        Self(Number::from_string_unchecked(json))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// A value that can only be serialized, as this text.
impl From<JsonText> for Value {
    fn from(text: JsonText) -> Self {
        Self::Number(text.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_text_is_written_verbatim_alone_and_within_a_value() {
        let text = r#"[{"n":1.10, "s":"\u00e9"}]"#;
        let json = JsonText::from_unchecked(text.to_owned());
        assert_eq!(json.as_str(), text);
        assert_eq!(serde_json::to_string(&json).unwrap(), text);
        assert_eq!(serde_json::to_string(&Value::from(json)).unwrap(), text);
    }
}
