//! Masks: what a caller sees instead of the values of a column.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::Sha256;

use crate::{ColumnOrigin, Secret};

crate::text_enum! {
    /// What a caller sees instead of the values of a column, from the mask that reveals most to the one that reveals
    /// least. NULL stays NULL.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Mask {
        /// The first character and `***`; of an e-mail address its domain as well. Only for columns of text.
        Partial = "partial",
        /// A keyed hash. Equal values have equal hashes.
        Hash = "hash",
        /// NULL.
        Null = "null",
        /// No value: a query that reads the column is refused.
        Refuse = "refuse",
    }
}

/// A derived schema would have one alternative with a description for each variant, which some clients refuse.
impl JsonSchema for Mask {
    fn schema_name() -> Cow<'static, str> {
        "Mask".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "enum": ["partial", "hash", "null", "refuse"]})
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskedColumn {
    pub schema: String,
    /// A table, partitioned table or materialized view. The mask applies to its partitions and child tables, too.
    pub table: String,
    pub column: String,
    pub mask: Mask,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Masks {
    pub columns: Vec<MaskedColumn>,
    /// Functions, by schema and name, that the operator trusts not to reveal masked values.
    pub trusted_functions: Vec<(String, String)>,
    /// The key of [`Mask::Hash`].
    pub key: MaskKey,
    /// The result columns of the declared write tools.
    pub results: Arc<ToolResults>,
}

/// What the result columns of tools show, by the name of the tool. A statement may return a column under another name,
/// or an expression over it.
pub type ToolResults = BTreeMap<String, Vec<(String, ColumnOrigin)>>;

impl Masks {
    /// These masks without exceptions, for rows that are not results of tools.
    #[must_use]
    pub fn new(columns: Vec<MaskedColumn>, key: MaskKey) -> Self {
        Self { columns, trusted_functions: Vec::new(), key, results: Arc::default() }
    }

    #[must_use]
    pub fn of(&self, schema: &str, table: &str, column: &str) -> Option<Mask> {
        let is_it = |it: &&MaskedColumn| it.schema == schema && it.table == table && it.column == column;
        self.columns.iter().find(is_it).map(|it| it.mask)
    }
}

/// The key of the hashes of masked values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskKey(Secret);

/// The hexadecimal digits of a hash: 96 bits.
const HASH_DIGITS: usize = 24;

impl MaskKey {
    /// A key of any length.
    #[must_use]
    pub const fn new(key: Secret) -> Self {
        Self(key)
    }

    /// The text that replaces a value; `None` is NULL.
    #[must_use]
    pub fn masked(&self, mask: Mask, text: &str) -> Option<String> {
        match mask {
            Mask::Partial => Some(partial(text)),
            Mask::Hash => Some(self.hash(text)),
            Mask::Null | Mask::Refuse => None,
        }
    }

    /// The JSON that replaces a JSON value. NULL stays NULL.
    #[must_use]
    pub fn masked_json(&self, mask: Mask, value: &Value) -> Value {
        let masked = match value {
            Value::Null => None,
            Value::String(text) => self.masked(mask, text),
            other => self.masked(mask, &other.to_string()),
        };
        masked.map_or(Value::Null, Value::String)
    }

    fn hash(&self, text: &str) -> String {
        let keyed = Hmac::<Sha256>::new_from_slice(self.0.expose().as_bytes());
        let keyed = keyed.unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
        let digest = keyed.chain_update("countersign mask\0").chain_update(text).finalize().into_bytes();
        digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>().chars().take(HASH_DIGITS).collect()
    }
}

/// The first character and `***`, and the domain of an e-mail address.
fn partial(text: &str) -> String {
    let domain = match text.rsplit_once('@') {
        Some((local, domain)) if is_address(local, domain) => format!("@{domain}"),
        _ => String::new(),
    };
    let first = text.chars().next().filter(|first| *first != '@').map(String::from).unwrap_or_default();
    format!("{first}***{domain}")
}

/// Whether a text with these parts is an e-mail address and nothing else.
fn is_address(local: &str, domain: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-');
    !local.is_empty()
        && !local.contains(|c: char| c == '@' || c.is_whitespace())
        && domain.contains('.')
        && domain.chars().all(is_name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(text: &str) -> MaskKey {
        MaskKey::new(Secret::new(text.to_owned()))
    }

    #[test]
    fn a_partial_mask_keeps_the_first_character_and_the_domain_of_an_address() {
        for (text, masked) in [
            ("alice@example.com", "a***@example.com"),
            ("Zoë", "Z***"),
            ("x", "x***"),
            ("", "***"),
            ("meet me @ the place", "m***"),
            ("a@b@example.com", "a***"),
            ("@example.com", "***"),
            ("call 555@night.", "c***"),
        ] {
            assert_eq!(key("k").masked(Mask::Partial, text).as_deref(), Some(masked), "{text}");
        }
    }

    #[test]
    fn equal_values_have_equal_hashes_under_one_key_only() {
        let hash = |of: &str, text: &str| key(of).masked(Mask::Hash, text).unwrap();
        assert_eq!(hash("k", "a"), hash("k", "a"));
        assert_ne!(hash("k", "a"), hash("k", "b"));
        assert_ne!(hash("k", "a"), hash("l", "a"));
        assert_eq!(hash("k", "a").len(), HASH_DIGITS);
    }

    #[test]
    fn null_stays_null_whatever_the_mask() {
        for mask in [Mask::Partial, Mask::Hash, Mask::Null, Mask::Refuse] {
            assert_eq!(key("k").masked_json(mask, &Value::Null), Value::Null);
        }
        assert_eq!(key("k").masked_json(Mask::Null, &json!(1)), Value::Null);
        assert!(key("k").masked_json(Mask::Hash, &json!({"a": 1})).is_string());
    }
}
