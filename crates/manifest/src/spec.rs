//! The result of compiling a manifest: tools that fit the database, with everything that running them needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};
use types::{
    ApprovalRule, PgType, ReferencedObjects, RowFormat, RuleAction, StatementShape, TableAccess, Tier, ToolLimit,
};

use crate::{Diagnostic, Location, SetClause};

/// All tools and notes of all manifests, in the order of the files and of their contents.
#[derive(Debug, Clone, Default)]
pub struct ToolCatalog {
    /// The tools.
    pub tools: Vec<Arc<ToolSpec>>,
    /// The operator's notes on the schema.
    pub notes: Vec<Note>,
    /// The operator's settings of built-in tools, by their names.
    pub builtin: BTreeMap<String, BuiltinTool>,
    /// Instructions for agents, of each manifest that has some.
    pub instructions: Vec<String>,
    /// Valid declarations that are probably not intended.
    pub warnings: Vec<Diagnostic>,
    /// The tools that do not fit the database.
    pub outdated: Vec<OutdatedTool>,
    /// Every mistake of what does not fit the database, sorted by file and position.
    pub misfits: Vec<Diagnostic>,
    /// Names of the write tools whose tables are all tracked, so that their recorded effects undo them. Empty until the
    /// caller of [`crate::compile`] has asked the ledger.
    pub recorded: BTreeSet<String>,
    /// Of these, the names of those that change nothing but their tables: no trigger and no table that inherits is reached.
    pub self_contained: BTreeSet<String>,
}

/// A tool whose file is right, and that does not fit the database as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutdatedTool {
    /// Its name.
    pub name: String,
    /// Version of the manifest.
    pub version: String,
    /// Its access, which decides the profiles that would have it.
    pub access: Access,
    /// What does not fit; never empty.
    pub mistakes: Vec<Diagnostic>,
}

impl OutdatedTool {
    /// The tool whose undo, or lack of one, is a mistake.
    #[must_use]
    pub fn without_undo(tool: &ToolSpec, mistakes: Vec<Diagnostic>) -> Self {
        Self { name: tool.name.clone(), version: tool.version.clone(), access: tool.access, mistakes }
    }
}

/// The operator's settings of a built-in tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuiltinTool {
    /// Whether the tool is not served.
    pub disabled: bool,
    /// The title for people, instead of its own.
    pub title: Option<String>,
    /// The description for agents, instead of its own.
    pub description: Option<String>,
    /// The defaults of `query_database`.
    pub query: QueryDefaults,
}

/// The defaults of `query_database`; `None` keeps those of the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueryDefaults {
    /// Rows of an answer if neither the call nor the query has a limit.
    pub row_limit: Option<u32>,
    /// Bytes of an answer.
    pub max_bytes: Option<u32>,
    /// The form of the rows of a call without one.
    pub row_format: Option<RowFormat>,
}

/// The operator's note on an existing object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The schema.
    pub schema: String,
    /// Table or view in the schema; `None` for a note on the schema.
    pub table: Option<String>,
    /// Column of the table; `None` for a note on the whole table.
    pub column: Option<String>,
    /// Text for agents; at most 1000 characters.
    pub text: String,
}

impl ToolCatalog {
    /// Returns the tool of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<ToolSpec>> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Returns the tool by which writes of this one are undone, if its manifest declares one.
    #[must_use]
    pub fn undo_tool(&self, spec: &ToolSpec) -> Option<&Arc<ToolSpec>> {
        match &spec.undo {
            UndoSpec::Calls { tool, .. } => self.get(tool),
            UndoSpec::None | UndoSpec::Irreversible { .. } => None,
        }
    }

    /// Returns the tier of `undo_mutation` for writes of this tool: never less than that of the undo tool that it declares.
    #[must_use]
    pub fn effective_undo_tier(&self, spec: &ToolSpec) -> Tier {
        self.undo_tool(spec).map_or(spec.undo_tier, |tool| spec.undo_tier.max(tool.strictest_tier()))
    }
}

