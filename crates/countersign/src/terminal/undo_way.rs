//! How the writes of a tool are undone, in the same words for all commands.

use std::fmt;

use manifest::{ToolCatalog, ToolSpec, UndoSpec};
use types::visible;

/// How the writes of a tool are undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UndoWay<'a> {
    /// By the changes that the ledger has recorded.
    RecordedChanges,
    /// By the recorded changes, but only by people: the manifest says that the tool cannot be undone, with this
    /// reason.
    PeopleOnly(&'a str),
    /// By this tool, or by the recorded changes.
    ToolOrRecordedChanges(&'a str),
    /// By this tool.
    Tool(&'a str),
    /// Not at all, for this reason.
    Impossible(&'a str),
}

impl<'a> UndoWay<'a> {
    /// The undo of a write tool of a compiled catalog.
    pub(crate) fn of(tool: &'a ToolSpec, catalog: &ToolCatalog) -> Self {
        let is_recorded = catalog.recorded.contains(&tool.name);
        match &tool.undo {
            UndoSpec::None => Self::RecordedChanges,
            UndoSpec::Irreversible { why } if is_recorded => Self::PeopleOnly(why),
            UndoSpec::Irreversible { why } => Self::Impossible(why),
            UndoSpec::Calls { tool, .. } if is_recorded => Self::ToolOrRecordedChanges(tool),
            UndoSpec::Calls { tool, .. } => Self::Tool(tool),
        }
    }
}

impl fmt::Display for UndoWay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RecordedChanges => f.write_str("undo by recorded changes"),
            Self::PeopleOnly(why) => {
                write!(f, "undone by people only (the manifest says irreversible: {})", visible(why))
            }
            Self::ToolOrRecordedChanges(tool) => write!(f, "undo by {tool} or by recorded changes"),
            Self::Tool(tool) => write!(f, "undo by {tool}"),
            Self::Impossible(why) => write!(f, "cannot be undone: {}", visible(why)),
        }
    }
}
