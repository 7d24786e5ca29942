//! The tools of one table: their statements, parameters and descriptions.

use types::{Tier, visible};

use crate::columns::{Param, inserted, sentence, set_null, sought, updated};
use crate::names::Names;
use crate::table::{Action, Column, Follower, Table, ValueKind};

/// Maximum width of a line of a statement, in characters.
const WIDTH: usize = 100;

/// Maximum length of `not_found`, as the format of manifests has it.
const MAX_NOT_FOUND: usize = 200;

/// A tool for one row.
#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) name: String,
    /// The lines of the description.
    pub(crate) description: Vec<String>,
    pub(crate) tier: Tier,
    /// Whether the tool changes or deletes existing data.
    pub(crate) is_destructive: bool,
    pub(crate) before: Option<String>,
    pub(crate) sql: String,
    pub(crate) not_found: Option<String>,
    /// The reason why its recorded changes cannot undo it; `None` if they can.
    pub(crate) irreversible: Option<String>,
    pub(crate) params: Vec<Param>,
}

/// A table with a key, and what its tools have in common.
pub(crate) struct TableTools<'a> {
    pub(crate) table: &'a Table,
    pub(crate) noun: String,
    pub(crate) followers: Vec<&'a Follower>,
}

impl TableTools<'_> {
    pub(crate) fn insert(&self) -> Tool {
        let mut names = Names::of_params();
        let columns = self.table.columns.iter().filter(|column| !column.is_filled_by_the_database());
        let columns: Vec<&Column> = columns.collect();
        let numbered = columns.iter().zip(1..);
        let (params, values): (Vec<Param>, Vec<String>) =
            numbered.map(|(column, number)| inserted(self.table, column, &mut names, number)).unzip();
        let table = &self.table.sql_name;
        let head = if columns.is_empty() {
            format!("insert into {table} default values")
        } else {
            let names: Vec<String> = columns.iter().map(|column| column.sql_name.clone()).collect();
            format!(
                "{}\n{}",
                in_parentheses(&format!("insert into {table} "), &names),
                in_parentheses("values ", &values)
            )
        };
        Tool {
            name: format!("insert_{}", self.noun),
            description: self.description(format!("Insert a row into {}.", visible(table)), true),
            tier: Tier::Auto,
            is_destructive: false,
            before: None,
            sql: format!("{head}\n{}\n", list("returning ", &self.returned())),
            not_found: None,
            irreversible: None,
            params,
        }
    }

    /// The tool that updates columns of a row; `None` if the table has only key columns.
    pub(crate) fn update(&self) -> Option<Tool> {
        let mut names = Names::of_params();
        let (mut params, row) = self.key(&mut names);
        let columns = self.table.columns.iter().filter(|column| !column.is_generated && !self.is_in_key(column));
        // A column that is GENERATED ALWAYS cannot be updated, and a number from a sequence should not change.
        let columns: Vec<&Column> = columns.filter(|column| !column.is_filled_by_the_database()).collect();
        if columns.is_empty() {
            return None;
        }
        let first = params.len() + 1;
        let of_columns = columns.iter().zip(first..);
        params.extend(of_columns.map(|(column, number)| updated(self.table, column, &mut names, number)));
        let nullable: Vec<toml::Value> = params
            .iter()
            .skip(self.table.key.len())
            .zip(&columns)
            .filter(|(_, column)| !column.not_null)
            .map(|(param, _)| toml::Value::String(param.name.clone()))
            .collect();
        if !nullable.is_empty() {
            params.push(set_null(&mut names, nullable));
        }
        let table = &self.table.sql_name;
        let summary = format!(
            "Change one row of {} by its key ({}). Give the columns to change; the others keep their values.",
            visible(table),
            self.key_names()
        );
        Some(Tool {
            name: format!("update_{}", self.noun),
            description: self.description(summary, true),
            tier: Tier::Auto,
            is_destructive: true,
            before: Some(self.before(&row)),
            sql: format!("update {table} set {{set}} where {row}\n{}\n", list("returning ", &self.returned())),
            not_found: Some(self.not_found()),
            irreversible: self.irreversible(Action::Update),
            params,
        })
    }

    pub(crate) fn delete(&self) -> Tool {
        let (params, row) = self.key(&mut Names::of_params());
        let table = &self.table.sql_name;
        let summary = format!("Delete one row of {} by its key ({}).", visible(table), self.key_names());
        let mut description = self.description(summary, false);
        let followers: Vec<String> = self.following(Action::Delete).map(|table| visible(&table.follower)).collect();
        if !followers.is_empty() {
            description.push(format!("Foreign keys change rows of {} with it.", followers.join(", ")));
        }
        let key: Vec<String> =
            self.table.columns.iter().filter(|it| self.is_in_key(it)).map(|it| it.sql_name.clone()).collect();
        Tool {
            name: format!("delete_{}", self.noun),
            description,
            tier: Tier::Approve,
            is_destructive: true,
            before: Some(self.before(&row)),
            sql: format!("delete from {table} where {row}\n{}\n", list("returning ", &key)),
            not_found: Some(self.not_found()),
            irreversible: self.irreversible(Action::Delete),
            params,
        }
    }

    fn description(&self, summary: String, has_conditions: bool) -> Vec<String> {
        let comment = self.table.comment.as_deref().and_then(sentence);
        let several = self.table.checks.iter().filter(|check| has_conditions && check.columns.len() != 1);
        let conditions = several.map(|check| format!("The database checks {}.", visible(&check.expression)));
        std::iter::once(summary).chain(comment).chain(conditions).collect()
    }

    /// The parameters for the key, and the condition that finds the row.
    fn key(&self, names: &mut Names) -> (Vec<Param>, String) {
        let columns = self.table.key.iter().filter_map(|key| {
            let column = self.table.columns.iter().find(|column| column.name == key.name)?;
            Some((key, column))
        });
        let (params, conditions): (Vec<Param>, Vec<String>) = columns
            .zip(1..)
            .map(|((key, column), number)| {
                let operator = key.operator.as_deref().unwrap_or("=");
                (sought(self.table, column, names), format!("{} {operator} ${number}", column.sql_name))
            })
            .unzip();
        (params, conditions.join(" and "))
    }

    fn key_names(&self) -> String {
        self.table.key.iter().map(|key| visible(&key.name)).collect::<Vec<_>>().join(", ")
    }

    fn is_in_key(&self, column: &Column) -> bool {
        self.table.key.iter().any(|key| key.name == column.name)
    }

    /// The query that captures the row before it changes. For `bytea` it selects only the length, since a record
    /// stores at most 1 MiB of rows.
    fn before(&self, row: &str) -> String {
        let taken = |name: &str| self.table.columns.iter().any(|column| column.name == name);
        let shown = |column: &Column| {
            if column.kind != ValueKind::Bytes || self.is_in_key(column) {
                return Some(column.sql_name.clone());
            }
            let alias = format!("{}_bytes", column.name);
            (!taken(&alias)).then(|| format!("octet_length({}) as {}", column.sql_name, identifier(&alias)))
        };
        let columns: Vec<String> = self.table.columns.iter().filter_map(shown).collect();
        let table = &self.table.sql_name;
        format!("{}\nfrom {table} where {row} for update\n", list("select ", &columns))
    }

    /// The columns of the result, except those that may be large.
    fn returned(&self) -> Vec<String> {
        let is_returned = |column: &&Column| column.kind != ValueKind::Bytes || self.is_in_key(column);
        self.table.columns.iter().filter(is_returned).map(|column| column.sql_name.clone()).collect()
    }

    fn not_found(&self) -> String {
        let message = format!("There is no such row in {}.", visible(&self.table.sql_name));
        if message.chars().count() > MAX_NOT_FOUND { "There is no such row.".to_owned() } else { message }
    }

    fn following(&self, action: Action) -> impl Iterator<Item = &Follower> {
        self.followers.iter().copied().filter(move |follower| follower.action == action)
    }

    fn irreversible(&self, action: Action) -> Option<String> {
        let keyless: Vec<String> =
            self.following(action).filter(|it| !it.has_key).map(|it| visible(&it.follower)).collect();
        let why = || {
            format!("Foreign keys change rows of {} with it, which has no key to restore them by.", keyless.join(", "))
        };
        (!keyless.is_empty()).then(why)
    }
}

/// A name of our own as an SQL identifier. Unneeded quotes are harmless.
fn identifier(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let starts_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    if starts_plain && name.chars().all(is_plain) {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

fn in_parentheses(head: &str, items: &[String]) -> String {
    format!("{})", list(&format!("{head}("), items))
}

/// The head and the items, on as many lines as they need.
fn list(head: &str, items: &[String]) -> String {
    let (mut text, mut width) = (head.to_owned(), head.chars().count());
    for (index, item) in items.iter().enumerate() {
        let item = if index + 1 == items.len() { item.clone() } else { format!("{item},") };
        let length = item.chars().count();
        if index > 0 && width + 1 + length > WIDTH {
            text.push_str("\n  ");
            width = 2;
        } else if index > 0 {
            text.push(' ');
            width += 1;
        }
        text.push_str(&item);
        width += length;
    }
    text
}