/// A tool whose every part was checked against the database.
#[derive(Debug, Clone)]
pub struct ToolSpec {
    /// The name that the agent calls: `^[a-zA-Z0-9_-]{1,64}$`, unique over all manifests and built-in tools.
    pub name: String,
    /// Title for people.
    pub title: Option<String>,
    /// Description for the agent.
    pub description: String,
    /// Version of the manifest: `meta.tool_version` of its responses.
    pub version: String,
    /// The place of the declaration, for mistakes that are found later (a missing executor).
    pub declared_at: Location,
    /// The profiles that may call it, and whether it writes.
    pub access: Access,
    /// The approval that a write needs. The registry checks whether its executor exists.
    pub tier: Tier,
    /// Who has to approve a proposal of tier approve.
    pub rule: ApprovalRule,
    /// The approval that an undo of its writes by effects needs.
    pub undo_tier: Tier,
    /// Parameters `$1`, `$2`, ... of every statement, in this order.
    pub params: Vec<Param>,
    /// Statement that captures the rows before the write overwrites them. It runs first in the same transaction.
    pub before: Option<StatementSpec>,
    /// Captures the rows after the write, in the same transaction, last: `before` again unless the manifest has a
    /// separate query.
    pub after: Option<StatementSpec>,
    /// Statements, run in this order in one transaction; the rows of the last one are the result. Empty if there is an
    /// `executor`, otherwise at least one.
    pub statements: Vec<StatementSpec>,
    /// The assignments of which a call makes those that it gives values for. Its statement is one of `statements`, where it
    /// has all of them.
    pub set: Option<SetClause>,
    /// Name of the Rust function that executes the write instead of statements. The registry checks that it exists.
    pub executor: Option<String>,
    /// The place where the manifest names it.
    pub executor_at: Option<Location>,
    /// The allowed number of result rows. Any other number rolls back. `One` if there is an `executor`.
    pub rows: RowExpectation,
    /// Maximum number of rows that a write of any number of rows may affect or return. A larger number rolls back.
    pub max_rows: Option<u64>,
    /// Message of error `not_found` when a write of `One` or `Some` rows has none: the last statement returned no row,
    /// or, with an `executor`, `before` captured none. Without this message, that is a `row_count_mismatch`. 1 to 200
    /// characters.
    pub not_found: Option<String>,
    /// How to undo it.
    pub undo: UndoSpec,
    /// The rules about calls that need more agreement than others, or that are refused.
    pub rules: Vec<Rule>,
    /// The most calls in a period.
    pub limit: Option<ToolLimit>,
    /// For how long an identical call without an idempotency key counts as the same call.
    pub dedup_window: Duration,
    /// JSON Schema of the arguments: an object without additional properties.
    pub input_schema: Arc<Map<String, Value>>,
    /// JSON Schema of the envelope.
    pub output_schema: Arc<Map<String, Value>>,
    /// Operator's MCP annotations, passed on.
    pub annotations: Map<String, Value>,
    /// Operator's MCP `_meta`, passed on.
    pub meta: Map<String, Value>,
}

impl ToolSpec {
    /// Returns the parameter of this name.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<&Param> {
        self.params.iter().find(|param| param.name == name)
    }

    /// Returns the strictest approval that a call can need, by its tier or by a rule.
    #[must_use]
    pub fn strictest_tier(&self) -> Tier {
        self.rules.iter().filter_map(|rule| rule.then.tier()).fold(self.tier, Tier::max)
    }

    /// Returns the tables that its statements access, as far as their plans show them.
    pub fn tables(&self) -> impl Iterator<Item = &TableAccess> {
        let all = self.before.iter().chain(&self.statements).chain(&self.after);
        all.flat_map(StatementSpec::tables)
    }

    /// Returns the tables whose rows it changes, as far as plans show them.
    pub fn written_tables(&self) -> impl Iterator<Item = &TableAccess> {
        self.statements.iter().flat_map(StatementSpec::tables).filter(|table| table.written)
    }

    /// Returns the parameters whose values must not be stored.
    pub fn sensitive_params(&self) -> impl Iterator<Item = &Param> {
        self.params.iter().filter(|param| param.sensitive)
    }
}

/// A rule of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The condition: an SQL expression of type boolean over the columns of [`crate::Conditions`].
    pub when: String,
    /// The outcome of the calls for which it holds.
    pub then: RuleAction,
    /// Why, for agents and reviewers; 1 to 200 characters.
    pub message: Option<String>,
}

/// One parameter of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Param {
    /// Name: `^[a-zA-Z_][a-zA-Z0-9_]{0,63}$`, unique in the tool.
    pub name: String,
    /// Description for the agent; empty only if the server supplies the value.
    pub description: String,
    /// The source of the value.
    pub source: ParamSource,
    /// The type in PostgreSQL.
    pub ty: Arc<PgType>,
    /// Whether it always has a value: the agent must give it, or the server fills it. One that is not required and has
    /// no default is SQL NULL when it is not given.
    pub required: bool,
    /// Value of a call that does not supply one; it fits `ty` and `limits`.
    pub default: Option<Value>,
    /// Whether the value is excluded from the ledger, logs and later envelopes.
    pub sensitive: bool,
    /// The operator's limits within the type.
    pub limits: Limits,
}

