//! The result of inspecting the plan of a text before the text runs.

use std::sync::Arc;

use serde_json::Value;

/// The result of inspecting the plan of a text.
#[derive(Debug)]
pub(super) struct Inspection {
    /// The calls of the text for which the inspection holds.
    pub(super) verdict: PolicyVerdict,
    /// Whether the outermost node of the plan is a `Limit`: LIMIT, FETCH FIRST or OFFSET at the top level of the
    /// query, or of a view that the query consists of. PostgreSQL drops LIMIT ALL.
    pub(super) has_limit: bool,
    /// Whether the plan has a `Gather` or a `Gather Merge`, which collect the rows of parallel workers.
    pub(super) is_parallel: bool,
    /// Whether the plan may differ from the one with partition pruning. The statement must then be parsed again
    /// before it runs.
    pub(super) is_unpruned: bool,
    /// Whether the settings for planning are still in force.
    pub(super) in_planning: bool,
    /// The functions to ask the catalog about before the text runs.
    pub(super) unverified: Vec<String>,
    /// Whether the text has no effects that outlast `ROLLBACK`, as far as a plan shows this, if the unverified functions
    /// are PostgreSQL's own.
    pub(super) leaves_nothing: bool,
    /// The tables that the plan reads, if the reader collects them.
    pub(super) tables: Option<Arc<[String]>>,
}

/// The calls of a text for which an inspection holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PolicyVerdict {
    /// All calls, whatever their parameters are.
    Always,
    /// This call, and only while no statements of other agents are prepared: the text lists prepared statements.
    SeesStatements,
    /// This call, with its parameters.
    ThisTime,
    /// None: the text is a command without a plan, so the functions that it calls are unknown.
    Unseen,
}

/// The nodes that collect the rows of parallel workers.
const GATHERS: [&str; 2] = ["Gather", "Gather Merge"];

/// The nodes that read several relations: the partitions of a table, or the parts of a UNION ALL.
const APPENDS: [&str; 2] = ["Append", "Merge Append"];

/// The nodes whose effects on the session are unknown: extensions, triggers.
const OUTSIDE: [&str; 3] = ["Foreign Scan", "Custom Scan", "ModifyTable"];

impl Inspection {
    /// The result for a text that is not inspected.
    pub(super) const NONE: Self = Self {
        verdict: PolicyVerdict::Always,
        has_limit: false,
        is_parallel: false,
        is_unpruned: false,
        in_planning: false,
        unverified: Vec::new(),
        leaves_nothing: false,
        tables: None,
    };

    pub(super) fn of(
        plan: Option<&Value>,
        verdict: PolicyVerdict,
        in_planning: bool,
        unverified: Vec<String>,
        leaves_nothing: bool,
    ) -> Self {
        let outermost = plan.and_then(|plan| plan.pointer("/0/Plan"));
        let has = |types| outermost.is_some_and(|node| has_node(node, types));
        Self {
            verdict,
            has_limit: outermost.is_some_and(|node| is_node(node, &["Limit"])),
            is_parallel: has(&GATHERS),
            is_unpruned: has(&APPENDS),
            in_planning,
            unverified,
            leaves_nothing: leaves_nothing && !has(&OUTSIDE),
            tables: None,
        }
    }
}

fn is_node(node: &Value, types: &[&str]) -> bool {
    node.get("Node Type").and_then(Value::as_str).is_some_and(|of| types.contains(&of))
}

/// Whether this node, or a node below it, is of one of these types.
fn has_node(node: &Value, types: &[&str]) -> bool {
    let below = node.get("Plans").and_then(Value::as_array);
    is_node(node, types) || below.is_some_and(|nodes| nodes.iter().any(|node| has_node(node, types)))
}
