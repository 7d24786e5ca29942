//! The whole manifest: which tables have tools, and what to do before it fits.

use std::collections::BTreeSet;

use toml::Value;
use types::visible;

use crate::discover::Tables;
use crate::names::Names;
use crate::table::{Follower, RelationKind, Table};
use crate::text;
use crate::tools::{TableTools, Tool};

const HEAD: &str = "\
# Written by `countersign scaffold` from the database. Edit it: remove what agents should not do, and
# give tier = \"confirm\" or \"approve\" to what people should see first.
#
# The tables have to be tracked (`countersign track`): recorded changes undo each write exactly.
";

/// A manifest, and what goes with it.
#[derive(Debug)]
pub struct Scaffold {
    /// The TOML.
    pub text: String,
    /// The number of tools.
    pub tools: usize,
    /// The tables whose changes have to be recorded, as SQL writes them: those that the tools write, and those that foreign keys
    /// change with them.
    pub tables: Vec<String>,
    /// Tables without tools, or with fewer of them, and the reason: `shop.totals: a view`.
    pub left_out: Vec<String>,
}

/// Writes the manifest for these tables.
#[must_use]
pub fn manifest(found: &Tables) -> Scaffold {
    let mut nouns = Names::default();
    let (mut tools, mut tables, mut left_out) = (Vec::new(), BTreeSet::new(), Vec::new());
    for table in &found.tables {
        if let Some(why) = obstacle(table) {
            left_out.push(format!("{}: {why}", visible(&table.sql_name)));
            continue;
        }
        let followers: Vec<&Follower> = found.followers.iter().filter(|it| it.name == table.name).collect();
        let of_table = TableTools { table, noun: nouns.noun(&table.name), followers };
        tables.insert(table.sql_name.clone());
        tables.extend(of_table.followers.iter().filter(|it| it.has_key).map(|it| it.follower.clone()));
        tools.push(of_table.insert());
        match of_table.update() {
            Some(update) => tools.push(update),
            None => {
                left_out.push(format!("update of {}: only its key has values of an agent", visible(&table.sql_name)))
            }
        }
        tools.push(of_table.delete());
    }
    Scaffold {
        text: whole(&found.schema, &tools, &left_out),
        tools: tools.len(),
        tables: tables.into_iter().collect(),
        left_out,
    }
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

fn whole(schema: &str, tools: &[Tool], left_out: &[String]) -> String {
    let mut text = HEAD.to_owned();
    if !left_out.is_empty() {
        text.push_str("#\n# Left out:\n");
        left_out.iter().for_each(|line| text.push_str(&format!("# - {line}\n")));
    }
    text.push('\n');
    text::push(&mut text, "name", &Value::from(schema));
    text::push(&mut text, "version", &Value::from("1"));
    for tool in tools {
        text.push('\n');
        text.push_str(&text::tool(tool));
    }
    text
}
