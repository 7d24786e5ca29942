//! The evidence of a write: its record, its effects, and the conflicts that prevent its undo.

pub(crate) mod catalog_version;
pub(crate) mod conflicts;
pub(crate) mod effects;
pub(crate) mod guarded_rows;
pub(crate) mod newest;
pub(crate) mod records;
pub(crate) mod row_history;
pub(crate) mod time_range;
pub(crate) mod tracking;
pub(crate) mod values;
