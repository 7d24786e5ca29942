//! `{set}` in a statement: the assignments of an UPDATE. Each call makes the assignments for which it gives values.
//!
//! PostgreSQL describes the statement with all assignments, and each subset has the same types, and needs no other
//! columns and privileges.
//!
//! With `column = coalesce($n, column)`, triggers `update of` would fire for unchanged columns, the login would need
//! all columns, and a call without a column would succeed. With one statement for each column, a constraint over two
//! would fail in between.

use serde_json::{Map, Value};

/// Marks the position of the assignments in a statement.
pub(crate) const MARKER: &str = "{set}";

/// A statement with `{set}`, and its assignments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetClause {
    pub statement: usize,
    /// The text before and the text after the assignments.
    text: (String, String),
    assignments: Vec<Assignment>,
    /// The parameter whose value lists the parameters whose columns become NULL.
    nulls: Option<String>,
}

/// An assignment, and the parameter whose presence in a call causes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) param: String,
    pub(crate) sql: String,
    /// Whether the server fills in the value. Such an assignment is only made together with others.
    pub(crate) is_filled: bool,
}

impl SetClause {
    /// The clause of the first text with `{set}`; `None` if no text has it, or if there are no assignments.
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

    /// The number of bytes in the statement before the assignments.
    pub(crate) fn start(&self) -> usize {
        self.text.0.len()
    }

    /// The statement with the assignments of a call; `None` if the call gives no values.
    #[must_use]
    pub fn sql(&self, params: &Map<String, Value>) -> Option<String> {
        let is_given = |it: &&Assignment| {
            params.get(&it.param).is_some_and(|value| !value.is_null()) || self.sets_null(params, &it.param)
        };
        let given: Vec<&Assignment> = self.assignments.iter().filter(is_given).collect();
        given.iter().any(|assignment| !assignment.is_filled).then(|| self.with(given.into_iter()))
    }

    /// Whether the call sets the column of this parameter to NULL.
    #[must_use]
    pub fn sets_null(&self, params: &Map<String, Value>, param: &str) -> bool {
        let named = self.nulls.as_ref().and_then(|nulls| params.get(nulls)?.as_array());
        named.is_some_and(|names| names.iter().any(|name| name == param))
    }

    /// The arguments of which a call must give at least one.
    pub fn arguments(&self) -> impl Iterator<Item = &str> {
        let given = self.assignments.iter().filter(|assignment| !assignment.is_filled);
        given.map(|assignment| assignment.param.as_str()).chain(self.nulls.as_deref())
    }

    /// The line break ends a comment at the end of an assignment.
    fn with<'a>(&self, assignments: impl Iterator<Item = &'a Assignment>) -> String {
        let assignments: Vec<&str> = assignments.map(|assignment| assignment.sql.as_str()).collect();
        let (before, after) = &self.text;
        format!("{before}{}\n{after}", assignments.join("\n, "))
    }
}
