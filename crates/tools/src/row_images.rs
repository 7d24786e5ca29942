//! The rows before and after a write, for its record.

use serde_json::{Map, Value};
use types::{ErrorCode, Failure};

/// The size limit of both images of a write together, in bytes of JSON. They are stored as long as the record.
pub(crate) const MAX_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct RowImages {
    /// `None` if the tool captures no image before the write.
    pub(crate) before: Option<Vec<Map<String, Value>>>,
    /// `None` if the tool captures no image after the write.
    pub(crate) after: Option<Vec<Map<String, Value>>>,
}

impl RowImages {
    /// Converts both images to JSON arrays of rows.
    ///
    /// # Errors
    /// [`ErrorCode::ResultTooLarge`] if together they exceed [`MAX_BYTES`]. The write must then be refused.
    pub(crate) fn into_json(self, tool: &str) -> Result<(Option<Value>, Option<Value>), Failure> {
        let json = |rows: Option<Vec<Map<String, Value>>>| {
            rows.map(|rows| rows.into_iter().map(Value::Object).collect::<Value>())
        };
        let (before, after) = (json(self.before), json(self.after));
        let size = |image: &Option<Value>| image.as_ref().map_or(0, |image| image.to_string().len());
        let bytes = size(&before) + size(&after);
        if bytes > MAX_BYTES {
            let message = format!(
                "{tool}: the rows that its before and after queries capture are {bytes} bytes of JSON, and a record \
                 keeps {MAX_BYTES}; nothing was written"
            );
            return Err(Failure::new(ErrorCode::ResultTooLarge, message).hint(
                "Change fewer rows in one call, or ask the operator to name fewer columns in the tool's before.",
            ));
        }
        Ok((before, after))
    }
}
