//! The description of a prepared statement: the types of its parameters and of its result columns.
//!
//! `pg` gets it from PostgreSQL, and `manifest` makes schemas of it. No decision depends on the text of the
//! statement.

use std::future::Future;
use std::sync::Arc;

/// A PostgreSQL type, resolved down to its scalars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgType {
    /// `pg_type.oid`.
    pub oid: u32,
    /// `pg_type.typname`; for an array, the name of its element type and `[]`.
    pub name: String,
    pub kind: TypeKind,
}

/// The structure of a type, as far as JSON needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TypeKind {
    /// One value.
    Scalar(Scalar),
    /// One of these labels.
    Enum(Vec<String>),
    /// An array; `delimiter` separates its elements in text form (`,` for all but `box`).
    Array {
        /// The element type. An array may have any number of dimensions.
        element: Arc<PgType>,
        /// `pg_type.typdelim`.
        delimiter: char,
    },
    /// A row type.
    Composite(Vec<CompositeField>),
    /// A domain over another type.
    Domain(Arc<PgType>),
}

/// One attribute of a row type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompositeField {
    /// `pg_attribute.attname`.
    pub name: String,
    pub ty: Arc<PgType>,
}

/// The scalar types whose values are not all JSON strings, or have a special text form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    Bool,
    Int2,
    Int4,
    Int8,
    /// `float4` and `float8`
    Float,
    Numeric,
    /// `json` and `jsonb`
    Json,
    Date,
    Timestamp,
    Timestamptz,
    Uuid,
    /// `int2vector` and `oidvector`: arrays with an output form of their own
    Vector,
    /// A type that is not built in and has a cast to `json` (`hstore`). Only the server can convert a value to JSON.
    /// A parameter is passed as text.
    JsonCast,
    /// A row value whose fields are only known from the value itself: `row(1, 'a')`.
    Record,
    /// All other types, as text.
    Text,
}

impl PgType {
    /// The type below all domains.
    #[must_use]
    pub fn base(&self) -> &Self {
        match &self.kind {
            TypeKind::Domain(inner) => inner.base(),
            _ => self,
        }
    }

    /// The name of the type in SQL: `bigint` for `int8`.
    #[must_use]
    pub fn sql_name(&self) -> String {
        if let TypeKind::Array { element, .. } = &self.kind {
            return format!("{}[]", element.sql_name());
        }
        match self.name.as_str() {
            "bool" => "boolean",
            "int2" => "smallint",
            "int4" => "integer",
            "int8" => "bigint",
            "float4" => "real",
            "float8" => "double precision",
            "bpchar" => "char",
            name => name,
        }
        .to_owned()
    }

    /// Whether the type is this scalar or contains it: in elements, fields, or the type below a domain.
    #[must_use]
    pub fn contains(&self, scalar: Scalar) -> bool {
        match &self.kind {
            TypeKind::Scalar(own) => *own == scalar,
            TypeKind::Enum(_) => false,
            TypeKind::Array { element, .. } => element.contains(scalar),
            TypeKind::Composite(fields) => fields.iter().any(|field| field.ty.contains(scalar)),
            TypeKind::Domain(base) => base.contains(scalar),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The name, unique within the result (a repeated one has a suffix: `a`, `a_2`).
    pub name: String,
    pub ty: Arc<PgType>,
    /// Whether the column is a table column that is declared NOT NULL, and nothing in the query (an outer join,
    /// grouping sets) can make it NULL.
    pub not_null: bool,
}

/// The columns of tables that a result column shows, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnOrigin {
    /// A column, unchanged. A column of a view has several names: its own, and those in its tables.
    Column(Vec<String>),
    /// An expression over these columns.
    Expression(Vec<String>),
    /// Perhaps any column: a whole row, or the statement has no plan.
    Any,
}

/// The result of Describe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementShape {
    /// `$1`, `$2`, ...
    pub params: Vec<Arc<PgType>>,
    /// The result columns; `None` for a statement that returns no rows.
    pub columns: Option<Vec<Column>>,
    /// The origin of each result column.
    pub origins: Vec<ColumnOrigin>,
    /// The result columns that identify the rows of a table: the columns of its primary key, if the result has all of
    /// them. The keys of several tables are listed together. Empty if no key is complete.
    pub key: Vec<String>,
    /// The objects that the statement uses.
    pub referenced_objects: ReferencedObjects,
}

