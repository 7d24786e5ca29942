//! The tables as the system catalog describes them. The fields are the columns of `tables.sql` and `followers.sql`.

use serde::Deserialize;

/// A relation of the schema.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Table {
    /// Its name.
    pub(crate) name: String,
    /// Its name as SQL needs it.
    pub(crate) quoted: String,
    /// Its name with the schema, as SQL needs it.
    pub(crate) sql_name: String,
    pub(crate) kind: RelationKind,
    /// Whether other tables inherit from it; partitions do not count.
    pub(crate) is_inherited: bool,
    /// The extension that it belongs to.
    pub(crate) extension: Option<String>,
    pub(crate) comment: Option<String>,
    /// In the order of the table.
    pub(crate) columns: Vec<Column>,
    /// The key by which the ledger finds a row again; empty if there is none.
    pub(crate) key: Vec<KeyColumn>,
    pub(crate) checks: Vec<Check>,
    pub(crate) foreign_keys: Vec<ForeignKey>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RelationKind {
    /// A table, partitioned or not.
    Table,
    Partition,
    /// Materialized or not.
    View,
    /// A foreign table.
    Foreign,
}

/// A column.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// Its name as SQL needs it.
    pub(crate) sql_name: String,
    /// Its type as SQL writes it, below domains and without a length.
    #[serde(rename = "type")]
    pub(crate) ty: String,
    pub(crate) kind: ValueKind,
    /// The length of `varchar(n)` and `char(n)`, also of the elements of an array.
    pub(crate) max_length: Option<u64>,
    /// The digits after the decimal point of `numeric(p, s)`.
    pub(crate) scale: Option<u32>,
    pub(crate) not_null: bool,
    /// The expression of its default, or of its domain's.
    pub(crate) default: Option<String>,
    /// Whether its type is a domain; `ty` is the type below it.
    pub(crate) is_domain: bool,
    pub(crate) is_identity: bool,
    pub(crate) is_generated: bool,
    /// Whether the login may read it.
    pub(crate) is_readable: bool,
    pub(crate) comment: Option<String>,
    /// The check constraints of its domains, over `VALUE`.
    pub(crate) checks: Vec<String>,
}

impl Column {
    /// Whether a sequence numbers it, or an expression computes it: an agent has no value for it.
    pub(crate) fn is_filled_by_the_database(&self) -> bool {
        let is_serial = self.default.as_ref().is_some_and(|default| default.starts_with("nextval("));
        self.is_generated || self.is_identity || is_serial
    }
}

/// The types that rules and defaults differ for.
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

/// A column of the key.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct KeyColumn {
    pub(crate) name: String,
    /// The operator for equality, with its schema if the type is not PostgreSQL's own.
    pub(crate) operator: Option<String>,
}

/// A check constraint.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Check {
    /// Its expression as PostgreSQL writes it.
    pub(crate) expression: String,
    pub(crate) columns: Vec<String>,
}

/// A foreign key to another table, or to the same one.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ForeignKey {
    /// The other table, as SQL needs it.
    pub(crate) table: String,
    pub(crate) columns: Vec<String>,
    /// The columns of the other table, as SQL needs them.
    pub(crate) target: Vec<String>,
}

/// A table whose rows change with those of another one, by foreign keys.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Follower {
    /// The table that a tool writes.
    pub(crate) name: String,
    pub(crate) action: Action,
    /// The table that changes too, as SQL needs it.
    pub(crate) follower: String,
    /// Whether it has a key, so that its recorded changes can be undone.
    pub(crate) has_key: bool,
}

/// The action of a statement that foreign keys can follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Action {
    Update,
    Delete,
}
