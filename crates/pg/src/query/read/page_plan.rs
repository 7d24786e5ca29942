//! The order of the rows of a query, as its plan shows it.
//!
//! The plan is made with index scans and merge joins off ([`SORT_MODE_SQL`]), so an ORDER BY shows as a `Sort` below at
//! most a `Limit`. The nodes below it show which tables determine a row: a row of a join is a row of its outer side if
//! the planner has proven that the inner side has at most one match (`Inner Unique`).

use serde_json::Value;

use crate::client::literal;

/// The settings for this plan, local to the transaction: no index scan and no merge join can provide the order, and a
/// nested loop keeps the rows of its outer side.
pub(super) const SORT_MODE_SQL: &str = "\
select pg_catalog.set_config('enable_indexscan', 'off', true), pg_catalog.set_config('enable_indexonlyscan', 'off', true), \
       pg_catalog.set_config('enable_hashjoin', 'off', true), pg_catalog.set_config('enable_mergejoin', 'off', true), \
       pg_catalog.set_config('enable_incremental_sort', 'off', true), \
       pg_catalog.set_config('max_parallel_workers_per_gather', '0', true)";

/// The nodes that read the rows of one table.
const SCANS: [&str; 6] =
    ["Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Heap Scan", "Tid Scan", "Tid Range Scan"];

/// The nodes with one child whose rows they pass on, each at most once.
const PASSES: [&str; 11] = [
    "Limit",
    "Result",
    "Sort",
    "Incremental Sort",
    "Gather",
    "Gather Merge",
    "Materialize",
    "Memoize",
    "Subquery Scan",
    "Unique",
    "WindowAgg",
];

const JOINS: [&str; 3] = ["Nested Loop", "Hash Join", "Merge Join"];

/// A table as a plan names it: schema and name.
pub(super) type TableName = (String, String);

/// One column of the order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SortColumn {
    /// The index of the result column.
    pub(super) index: usize,
    /// The collation as the plan shows it: ` COLLATE "C"`, or nothing for the one of the type.
    pub(super) collation: String,
    pub(super) is_descending: bool,
    pub(super) nulls_first: bool,
}

/// The order of the rows of a query.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PlannedOrder {
    pub(super) columns: Vec<SortColumn>,
    /// The tables that determine a row. An inner list has several tables for a table that is read partition by
    /// partition. Each table is read once.
    pub(super) tables: Vec<Vec<TableName>>,
    /// Whether the outermost node is a `Limit`.
    pub(super) has_limit: bool,
}

/// The reason why a plan does not show an order that identifies the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OrderProblem {
    Unordered,
    Expression,
    NotUnique,
}

/// The order of the first `width` columns of this plan's output.
pub(super) fn planned_order(plan: &Value, width: usize) -> Result<PlannedOrder, OrderProblem> {
    let outermost = plan.pointer("/0/Plan").ok_or(OrderProblem::Unordered)?;
    let sort = sort_below(outermost).ok_or(OrderProblem::Unordered)?;
    let output: Vec<&str> = texts(outermost, "Output").take(width).collect();
    let mut read = Vec::new();
    tables_read(outermost, &mut read);
    let alias = sole_alias(&read);
    let columns = texts(sort, "Sort Key").map(|key| sort_column(key, alias, &output));
    let columns = columns.collect::<Option<Vec<_>>>().ok_or(OrderProblem::Expression)?;
    if columns.is_empty() || output.len() < width {
        return Err(OrderProblem::Expression);
    }
    let tables = determining_tables(sort).ok_or(OrderProblem::NotUnique)?;
    let is_read_once = |name: &TableName| read.iter().filter(|node| table(node).as_ref() == Some(name)).count() == 1;
    if !tables.iter().flatten().all(is_read_once) {
        return Err(OrderProblem::NotUnique);
    }
    Ok(PlannedOrder { columns, tables, has_limit: kind(outermost) == "Limit" })
}

fn kind(node: &Value) -> &str {
    node.get("Node Type").and_then(Value::as_str).unwrap_or_default()
}

fn texts<'a>(node: &'a Value, key: &str) -> impl Iterator<Item = &'a str> {
    node.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn plans(node: &Value) -> impl Iterator<Item = &Value> {
    node.get("Plans").and_then(Value::as_array).into_iter().flatten()
}

