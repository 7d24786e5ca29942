//! The result of compiling a manifest: the tools that fit the database, with everything that is needed to run them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};
use types::{
    ApprovalRule, ColumnOrigin, PgType, ReasonRule, ReferencedObjects, RowFormat, Rule, StatementShape, TableAccess,
    Tier, ToolLimit,
};

use crate::{Diagnostic, Location, SetClause, Summary};

/// All tools and notes of all manifests, in the order of the files and of their contents.
#[derive(Debug, Clone, Default)]
pub struct ToolCatalog {
    /// Every tool of the manifests, whether it is valid or not.
    pub declared: Vec<DeclaredTool>,
    pub tools: Vec<Arc<ToolSpec>>,
    /// The operator's notes on the schema.
    pub notes: Vec<Note>,
    /// The operator's settings of built-in tools, by the name of the tool.
    pub builtin: BTreeMap<String, BuiltinTool>,
    /// The instructions for agents, from each manifest that has some.
    pub instructions: Vec<String>,
    /// Valid declarations that are probably mistakes.
    pub warnings: Vec<Diagnostic>,
    /// The tools whose requirements the database does not meet, with what is missing.
    pub left_out: Vec<Diagnostic>,
    /// The tools that do not fit the database.
    pub outdated: Vec<OutdatedTool>,
    /// Every mistake in declarations that do not fit the database, sorted by file and position.
    pub misfits: Vec<Diagnostic>,
    /// The names of the write tools whose tables are all tracked, so that their recorded effects can undo them. Empty
    /// until the caller of [`crate::compile`] has asked the ledger.
    pub recorded: BTreeSet<String>,
    /// The names of the tools in `recorded` that change only their own tables: no trigger and no inheriting table is
    /// involved.
    pub self_contained: BTreeSet<String>,
}

/// A tool that a manifest declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredTool {
    pub name: String,
    pub at: Location,
    pub params: Vec<String>,
}

/// A tool whose declaration is valid, but which does not fit the database now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutdatedTool {
    pub name: String,
    pub version: String,
    /// The access class, which determines the profiles that would have the tool.
    pub access: Access,
    /// The reasons why it does not fit; never empty.
    pub mistakes: Vec<Diagnostic>,
}

impl OutdatedTool {
    /// The outdated tool for a tool whose undo declaration, or lack of one, is a mistake.
    #[must_use]
    pub fn without_undo(tool: &ToolSpec, mistakes: Vec<Diagnostic>) -> Self {
        Self { name: tool.name.clone(), version: tool.version.clone(), access: tool.access, mistakes }
    }
}

/// The operator's settings of a built-in tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuiltinTool {
    pub disabled: bool,
    /// Replaces the title for people.
    pub title: Option<String>,
    /// Replaces the description for agents.
    pub description: Option<String>,
    pub query: QueryDefaults,
}

/// The defaults of `query_database`; `None` keeps those of the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueryDefaults {
    /// The number of rows if neither the call nor the query has a limit.
    pub row_limit: Option<u32>,
    /// The maximum size of an answer in bytes.
    pub max_bytes: Option<u32>,
    /// The form of the rows if the call does not name one.
    pub row_format: Option<RowFormat>,
}

/// The operator's note on an existing object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub schema: String,
    /// Table or view in the schema; `None` for a note on the schema.
    pub table: Option<String>,
    /// Column of the table; `None` for a note on the whole table.
    pub column: Option<String>,
    /// Text for agents; at most 1000 characters.
    pub text: String,
}

impl ToolCatalog {
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<ToolSpec>> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// The tool that undoes writes of this tool, if its manifest declares one.
    #[must_use]
    pub fn undo_tool(&self, spec: &ToolSpec) -> Option<&Arc<ToolSpec>> {
        match &spec.undo {
            UndoSpec::Calls { tool, .. } => self.get(tool),
            UndoSpec::None | UndoSpec::Irreversible { .. } => None,
        }
    }

