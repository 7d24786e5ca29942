//! The form of rows in answers.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The form of a row in an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowFormat {
    /// An object by column name.
    #[default]
    Object,
    /// An array in column order.
    Array,
}

impl RowFormat {
    /// Name in manifests and arguments.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
        }
    }
}

/// A derived schema would have one alternative with a description for each variant, which some clients refuse.
impl JsonSchema for RowFormat {
    fn schema_name() -> Cow<'static, str> {
        "RowFormat".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "enum": ["object", "array"]})
    }
}