/// The source of a parameter's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParamSource {
    /// The agent.
    Argument,
    /// The server: this field of [`types::Principal`].
    Principal(String),
}

/// The manifest's limits within a parameter's type. On an array they apply to each element.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limits {
    /// Allowed values; empty for no such limit.
    pub one_of: Vec<Value>,
    /// Minimum of a number.
    pub minimum: Option<Number>,
    /// Maximum of a number.
    pub maximum: Option<Number>,
    /// Maximum length, in characters.
    pub max_length: Option<u64>,
    /// Maximum number of digits after the decimal point of a `numeric`.
    pub scale: Option<u32>,
    /// A regular expression in the dialect of JSON Schema (ECMA 262), found anywhere in the text unless anchored.
    pub pattern: Option<String>,
    /// JSON Schema of a `json` or `jsonb` value.
    pub schema: Option<Map<String, Value>>,
}

/// A statement that PostgreSQL accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementSpec {
    /// SQL text as in the manifest.
    pub sql: String,
    /// `pg_type.oid` of every parameter of the tool. Each statement takes all of them, used or not.
    pub param_types: Vec<u32>,
    /// The result of Describe with these types.
    pub shape: StatementShape,
}

impl StatementSpec {
    /// Returns the tables that it accesses, as far as its plan shows them.
    #[must_use]
    pub fn tables(&self) -> &[TableAccess] {
        match &self.shape.referenced_objects {
            ReferencedObjects::Planned { tables, .. } => tables,
            ReferencedObjects::Unplanned(_) | ReferencedObjects::Forbidden(_) => &[],
        }
    }
}

/// How to undo a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoSpec {
    /// A read, or a write that declares no undo and is undone by its recorded changes. The caller of [`crate::compile`]
    /// ensures that all of them are recorded.
    None,
    /// The write cannot be undone.
    Irreversible {
        /// Operator's reason.
        why: String,
    },
    /// A call of a write tool of the same catalog.
    Calls {
        /// Name of the tool.
        tool: String,
        /// Arguments and the sources of their values.
        params: Vec<(String, ValueSource)>,
        /// Whether there is one call for each result row, last first, instead of one call for the one row.
        for_each: bool,
        /// Operator's note.
        note: Option<String>,
    },
}

impl UndoSpec {
    /// Returns the argument names of the undo calls.
    pub fn param_names(&self) -> impl Iterator<Item = &str> {
        let params = match self {
            Self::Calls { params, .. } => params.as_slice(),
            Self::None | Self::Irreversible { .. } => &[],
        };
        params.iter().map(|(name, _)| name.as_str())
    }
}

/// The source of an argument of an undo call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueSource {
    /// A parameter of the write.
    Param(String),
    /// A column of the result.
    Result(String),
    /// A column of the row that `before` captured.
    Before(String),
}

/// What a tool may do, and so which profiles have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Reads only: every profile has it.
    Read,
    /// Writes, through the ledger's gate.
    Write,
    /// Writes like `write`, for the admin profile only.
    Admin,
}

impl Access {
    /// Returns whether a call is a mutation: audited, executed once, with an undo.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Admin)
    }
}

/// How many rows the last statement may return.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RowExpectation {
    /// Exactly one; `data` is that row.
    One,
    /// None or one; `data` is that row, or empty.
    AtMostOne,
    /// One or more; `data` is `rows` and `row_count`.
    Some,
    /// Any number; `data` is `rows` and `row_count`.
    Any,
}

impl RowExpectation {
    /// Returns whether this number of rows is expected.
    #[must_use]
    pub const fn allows(self, rows: u64) -> bool {
        match self {
            Self::One => rows == 1,
            Self::AtMostOne => rows <= 1,
            Self::Some => rows >= 1,
            Self::Any => true,
        }
    }

    /// Returns whether `data` is the row itself.
    #[must_use]
    pub const fn is_single(self) -> bool {
        matches!(self, Self::One | Self::AtMostOne)
    }

    /// Returns the name as in a manifest.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::AtMostOne => "at_most_one",
            Self::Some => "some",
            Self::Any => "any",
        }
    }
}
