//! Finds which columns of tables the result columns of a statement show.
//!
//! The plan's output names the columns of the tables, also of those behind a view, and of what RETURNING computes.
//! What PostgreSQL describes as the source of a result column adds the columns that a plan calls by the alias of a
//! partitioned table, a subquery or a CTE.

use std::collections::HashSet;

use serde_json::Value;
use types::ColumnOrigin;

use super::plan_expression::{Reference, plain, references};

/// The column of a table or view that a result column comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableColumn {
    pub(super) name: String,
    pub(super) is_of_view: bool,
}

/// The origin of each result column of a statement with this plan. `sources` are the columns that PostgreSQL describes.
pub(super) fn column_origins<'a>(
    plan: Option<&Value>,
    sources: impl Iterator<Item = Option<&'a TableColumn>>,
) -> Vec<ColumnOrigin> {
    let root = plan.and_then(|plan| plan.pointer("/0/Plan"));
    let mut found = PlanColumns::default();
    root.into_iter().for_each(|root| found.look(root));
    let mut entries = root.into_iter().flat_map(output);
    sources
        .map(|source| entries.next().map_or_else(|| without_plan(source), |entry| found.origin(entry, source)))
        .collect()
}

fn without_plan(source: Option<&TableColumn>) -> ColumnOrigin {
    match source {
        Some(source) if !source.is_of_view => ColumnOrigin::Column(vec![source.name.clone()]),
        _ => ColumnOrigin::Any,
    }
}

fn output(node: &Value) -> impl Iterator<Item = &str> {
    node.get("Output").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// The columns that the nodes of a plan show.
#[derive(Debug, Default)]
struct PlanColumns {
    /// The aliases of tables.
    tables: HashSet<String>,
    /// The names of all columns that any node shows. A column of a subquery may be any of them.
    shown: Vec<String>,
    /// Whether a node shows a whole row.
    shows_row: bool,
}

impl PlanColumns {
    fn look(&mut self, node: &Value) {
        let text = |key: &str| node.get(key).and_then(Value::as_str);
        if let (Some(alias), Some(_)) = (text("Alias"), text("Relation Name")) {
            self.tables.insert(alias.to_owned());
        }
        for reference in output(node).flat_map(references) {
            match reference {
                Reference::Bare(name) | Reference::Qualified(_, name) => self.shown.push(name),
                Reference::WholeRow(_) => self.shows_row = true,
            }
        }
        node.get("Plans").and_then(Value::as_array).into_iter().flatten().for_each(|child| self.look(child));
    }

    fn origin(&self, entry: &str, source: Option<&TableColumn>) -> ColumnOrigin {
        let column = plain(entry);
        let is_column = column.is_some();
        let mut names: Vec<String> = Vec::new();
        for reference in references(entry) {
            match reference {
                Reference::WholeRow(_) => return ColumnOrigin::Any,
                Reference::Bare(name) if !is_elsewhere(&name) => names.push(name),
                Reference::Qualified(alias, name) if self.tables.contains(&alias) => names.push(name),
                // The column of a partitioned table, or one that a subquery returns unchanged.
                Reference::Qualified(_, name) if is_column && source.is_some_and(|source| !source.is_of_view) => {
                    names.push(name);
                }
                _ if self.shows_row => return ColumnOrigin::Any,
                _ => names.extend(self.shown.iter().cloned()),
            }
        }
        if is_column && let Some(source) = source {
            names.push(source.name.clone());
            ColumnOrigin::Column(names)
        } else {
            ColumnOrigin::Expression(names)
        }
    }
}

/// Whether EXPLAIN writes the value of a subquery or parameter so: `(SubPlan 1)`, `$0`, `(InitPlan 1).col1`.
fn is_elsewhere(name: &str) -> bool {
    name.starts_with('$') || ["SubPlan", "InitPlan", "hashed", "CTE"].contains(&name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn origins(plan: &Value, sources: &[Option<(&str, bool)>]) -> Vec<ColumnOrigin> {
        let column = |&(name, is_of_view): &(&str, bool)| TableColumn { name: name.to_owned(), is_of_view };
        let sources: Vec<_> = sources.iter().map(|source| source.as_ref().map(column)).collect();
        column_origins(Some(&json!([{ "Plan": plan }])), sources.iter().map(Option::as_ref))
    }

    fn column(names: &[&str]) -> ColumnOrigin {
        ColumnOrigin::Column(names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn expression(names: &[&str]) -> ColumnOrigin {
        ColumnOrigin::Expression(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn returning_shows_columns_and_expressions_over_them() {
        let plan = json!({"Node Type": "ModifyTable", "Relation Name": "pay", "Alias": "pay",
            "Output": ["pay.salary", "('pay '::text || (pay.salary)::text)", "to_jsonb(pay.*)", "now()", "email"]});
        assert_eq!(
            origins(&plan, &[Some(("salary", false)), None, None, None, Some(("mail", true))]),
            [
                column(&["salary", "salary"]),
                expression(&["salary"]),
                ColumnOrigin::Any,
                expression(&[]),
                column(&["email", "mail"])
            ]
        );
    }

    #[test]
    fn a_column_of_a_subquery_may_be_any_that_the_plan_shows_unless_postgresql_names_its_table() {
        let scan = json!({"Relation Name": "pay", "Alias": "pay", "Output": ["pay.id", "pay.salary"]});
        let plan = json!({"Alias": "x", "Output": ["x.a", "x.b", "(SubPlan 1)"], "Plans": [scan]});
        let all = ["a", "b", "SubPlan", "id", "salary"];
        assert_eq!(
            origins(&plan, &[Some(("salary", false)), None, None]),
            [column(&["a", "salary"]), expression(&all), expression(&all)]
        );
        let of_view = origins(&plan, &[Some(("a", true))]);
        assert_eq!(of_view, [column(&[&all[..], &["a"]].concat())]);
    }

    #[test]
    fn without_a_plan_only_the_column_of_a_table_is_known() {
        let of = |name: &str, is_of_view| TableColumn { name: name.to_owned(), is_of_view };
        let sources = [Some(of("salary", false)), Some(of("salary", true)), None];
        let found = column_origins(None, sources.iter().map(Option::as_ref));
        assert_eq!(found, [column(&["salary"]), ColumnOrigin::Any, ColumnOrigin::Any]);
    }
}
