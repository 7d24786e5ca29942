//! Masks of what commands print of records: a login without the right to select a masked column sees its mask.

use ledger::audit::Audit;
use review::RecordReader;
use types::MaskKey;

use crate::settings::DatabaseSettings;

/// The records of the ledger, as the login may see them.
pub(crate) fn reader(audit: Audit, settings: &DatabaseSettings) -> anyhow::Result<RecordReader> {
    let columns = settings.masks.columns();
    let masked = (!columns.is_empty()).then(|| settings.mask_key().map(|key| (columns, MaskKey::new(key))));
    Ok(RecordReader::new(audit, masked.transpose()?))
}
