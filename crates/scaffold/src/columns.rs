//! Decides how the tools of a table accept its columns.

use types::visible;

use crate::constraint::{Rules, constant};
use crate::names::Names;
use crate::table::{Column, ForeignKey, Table, ValueKind};

/// Maximum length of a comment in a description, in characters.
const MAX_COMMENT: usize = 1000;

#[derive(Debug)]
pub(crate) struct Param {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) optional: bool,
    pub(crate) default: Option<toml::Value>,
    /// The assignment in an UPDATE, made if a call gives the parameter.
    pub(crate) sets: Option<String>,
    /// Whether its value lists the parameters whose columns become NULL.
    pub(crate) sets_null: bool,
    pub(crate) rules: Rules,
}

impl Param {
    pub(crate) fn required(name: String, description: String, rules: Rules) -> Self {
        Self { name, description, optional: false, default: None, sets: None, sets_null: false, rules }
    }
}

/// The parameter of an insert, and the expression for it in the statement.
pub(crate) fn inserted(table: &Table, column: &Column, names: &mut Names, number: usize) -> (Param, String) {
    let (rules, mut description) = described(table, column);
    let default = column.default.as_deref().filter(|default| !default.starts_with("NULL"));
    let value =
        default.and_then(|default| constant(default, column.kind)).filter(|value| rules.allow(value) == Some(true));
    let sql = match default {
        // Without the cast, the expression might have a narrower type than the column.
        Some(default) if value.is_none() => {
            description.push_str(&format!(" Default: {}.", visible(default)));
            format!("coalesce(${number}::{}, {default})", column.ty)
        }
        // PostgreSQL cannot plan a parameter of a domain that does not allow NULL.
        _ if column.is_domain => format!("${number}::{}", column.ty),
        _ => format!("${number}"),
    };
    let optional = value.is_none() && (default.is_some() || !column.not_null);
    let param = Param::required(names.param(&column.name), description, rules);
    (Param { optional, default: value, ..param }, sql)
}

/// The parameter for a key column that finds a row.
pub(crate) fn sought(table: &Table, column: &Column, names: &mut Names) -> Param {
    let description = description(table, column);
    Param::required(names.param(&column.name), description, Rules::default())
}

/// The parameter for a new value of a column, with its assignment.
pub(crate) fn updated(table: &Table, column: &Column, names: &mut Names, number: usize) -> Param {
    let (rules, description) = described(table, column);
    // PostgreSQL cannot plan a parameter of a domain that does not allow NULL.
    let ty = if column.is_domain { format!("::{}", column.ty) } else { String::new() };
    let sets = Some(format!("{} = ${number}{ty}", column.sql_name));
    Param { optional: true, sets, ..Param::required(names.param(&column.name), description, rules) }
}

/// The parameter that lists columns to set to NULL.
pub(crate) fn set_null(names: &mut Names, columns: Vec<toml::Value>) -> Param {
    let description =
        "Columns to set to NULL, by the names of their arguments; a value for one of them is ignored.".to_owned();
    let rules = Rules { one_of: Some(columns), ..Rules::default() };
    Param { optional: true, sets_null: true, ..Param::required(names.param("set_null"), description, rules) }
}

/// The rules for values of a column, and its description, which has the conditions that are not among the rules.
fn described(table: &Table, column: &Column) -> (Rules, String) {
    let of_table = table.checks.iter().filter(|check| check.columns == [column.name.as_str()]);
    let of_table = of_table.map(|check| (check.expression.as_str(), column.sql_name.as_str()));
    let of_domains = column.checks.iter().map(|expression| (expression.as_str(), "VALUE"));
    let mut rules = Rules { max_length: column.max_length, scale: column.scale, ..Rules::default() };
    let mut description = description(table, column);
    for (expression, operand) in of_domains.chain(of_table) {
        if !rules.add(expression, operand, column.kind) {
            description.push_str(&format!(" The database checks {}.", visible(expression)));
        }
    }
    // A manifest cannot have an enum without values, and no value would be valid.
    if rules.one_of.as_ref().is_some_and(Vec::is_empty) {
        rules.one_of = None;
    }
    (rules, description)
}

/// The comment of a column, or its name, and the column that it references.
fn description(table: &Table, column: &Column) -> String {
    let name = || format!("The {}.", visible(&column.name.replace('_', " ")));
    let mut text = column.comment.as_deref().and_then(sentence).unwrap_or_else(name);
    for key in table.foreign_keys.iter().filter(|key| key.columns.contains(&column.name)) {
        text.push_str(&reference(key, column));
    }
    if column.kind == ValueKind::Bytes && column.comment.is_none() {
        text.push_str(" Binary.");
    }
    text
}

fn reference(key: &ForeignKey, column: &Column) -> String {
    let others: Vec<String> =
        key.columns.iter().filter(|name| **name != column.name).map(|name| visible(name)).collect();
    let with =
        if others.is_empty() { " References".to_owned() } else { format!(" With {} references", others.join(", ")) };
    format!("{with} {} ({}).", visible(&key.table), visible(&key.target.join(", ")))
}

/// A comment on one line, as a sentence. `None` if it is empty.
pub(crate) fn sentence(comment: &str) -> Option<String> {
    let words = comment.split(char::is_whitespace).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    let words: String = words.chars().take(MAX_COMMENT).collect();
    let text = visible(&words);
    let end = if text.ends_with(char::is_alphanumeric) { "." } else { "" };
    (!text.is_empty()).then(|| text + end)
}