/// The children whose rows the node reads. Subqueries in expressions are not among them.
fn inputs(node: &Value) -> Vec<&Value> {
    let is_input = |child: &&Value| {
        let relationship = child.get("Parent Relationship").and_then(Value::as_str).unwrap_or_default();
        matches!(relationship, "Outer" | "Inner" | "Member" | "Subquery")
    };
    plans(node).filter(is_input).collect()
}

/// The `Sort` that determines the order of the rows.
fn sort_below(outermost: &Value) -> Option<&Value> {
    let mut node = outermost;
    loop {
        match (kind(node), inputs(node).as_slice()) {
            ("Sort", _) => return Some(node),
            ("Limit" | "Result", [below]) => node = below,
            _ => return None,
        }
    }
}

/// The result column of a sort key: the column's text, and the suffix that PostgreSQL's `show_sortorder_options`
/// adds.
///
/// A query over one table has `id` in its output but `t.id` in its sort keys; then `alias` is `t`, quoted as
/// PostgreSQL writes it.
fn sort_column(key: &str, alias: Option<&str>, output: &[&str]) -> Option<SortColumn> {
    let (rest, nulls) = match (key.strip_suffix(" NULLS FIRST"), key.strip_suffix(" NULLS LAST")) {
        (Some(rest), _) => (rest, Some(true)),
        (None, Some(rest)) => (rest, Some(false)),
        (None, None) => (key, None),
    };
    let (rest, is_descending) = rest.strip_suffix(" DESC").map_or((rest, false), |rest| (rest, true));
    let nulls_first = nulls.unwrap_or(is_descending);
    let unprefixed = alias.and_then(|alias| {
        let behind_alias = rest.strip_prefix(alias).or_else(|| rest.strip_prefix(&literal::identifier(alias)));
        behind_alias?.strip_prefix('.')
    });
    output.iter().enumerate().find_map(|(index, text)| {
        let behind = [Some(rest), unprefixed].into_iter().filter_map(|key| key?.strip_prefix(text));
        let collation = behind.into_iter().find(|rest| rest.is_empty() || rest.starts_with(" COLLATE "))?;
        Some(SortColumn { index, collation: collation.to_owned(), is_descending, nulls_first })
    })
}

/// Collects the nodes that read a table.
fn tables_read<'a>(node: &'a Value, read: &mut Vec<&'a Value>) {
    read.extend(table(node).map(|_| node));
    plans(node).for_each(|below| tables_read(below, read));
}

/// The alias of the table, if the plan reads only one.
fn sole_alias<'a>(read: &[&'a Value]) -> Option<&'a str> {
    let [node] = read else { return None };
    node.get("Alias").and_then(Value::as_str)
}

fn table(node: &Value) -> Option<TableName> {
    let text = |key: &str| node.get(key).and_then(Value::as_str).map(str::to_owned);
    Some((text("Schema")?, text("Relation Name")?))
}

