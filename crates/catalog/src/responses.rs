//! The answers of `describe_database`. The rows of the `.sql` files are parsed to these types, so each field has the
//! name of its column. `notes` come from the operators' manifests; `annotations` adds them.
//!
//! The doc comments become part of the output schema, which every client gets. So a field whose name is clear has
//! none.

use manifest::Access;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use types::{Mask, MaskedColumn, Tier};

/// The schema and the name of a table.
pub(crate) type TableKey = (String, String);

/// `data` of the answer: one of `schemas`, `table`, `tables` and `found`.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct DescribeData {
    /// Without `table` and `search`: the schemas and what is in them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<SchemaData>")]
    pub(crate) schemas: Option<Vec<SchemaData>>,
    /// With `table`: everything of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TableData")]
    pub(crate) table: Option<TableData>,
    /// With `tables`: the same of each, in their order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub(crate) tables: Option<Vec<TableData>>,
    /// Those of `tables` that did not fit: ask for them again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) left_out: Vec<String>,
    /// With `search`: what was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "SearchResult")]
    pub(crate) found: Option<SearchResult>,
    /// Whether there is more than is shown: ask for one schema or table, or search.
    pub(crate) truncated: bool,
    /// How to have the rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub(crate) hint: Option<&'static str>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SchemaData {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    comment: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
    /// How many tables and views it has, shown or not.
    pub(crate) table_count: u64,
    /// Without their columns: ask for those by table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<TableSummary>")]
    pub(crate) tables: Option<Vec<TableSummary>>,
    /// Only their names, if tables would be too large. With neither: ask for this schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    pub(crate) table_names: Option<Vec<String>>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct TableSummary {
    pub(crate) name: String,
    /// table, view, materialized view, partitioned table or foreign table.
    kind: String,
    /// PostgreSQL's estimate, if it has one.
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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct TableData {
    pub(crate) schema: String,
    #[serde(flatten)]
    pub(crate) summary: TableSummary,
    /// The table that this one is a partition of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    partition_of: Option<String>,
    /// How rows are spread over partitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    partitioned_by: Option<String>,
    /// What the view selects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    view_sql: Option<String>,
    /// Whether queries see only the rows that policies let them see; absent if they see all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    row_security: bool,
    /// The policies that apply to queries; without a permissive one they see no row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    policies: Vec<PolicyData>,
    /// In order.
    pub(crate) columns: Vec<ColumnData>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "KeyData")]
    primary_key: Option<KeyData>,
    unique_keys: Vec<KeyData>,
    /// Its references to other tables.
    foreign_keys: Vec<ReferenceData>,
    /// References of other tables to it, like foreign_keys: table and other_columns are the referring ones.
    #[schemars(with = "Vec<Map<String, Value>>")]
    referenced_by: Vec<ReferenceData>,
    checks: Vec<DefinitionData>,
    /// Those that are not there for a key.
    indexes: Vec<IndexData>,
    /// Tools that read or write it, as far as their plans show.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tools: Vec<ToolUse>,
    /// Of the tables that tools touch: it, and partitions of it.
    #[serde(skip_serializing)]
    #[schemars(skip)]
    pub(crate) touched: Vec<TableKey>,
    #[serde(skip_serializing)]
    #[schemars(skip)]
    pub(crate) truncated: bool,
}

/// A tool of the caller's profile that touches the table.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ToolUse {
    pub(crate) name: String,
    /// Whether it changes rows of this very table.
    pub(crate) writes: bool,
    #[schemars(with = "String")]
    pub(crate) access: Access,
    #[schemars(with = "String")]
    pub(crate) tier: Tier,
    pub(crate) description: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ColumnData {
    pub(crate) name: String,
    /// As in CREATE TABLE.
    #[serde(rename = "type")]
    type_name: String,
    nullable: bool,
    /// An SQL expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    default: Option<String>,
    /// How it is computed.
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
    /// From PostgreSQL's statistics, the most common first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    most_common_values: Option<Vec<String>>,
    /// From PostgreSQL's statistics: the least and the greatest of the other values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    range: Option<Vec<String>>,
    /// If its values are masked for the caller, the mask: partial, hash, null or refuse. Then a query may only return it as
    /// a column by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Mask")]
    mask: Option<Mask>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    comment: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

impl TableData {
    /// Marks the masked columns, and removes everything that shows their values.
    pub(crate) fn mask(&mut self, masked: &[MaskedColumn]) {
        for column in &mut self.columns {
            let is_it = |it: &&MaskedColumn| {
                it.schema == self.schema && it.table == self.summary.name && it.column == column.name
            };
            if let Some(masked) = masked.iter().find(is_it) {
                column.mask = Some(masked.mask);
                (column.most_common_values, column.range) = (None, None);
            }
        }
    }
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct PolicyData {
    name: String,
    /// Whether one such policy is enough; restrictive ones must all hold.
    permissive: bool,
    /// An SQL expression; absent if it is always true or may not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    condition: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct KeyData {
    name: String,
    columns: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct ReferenceData {
    name: String,
    /// Of the table that was asked for.
    columns: Vec<String>,
    /// The other table.
    table: String,
    /// Of that, in the same order.
    other_columns: Vec<String>,
    /// What it does to the referring rows; absent if it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    on_update: Option<String>,
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

/// What a search found: names that hold the word first, then comments and notes that do.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SearchResult {
    pub(crate) tables: Vec<SearchResultTable>,
    pub(crate) columns: Vec<SearchResultColumn>,
    #[serde(skip_serializing)]
    #[schemars(skip)]
    pub(crate) truncated: bool,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SearchResultTable {
    pub(crate) schema: String,
    pub(crate) name: String,
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    comment: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SearchResultColumn {
    pub(crate) schema: String,
    pub(crate) table: String,
    pub(crate) name: String,
    #[serde(rename = "type")]
    type_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    comment: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}
