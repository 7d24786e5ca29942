//! The layers of the read path's defence, each of which holds something that the others do not.
//!
//! A server has all of them, always. Tests take single ones away to see what the rest holds (`tests/acceptance/layers.rs`,
//! which prints the matrix of `docs/topics/security-model.md`); nothing else may, and `tests/acceptance/architecture.rs` holds that.

/// One layer of the defence. The login is one more, and the first: see `ledger::check_reader`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// The extended protocol takes one statement.
    ExtendedProtocol,
    /// A statement without result columns is not run.
    ResultColumns,
    /// No function is called that acts beyond the transaction (`functions`).
    Functions,
    /// `BEGIN READ ONLY`.
    ReadOnlyTransaction,
    /// A query of our own comes first, so that the transaction's mode cannot be changed any more.
    FixedMode,
    /// The session's own default is read only.
    ReadOnlyDefault,
    /// `statement_timeout` and its like. The deadline over the whole call is not switched off with them.
    Timeouts,
    /// `ROLLBACK`, whatever happened.
    Rollback,
    /// What leaves nothing in the session before it is used again (`frame`).
    Cleaning,
}

impl Layer {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::ExtendedProtocol,
        Self::ResultColumns,
        Self::Functions,
        Self::ReadOnlyTransaction,
        Self::FixedMode,
        Self::ReadOnlyDefault,
        Self::Timeouts,
        Self::Rollback,
        Self::Cleaning,
    ];
}

/// Which layers there are.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Layers {
    missing: Option<Layer>,
}

impl Layers {
    pub(super) fn without(layer: Layer) -> Self {
        Self { missing: Some(layer) }
    }

    pub(super) fn has(self, layer: Layer) -> bool {
        self.missing != Some(layer)
    }
}
