//! `[database.NAME]`: the databases of a server with several.

use std::collections::BTreeMap;
use std::path::Path;

use auth::{LABEL_RULE, is_label};
use serde_spanned::Spanned;
use toml::de::DeTable;
use types::{DatabaseLabel, DatabaseName};

use super::database_keys::{DatabaseTableKeys, INNER, TABLE};
use super::keys::{DatabaseGroups, TOP};
use super::masks::{self, MaskConfig};
use super::reader::Reader;
use super::schema;

/// What cannot stand before the tables of several databases.
const URLS: [&str; 6] =
    ["database_url", "database_url_file", "read_url", "read_url_file", "operator_url", "operator_url_file"];

/// A database of the file.
#[derive(Debug, Clone)]
pub(super) struct DatabaseTable {
    pub(super) label: DatabaseLabel,
    pub(super) prefix: String,
    pub(super) keys: DatabaseGroups,
    /// Its own masks, in place of the general ones.
    pub(super) masks: Option<MaskConfig>,
}

impl<'s> Reader<'s> {
    /// The databases. `profiles` are the names of the existing profiles.
    pub(super) fn databases(
        &mut self,
        top: &mut DeTable<'s>,
        folder: &Path,
        profiles: &[String],
    ) -> Vec<DatabaseTable> {
        let mut tables = self.table(top, TABLE);
        for key in URLS {
            if !tables.is_empty()
                && let Some((key, _)) = top.get_key_value(key)
            {
                let message = format!("there are several databases: {} belongs in the table of one", key.get_ref());
                self.mistake(key.span(), message);
            }
        }
        let names: Vec<_> = tables.keys().cloned().collect();
        let mut databases = Vec::new();
        for name in names {
            let mut table = self.table(&mut tables, name.get_ref());
            match name.get_ref().parse::<DatabaseName>() {
                Ok(parsed) => databases.push(self.database(parsed, name.span().start, &mut table, folder, profiles)),
                Err(error) => self.mistake(name.span(), error.to_string()),
            }
        }
        databases
    }

    fn database(
        &mut self,
        name: DatabaseName,
        start: usize,
        table: &mut DeTable<'s>,
        folder: &Path,
        profiles: &[String],
    ) -> DatabaseTable {
        let before = self.mistakes.len();
        let own: DatabaseTableKeys = self.group(table);
        let masks = table.contains_key(masks::TABLE).then(|| self.masks(table, profiles));
        let inner = INNER.map(|inner| (inner, self.table(table, inner)));
        let mut tables: BTreeMap<&str, DeTable<'s>> = inner.into_iter().collect();
        tables.insert(TOP, std::mem::take(table));
        let mut keys = DatabaseGroups::read(self, &mut tables);
        keys.resolve_paths(folder);
        for (inner, rest) in &tables {
            let (prefix, known) = match *inner {
                TOP => (format!("{TABLE}.{name}."), schema::database().keys().cloned().collect()),
                inner => (format!("{TABLE}.{name}.{inner}."), schema::names(Some(inner))),
            };
            self.refuse_rest(rest, &prefix, &known);
        }
        let has_url = keys.connection.database_url.is_some() || keys.connection.database_url_file.is_some();
        if !has_url && self.mistakes.len() == before {
            self.mistake(start..start, format!("{TABLE}.{name}: database_url is missing, or database_url_file"));
        }
        for (key, text) in [("environment", &own.environment), ("description", &own.description)] {
            if let Some(text) = text.as_ref().filter(|text| !is_label(text.get_ref())) {
                self.mistake(text.span(), format!("{key}: it takes {LABEL_RULE}"));
            }
        }
        let [environment, description, prefix] =
            [own.environment, own.description, own.prefix].map(|text| text.map(Spanned::into_inner));
        let label = DatabaseLabel { name, environment, description };
        DatabaseTable { label, prefix: prefix.unwrap_or_default(), keys, masks }
    }

    /// Reports the names in a list of databases that no database has. `place` is the key of the list.
    pub(super) fn known_databases(&mut self, place: &str, named: &[Spanned<String>], databases: &[DatabaseTable]) {
        for name in named.iter().filter(|name| !databases.iter().any(|own| own.label.name.as_str() == *name.get_ref()))
        {
            let known: Vec<&str> = databases.iter().map(|own| own.label.name.as_str()).collect();
            let known = if known.is_empty() {
                format!("there is no table [{TABLE}.NAME]")
            } else {
                format!("it is one of {}", known.join(", "))
            };
            self.mistake(name.span(), format!("{place}: there is no database {:?}: {known}", name.get_ref()));
        }
    }

    /// The names in such a list.
    pub(super) fn database_names(named: Option<Vec<Spanned<String>>>) -> Option<Vec<DatabaseName>> {
        Some(named?.iter().filter_map(|name| name.get_ref().parse().ok()).collect())
    }
}
