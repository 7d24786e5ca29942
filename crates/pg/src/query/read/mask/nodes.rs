//! The nodes of a plan, and what EXPLAIN shows of them.

use serde_json::Value;

pub(super) type Node = serde_json::Map<String, Value>;

/// The keys of a node whose values are not expressions.
pub(super) const STRUCTURE: [&str; 28] = [
    "Node Type",
    "Parent Relationship",
    "Parallel Aware",
    "Async Capable",
    "Disabled",
    "Relation Name",
    "Schema",
    "Alias",
    "Strategy",
    "Partial Mode",
    "Join Type",
    "Inner Unique",
    "Scan Direction",
    "Index Name",
    "Subplan Name",
    "CTE Name",
    "Function Name",
    "Table Function Name",
    "Tuplestore Name",
    "Command",
    "Cache Mode",
    "Plans",
    "Output",
    "Sampling Method",
    "Single Copy",
    "Workers Planned",
    "Planned Partitions",
    "Replaces",
];

/// The nodes of which EXPLAIN shows every expression, except for those of [`DEPENDS_ON_OUTER_ROWS`].
pub(super) const SHOWN: [&str; 32] = [
    "Aggregate",
    "Append",
    "Bitmap Heap Scan",
    "Bitmap Index Scan",
    "BitmapAnd",
    "BitmapOr",
    "CTE Scan",
    "Function Scan",
    "Gather",
    "Gather Merge",
    "Group",
    "Hash",
    "Hash Join",
    "Incremental Sort",
    "Index Only Scan",
    "Index Scan",
    "Limit",
    "Materialize",
    "Memoize",
    "Merge Append",
    "Merge Join",
    "Nested Loop",
    "ProjectSet",
    "Result",
    "Sample Scan",
    "Seq Scan",
    "Sort",
    "Subquery Scan",
    "Table Function Scan",
    "Unique",
    "Values Scan",
    "WindowAgg",
];

/// The nodes of which EXPLAIN shows every expression, but not what they compare.
pub(super) const COMPARES: [&str; 3] = ["SetOp", "Recursive Union", "WorkTable Scan"];

/// The nodes with expressions that EXPLAIN does not show and that may refer to the row of an outer query.
pub(super) const DEPENDS_ON_OUTER_ROWS: [&str; 3] = ["Limit", "WindowAgg", "Values Scan"];

/// The nodes whose rows come in the order of an index.
pub(super) const INDEX_ORDER: [&str; 3] = ["Index Scan", "Index Only Scan", "Bitmap Heap Scan"];

pub(super) fn text<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.get(key).and_then(Value::as_str)
}

pub(super) fn children(node: &Node) -> impl Iterator<Item = &Node> {
    node.get("Plans").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object)
}

pub(super) fn is_subplan(node: &Node) -> bool {
    matches!(text(node, "Parent Relationship"), Some("SubPlan" | "InitPlan"))
}

/// The use of the expressions under a key of a plan: the end of a sentence.
pub(super) fn usage_of(key: &str) -> &'static str {
    match key {
        "Sort Key" | "Presorted Key" => "for an order",
        "Group Key" | "Grouping Sets" => "to group or remove duplicates",
        "Function Call" | "Table Function Call" => "as an argument of a function",
        "Window" => "in a window",
        _ => "in a condition",
    }
}
