//! The label of the database, where a server has several.

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::{EncodeLabel, EncodeLabelSet, LabelSetEncoder};
use types::DatabaseName;

/// The label `database`; none if the server has one database without a name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct DatabaseLabels(Option<Arc<str>>);

impl DatabaseLabels {
    pub(super) fn new(name: Option<&DatabaseName>) -> Self {
        Self(name.map(|name| name.as_str().into()))
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl EncodeLabelSet for DatabaseLabels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        match &self.0 {
            Some(name) => ("database", name.as_ref()).encode(encoder.encode_label()),
            None => Ok(()),
        }
    }
}
