//! The objects that a statement uses, as its plan shows them.
//!
//! `EXPLAIN (VERBOSE)` shows the schema of every relation that is read or changed, with views resolved, and of every
//! function in FROM. PostgreSQL prints the functions in expressions. The search path of these sessions is
//! `pg_catalog` alone, so PostgreSQL prints a function of any other schema with its schema, however the statement
//! spells it.
//!
//! A plan does not show the bodies of functions and triggers, the assignments of ON CONFLICT DO UPDATE and MERGE, or
//! the rows of VALUES. For these, only the privileges of the role are the limit.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::str::Chars;
use std::sync::Arc;

use serde_json::Value;
use types::{Privilege, ReferencedObjects, RemotePart, TableAccess};

use crate::client::literal::identifier;

/// The objects that a statement with this plan uses.
#[must_use]
pub fn referenced_objects(plan: &Value) -> ReferencedObjects {
    let mut found = Found::default();
    found.look(plan, false);
    let tables = found.tables.into_iter().map(|((schema, table), found)| TableAccess {
        schema,
        table,
        written: found.written,
        privileges: found.privileges.into_iter().collect(),
    });
    ReferencedObjects::Planned {
        schemas: found.schemas.into_iter().collect(),
        changes: found.changes,
        overwrites: found.overwrites,
        locks: found.locks,
        tables: tables.collect(),
        remote: found.is_distributed.then_some(RemotePart::Distributed).into_iter().collect(),
    }
}

/// Whether Citus runs a part of this plan on other nodes. EXPLAIN shows one of the tasks there, or none if the
/// parameters determine the node.
pub(crate) fn is_distributed(plan: &Value) -> bool {
    match plan {
        Value::Array(items) => items.iter().any(is_distributed),
        Value::Object(node) => is_distributed_node(node) || node.values().any(is_distributed),
        _ => false,
    }
}

fn is_distributed_node(node: &serde_json::Map<String, Value>) -> bool {
    let provider = node.get("Custom Plan Provider").and_then(Value::as_str).unwrap_or_default();
    provider.starts_with("Citus") || node.contains_key("Distributed Query")
}

#[derive(Default)]
struct Found {
    is_distributed: bool,
    schemas: BTreeSet<String>,
    changes: bool,
    overwrites: bool,
    locks: bool,
    /// By schema and table name.
    tables: BTreeMap<(String, String), FoundTable>,
}

#[derive(Default)]
struct FoundTable {
    written: bool,
    privileges: BTreeSet<Privilege>,
}

impl Found {
    /// `locked`: whether the rows of this part of the plan are locked.
    fn look(&mut self, plan: &Value, locked: bool) {
        match plan {
            Value::Array(items) => items.iter().for_each(|item| self.look(item, locked)),
            Value::Object(node) => {
                let text = |key: &str| node.get(key).and_then(Value::as_str);
                self.is_distributed |= is_distributed_node(node);
                self.schemas.extend(text("Schema").map(str::to_owned));
                let modifies = text("Node Type") == Some("ModifyTable");
                self.changes |= modifies;
                let inserts_only = text("Operation") == Some("Insert") && text("Conflict Resolution") != Some("UPDATE");
                self.overwrites |= modifies && !inserts_only;
                let locks = text("Node Type") == Some("LockRows");
                self.locks |= locks;
                let is_apart = matches!(text("Parent Relationship"), Some("SubPlan" | "InitPlan"));
                let locked = locks || locked && !is_apart;
                if let (Some(schema), Some(table)) = (text("Schema"), text("Relation Name")) {
                    // If a node changes several tables (a partitioned table, inheritance), the others are in a
                    // separate list.
                    let written = modifies || !node.contains_key("Node Type");
                    let found = self.tables.entry((schema.to_owned(), table.to_owned())).or_default();
                    found.written |= written;
                    found.privileges.extend(if modifies { privileges_to_modify(node) } else { Vec::new() });
                    if !written {
                        found
                            .privileges
                            .extend([Privilege::Select].into_iter().chain(locked.then_some(Privilege::Update)));
                    }
                }
                node.values().for_each(|value| self.look(value, locked));
            }
            Value::String(text) => {
                let calls = calls(text).into_iter().filter(|call| !call.is_about_caller());
                self.schemas.extend(calls.filter_map(|call| call.schema));
            }
            _ => {}
        }
    }
}

