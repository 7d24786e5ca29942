//! Writes the whole manifest: which tables have tools, and what to do before it fits the database.

use std::collections::BTreeSet;
use std::str::FromStr;

use toml::Value;
use types::visible;

use crate::discover::SchemaTables;
use crate::names::Names;
use crate::table::{Action, Follower, RelationKind, Table};
use crate::text;
use crate::tools::{TableTools, Tool};

const HEAD: &str = "\
# Written by `countersign scaffold` from the database. Edit it: remove what agents should not do, and
# give tier = \"confirm\" or \"approve\" to what people should see first.
#
# The tables have to be tracked (`countersign track`): recorded changes undo each write exactly.
";

/// A manifest, and information about it.
#[derive(Debug)]
pub struct Scaffold {
    pub text: String,
    pub tools: usize,
    /// The tables that must be tracked, quoted as in SQL: those that the tools write to, and those that foreign keys
    /// change as well.
    pub tables: Vec<String>,
    /// Tables without tools, or with fewer tools, and the reason: `shop.totals: a view`.
    pub left_out: Vec<String>,
    /// The approximate number of tokens that the list of these tools takes in each session.
    pub tokens: usize,
}

types::text_enum! {
    /// What a tool does with one row.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ToolKind {
        /// Inserts a row.
        Insert = "insert",
        /// Updates some columns of a row.
        Update = "update",
        /// Deletes a row.
        Delete = "delete",
    }
}

/// A word that is not a kind of tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a kind of tool is insert, update or delete")]
pub struct UnknownKindError;

impl FromStr for ToolKind {
    type Err = UnknownKindError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::parse(word).ok_or(UnknownKindError)
    }
}

/// Writes the manifest for these tables, with tools of these kinds; an empty `only` means all kinds.
#[must_use]
pub fn manifest(found: &[SchemaTables], only: &[ToolKind]) -> Scaffold {
    let has = |kind: ToolKind| only.is_empty() || only.contains(&kind);
    let mut nouns = Names::default();
    let (mut tools, mut tables, mut left_out) = (Vec::new(), BTreeSet::new(), Vec::new());
    for (of_schema, table) in found.iter().flat_map(|of| of.tables.iter().map(move |table| (of, table))) {
        if let Some(why) = obstacle(table) {
            left_out.push(format!("{}: {why}", visible(&table.sql_name)));
            continue;
        }
        let is_reached = |it: &&Follower| match it.action {
            Action::Update => has(ToolKind::Update),
            Action::Delete => has(ToolKind::Delete),
        };
        let followers = of_schema.followers.iter().filter(|it| it.name == table.name).filter(is_reached);
        let of_table = TableTools { table, noun: nouns.noun(&table.name), followers: followers.collect() };
        tables.insert(table.sql_name.clone());
        tables.extend(of_table.followers.iter().filter(|it| it.has_key).map(|it| it.follower.clone()));
        if has(ToolKind::Insert) {
            tools.push(of_table.insert());
        }
        if has(ToolKind::Update) {
            match of_table.update() {
                Some(update) => tools.push(update),
                None => left_out
                    .push(format!("update of {}: only its key has values of an agent", visible(&table.sql_name))),
            }
        }
        if has(ToolKind::Delete) {
            tools.push(of_table.delete());
        }
    }
    let schemas: Vec<&str> = found.iter().map(|of| of.schema.as_str()).collect();
    let text = whole(&schemas.join(", "), &tools, &left_out);
    let tokens = tools.iter().map(listed_bytes).sum::<usize>() / BYTES_OF_A_TOKEN;
    Scaffold { text, tools: tools.len(), tables: tables.into_iter().collect(), left_out, tokens }
}

/// The approximate number of bytes for each token of an English text.
const BYTES_OF_A_TOKEN: usize = 4;

/// The approximate size of a tool in the answer of `tools/list`, in bytes: its texts, and the JSON around them.
fn listed_bytes(tool: &Tool) -> usize {
    const OF_TOOL: usize = 400;
    const OF_PARAM: usize = 60;
    let params = tool.params.iter().map(|param| OF_PARAM + param.name.len() + param.description.len());
    OF_TOOL + tool.name.len() + tool.description.iter().map(String::len).sum::<usize>() + params.sum::<usize>()
}

/// The reason why a table has no tools.
fn obstacle(table: &Table) -> Option<String> {
    let hidden = table.columns.iter().find(|column| !column.is_readable);
    match table.kind {
        RelationKind::View => Some("a view: the ledger records the changes of tables only".to_owned()),
        RelationKind::Foreign => Some("a foreign table, whose rows are in another database".to_owned()),
        RelationKind::Partition => Some("a partition: the tools of its table write it".to_owned()),
        RelationKind::Table => match (&table.extension, hidden) {
            (Some(extension), _) => Some(format!("belongs to the extension {}", visible(extension))),
            (None, Some(column)) => Some(format!("this login may not read its column {}", visible(&column.sql_name))),
            (None, None) if table.key.is_empty() => {
                Some("has no primary key, and no unique one over columns that are NOT NULL".to_owned())
            }
            (None, None) if table.is_inherited => {
                Some("other tables inherit from it, whose rows can have the same keys".to_owned())
            }
            (None, None) => None,
        },
    }
}

fn whole(name: &str, tools: &[Tool], left_out: &[String]) -> String {
    let mut text = HEAD.to_owned();
    if !left_out.is_empty() {
        text.push_str("#\n# Left out:\n");
        left_out.iter().for_each(|line| text.push_str(&format!("# - {line}\n")));
    }
    text.push('\n');
    text::push(&mut text, "name", &Value::from(name));
    text::push(&mut text, "version", &Value::from("1"));
    for tool in tools {
        text.push('\n');
        text.push_str(&text::tool(tool));
    }
    text
}
