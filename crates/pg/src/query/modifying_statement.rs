//! Inspects a statement of a caller that changes rows, before it runs.
//!
//! The plan decides: it must be one plan with a ModifyTable node. It shows the tables, with views and rules resolved,
//! and most of the functions. It does not show every function (`read::function_policy`), so each name in the text that
//! may be a call counts as well.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use types::{ReferencedObjects, TableAccess};

use crate::client::error::{Error, ServerError};
use crate::client::session::Session;
use crate::query::plan::{PlanParameters, PlanResult, plan_without_writes};
use crate::query::read::{ATTRIBUTE, ReadError, forbidden, has_unicode_identifiers, mentioned_calls};
use crate::query::referenced_objects::{called, is_distributed, referenced_objects};

/// A statement that changes rows, as its plan shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModifyingStatement {
    /// The tables in the plan; sorted.
    pub tables: Vec<TableAccess>,
    /// The tables of which an UPDATE or DELETE changes every row, because it has no condition.
    pub unfiltered: Vec<(String, String)>,
}

/// Why a statement is not run.
#[derive(Debug)]
pub enum ModifyingStatementError {
    /// It is not one INSERT, UPDATE, DELETE or MERGE. The text is the end of a sentence about the statement.
    NotModifying(&'static str),
    /// It may call this function, which such a statement may not call.
    ForbiddenFunction {
        function: String,
        /// The reason: the end of a sentence about the function.
        why: String,
    },
    /// An identifier is written with Unicode escapes, so the names in the text are unknown.
    UnicodeIdentifier,
    /// PostgreSQL cannot plan the statement.
    Refused(Box<ServerError>),
    Database(Error),
}

impl From<Error> for ModifyingStatementError {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

/// Functions of `pg_catalog` that a read may call, since its transaction is read-only or its session is reset.
const REFUSED_FUNCTIONS: [(&str, &str); 2] = [
    ("set_config", "it changes settings that the record of the write depends on"),
    ("setval", "what it does is not undone by ROLLBACK"),
];

impl Session {
    /// Inspects the statement that was described under `name`, in the open transaction. Nothing of it runs.
    ///
    /// # Errors
    /// [`ModifyingStatementError`]: it does not change rows, or it may call a function that it may not call.
    pub async fn inspect_modifying(
        &mut self,
        name: &str,
        sql: &str,
        params: &[Option<String>],
    ) -> Result<ModifyingStatement, ModifyingStatementError> {
        statement(&self.inspect_planned(name, sql, params).await?)
    }

    /// As [`Session::inspect_modifying`], for any statement with a plan, which is returned: such a statement changes no
    /// setting.
    pub async fn inspect_planned(
        &mut self,
        name: &str,
        sql: &str,
        params: &[Option<String>],
    ) -> Result<Value, ModifyingStatementError> {
        let any_values = PlanParameters::AnyValues(params.len());
        let plan = match plan_without_writes(self, name, any_values).await? {
            PlanResult::Plan(plan) => plan,
            PlanResult::Utility => return Err(ModifyingStatementError::NotModifying("is a command without a plan")),
            PlanResult::Empty => return Err(ModifyingStatementError::NotModifying("is empty")),
            PlanResult::Refused(error) => return Err(ModifyingStatementError::Refused(error)),
        };
        self.refuse_functions(sql, &plan).await?;
        Ok(plan)
    }

