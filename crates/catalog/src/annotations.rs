//! The annotations of the schema from manifests: the operators' notes, and the tools that access each table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use manifest::{Note, ToolCatalog, ToolSpec};

use crate::responses::{SchemaData, SearchResult, TableData, TableKey, ToolUse};
use crate::served::ServedTools;

/// The maximum length of a note, and of a tool's description in a list. Comments have the same limit.
const LISTED_CHARS: usize = 300;

#[derive(Debug, Default)]
pub(crate) struct CatalogAnnotations {
    notes: Vec<Note>,
    tools: Vec<ToolTables>,
}

/// A tool, the tables that its statements access, and whether it writes to them.
#[derive(Debug)]
struct ToolTables {
    spec: Arc<ToolSpec>,
    tables: BTreeMap<TableKey, bool>,
}

impl CatalogAnnotations {
    pub(crate) fn new(catalog: &ToolCatalog) -> Self {
        let of_tool = |spec: &Arc<ToolSpec>| {
            let mut tables: BTreeMap<TableKey, bool> = BTreeMap::new();
            for it in spec.tables() {
                *tables.entry((it.schema.clone(), it.table.clone())).or_default() |= it.written;
            }
            ToolTables { spec: Arc::clone(spec), tables }
        };
        Self { notes: catalog.notes.clone(), tools: catalog.tools.iter().map(of_tool).collect() }
    }

    /// Every table that a tool accesses.
    pub(crate) fn accessed(&self) -> BTreeSet<&TableKey> {
        self.tools.iter().flat_map(|tool| tool.tables.keys()).collect()
    }

    /// The notes in a text form, to detect that they have changed.
    pub(crate) fn change_key(&self) -> Vec<String> {
        self.notes.iter().map(|note| format!("{note:?}")).collect()
    }

    /// The objects whose note contains this word, ignoring case: schema, table and, for a note on a column, the
    /// column.
    pub(crate) fn objects_with_note(&self, word: &str) -> Vec<(&str, &str, Option<&str>)> {
        let word = word.to_lowercase();
        let noted = self.notes.iter().filter(|note| note.text.to_lowercase().contains(&word));
        noted.filter_map(|note| Some((note.schema.as_str(), note.table.as_deref()?, note.column.as_deref()))).collect()
    }

    fn on(&self, schema: &str, table: Option<&str>, column: Option<&str>, chars: usize) -> Vec<String> {
        let on =
            |note: &&Note| note.schema == schema && note.table.as_deref() == table && note.column.as_deref() == column;
        self.notes.iter().filter(on).map(|note| cut(&note.text, chars)).collect()
    }

    pub(crate) fn annotate_schemas(&self, schemas: &mut [SchemaData]) {
        for schema in schemas {
            schema.notes = self.on(&schema.name, None, None, LISTED_CHARS);
            for table in schema.tables.iter_mut().flatten() {
                table.notes = self.on(&schema.name, Some(&table.name), None, LISTED_CHARS);
            }
        }
    }

    pub(crate) fn annotate_found(&self, found: &mut SearchResult) {
        for table in &mut found.tables {
            table.notes = self.on(&table.schema, Some(&table.name), None, LISTED_CHARS);
        }
        for column in &mut found.columns {
            column.notes = self.on(&column.schema, Some(&column.table), Some(&column.name), LISTED_CHARS);
        }
    }

    /// Adds the notes on a table and its columns, and those `tools` that access the table or a partition of it.
    pub(crate) fn annotate_table(&self, table: &mut TableData, tools: ServedTools<'_>) {
        let (schema, name) = (table.schema.clone(), table.summary.name.clone());
        table.summary.notes = self.on(&schema, Some(&name), None, usize::MAX);
        for column in &mut table.columns {
            column.notes = self.on(&schema, Some(&name), Some(&column.name), usize::MAX);
        }
        let served = self.tools.iter().filter(|tool| tools(&tool.spec.name));
        let uses = served.filter_map(|tool| {
            let written = table.touched.iter().filter_map(|key| tool.tables.get(key)).copied().reduce(|a, b| a | b)?;
            Some(ToolUse {
                name: tool.spec.name.clone(),
                writes: written,
                access: tool.spec.access,
                tier: tool.spec.tier,
                description: cut(&tool.spec.description, LISTED_CHARS),
            })
        });
        table.tools = uses.collect();
    }
}

fn cut(text: &str, chars: usize) -> String {
    text.chars().take(chars).collect()
}