/// The tables whose rows determine a row of this node; `None` if unknown. An outer join makes none of their columns
/// NULL.
fn determining_tables(node: &Value) -> Option<Vec<Vec<TableName>>> {
    let kind = kind(node);
    if SCANS.contains(&kind) {
        return Some(vec![vec![table(node)?]]);
    }
    let inputs = inputs(node);
    if kind == "Append" {
        let mut parts = Vec::new();
        for member in inputs {
            let [part] = <[Vec<TableName>; 1]>::try_from(determining_tables(member)?).ok()?;
            parts.extend(part);
        }
        return Some(vec![parts]);
    }
    match inputs.as_slice() {
        [below] if PASSES.contains(&kind) => determining_tables(below),
        [outer, inner] if JOINS.contains(&kind) => {
            let is_unique = node.get("Inner Unique").and_then(Value::as_bool).unwrap_or_default();
            match (node.get("Join Type").and_then(Value::as_str)?, is_unique) {
                ("Semi" | "Anti", _) | ("Inner" | "Left", true) => determining_tables(outer),
                ("Inner", false) => {
                    let mut tables = determining_tables(outer)?;
                    tables.extend(determining_tables(inner)?);
                    Some(tables)
                }
                _ => None,
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scan(relation: &str, relationship: &str) -> Value {
        json!({"Node Type": "Seq Scan", "Parent Relationship": relationship, "Schema": "s", "Relation Name": relation})
    }

    fn sorted(keys: Value, below: Value) -> Value {
        json!([{"Plan": {"Node Type": "Sort", "Output": ["t.id", "t.\"a DESC\"", "t.n"], "Sort Key": keys,
                         "Plans": [below]}}])
    }

    fn order(keys: Value, below: Value) -> Result<PlannedOrder, OrderProblem> {
        planned_order(&sorted(keys, below), 3)
    }

    #[test]
    fn a_sort_key_is_a_result_column_with_its_direction() {
        let keys = json!(["t.n DESC NULLS LAST", "t.\"a DESC\" COLLATE \"C\"", "t.id NULLS FIRST", "t.id DESC"]);
        let found = order(keys, scan("t", "Outer")).unwrap().columns;
        let found: Vec<_> =
            found.iter().map(|it| (it.index, it.collation.as_str(), it.is_descending, it.nulls_first)).collect();
        let expected =
            [(2, "", true, false), (1, " COLLATE \"C\"", false, false), (0, "", false, true), (0, "", true, true)];
        assert_eq!(found, expected);
        for key in ["(t.id + 1)", "t.id USING ~<~", "t.idx", "t.other"] {
            assert_eq!(order(json!([key]), scan("t", "Outer")), Err(OrderProblem::Expression), "{key}");
        }
    }

    #[test]
    fn a_plan_of_one_table_has_the_alias_in_the_key_only() {
        let find = |key: &str, alias: &str| sort_column(key, Some(alias), &["k", "\"a b\"", "k0"]).map(|it| it.index);
        assert_eq!(find("k0.k", "k0"), Some(0));
        assert_eq!(find("k0.k0 DESC", "k0"), Some(2));
        assert_eq!(find("\"A b\".\"a b\"", "A b"), Some(1));
        assert_eq!(find("\"any\".k", "any"), Some(0));
        assert_eq!(find("k1.k", "k0"), None);
    }

    #[test]
    fn a_join_keeps_the_rows_of_its_outer_side_only_if_the_inner_side_is_unique() {
        let join = |kind: &str, unique: bool, inner: &str| {
            json!({"Node Type": "Nested Loop", "Parent Relationship": "Outer", "Join Type": kind,
                   "Inner Unique": unique, "Plans": [scan("t", "Outer"), scan(inner, "Inner")]})
        };
        let tables = |below| order(json!(["t.id"]), below).map(|it| it.tables.len());
        assert_eq!(tables(join("Left", true, "u")), Ok(1));
        assert_eq!(tables(join("Semi", false, "u")), Ok(1));
        assert_eq!(tables(join("Inner", false, "u")), Ok(2));
        for unknown in [join("Left", false, "u"), join("Right", true, "u"), join("Full", true, "u")] {
            assert_eq!(tables(unknown), Err(OrderProblem::NotUnique));
        }
        // The columns of a table that is read twice cannot be told apart.
        assert_eq!(tables(join("Inner", true, "t")), Err(OrderProblem::NotUnique));
        for kind in ["Aggregate", "ProjectSet", "Function Scan", "CTE Scan", "Foreign Scan", "Sample Scan"] {
            let below = json!({"Node Type": kind, "Parent Relationship": "Outer", "Plans": [scan("t", "Outer")]});
            assert_eq!(tables(below), Err(OrderProblem::NotUnique), "{kind}");
        }
    }

    #[test]
    fn only_a_sort_at_the_top_is_the_order_of_the_rows() {
        let plan = |kind: &str| {
            let mut sort = sorted(json!(["t.id"]), scan("t", "Outer"))[0]["Plan"].clone();
            sort["Parent Relationship"] = json!("Outer");
            json!([{"Plan": {"Node Type": kind, "Output": ["t.id"], "Plans": [sort]}}])
        };
        assert_eq!(planned_order(&plan("Limit"), 1).map(|it| it.has_limit), Ok(true));
        assert_eq!(planned_order(&plan("Unique"), 1), Err(OrderProblem::Unordered));
        assert_eq!(planned_order(&plan("Nested Loop"), 1), Err(OrderProblem::Unordered));
    }
}
