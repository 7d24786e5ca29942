//! `{set}` in a statement: the assignments of an UPDATE, of which each call makes those that it gives values for.
//!
//! PostgreSQL describes the statement with all of them, so each smaller set has the same types, columns and privileges.

use serde_json::{Map, Value};

/// The place of the assignments in a statement.
pub(crate) const MARKER: &str = "{set}";

/// A statement with `{set}`, and its assignments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetClause {
    /// Index of the statement among those of the tool.
    pub statement: usize,
    /// The text before the assignments, and the text after them.
    text: (String, String),
    assignments: Vec<Assignment>,
    /// The parameter that names parameters whose columns become NULL.
    nulls: Option<String>,
}

/// An assignment, and the parameter that makes a call contain it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) param: String,
    pub(crate) sql: String,
    /// Whether the server gives the value. Such an assignment accompanies others.
    pub(crate) is_filled: bool,
}

impl SetClause {
    /// The clause of the first text with `{set}`; `None` without one, or without assignments.
    pub(crate) fn new<'a>(
        mut texts: impl Iterator<Item = &'a str>,
        assignments: Vec<Assignment>,
        nulls: Option<String>,
    ) -> Option<Self> {
        if assignments.is_empty() {
            return None;
        }
        let mut places = (0..).map_while(|index| Some((index, texts.next()?)));
        let (statement, (before, after)) = places.find_map(|(index, text)| Some((index, text.split_once(MARKER)?)))?;
        Some(Self { statement, text: (before.to_owned(), after.to_owned()), assignments, nulls })
    }

    /// The statement with all assignments.
    pub(crate) fn whole(&self) -> String {
        self.with(self.assignments.iter())
    }

    /// The number of bytes of the statement before the assignments.
    pub(crate) fn start(&self) -> usize {
        self.text.0.len()
    }

    /// Returns the statement with the assignments of a call; `None` if the call gives none.
    #[must_use]
    pub fn sql(&self, params: &Map<String, Value>) -> Option<String> {
        let is_given = |it: &&Assignment| {
            params.get(&it.param).is_some_and(|value| !value.is_null()) || self.sets_null(params, &it.param)
        };
        let given: Vec<&Assignment> = self.assignments.iter().filter(is_given).collect();
        given.iter().any(|assignment| !assignment.is_filled).then(|| self.with(given.into_iter()))
    }

    /// Returns whether the call names this parameter as one whose column becomes NULL.
    #[must_use]
    pub fn sets_null(&self, params: &Map<String, Value>, param: &str) -> bool {
        let named = self.nulls.as_ref().and_then(|nulls| params.get(nulls)?.as_array());
        named.is_some_and(|names| names.iter().any(|name| name == param))
    }

    /// Returns the arguments of which a call gives at least one.
    pub fn arguments(&self) -> impl Iterator<Item = &str> {
        let given = self.assignments.iter().filter(|assignment| !assignment.is_filled);
        given.map(|assignment| assignment.param.as_str()).chain(self.nulls.as_deref())
    }

    /// A comment at the end of an assignment ends with its line.
    fn with<'a>(&self, assignments: impl Iterator<Item = &'a Assignment>) -> String {
        let assignments: Vec<&str> = assignments.map(|assignment| assignment.sql.as_str()).collect();
        let (before, after) = &self.text;
        format!("{before}{}\n{after}", assignments.join("\n, "))
    }
}