    async fn refuse_functions(&mut self, sql: &str, plan: &Value) -> Result<(), ModifyingStatementError> {
        if has_unicode_identifiers(sql) {
            return Err(ModifyingStatementError::UnicodeIdentifier);
        }
        let mut names: BTreeSet<String> = called(plan).into_iter().map(|call| call.name).collect();
        names.extend(mentioned_calls(sql));
        let refused = REFUSED_FUNCTIONS.iter().find(|(name, _)| names.contains(*name));
        let plain = names.iter().map(|name| name.trim_start_matches(ATTRIBUTE));
        let locks = || plain.clone().find(|name| is_advisory(name)).map(|name| (name, LOCKS));
        if let Some((function, why)) = refused.copied().or_else(locks) {
            return Err(ModifyingStatementError::ForbiddenFunction {
                function: function.to_owned(),
                why: why.to_owned(),
            });
        }
        match forbidden(self, &Vec::from_iter(names)).await? {
            Some(ReadError::ForbiddenFunction { function, why }) => {
                Err(ModifyingStatementError::ForbiddenFunction { function, why })
            }
            _ => Ok(()),
        }
    }
}

fn is_advisory(function: &str) -> bool {
    function.starts_with("pg_") && function.contains("advisory_")
}

const LOCKS: &str = "it takes locks that the ledger uses";

fn statement(plan: &Value) -> Result<ModifyingStatement, ModifyingStatementError> {
    let not_modifying = ModifyingStatementError::NotModifying;
    if is_distributed(plan) {
        return Err(not_modifying("is executed by Citus, in part or as a whole"));
    }
    if plan.as_array().is_none_or(|plans| plans.len() != 1) {
        return Err(not_modifying("becomes several statements by a rule"));
    }
    let ReferencedObjects::Planned { changes: true, tables, .. } = referenced_objects(plan) else {
        return Err(not_modifying("changes no rows"));
    };
    let mut unfiltered = BTreeSet::new();
    add_unfiltered(plan, &mut unfiltered);
    Ok(ModifyingStatement { tables, unfiltered: Vec::from_iter(unfiltered) })
}

/// Adds the tables that an UPDATE or DELETE changes without a condition.
fn add_unfiltered(plan: &Value, found: &mut BTreeSet<(String, String)>) {
    match plan {
        Value::Array(items) => items.iter().for_each(|item| add_unfiltered(item, found)),
        Value::Object(node) => {
            if matches!(text(node, "Operation"), Some("Update" | "Delete"))
                && children(node).all(reads_every_row)
                && let (Some(schema), Some(table)) = (text(node, "Schema"), text(node, "Relation Name"))
            {
                found.insert((schema.to_owned(), table.to_owned()));
            }
            node.values().filter(|value| !value.is_string()).for_each(|value| add_unfiltered(value, found));
        }
        _ => {}
    }
}

/// Whether this part of a plan returns every row of its table.
fn reads_every_row(node: &Map<String, Value>) -> bool {
    matches!(text(node, "Node Type"), Some("Seq Scan" | "Append"))
        && !node.keys().any(|key| key.ends_with("Filter") || key.ends_with("Cond"))
        && children(node).all(reads_every_row)
}

/// The nodes whose rows a node processes, without those of subqueries.
fn children(node: &Map<String, Value>) -> impl Iterator<Item = &Map<String, Value>> {
    let all = node.get("Plans").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object);
    all.filter(|child| !matches!(text(child, "Parent Relationship"), Some("InitPlan" | "SubPlan")))
}

fn text<'a>(node: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    node.get(key).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_condition_or_a_join_limits_the_rows_and_a_subquery_beside_them_does_not() {
        let scan = json!({"Node Type": "Seq Scan", "Relation Name": "t", "Parent Relationship": "Outer"});
        let mut filtered = scan.clone();
        filtered["Filter"] = json!("(id = 1)");
        let subplan = json!({"Node Type": "Seq Scan", "Filter": "x", "Parent Relationship": "SubPlan"});
        let append = json!({"Node Type": "Append", "Plans": [scan, scan]});
        for (children, is_unfiltered) in [
            (vec![scan.clone()], true),
            (vec![scan.clone(), subplan], true),
            (vec![append], true),
            (vec![filtered.clone()], false),
            (vec![json!({"Node Type": "Append", "Plans": [scan, filtered]})], false),
            (vec![json!({"Node Type": "Hash Join", "Plans": [scan, scan]})], false),
            (vec![json!({"Node Type": "Tid Scan", "TID Cond": "x"})], false),
        ] {
            let node = json!({"Node Type": "ModifyTable", "Operation": "Update", "Schema": "s", "Relation Name": "t",
                              "Plans": children});
            let found = statement(&json!([{"Plan": node}])).unwrap();
            assert_eq!(!found.unfiltered.is_empty(), is_unfiltered, "{node}");
        }
    }

    #[test]
    fn a_plan_that_changes_no_rows_or_is_one_of_several_is_refused() {
        let scan = json!({"Plan": {"Node Type": "Seq Scan", "Schema": "s", "Relation Name": "t"}});
        let insert =
            json!({"Plan": {"Node Type": "ModifyTable", "Operation": "Insert", "Schema": "s", "Relation Name": "t"}});
        let citus = json!({"Plan": {"Node Type": "Custom Scan", "Custom Plan Provider": "Citus Adaptive"}});
        assert!(statement(&json!([insert])).is_ok());
        for plans in
            [json!([scan]), json!([insert, insert]), json!([insert, {"Utility Statement": "x"}]), json!([citus])]
        {
            assert!(matches!(statement(&plans), Err(ModifyingStatementError::NotModifying(_))), "{plans}");
        }
    }
}