/// The objects that a statement uses, as its plan shows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReferencedObjects {
    /// PostgreSQL planned the statement.
    Planned {
        /// The schemas of its tables (views resolved) and of its functions, as far as the plan shows them; sorted.
        schemas: Vec<String>,
        /// Whether the statement inserts, updates, deletes or merges.
        changes: bool,
        /// Whether the statement updates, deletes or merges, so that data of existing rows may be lost. ON CONFLICT
        /// DO UPDATE counts as an update.
        overwrites: bool,
        /// Whether the statement locks rows that it returns (FOR UPDATE, FOR NO KEY UPDATE). A plan does not
        /// distinguish these from the weaker FOR SHARE.
        locks: bool,
        /// The tables, as far as the plan shows them; sorted. A view is replaced by its tables. Partitions are
        /// included if the plan accesses them.
        tables: Vec<TableAccess>,
        /// The parts that another server executes, if they may write.
        remote: Vec<RemotePart>,
    },
    /// There is no plan, for this reason.
    Unplanned(String),
    /// There is no plan, because the login lacks a privilege on an object of the statement. Contains PostgreSQL's
    /// message.
    Forbidden(String),
}

/// A part of a statement that another session executes in its own transaction, which may commit even if the local one
/// does not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RemotePart {
    /// Citus executes it in sessions of its own, on nodes of its cluster. The plan need not show what happens there.
    Distributed,
    /// It writes to this table, which Citus manages.
    DistributedTable { schema: String, table: String },
    /// It writes to a foreign table, or to a table that has a foreign table among its partitions.
    ForeignTable { schema: String, table: String },
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableAccess {
    pub schema: String,
    pub table: String,
    /// Whether its rows are inserted, updated, deleted or merged, and not only read.
    pub written: bool,
    /// The privileges on the table that the statement needs, sorted. Where a plan does not show them (MERGE, FOR
    /// UPDATE of some tables), these are all that it can need.
    pub privileges: Vec<Privilege>,
}

crate::text_enum! {
    /// A privilege on a table.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Privilege {
        Select = "select",
        Insert = "insert",
        Update = "update",
        Delete = "delete",
    }
}

/// The reason why a statement could not be described.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DescribeError {
    /// PostgreSQL refused the statement because its text is wrong.
    #[error("{message}")]
    Refused {
        /// PostgreSQL's message.
        message: String,
        /// PostgreSQL's SQLSTATE.
        sqlstate: String,
        /// PostgreSQL's HINT.
        hint: Option<String>,
        /// The position in the text, in characters from 1.
        position: Option<u32>,
    },
    /// The database did not answer.
    #[error("{0}")]
    Unavailable(String),
}

/// The description of a condition: a query that decides whether a call is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionShape {
    pub shape: StatementShape,
    /// The functions in it that a condition must not call, each with the reason.
    pub refused_functions: Vec<(String, String)>,
}

/// What a tool requires besides the objects that its statements name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requirements {
    /// An extension of this name in the database.
    pub extension: Option<String>,
    /// A role whose privileges the login of the tool has.
    pub role: Option<String>,
}

/// Whether a database meets [`Requirements`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequirementsCheck {
    Met {
        /// The schema of the extension, as SQL writes it.
        extension_schema: Option<String>,
    },
    /// What is missing, and the statement that adds it, as a part of a sentence.
    Missing(String),
}

/// Something that can describe a statement without running it.
pub trait DescribeStatement {
    /// Prepares `sql` (extended protocol: one statement only) and describes it. Nothing is executed.
    ///
    /// `param_types` are the known types of the parameters, by `pg_type.oid`; PostgreSQL infers a type that is 0. If
    /// there are more types than the statement uses, the statement takes as many parameters as there are types.
    fn describe(
        &self,
        sql: &str,
        param_types: &[u32],
    ) -> impl Future<Output = Result<StatementShape, DescribeError>> + Send;

    /// Checks what a tool that reads requires.
    fn check_requirements(
        &self,
        requirements: &Requirements,
    ) -> impl Future<Output = Result<RequirementsCheck, DescribeError>> + Send;

    /// Describes a condition, and finds the functions in it that a condition must not call: functions with side
    /// effects, and functions that may read tables.
    fn describe_condition(
        &self,
        sql: &str,
        param_types: &[u32],
    ) -> impl Future<Output = Result<ConditionShape, DescribeError>> + Send;
}