/// The tables that a statement with this plan uses, each once: `schema.table`, quoted if SQL requires it. The text of
/// a scan that joins tables on a foreign server counts as one table.
pub(crate) fn table_names(plan: &Value) -> Arc<[String]> {
    let mut names = BTreeSet::new();
    add_table_names(plan, &mut names);
    names.into_iter().collect()
}

fn add_table_names(plan: &Value, names: &mut BTreeSet<String>) {
    match plan {
        Value::Array(items) => items.iter().for_each(|item| add_table_names(item, names)),
        Value::Object(node) => {
            let text = |key: &str| node.get(key).and_then(Value::as_str);
            if let (Some(schema), Some(table)) = (text("Schema"), text("Relation Name")) {
                names.insert(format!("{}.{}", quoted(schema), quoted(table)));
            }
            names.extend(text("Relations").map(str::to_owned));
            node.values().filter(|value| !value.is_string()).for_each(|value| add_table_names(value, names));
        }
        _ => {}
    }
}

/// A name in double quotes, unless it consists of lower-case letters, digits and underscores.
fn quoted(name: &str) -> Cow<'_, str> {
    let is_plain = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'))
        && !name.starts_with(|first: char| first.is_ascii_digit());
    if is_plain { Cow::Borrowed(name) } else { Cow::Owned(identifier(name)) }
}

/// The privileges that a node needs on the table that it changes.
fn privileges_to_modify(node: &serde_json::Map<String, Value>) -> Vec<Privilege> {
    let text = |key: &str| node.get(key).and_then(Value::as_str);
    let mut privileges = match text("Operation") {
        Some("Insert") => vec![Privilege::Insert],
        Some("Update") => vec![Privilege::Update],
        Some("Delete") => vec![Privilege::Delete],
        _ => vec![Privilege::Insert, Privilege::Update, Privilege::Delete],
    };
    if text("Conflict Resolution") == Some("UPDATE") {
        privileges.push(Privilege::Update);
    }
    // Needed for RETURNING, and for the columns that ON CONFLICT compares.
    if node.contains_key("Output") || node.contains_key("Conflict Arbiter Indexes") {
        privileges.push(Privilege::Select);
    }
    privileges
}

/// A called function as PostgreSQL prints it: with its schema, unless the search path finds the function without it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FunctionCall {
    pub(crate) schema: Option<String>,
    pub(crate) name: String,
}

impl FunctionCall {
    /// Whether it is a function of the ledger that policies of row level security call. A statement that reads a table
    /// with such a policy does not touch the ledger for it.
    fn is_about_caller(&self) -> bool {
        self.schema.as_deref() == Some("countersign") && matches!(self.name.as_str(), "account" | "claim")
    }
}

/// Every function that the expressions of a plan call, each once.
pub(crate) fn called(plan: &Value) -> BTreeSet<FunctionCall> {
    match plan {
        Value::Array(items) => items.iter().flat_map(called).collect(),
        Value::Object(node) => node.values().flat_map(called).collect(),
        Value::String(text) => calls(text).into_iter().collect(),
        _ => BTreeSet::new(),
    }
}

/// Every `function(` and `schema.function(` in an expression as PostgreSQL writes it.
fn calls(expression: &str) -> Vec<FunctionCall> {
    let mut calls = Vec::new();
    let mut rest = expression.chars().peekable();
    // The last two names of the current path.
    let (mut schema, mut last): (Option<String>, Option<String>) = (None, None);
    while let Some(&next) = rest.peek() {
        match next {
            '\'' => {
                skip_literal(&mut rest, last.as_deref() == Some("E"));
                (schema, last) = (None, None);
            }
            '.' if last.is_some() => {
                rest.next();
                schema = last.take();
            }
            '(' => {
                rest.next();
                if let Some(name) = last.take() {
                    calls.push(FunctionCall { schema: schema.take(), name });
                }
                schema = None;
            }
            _ => match name(&mut rest) {
                Some(name) => last = Some(name),
                None => {
                    rest.next();
                    (schema, last) = (None, None);
                }
            },
        }
    }
    calls
}

