//! `[mask]`: the columns whose values callers do not see.

use std::collections::{BTreeMap, HashMap};

use manifest::name_parts;
use serde::Deserialize;
use serde_json::{Value, json};
use serde_spanned::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use tools::MaskRule;
use types::{AccountId, Mask, MaskedColumn};

use super::reader::Reader;

/// The table of the masks.
pub(super) const TABLE: &str = "mask";

/// The key for functions in that table.
const FUNCTIONS: &str = "functions";

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct MaskConfig {
    pub(crate) rules: Vec<MaskRule>,
    /// Schema and name of each function; `None` if the table does not have the key.
    pub(crate) trusted_functions: Option<Vec<(String, String)>>,
}

impl MaskConfig {
    /// Every column that is masked for some caller, with its strictest mask.
    pub(crate) fn columns(&self) -> Vec<MaskedColumn> {
        self.rules.iter().filter_map(MaskRule::strictest).collect()
    }

    /// The masks of a database: its own, and the general ones of other columns.
    pub(super) fn over(&self, general: &Self) -> Self {
        fn column(rule: &MaskRule) -> [&str; 3] {
            [&rule.schema, &rule.table, &rule.column]
        }
        let is_own = |rule: &&MaskRule| self.rules.iter().any(|own| column(own) == column(rule));
        let others = general.rules.iter().filter(|rule| !is_own(rule));
        Self {
            rules: self.rules.iter().chain(others).cloned().collect(),
            trusted_functions: self.trusted_functions.as_ref().or(general.trusted_functions.as_ref()).cloned(),
        }
    }
}

/// A mask in the file. `none` ends one that applies otherwise.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum MaskName {
    None,
    Partial,
    Hash,
    Null,
    Refuse,
}

impl MaskName {
    const fn mask(self) -> Option<Mask> {
        match self {
            Self::None => None,
            Self::Partial => Some(Mask::Partial),
            Self::Hash => Some(Mask::Hash),
            Self::Null => Some(Mask::Null),
            Self::Refuse => Some(Mask::Refuse),
        }
    }
}

/// The masks of one column, as they stand in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct MaskKeys {
    mask: Option<MaskName>,
    profiles: BTreeMap<Spanned<String>, MaskName>,
    accounts: HashMap<AccountId, MaskName>,
}

/// The schema of the table, for editors.
pub(super) fn schema() -> Value {
    let names = json!(["partial", "hash", "null", "refuse", "none"]);
    let mask = json!({"type": "string", "enum": names});
    let by_name =
        |description: &str| json!({"description": description, "type": "object", "additionalProperties": mask});
    let keys = json!({"type": "object", "additionalProperties": false, "properties": {
        "mask": {"description": "The mask of all other callers. Default: none.", "type": "string", "enum": names},
        "profiles": by_name("The mask of callers of a profile, by its name."),
        "accounts": by_name("The mask of an account, by its name, whatever the profile is."),
    }});
    json!({
        "description": "Columns whose values are masked, each by its name: \"schema.table.column\".",
        "type": "object",
        "properties": {FUNCTIONS: {
            "description": "Functions that callers with masks may call although they are not declared IMMUTABLE, as \
                            schema.name.",
            "type": "array", "items": {"type": "string"}}},
        "additionalProperties": {"anyOf": [mask, keys]},
    })
}

impl<'s> Reader<'s> {
    /// The masks. `profiles` are the names of the existing profiles.
    pub(super) fn masks(&mut self, top: &mut DeTable<'s>, profiles: &[String]) -> MaskConfig {
        let mut config = MaskConfig::default();
        for (name, value) in self.table(top, TABLE) {
            let span = name.span();
            if name.get_ref() == FUNCTIONS {
                config.trusted_functions = Some(self.functions(value));
                continue;
            }
            let parts = name_parts(name.get_ref()).and_then(|parts| <[String; 3]>::try_from(parts).ok());
            let Some([schema, table, column]) = parts else {
                let message = format!("\"{}\" is no column: write \"schema.table.column\"", name.get_ref());
                self.mistake(span, message);
                continue;
            };
            if let Some(keys) = self.mask_keys(name.get_ref(), value) {
                for profile in keys.profiles.keys().filter(|profile| !profiles.contains(profile.get_ref())) {
                    let message =
                        format!("there is no profile \"{}\": it is one of {}", profile.get_ref(), profiles.join(", "));
                    self.mistake(profile.span(), message);
                }
                let of_profiles = keys.profiles.into_iter().map(|(name, mask)| (name.into_inner(), mask.mask()));
                let of_accounts = keys.accounts.into_iter().map(|(name, mask)| (name.into(), mask.mask()));
                config.rules.push(MaskRule {
                    schema,
                    table,
                    column,
                    mask: keys.mask.and_then(MaskName::mask),
                    profiles: of_profiles.collect(),
                    accounts: of_accounts.collect(),
                });
            }
        }
        config
    }

    fn mask_keys(&mut self, name: &str, value: Spanned<DeValue<'s>>) -> Option<MaskKeys> {
        let span = value.span();
        let is_table = matches!(value.get_ref(), DeValue::Table(_));
        let value = ValueDeserializer::from(value);
        let keys = if is_table {
            MaskKeys::deserialize(value)
        } else {
            MaskName::deserialize(value).map(|mask| MaskKeys { mask: Some(mask), ..MaskKeys::default() })
        };
        match keys {
            Ok(keys) => Some(keys),
            Err(error) => {
                self.mistake(error.span().unwrap_or(span), format!("{TABLE}.{name}: {}", error.message()));
                None
            }
        }
    }

    fn functions(&mut self, value: Spanned<DeValue<'s>>) -> Vec<(String, String)> {
        let span = value.span();
        let names = match Vec::<Spanned<String>>::deserialize(ValueDeserializer::from(value)) {
            Ok(names) => names,
            Err(error) => {
                self.mistake(error.span().unwrap_or(span), format!("{TABLE}.{FUNCTIONS}: {}", error.message()));
                return Vec::new();
            }
        };
        let mut functions = Vec::new();
        for name in names {
            match name_parts(name.get_ref()).and_then(|parts| <[String; 2]>::try_from(parts).ok()) {
                Some([schema, function]) => functions.push((schema, function)),
                None => self.mistake(name.span(), format!("\"{}\" is no function: write schema.name", name.get_ref())),
            }
        }
        functions
    }
}