    /// The tier of `undo_mutation` for writes of this tool. It is never less strict than that of the declared undo
    /// tool.
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
    pub title: Option<String>,
    /// What one call does, for people.
    pub summary: Option<Summary>,
    pub description: String,
    /// Version of the manifest: `meta.tool_version` of its responses.
    pub version: String,
    /// Where the tool is declared, for mistakes that are found later (a missing executor).
    pub declared_at: Location,
    /// The access class: whether the tool writes, and which profiles have it.
    pub access: Access,
    /// The approval that a write needs. The registry checks whether its executor exists.
    pub tier: Tier,
    /// Who must approve a proposal of tier `approve`.
    pub rule: ApprovalRule,
    /// The approval that an undo of its writes by effects needs.
    pub undo_tier: Tier,
    /// Whether a write needs a reason; `None` for a read, and for a tool with a parameter `reason` of its own.
    pub reason: Option<ReasonRule>,
    /// The parameters `$1`, `$2`, ... of every statement, in this order.
    pub params: Vec<Param>,
    /// The query that captures the rows before the write. It runs first in the same transaction.
    pub before: Option<StatementSpec>,
    /// The query that captures the rows after the write. It runs last in the same transaction. It is `before` again,
    /// unless the manifest has a separate query.
    pub after: Option<StatementSpec>,
    /// The statements, which run in this order in one transaction. The rows of the last one are the result. Empty if
    /// there is an `executor`, otherwise at least one.
    pub statements: Vec<StatementSpec>,
    /// The assignments of an UPDATE. A call makes only those for which it gives values. The statement in `statements`
    /// has all of them.
    pub set: Option<SetClause>,
    /// Name of the Rust function that executes the write instead of statements. The registry checks that it exists.
    pub executor: Option<String>,
    /// Where the manifest names the executor.
    pub executor_at: Option<Location>,
    /// The allowed number of result rows. Any other number rolls back. `One` if there is an `executor`.
    pub rows: RowExpectation,
    /// The maximum number of rows that a write without a fixed number of rows may affect or return. A write of more
    /// rows is rolled back.
    pub max_rows: Option<u64>,
    /// The message of the error `not_found` if a write of `One` or `Some` rows has none: the last statement returned
    /// no row, or, with an `executor`, `before` captured none. Without this message the error is
    /// `row_count_mismatch`. 1 to 200 characters.
    pub not_found: Option<String>,
    /// How a write is undone.
    pub undo: UndoSpec,
    /// The rules, which require more approval for some calls, or refuse them.
    pub rules: Vec<Rule>,
    pub limit: Option<ToolLimit>,
    /// How long an identical call without an idempotency key counts as a duplicate.
    pub dedup_window: Duration,
    pub input_schema: Arc<Map<String, Value>>,
    pub output_schema: Arc<Map<String, Value>>,
    /// The operator's MCP annotations, passed on to clients.
    pub annotations: Map<String, Value>,
    /// The operator's MCP `_meta`, passed on to clients.
    pub meta: Map<String, Value>,
}

impl ToolSpec {
    /// Returns the parameter of this name.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<&Param> {
        self.params.iter().find(|param| param.name == name)
    }

    /// The strictest tier that a call can need, because of the tool or of a rule.
    #[must_use]
    pub fn strictest_tier(&self) -> Tier {
        self.rules.iter().filter_map(|rule| rule.then.tier()).fold(self.tier, Tier::max)
    }

    /// The tables that the statements access, as far as their plans show them.
    pub fn tables(&self) -> impl Iterator<Item = &TableAccess> {
        let all = self.before.iter().chain(&self.statements).chain(&self.after);
        all.flat_map(StatementSpec::tables)
    }

    /// The tables whose rows the statements change, as far as their plans show them.
    pub fn written_tables(&self) -> impl Iterator<Item = &TableAccess> {
        self.statements.iter().flat_map(StatementSpec::tables).filter(|table| table.written)
    }

    /// The result columns of the statements, and the columns of tables that they show.
    pub fn result_origins(&self) -> impl Iterator<Item = (String, ColumnOrigin)> {
        let all = self.before.iter().chain(&self.statements).chain(&self.after);
        all.flat_map(|statement| {
            let names = statement.shape.columns.iter().flatten().map(|column| column.name.clone());
            names.zip(statement.shape.origins.iter().cloned())
        })
    }

    /// The parameters whose values must not be stored.
    pub fn sensitive_params(&self) -> impl Iterator<Item = &Param> {
        self.params.iter().filter(|param| param.sensitive)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Param {
    /// Name: `^[a-zA-Z_][a-zA-Z0-9_]{0,63}$`, unique in the tool.
    pub name: String,
    /// The description for the agent; empty only if the server fills in the value.
    pub description: String,
    pub source: ParamSource,
    pub ty: Arc<PgType>,
    /// Whether the parameter always has a value, because the agent must give it or the server fills it in. A
    /// parameter that is neither required nor has a default is NULL if the call omits it.
    pub required: bool,
    /// The value if a call omits the parameter. It is valid for `ty` and `limits`.
    pub default: Option<Value>,
    /// Whether the value is excluded from the ledger, logs and later envelopes.
    pub sensitive: bool,
    /// The operator's limits within the type.
    pub limits: Limits,
}

/// The source of a parameter's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParamSource {
    Argument,
    /// A value from the server: this field of [`types::Principal`].
    Principal(String),
}

