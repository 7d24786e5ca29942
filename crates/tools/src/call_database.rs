//! The database that a call is about, where the server has several.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};
use types::{DatabaseLabel, ErrorCode, Failure, Rollback, UndoCall};

/// The argument that names the database of a call.
pub const DATABASE: &str = "database";

/// A database of a server with several, and the tools that take its name.
#[derive(Debug, Clone)]
pub struct CallDatabase {
    pub(crate) label: DatabaseLabel,
    /// The tools that take the name of a database.
    tools: Arc<BTreeSet<String>>,
}

impl CallDatabase {
    pub(crate) const fn new(label: DatabaseLabel, tools: Arc<BTreeSet<String>>) -> Self {
        Self { label, tools }
    }

    /// Whether a tool takes the argument [`DATABASE`]. The databases that one caller reaches do not matter.
    pub(crate) fn is_argument_of(&self, tool: &str) -> bool {
        self.tools.contains(tool)
    }

    /// Arguments of a tool within those of another one, without the database.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidParams`]: they name another database.
    pub(crate) fn inner_arguments(
        &self,
        tool: &str,
        mut arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, Failure> {
        if self.is_argument_of(tool)
            && let Some(named) = arguments.remove(DATABASE)
            && named != self.label.name.as_str()
        {
            let message = format!("{tool}: params name another database than the call, which is about {}", self.label);
            return Err(Failure::new(ErrorCode::InvalidParams, message));
        }
        Ok(arguments)
    }

    /// The receipt, with the database in its calls.
    pub(crate) fn rollback(&self, rollback: Rollback) -> Rollback {
        let named = |tool: &str, mut params: Map<String, Value>| {
            if self.is_argument_of(tool) {
                params.insert(DATABASE.to_owned(), self.label.name.as_str().into());
            }
            params
        };
        let undo_tool = rollback.undo_tool.as_deref().unwrap_or_default();
        let undo_params = rollback.undo_params.map(|params| named(undo_tool, params));
        let undo_calls = rollback.undo_calls.into_iter();
        let undo_calls = undo_calls.map(|call| UndoCall { params: named(&call.tool, call.params), ..call }).collect();
        Rollback { undo_params, undo_calls, ..rollback }
    }
}
