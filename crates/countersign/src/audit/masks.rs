//! Masks of what `countersign audit` prints: a login without the right to select a masked column sees its mask.

use anyhow::Context;
use ledger::audit::Audit;
use serde_json::{Map, Value};
use tools::RowMasks;
use types::{MaskKey, Masks};

use crate::settings::Settings;

/// The masks of the login that reads the ledger.
pub(super) struct LoginMasks(Option<Masks>);

impl LoginMasks {
    pub(super) async fn load(audit: &Audit, settings: &Settings) -> anyhow::Result<Self> {
        let columns = settings.masks.columns();
        if columns.is_empty() {
            return Ok(Self(None));
        }
        let columns = audit.unreadable(&columns).await.context("the rights of the login cannot be read")?;
        let key = MaskKey::new(settings.mask_key()?);
        Ok(Self((!columns.is_empty()).then_some(Masks { columns, trusted_functions: Vec::new(), key })))
    }

    /// A record, or a change of a row, with its rows masked.
    pub(super) fn apply(&self, record: Map<String, Value>) -> Map<String, Value> {
        let Some(masks) = &self.0 else { return record };
        match RowMasks::masked(masks, Value::Object(record)) {
            Value::Object(record) => record,
            _ => Map::new(),
        }
    }
}
