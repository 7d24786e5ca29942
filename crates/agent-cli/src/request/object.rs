//! A JSON object from which fields are taken by name and type.

use serde_json::{Map, Value};
use types::{Secret, quoted};

use crate::error::CliError;
use crate::options;

/// What a value is, for a message: never the value itself.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// An object, and what messages call it.
pub(super) struct Object {
    place: String,
    fields: Map<String, Value>,
}

impl Object {
    pub(super) fn new(place: impl Into<String>, fields: Map<String, Value>) -> Self {
        Self { place: place.into(), fields }
    }

    /// Whether all its keys are known.
    pub(super) fn allow(&self, known: &[&str]) -> Result<(), CliError> {
        let Some(unknown) = self.fields.keys().find(|key| !known.contains(&key.as_str())) else { return Ok(()) };
        let (place, known) = (&self.place, known.join(", "));
        Err(CliError::invalid(format!("there is no key {} in {place}; it has {known}", quoted(unknown))))
    }

    /// What is left.
    pub(super) fn into_fields(self) -> Map<String, Value> {
        self.fields
    }

    /// The value of this key.
    pub(super) fn take(&mut self, key: &str) -> Option<Value> {
        self.fields.shift_remove(key)
    }

    fn wrong<T>(key: &str, expected: &str, got: &Value) -> Result<T, CliError> {
        Err(CliError::invalid(format!("{key} is {}; it is {expected}", kind(got))))
    }

    /// The value of this key, which may be left out: null says nothing.
    pub(super) fn optional(&mut self, key: &str) -> Option<Value> {
        self.take(key).filter(|value| !value.is_null())
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>, CliError> {
        match self.optional(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Self::wrong(key, "a string", &other),
        }
    }

    pub(super) fn required_text(&mut self, key: &str) -> Result<String, CliError> {
        let place = self.place.clone();
        self.text(key)?.ok_or_else(|| CliError::invalid(format!("there is no {key} in {place}; it is a string")))
    }

    pub(super) fn truth(&mut self, key: &str) -> Result<Option<bool>, CliError> {
        match self.optional(key) {
            None => Ok(None),
            Some(Value::Bool(truth)) => Ok(Some(truth)),
            Some(other) => Self::wrong(key, "true or false", &other),
        }
    }

    /// A whole number of an option, within its bounds.
    pub(super) fn bounded(&mut self, key: &str) -> Result<Option<u64>, CliError> {
        let Some(value) = self.optional(key) else { return Ok(None) };
        let number = match &value {
            Value::Number(number) => number.as_u64(),
            other => return Self::wrong(key, "a whole number", other),
        };
        // What is negative, has a fraction or is beyond 64 bits is out of any bounds.
        let number = number.ok_or_else(|| CliError::invalid(format!("{key} is a whole number from 0 on")))?;
        options::in_bounds(key, number).map(|()| Some(number))
    }

    pub(super) fn object(&mut self, key: &str) -> Result<Option<Self>, CliError> {
        match self.optional(key) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(Self::new(key, fields))),
            Some(other) => Self::wrong(key, "an object", &other),
        }
    }

    /// A text that may be null: `Some(None)`.
    pub(super) fn text_or_null(&mut self, key: &str) -> Result<Option<Option<String>>, CliError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Null) => Ok(Some(None)),
            Some(Value::String(text)) => Ok(Some(Some(text))),
            Some(other) => Self::wrong(key, "a string, or null to clear it", &other),
        }
    }

    pub(super) fn secret_or_null(&mut self, key: &str) -> Result<Option<Option<Secret>>, CliError> {
        Ok(self.text_or_null(key)?.map(|text| text.map(Secret::new)))
    }

    pub(super) fn port_or_null(&mut self, key: &str) -> Result<Option<Option<u16>>, CliError> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Null) => Ok(Some(None)),
            Some(Value::Number(number)) => {
                let port = number.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
                let problem = || CliError::invalid(format!("{key} is {number}; it is a number from 1 to 65535"));
                port.map(|port| Some(Some(port))).ok_or_else(problem)
            }
            Some(other) => Self::wrong(key, "a number from 1 to 65535, or null to clear it", &other),
        }
    }
}
