//! What `describe_database` answers. The rows of `*.sql` are read into these very types, so a field's name is its
//! column's name.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `data` of the answer: one of `schemas`, `table` and `found`.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub(crate) struct DescribeData {
    /// Without `table` and `search`: the schemas and what is in them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<SchemaData>")]
    pub(crate) schemas: Option<Vec<SchemaData>>,
    /// With `table`: everything of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TableData")]
    pub(crate) table: Option<TableData>,
    /// With `search`: what was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "FoundData")]
    pub(crate) found: Option<FoundData>,
    /// Whether there is more than is shown: ask for one schema, or search.
    pub(crate) truncated: bool,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SchemaData {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    comment: Option<String>,
    /// How many tables and views it has that may be read, shown or not.
    pub(crate) table_count: u64,
    /// They themselves, without columns: ask for those by table.
    pub(crate) tables: Vec<TableSummary>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct TableSummary {
    name: String,
    /// table, partitioned table, foreign table, view or materialized view.
    kind: String,
    /// An estimate of PostgreSQL's; absent if it has none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    estimated_rows: Option<u64>,
    /// On disk, with indexes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    size_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    comment: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct TableData {
    pub(crate) schema: String,
    #[serde(flatten)]
    summary: TableSummary,
    /// The table that this one is a partition of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    partition_of: Option<String>,
    /// How rows are spread over partitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    partitioned_by: Option<String>,
    /// In order.
    columns: Vec<ColumnData>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "KeyData")]
    primary_key: Option<KeyData>,
    unique_keys: Vec<KeyData>,
    /// Its references to other tables.
    foreign_keys: Vec<ReferenceData>,
    /// References of other tables to it.
    referenced_by: Vec<ReferenceData>,
    checks: Vec<DefinitionData>,
    /// Those that are not there for a key.
    indexes: Vec<IndexData>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct ColumnData {
    name: String,
    /// As in CREATE TABLE.
    #[serde(rename = "type")]
    type_name: String,
    nullable: bool,
    /// An SQL expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    default: Option<String>,
    /// The SQL expression that a generated column is computed by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    generated: Option<String>,
    /// always or by default, for an identity column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    identity: Option<String>,
    /// The values that an enum takes, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    enum_labels: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    comment: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct KeyData {
    name: String,
    columns: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct ReferenceData {
    name: String,
    /// Columns of the table that was asked for.
    columns: Vec<String>,
    /// The other table.
    table: String,
    /// The columns there, in the same order.
    other_columns: Vec<String>,
    /// What happens to the referring rows; absent if the change is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    on_update: Option<String>,
    /// What happens to the referring rows; absent if the deletion is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    on_delete: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct DefinitionData {
    name: String,
    definition: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct IndexData {
    name: String,
    unique: bool,
    definition: String,
}

/// What a search found: names that hold the word first, then comments that do.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FoundData {
    tables: Vec<FoundTable>,
    columns: Vec<FoundColumn>,
    #[serde(skip_serializing)]
    #[schemars(skip)]
    pub(crate) truncated: bool,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct FoundTable {
    schema: String,
    name: String,
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    comment: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct FoundColumn {
    schema: String,
    table: String,
    name: String,
    #[serde(rename = "type")]
    type_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    comment: Option<String>,
}
