//! Limits on what a statement may return.

/// The limit that left rows out of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TruncatedBy {
    /// The number of rows.
    RowLimit,
    /// The bytes of the rows.
    MaxBytes,
}