/// An identifier, plain or in double quotes.
pub(crate) fn name(rest: &mut Peekable<Chars<'_>>) -> Option<String> {
    let mut name = String::new();
    if rest.next_if_eq(&'"').is_some() {
        while let Some(next) = rest.next() {
            if next == '"' && rest.next_if_eq(&'"').is_none() {
                break;
            }
            name.push(next);
        }
        return Some(name);
    }
    while let Some(next) = rest.next_if(|c| c.is_alphanumeric() || ['_', '$'].contains(c) || !c.is_ascii()) {
        name.push(next);
    }
    (!name.is_empty()).then_some(name)
}

/// Skips a literal with its quotes. With `backslashes` (E''), a backslash escapes the next character.
pub(crate) fn skip_literal(rest: &mut Peekable<Chars<'_>>, backslashes: bool) {
    rest.next();
    while let Some(next) = rest.next() {
        match next {
            '\\' if backslashes => {
                rest.next();
            }
            '\'' if rest.next_if_eq(&'\'').is_none() => return,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_table_is_found_once_and_is_written_if_any_part_writes_it() {
        let scan = |table: &str| json!({"Node Type": "Seq Scan", "Schema": "s", "Relation Name": table});
        let plan = json!([{"Plan": {
            "Node Type": "ModifyTable", "Operation": "Update", "Schema": "s", "Relation Name": "root",
            "Target Tables": [{"Schema": "s", "Relation Name": "part_1"}, {"Schema": "s", "Relation Name": "part_2"}],
            "Plans": [scan("part_1"), scan("other"), {"Node Type": "Function Scan", "Schema": "f", "Function Name": "g"}],
        }}]);
        let ReferencedObjects::Planned { schemas, changes, tables, .. } = referenced_objects(&plan) else {
            panic!("it has a plan")
        };
        assert_eq!((schemas, changes), (vec!["f".to_owned(), "s".to_owned()], true));
        let found: Vec<(&str, bool)> = tables.iter().map(|it| (it.table.as_str(), it.written)).collect();
        assert_eq!(found, [("other", false), ("part_1", true), ("part_2", true), ("root", true)]);
    }

    #[test]
    fn names_of_tables_are_quoted_where_sql_needs_it_and_each_is_there_once() {
        let scan = |table: &str| json!({"Node Type": "Seq Scan", "Schema": "s", "Relation Name": table});
        let plan = json!([{"Plan": {
            "Node Type": "Append", "Output": ["s.no_table"],
            "Plans": [scan("t"), scan("T"), scan("t"), scan("1 \"t\""), {"Relations": "(s.a) INNER JOIN (s.b)"},
                      {"Node Type": "Function Scan", "Schema": "f", "Function Name": "g"}],
        }}]);
        let expected = ["(s.a) INNER JOIN (s.b)", "s.\"1 \"\"t\"\"\"", "s.\"T\"", "s.t"];
        assert_eq!(*table_names(&plan), expected.map(str::to_owned));
    }

    #[test]
    fn each_table_needs_the_privileges_of_what_is_done_with_it() {
        use Privilege::{Delete, Insert, Select, Update};
        let scan = |table: &str| json!({"Node Type": "Seq Scan", "Schema": "s", "Relation Name": table});
        let modify = |operation: &str, more: Value| {
            let mut node =
                json!({"Node Type": "ModifyTable", "Operation": operation, "Schema": "s", "Relation Name": "t"});
            node.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            node
        };
        let subplan =
            json!({"Node Type": "Seq Scan", "Schema": "s", "Relation Name": "u", "Parent Relationship": "SubPlan"});
        for (node, expected) in [
            (modify("Insert", json!({})), vec![("t", vec![Insert])]),
            (modify("Insert", json!({"Output": ["t.id"]})), vec![("t", vec![Select, Insert])]),
            (modify("Insert", json!({"Conflict Resolution": "UPDATE"})), vec![("t", vec![Insert, Update])]),
            (modify("Delete", json!({"Plans": [scan("t")]})), vec![("t", vec![Select, Delete])]),
            (
                json!({"Node Type": "LockRows", "Plans": [scan("t"), subplan]}),
                vec![("t", vec![Select, Update]), ("u", vec![Select])],
            ),
        ] {
            let ReferencedObjects::Planned { tables, .. } = referenced_objects(&json!([{"Plan": node}])) else {
                panic!("it has a plan")
            };
            let found: Vec<_> = tables.iter().map(|it| (it.table.as_str(), it.privileges.clone())).collect();
            assert_eq!(found, expected, "{node}");
        }
    }

    #[test]
    fn only_a_plain_insert_overwrites_nothing() {
        let modify = |operation: &str| json!({"Node Type": "ModifyTable", "Operation": operation});
        let conflict = |resolution: &str| json!({"Node Type": "ModifyTable", "Operation": "Insert", "Conflict Resolution": resolution});
        for (node, expected) in [
            (modify("Insert"), (true, false)),
            (conflict("EMPTY_STATEMENT"), (true, false)),
            (conflict("UPDATE"), (true, true)),
            (modify("Update"), (true, true)),
            (modify("Delete"), (true, true)),
            (modify("Merge"), (true, true)),
            (json!({"Node Type": "Result"}), (false, false)),
        ] {
            let plan = json!([{"Plan": {"Node Type": "CTE Scan", "Plans": [node.clone()]}}]);
            let ReferencedObjects::Planned { changes, overwrites, .. } = referenced_objects(&plan) else {
                panic!("it has a plan")
            };
            assert_eq!((changes, overwrites), expected, "{node}");
        }
    }

    #[test]
    fn a_lock_is_seen_wherever_it_stands() {
        for (node, expected) in [("LockRows", true), ("Limit", false)] {
            let plan = json!([{"Plan": {"Node Type": "Sort", "Plans": [{"Node Type": node}]}}]);
            let ReferencedObjects::Planned { locks, .. } = referenced_objects(&plan) else { panic!("it has a plan") };
            assert_eq!(locks, expected, "{node}");
        }
    }

    /// DI-2: neither `ModifyTable` nor a table is in a plan of Citus, if parameters decide about the node.
    #[test]
    fn a_plan_of_citus_is_carried_out_by_another_server() {
        let plans: Value = serde_json::from_str(include_str!("testdata/citus_plans.json")).unwrap();
        for (name, case) in plans.as_object().unwrap() {
            let ReferencedObjects::Planned { remote, .. } = referenced_objects(&case["plan"]) else {
                panic!("it has a plan")
            };
            let expected = if name == "escape" { vec![] } else { vec![RemotePart::Distributed] };
            assert_eq!(remote, expected, "{name}");
        }
    }

    #[test]
    fn functions_are_found_with_their_schemas_and_nothing_else_is() {
        for (expression, schemas) in [
            ("(a.b + 1)", vec![]),
            ("countersign.sweep('01:00:00'::interval, 10)", vec!["countersign"]),
            ("lower(app.name_of(t.id)) || \"My Schema\".\"f(\"\"x\"(1)", vec!["app", "My Schema"]),
            ("'countersign.f('::text", vec![]),
            ("E'\\\\\\' countersign.f(' || 'it''s countersign.g('", vec![]),
            ("(t.a).f (1)", vec![]),
            ("db.countersign.f(1)", vec!["countersign"]),
            ("größe.f(x)", vec!["größe"]),
        ] {
            let found: Vec<String> = calls(expression).into_iter().filter_map(|call| call.schema).collect();
            assert_eq!(found, schemas, "{expression}");
        }
    }

    #[test]
    fn every_call_of_a_plan_is_found_once() {
        let plan = serde_json::json!([{"Plan": {
            "Node Type": "Seq Scan", "Output": ["pg_cancel_backend(pid)", "lower(a)"],
            "Filter": "(lower(b) = 'upper(x)'::text)", "Plans": [{"Function Call": "public.dblink('x'::text)"}]
        }}]);
        let names: Vec<String> = called(&plan).into_iter().map(|call| call.name).collect();
        assert_eq!(names, ["lower", "pg_cancel_backend", "dblink"]);
    }
}