/// The manifest's limits within a parameter's type. On an array they apply to each element.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limits {
    /// Allowed values; empty for no such limit.
    pub one_of: Vec<Value>,
    pub minimum: Option<Number>,
    pub maximum: Option<Number>,
    /// Maximum length, in characters.
    pub max_length: Option<u64>,
    /// Maximum number of digits after the decimal point of a `numeric`.
    pub scale: Option<u32>,
    /// A regular expression in the dialect of JSON Schema (ECMA 262). It matches anywhere in the text unless it is
    /// anchored.
    pub pattern: Option<String>,
    /// JSON Schema of a `json` or `jsonb` value.
    pub schema: Option<Map<String, Value>>,
}

/// A statement that PostgreSQL has described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementSpec {
    /// SQL text as in the manifest.
    pub sql: String,
    /// The `pg_type.oid` of every parameter of the tool. Each statement accepts all parameters, even those that it
    /// does not use.
    pub param_types: Vec<u32>,
    /// The description of the statement with these types.
    pub shape: StatementShape,
}

impl StatementSpec {
    /// The tables that the statement accesses, as far as its plan shows them.
    #[must_use]
    pub fn tables(&self) -> &[TableAccess] {
        match &self.shape.referenced_objects {
            ReferencedObjects::Planned { tables, .. } => tables,
            ReferencedObjects::Unplanned(_) | ReferencedObjects::Forbidden(_) => &[],
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoSpec {
    /// A read, or a write without a declared undo, which its recorded effects undo. The caller of [`crate::compile`]
    /// must check that all of its changes are recorded.
    None,
    /// The write cannot be undone.
    Irreversible {
        /// Operator's reason.
        why: String,
    },
    /// A call of a write tool of the same catalog.
    Calls {
        tool: String,
        /// Arguments and the sources of their values.
        params: Vec<(String, ValueSource)>,
        /// Whether there is one call for each result row, the last row first, instead of one call for the only row.
        for_each: bool,
        /// Operator's note.
        note: Option<String>,
    },
}

impl UndoSpec {
    /// The argument names of the undo calls.
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
    Param(String),
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
    /// Whether a call is a write: recorded, executed once, with an undo.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Admin)
    }
}

types::text_enum! {
    /// How many rows the last statement may return.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum RowExpectation {
        /// Exactly one; `data` is that row.
        One = "one",
        /// None or one; `data` is that row, or empty.
        AtMostOne = "at_most_one",
        /// One or more; `data` is `rows` and `row_count`.
        Some = "some",
        /// Any number; `data` is `rows` and `row_count`.
        Any = "any",
    }
}

impl RowExpectation {
    /// Whether this number of rows is allowed.
    #[must_use]
    pub const fn allows(self, rows: u64) -> bool {
        match self {
            Self::One => rows == 1,
            Self::AtMostOne => rows <= 1,
            Self::Some => rows >= 1,
            Self::Any => true,
        }
    }

    /// Whether `data` is the row itself.
    #[must_use]
    pub const fn is_single(self) -> bool {
        matches!(self, Self::One | Self::AtMostOne)
    }
}
