//! The relations that have masked columns, as the catalog shows them in the transaction of the read.

use std::collections::HashMap;

use serde::Deserialize;
use types::{Mask, MaskedColumn, Masks};

use super::MaskError;

/// Returns one row with one column of JSON.
pub(super) const RELATIONS_SQL: &str = include_str!("relations.sql");

/// The relations with masked columns.
#[derive(Debug, Default)]
pub(super) struct MaskedRelations {
    by_name: HashMap<(String, String), MaskedRelation>,
    /// By `pg_class.oid` and `pg_attribute.attnum`.
    by_number: HashMap<(u32, i16), ColumnMask>,
    /// The server's version, such as 180004.
    pub(super) server_version: u32,
    /// The rules of views that use these relations, each as `oid:version`.
    pub(super) rules: Vec<String>,
}

/// The masked columns of a relation by name.
#[derive(Debug, Default)]
pub(super) struct MaskedRelation {
    oid: u32,
    columns: HashMap<String, ColumnMask>,
}

/// A masked column, under the name that the operator gave it, and its mask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ColumnMask {
    pub(super) column: String,
    pub(super) mask: Mask,
}

impl MaskedRelations {
    /// Every masked column, those of partitions and child tables included.
    pub(super) fn columns(&self) -> Vec<MaskedColumn> {
        let of_relation = |((schema, table), relation): (&(String, String), &MaskedRelation)| {
            let column = |(name, masked): (&String, &ColumnMask)| MaskedColumn {
                schema: schema.clone(),
                table: table.clone(),
                column: name.clone(),
                mask: masked.mask,
            };
            relation.columns.iter().map(column).collect::<Vec<_>>()
        };
        self.by_name.iter().flat_map(of_relation).collect()
    }
}

#[derive(Deserialize)]
struct CatalogAnswer {
    server_version: u32,
    rules: Option<Vec<String>>,
    columns: Option<Vec<CatalogColumn>>,
}

#[derive(Deserialize)]
struct CatalogColumn {
    place: usize,
    oid: Option<u32>,
    schema: Option<String>,
    table: Option<String>,
    kind: Option<String>,
    number: Option<i16>,
    is_text: Option<bool>,
}

impl MaskedRelations {
    /// Parses the answer of [`RELATIONS_SQL`].
    pub(super) fn parse(answer: &str, masks: &Masks) -> Result<Self, MaskError> {
        let answer: CatalogAnswer = serde_json::from_str(answer).map_err(|_| MaskError::no_catalog())?;
        let (server_version, rules) = (answer.server_version, answer.rules.unwrap_or_default());
        let mut relations = Self { server_version, rules, ..Self::default() };
        for found in answer.columns.unwrap_or_default() {
            let masked = found.place.checked_sub(1).and_then(|index| masks.columns.get(index));
            let masked = masked.ok_or_else(MaskError::no_catalog)?;
            let column = format!("{}.{}.{}", masked.schema, masked.table, masked.column);
            let (Some(oid), Some(schema), Some(table), Some(kind), Some(number)) =
                (found.oid, found.schema, found.table, found.kind, found.number)
            else {
                return Err(MaskError::misfit(&column, "the database has no such column"));
            };
            match kind.as_str() {
                "r" | "p" | "m" => {}
                "v" => {
                    return Err(MaskError::misfit(&column, "it is a column of a view: mask the column of the table"));
                }
                "f" => return Err(MaskError::misfit(&column, "columns of foreign tables cannot be masked")),
                _ => return Err(MaskError::misfit(&column, "it is not a column of a table")),
            }
            if masked.mask == Mask::Partial && found.is_text != Some(true) {
                return Err(MaskError::misfit(
                    &column,
                    "\"partial\" is for columns of text: take \"hash\" or \"null\"",
                ));
            }
            let mask = ColumnMask { column, mask: masked.mask };
            relations.by_number.insert((oid, number), mask.clone());
            let relation = relations.by_name.entry((schema, table)).or_default();
            relation.oid = oid;
            relation.columns.insert(masked.column.clone(), mask);
        }
        Ok(relations)
    }

    pub(super) fn get(&self, schema: &str, table: &str) -> Option<&MaskedRelation> {
        self.by_name.get(&(schema.to_owned(), table.to_owned()))
    }

    /// The mask of a column by its numbers.
    pub(super) fn of_source(&self, source: (u32, i16)) -> Option<&ColumnMask> {
        self.by_number.get(&source)
    }

    /// The relation of this oid, if it has masked columns.
    pub(super) fn by_oid(&self, oid: u32) -> Option<&MaskedRelation> {
        self.by_name.values().find(|relation| relation.oid == oid)
    }
}

impl MaskedRelation {
    pub(super) fn column(&self, name: &str) -> Option<&ColumnMask> {
        self.columns.get(name)
    }

    /// Any of its masked columns.
    pub(super) fn any(&self) -> Option<&ColumnMask> {
        self.columns.values().min_by(|a, b| a.column.cmp(&b.column))
    }
}
