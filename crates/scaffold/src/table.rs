//! Tables as the system catalog describes them. The fields are the columns of `tables.sql` and `followers.sql`.

use serde::Deserialize;

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Table {
    pub(crate) name: String,
    /// The name, quoted if SQL needs it.
    pub(crate) quoted: String,
    /// The name with its schema, quoted if SQL needs it.
    pub(crate) sql_name: String,
    pub(crate) kind: RelationKind,
    /// Whether other tables inherit from it. Partitions do not count.
    pub(crate) is_inherited: bool,
    /// The extension to which it belongs.
    pub(crate) extension: Option<String>,
    pub(crate) comment: Option<String>,
    pub(crate) columns: Vec<Column>,
    /// The key by which the ledger finds a row; empty if there is none.
    pub(crate) key: Vec<KeyColumn>,
    pub(crate) checks: Vec<Check>,
    pub(crate) foreign_keys: Vec<ForeignKey>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RelationKind {
    /// An ordinary or a partitioned table.
    Table,
    Partition,
    /// An ordinary or a materialized view.
    View,
    /// A foreign table.
    Foreign,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// The name, quoted if SQL needs it.
    pub(crate) sql_name: String,
    /// The type in SQL, below domains and without a length.
    #[serde(rename = "type")]
    pub(crate) ty: String,
    pub(crate) kind: ValueKind,
    /// The length of `varchar(n)` and `char(n)`; for an array, that of its elements.
    pub(crate) max_length: Option<u64>,
    /// The digits after the decimal point of `numeric(p, s)`.
    pub(crate) scale: Option<u32>,
    pub(crate) not_null: bool,
    /// The default expression of the column, or of its domain.
    pub(crate) default: Option<String>,
    /// Whether the type is a domain; then `ty` is the type below it.
    pub(crate) is_domain: bool,
    pub(crate) is_identity: bool,
    pub(crate) is_generated: bool,
    /// Whether the login may read the column.
    pub(crate) is_readable: bool,
    pub(crate) comment: Option<String>,
    /// The check constraints of its domains, as expressions over `VALUE`.
    pub(crate) checks: Vec<String>,
}

impl Column {
    /// Whether a sequence or an expression provides the value, so that an agent need not give one.
    pub(crate) fn is_filled_by_the_database(&self) -> bool {
        let is_serial = self.default.as_ref().is_some_and(|default| default.starts_with("nextval("));
        self.is_generated || self.is_identity || is_serial
    }
}

/// The kinds of types that rules and defaults distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ValueKind {
    /// `text`, `varchar` and `citext`.
    Text,
    /// `int2`, `int4` and `int8`.
    Integer,
    /// `float4`, `float8` and `numeric`.
    Number,
    Boolean,
    /// `bytea`.
    Bytes,
    Enum,
    Other,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct KeyColumn {
    pub(crate) name: String,
    /// The equality operator, with its schema if the type is not built in.
    pub(crate) operator: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Check {
    /// The expression, as PostgreSQL prints it.
    pub(crate) expression: String,
    pub(crate) columns: Vec<String>,
}

/// A foreign key to another table, or to the same one.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ForeignKey {
    /// The referenced table, quoted if SQL needs it.
    pub(crate) table: String,
    pub(crate) columns: Vec<String>,
    /// The referenced columns, quoted if SQL needs them.
    pub(crate) target: Vec<String>,
}

/// A table whose rows change together with those of another one, by foreign keys.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Follower {
    /// The table that a tool writes to.
    pub(crate) name: String,
    pub(crate) action: Action,
    /// The table that changes as well, quoted if SQL needs it.
    pub(crate) follower: String,
    /// Whether that table has a key, so that its recorded changes can be undone.
    pub(crate) has_key: bool,
}

/// The statement whose effect foreign keys can propagate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Action {
    Update,
    Delete,
}
