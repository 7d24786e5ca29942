//! JSON text that is embedded unchanged in other JSON.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use serde_json::{Number, Value};

/// JSON text that is serialized verbatim.
///
/// [`RawValue`](serde_json::value::RawValue) does the same, but validates the text each time one is created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonText(String);

/// The struct name by which serde_json's serializers recognize a `RawValue`.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

impl JsonText {
    /// Wraps a text that the caller knows to be valid JSON. It is not checked.
    #[must_use]
    pub fn from_unchecked(json: String) -> Self {
        Self(json)
    }

    /// A [`Value`] that serializes as exactly this text. It is an object with the first key of the text, and the rest
    /// of the text is the value of that key, disguised as a number: with `arbitrary_precision`, serde_json keeps a
    /// number as text and writes it unchecked, and no other [`Value`] can hold JSON text. So no code may read the
    /// value of the key or pass it through `serde_json::to_value`. A text that does not begin with a plain key is
    /// parsed instead.
    #[must_use]
    pub fn into_opaque_object(mut self) -> Value {
        let members = self.0.strip_prefix("{\"").filter(|text| text.ends_with('}'));
        let key = members.and_then(|members| members.split_once("\":")).map(|(key, _)| key.to_owned());
        match key.filter(|key| !key.contains(['"', '\\'])) {
            Some(key) => {
                self.0.pop();
                self.0.drain(..key.len() + "{\"\":".len());
                Value::from_iter([(key, Value::Number(Number::from_string_unchecked(self.0)))])
            }
            None => serde_json::from_str(&self.0).unwrap_or_default(),
        }
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut raw = serializer.serialize_struct(RAW_VALUE, 1)?;
        raw.serialize_field(RAW_VALUE, &self.0)?;
        raw.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_text_is_written_verbatim_and_is_the_value_that_it_says() {
        let text = r#"[{"n":1.10, "s":"\u00e9"}]"#;
        let json = JsonText::from_unchecked(text.to_owned());
        assert_eq!(serde_json::to_string(&json).unwrap(), text);
        assert_eq!(serde_json::to_value(&json).unwrap(), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn an_opaque_object_is_written_verbatim_whatever_its_first_key_is() {
        for text in [
            r#"{"a":1.10,"b":{"c": "}"}}"#,
            r#"{"a":{}}"#,
            r#"{"":[1.10]}"#,
            r#"{"\"a":1.10}"#,
            r#"{"a\":":1.10}"#,
            r#"{}"#,
        ] {
            let object = JsonText::from_unchecked(text.to_owned()).into_opaque_object();
            assert!(object.is_object(), "{text}");
            assert_eq!(serde_json::to_string(&object).unwrap(), text);
        }
    }
}
