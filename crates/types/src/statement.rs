//! The description of a prepared statement: the types of its parameters and of its result columns.
//!
//! `pg` gets it from PostgreSQL, `manifest` makes schemas from it. No decision depends on SQL text.

use std::future::Future;
use std::sync::Arc;

/// A PostgreSQL type, resolved down to its scalars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgType {
    /// `pg_type.oid`.
    pub oid: u32,
    /// `pg_type.typname`; an array is its element's name and `[]`.
    pub name: String,
    /// Its structure.
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
        /// The type of each element, of whatever number of dimensions.
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
    /// Its type.
    pub ty: Arc<PgType>,
}

/// The scalars that JSON treats differently from plain text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// `bool`
    Bool,
    /// `int2`
    Int2,
    /// `int4`
    Int4,
    /// `int8`
    Int8,
    /// `float4` and `float8`
    Float,
    /// `numeric`
    Numeric,
    /// `json` and `jsonb`
    Json,
    /// `date`
    Date,
    /// `timestamp`
    Timestamp,
    /// `timestamptz`
    Timestamptz,
    /// `uuid`
    Uuid,
    /// `int2vector` and `oidvector`: arrays with an output form of their own
    Vector,
    /// A type that is not PostgreSQL's own and has a cast to `json` (`hstore`). Only the server knows the JSON of a
    /// value. A parameter is its text.
    JsonCast,
    /// A row whose fields each value says for itself: `row(1, 'a')`.
    Record,
    /// Everything else is its text.
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

    /// Its name as SQL has it: `bigint` for `int8`.
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

    /// Whether it is one of these, or has one somewhere inside: elements, fields, the type below a domain.
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

/// A result column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name, unique within the result (a repeated one has a suffix: `a`, `a_2`).
    pub name: String,
    /// Its type.
    pub ty: Arc<PgType>,
    /// True if the column comes straight from a table column that is declared NOT NULL, and nothing on the way (an outer
    /// join, grouping sets) makes a NULL of it.
    pub not_null: bool,
}

/// The result of Describe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementShape {
    /// `$1`, `$2`, ...
    pub params: Vec<Arc<PgType>>,
    /// The result columns; `None` for a statement that returns no rows.
    pub columns: Option<Vec<Column>>,
    /// The names of the result columns that identify the rows of a table: those of its primary key, if all of them are
    /// there. The keys of several tables are listed together. Empty if no key is complete.
    pub key: Vec<String>,
    /// The objects that it uses.
    pub referenced_objects: ReferencedObjects,
}

/// The objects that a statement uses, as its plan shows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReferencedObjects {
    /// There is a plan.
    Planned {
        /// The schemas of its tables (views resolved) and of its functions, as far as a plan shows them; sorted.
        schemas: Vec<String>,
        /// Whether it inserts, updates, deletes or merges.
        changes: bool,
        /// Whether it updates, deletes or merges, so that rows which are there may be lost; ON CONFLICT DO UPDATE counts.
        overwrites: bool,
        /// Whether it locks rows that it returns (FOR UPDATE, FOR NO KEY UPDATE; a plan does not distinguish these
        /// from the weaker FOR SHARE).
        locks: bool,
        /// Its tables, as far as a plan shows them; sorted. Those of a view are here, and the view is not; partitions
        /// are, where the plan goes to them.
        tables: Vec<TableAccess>,
        /// The parts of it that another server carries out, as far as they may write.
        remote: Vec<RemotePart>,
    },
    /// There is no plan, for this reason.
    Unplanned(String),
    /// There is no plan because the login lacks a privilege on an object of the statement: PostgreSQL's words.
    Forbidden(String),
}

/// A part of a statement that another server carries out, in a transaction of its own. That one may commit although the
/// local one does not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RemotePart {
    /// Citus carries it out on the nodes of its cluster. The plan need not show what it does there.
    Distributed,
    /// It writes a foreign table, or a table with a foreign table among its partitions.
    ForeignTable {
        /// The schema of the foreign table.
        schema: String,
        /// Its name.
        table: String,
    },
}

/// A table that a statement touches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableAccess {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub table: String,
    /// Whether rows of it are inserted, updated, deleted or merged; else they are only read.
    pub written: bool,
    /// The privileges that the statement needs on it, sorted. These are the most that it can need where a plan does
    /// not show them (MERGE, FOR UPDATE of some tables).
    pub privileges: Vec<Privilege>,
}

/// A privilege on a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Privilege {
    /// SELECT
    Select,
    /// INSERT
    Insert,
    /// UPDATE
    Update,
    /// DELETE
    Delete,
}

impl Privilege {
    /// As SQL has it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Select => "select",
            Self::Insert => "insert",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// The reason why a statement could not be described.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DescribeError {
    /// PostgreSQL refused it: the text is wrong.
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
    /// The database could not be asked.
    #[error("{0}")]
    Unavailable(String),
}

/// The result of Describe for a query that decides about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionShape {
    /// The shape of the query.
    pub shape: StatementShape,
    /// The functions that such a query may not call, each with the reason.
    pub refused_functions: Vec<(String, String)>,
}

/// Something that can describe a statement without running it.
pub trait DescribeStatement {
    /// Prepares `sql` (extended protocol: one statement only) and describes it. Nothing is executed.
    ///
    /// `param_types` are the types that the caller knows already, by `pg_type.oid`, 0 where PostgreSQL shall infer it.
    /// If there are more of them than the statement uses, the statement takes as many parameters as there are types.
    fn describe(
        &self,
        sql: &str,
        param_types: &[u32],
    ) -> impl Future<Output = Result<StatementShape, DescribeError>> + Send;

    /// Describes a query that decides about a call, and names the functions that may not be part of it: those that have
    /// effects, and those that may read tables.
    fn describe_condition(
        &self,
        sql: &str,
        param_types: &[u32],
    ) -> impl Future<Output = Result<ConditionShape, DescribeError>> + Send;
}
