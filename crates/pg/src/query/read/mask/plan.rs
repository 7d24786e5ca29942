//! Finds the masked columns in a plan: which result columns show them, and whether the query uses them in another
//! way.
//!
//! The plan is made without index scans and without partition pruning, so that it shows every use: an order is a
//! `Sort` with its keys. EXPLAIN does not show the following uses. A plan whose form allows one of them is refused:
//!
//! - The left side of IN, ANY and ALL over a subquery, before PostgreSQL 17.
//! - The counts of LIMIT and OFFSET, the frame of a window, and the rows of VALUES, where they can depend on an outer
//!   row.
//! - The comparisons of INTERSECT, EXCEPT and UNION in a recursive query.
//! - Conditions that a foreign data wrapper evaluates.
//!
//! A custom scan hides more than conditions: even the tables may be missing from the plan. So a plan with a custom
//! scan is refused, whatever it reads and whoever wrote the query.
//!
//! The columns of a subquery or CTE have names of their own, and a plan does not relate these to the columns of
//! tables. If a subquery returns a masked column, each of its columns counts as masked until the result shows its
//! origin.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use types::Mask;

use super::MaskError;
use super::nodes::{
    COMPARES, DEPENDS_ON_OUTER_ROWS, INDEX_ORDER, Node, SHOWN, STRUCTURE, children, is_subplan, text, usage_of,
};
use super::relations::{ColumnMask, MaskedRelation, MaskedRelations};
use crate::query::plan_expression::{Reference, may_have_column_names, plain, references};

/// The relations that contain samples of column values.
const STATISTICS: [&str; 2] = ["pg_statistic", "pg_statistic_ext_data"];

/// The first server version whose plans show the comparisons of a subquery.
const SHOWS_COMPARISONS: u32 = 170_000;

/// The mask of each result column of a query with this plan, `None` for most. `sources` are the table columns that
/// the result columns show, as PostgreSQL describes them. `is_declared`: the operator wrote the query, so it may use
/// masked columns in any way, and only its result columns are masked.
///
/// # Errors
/// [`MaskError`] if the query uses a masked column for anything other than a result column.
pub(super) fn result_masks(
    sql: &str,
    plan: Option<&Value>,
    relations: &MaskedRelations,
    sources: &[Option<(u32, i16)>],
    is_declared: bool,
) -> Result<Vec<Option<Mask>>, MaskError> {
    let columns = match plan.and_then(|plan| plan.pointer("/0/Plan")).and_then(Value::as_object) {
        Some(root) if has_custom_scan(root) => return Err(MaskError::custom_scan()),
        Some(root) => exposures((sql, root), relations, sources, is_declared)?,
        // A command without a plan, such as SHOW, returns no column of a table.
        None if is_declared && sources.iter().all(Option::is_none) => Vec::new(),
        None => return Err(MaskError::no_plan()),
    };
    let is_analysed = !columns.is_empty();
    let mut columns = columns.into_iter();
    let mut masks = Vec::with_capacity(sources.len());
    for source in sources {
        let by_source = source.and_then(|source| relations.of_source(source));
        let is_of_table = source.is_some_and(|(relation, _)| relations.by_oid(relation).is_some());
        let exposure = columns.next().unwrap_or(Exposure::None);
        let is_renamed = match (&exposure, by_source) {
            (Exposure::None, Some(masked)) | (Exposure::Column(masked), None) => Some(masked),
            _ => None,
        };
        if let Some(masked) = is_renamed.filter(|_| !is_declared && is_analysed && is_of_table) {
            return Err(MaskError::table_used(masked, RENAMED));
        }
        let masked = match exposure {
            Exposure::None => by_source.cloned(),
            Exposure::Column(masked) => Some(masked),
            Exposure::Unknown(masked) => match source {
                Some((relation, _)) if relations.by_oid(*relation).is_some() => by_source.cloned(),
                _ => return Err(MaskError::used(&masked, "in a subquery, view or CTE whose columns it may be")),
            },
        };
        masks.push(match masked {
            Some(masked) if masked.mask == Mask::Refuse => return Err(MaskError::refused(&masked)),
            masked => masked.map(|masked| masked.mask),
        });
    }
    match columns.find_map(Exposure::into_masked) {
        // The column is needed only for the order of the rows.
        Some(masked) if !is_declared => Err(MaskError::used(&masked, "for the order of the rows")),
        _ => Ok(masks),
    }
}

/// Whether an extension reads a part of the query. EXPLAIN may show neither the tables there nor the uses of their
/// columns: for a distributed table of Citus it shows a shard with another name, or nothing.
fn has_custom_scan(node: &Node) -> bool {
    text(node, "Node Type") == Some("Custom Scan") || children(node).any(has_custom_scan)
}

/// What each output column of a plan shows; empty if it reads no relation with masked columns.
fn exposures(
    (sql, root): (&str, &Node),
    relations: &MaskedRelations,
    sources: &[Option<(u32, i16)>],
    is_declared: bool,
) -> Result<Vec<Exposure>, MaskError> {
    let mut scans = Scans::default();
    scans.collect(root, relations, is_declared)?;
    if scans.masked.is_empty() {
        return Ok(Vec::new());
    }
    if !is_declared {
        scans.refuse_renamed_columns(sql)?;
    }
    scans.bind_aliases(root, relations, sources);
    Analysis::new(relations, scans, is_declared).run(root)
}

/// The use of a table whose columns have other names in the query.
const RENAMED: &str = "with other names for its columns, since the plan shows these instead";

/// What a column of a node shows.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Exposure {
    /// No masked column.
    None,
    /// This masked column, unchanged.
    Column(ColumnMask),
    /// A column of a subquery that returns this masked column and perhaps others.
    Unknown(ColumnMask),
}

impl Exposure {
    fn into_masked(self) -> Option<ColumnMask> {
        match self {
            Self::None => None,
            Self::Column(masked) | Self::Unknown(masked) => Some(masked),
        }
    }
}

fn exposed(columns: &[Exposure]) -> Option<ColumnMask> {
    columns.iter().cloned().find_map(Exposure::into_masked)
}

/// The relations and other sources of rows in a plan, by alias. An alias is unique in a plan.
#[derive(Default)]
struct Scans<'a> {
    /// The relations with masked columns.
    masked: HashMap<String, &'a MaskedRelation>,
    aliases: HashSet<String>,
}

impl<'a> Scans<'a> {
    fn collect(&mut self, node: &Node, relations: &'a MaskedRelations, is_declared: bool) -> Result<(), MaskError> {
        if let Some(alias) = text(node, "Alias") {
            self.aliases.insert(alias.to_owned());
            if let (Some(schema), Some(table)) = (text(node, "Schema"), text(node, "Relation Name")) {
                if schema == "pg_catalog" && STATISTICS.contains(&table) && !is_declared {
                    return Err(MaskError::statistics(table));
                }
                if let Some(relation) = relations.get(schema, table) {
                    self.masked.insert(alias.to_owned(), relation);
                }
            }
        }
        children(node).try_for_each(|child| self.collect(child, relations, is_declared))
    }

    /// Refuses a text that may rename the columns of a relation with masked columns: `customers as c (a, b)`. A plan
    /// shows the new names. In the text they follow the alias; the plan makes aliases unique, so its `c_1` may be `c`
    /// in the text.
    fn refuse_renamed_columns(&self, sql: &str) -> Result<(), MaskError> {
        for (alias, relation) in &self.masked {
            let base = alias.rsplit_once('_').filter(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit()));
            let names = [Some(alias.as_str()), base.map(|(base, _)| base)];
            if let Some(masked) = relation.any()
                && names.into_iter().flatten().any(|name| may_have_column_names(sql, name))
            {
                return Err(MaskError::table_used(masked, RENAMED));
            }
        }
        Ok(())
    }

    /// Assigns aliases that no node has to partitioned tables: if a result column is `alias.column` and PostgreSQL
    /// describes it as a column of a table, the alias is that table's.
    fn bind_aliases(&mut self, root: &Node, relations: &'a MaskedRelations, sources: &[Option<(u32, i16)>]) {
        let entries = root.get("Output").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        for (entry, source) in entries.zip(sources) {
            if let (Some(Reference::Qualified(alias, _)), Some((oid, _))) = (plain(entry), source)
                && !self.aliases.contains(&alias)
                && let Some(relation) = relations.by_oid(*oid)
            {
                self.masked.insert(alias, relation);
            }
        }
    }
}

struct Analysis<'a> {
    relations: &'a MaskedRelations,
    scans: Scans<'a>,
    /// The subqueries and CTEs that return masked columns, by alias.
    subqueries: HashMap<String, ColumnMask>,
    /// The CTEs that return masked columns, by name.
    ctes: HashMap<String, ColumnMask>,
    /// A masked column of a UNION ALL or a partitioned table. EXPLAIN writes these columns with an alias that no node
    /// has.
    appended: Option<ColumnMask>,
    is_declared: bool,
}

impl<'a> Analysis<'a> {
    fn new(relations: &'a MaskedRelations, scans: Scans<'a>, is_declared: bool) -> Self {
        Self { relations, scans, subqueries: HashMap::new(), ctes: HashMap::new(), appended: None, is_declared }
    }

    /// The error, unless the operator wrote the query.
    fn refuse(&self, error: MaskError) -> Result<(), MaskError> {
        if self.is_declared { Ok(()) } else { Err(error) }
    }

    /// What each output column of the plan shows.
    fn run(mut self, root: &Node) -> Result<Vec<Exposure>, MaskError> {
        // A node may read a CTE before the node with the CTE's plan.
        loop {
            let known = (self.subqueries.len(), self.ctes.len(), self.appended.is_some());
            let columns = self.node(root, None)?;
            if known == (self.subqueries.len(), self.ctes.len(), self.appended.is_some()) {
                return Ok(columns);
            }
        }
    }

    /// Inspects a node and the nodes below it. `outer` is a masked column of the rows on which this part of the plan
    /// may depend.
    fn node(&mut self, node: &Node, outer: Option<&ColumnMask>) -> Result<Vec<Exposure>, MaskError> {
        let kind = text(node, "Node Type").unwrap_or_default();
        let own = text(node, "Alias").and_then(|alias| self.scans.masked.get(alias)).and_then(|it| it.any()).cloned();
        self.check_kind(kind, own.as_ref(), outer)?;
        let mut inputs = Vec::new();
        let mut input: Option<ColumnMask> = None;
        for child in children(node).filter(|child| !is_subplan(child)) {
            let is_inner = kind == "Nested Loop" && text(child, "Parent Relationship") == Some("Inner");
            let outer_of_child = if is_inner { input.as_ref().or(outer) } else { outer };
            let columns = self.node(child, outer_of_child.cloned().as_ref())?;
            input = input.or_else(|| exposed(&columns));
            inputs.push(columns);
        }
        self.note_subquery(node, kind, input.as_ref());
        let scanned = text(node, "Alias").and_then(|alias| self.subqueries.get(alias)).cloned();
        self.subplans(node, own.or(scanned).or_else(|| input.clone()), outer)?;
        if let Some(masked) = input.as_ref().filter(|_| COMPARES.contains(&kind)) {
            self.refuse(MaskError::used(masked, "in a set operation or a recursive query"))?;
        }
        for (key, value) in node.iter().filter(|(key, _)| !STRUCTURE.contains(&key.as_str())) {
            self.check_expressions(key, value)?;
        }
        match node.get("Output").and_then(Value::as_array) {
            Some(output) => output.iter().filter_map(Value::as_str).map(|entry| self.output(entry)).collect(),
            None => self.merge(inputs),
        }
    }

    fn check_kind(&self, kind: &str, own: Option<&ColumnMask>, outer: Option<&ColumnMask>) -> Result<(), MaskError> {
        if !SHOWN.contains(&kind) && !COMPARES.contains(&kind) {
            let any = self.scans.masked.values().find_map(|relation| relation.any());
            let why = format!("together with a {kind}, which does not show its conditions");
            return self.refuse(any.map_or_else(MaskError::no_plan, |masked| MaskError::table_used(masked, &why)));
        }
        match (own, outer) {
            (Some(masked), _) if INDEX_ORDER.contains(&kind) => {
                self.refuse(MaskError::table_used(masked, "through an index, whose order may reveal it"))
            }
            (_, Some(masked)) if DEPENDS_ON_OUTER_ROWS.contains(&kind) => {
                let why = "together with LIMIT, OFFSET, VALUES or a window function in a subquery or lateral join \
                           that may depend on it";
                self.refuse(MaskError::table_used(masked, why))
            }
            _ => Ok(()),
        }
    }

    /// Remembers a subquery or CTE that returns masked columns.
    fn note_subquery(&mut self, node: &Node, kind: &str, input: Option<&ColumnMask>) {
        let Some(alias) = text(node, "Alias") else { return };
        let masked = match kind {
            "Subquery Scan" => input.cloned(),
            _ => text(node, "CTE Name").and_then(|name| self.ctes.get(name)).cloned(),
        };
        if let Some(masked) = masked {
            self.subqueries.insert(alias.to_owned(), masked);
        }
    }

    /// Inspects the subqueries that a node evaluates on their own. `row` is a masked column of the node's rows.
    fn subplans(&mut self, node: &Node, row: Option<ColumnMask>, outer: Option<&ColumnMask>) -> Result<(), MaskError> {
        for child in children(node).filter(|child| is_subplan(child)) {
            let is_correlated = text(child, "Parent Relationship") == Some("SubPlan");
            if is_correlated
                && self.relations.server_version < SHOWS_COMPARISONS
                && let Some(masked) = &row
            {
                let why =
                    "together with a subquery in an expression, whose comparisons PostgreSQL shows from version 17 on";
                self.refuse(MaskError::table_used(masked, why))?;
            }
            let outer_of_child = if is_correlated { row.as_ref().or(outer) } else { outer };
            let columns = self.node(child, outer_of_child)?;
            let Some(masked) = exposed(&columns) else { continue };
            match text(child, "Subplan Name").and_then(|name| name.strip_prefix("CTE ")) {
                Some(name) => drop(self.ctes.insert(name.to_owned(), masked)),
                None => self.refuse(MaskError::used(&masked, "as the result of a subquery in an expression"))?,
            }
        }
        Ok(())
    }

    fn check_expressions(&self, key: &str, value: &Value) -> Result<(), MaskError> {
        match value {
            Value::String(expression) => self.check_expression(expression, usage_of(key)),
            Value::Array(items) => items.iter().try_for_each(|item| self.check_expressions(key, item)),
            Value::Object(fields) => fields.iter().try_for_each(|(_, value)| self.check_expressions(key, value)),
            _ => Ok(()),
        }
    }

    fn check_expression(&self, expression: &str, usage: &str) -> Result<(), MaskError> {
        let mut used = references(expression).into_iter().map(|reference| self.resolve(&reference));
        match used.find_map(Exposure::into_masked) {
            Some(masked) => self.refuse(MaskError::used(&masked, usage)),
            None => Ok(()),
        }
    }

    /// What an entry of an output list shows.
    fn output(&self, entry: &str) -> Result<Exposure, MaskError> {
        match plain(entry) {
            Some(reference @ Reference::WholeRow(_)) => match self.resolve(&reference).into_masked() {
                Some(masked) => self.refuse(MaskError::used(&masked, "in a whole row")).map(|()| Exposure::None),
                None => Ok(Exposure::None),
            },
            Some(reference) => Ok(self.resolve(&reference)),
            None => self.check_expression(entry, "in an expression").map(|()| Exposure::None),
        }
    }

    fn resolve(&self, reference: &Reference) -> Exposure {
        let column = |masked: Option<&ColumnMask>| masked.cloned().map_or(Exposure::None, Exposure::Column);
        let unknown = |masked: Option<&ColumnMask>| masked.cloned().map_or(Exposure::None, Exposure::Unknown);
        match reference {
            Reference::Bare(name) => column(self.by_column(name)),
            Reference::Qualified(alias, name) => match self.scans.masked.get(alias.as_str()) {
                Some(relation) => column(relation.column(name)),
                None if self.scans.aliases.contains(alias.as_str()) => unknown(self.subqueries.get(alias)),
                // The alias of a partitioned table, a parent table or a UNION ALL.
                None => match self.by_column(name) {
                    Some(masked) => Exposure::Unknown(masked.clone()),
                    None => unknown(self.appended.as_ref()),
                },
            },
            Reference::WholeRow(alias) => match self.scans.masked.get(alias.as_str()) {
                Some(relation) => column(relation.any()),
                None if self.scans.aliases.contains(alias.as_str()) => unknown(self.subqueries.get(alias)),
                None => unknown(self.scans.masked.values().find_map(|relation| relation.any())),
            },
        }
    }

    /// The masked column of this name of any relation that the plan reads.
    fn by_column(&self, name: &str) -> Option<&ColumnMask> {
        self.scans.masked.values().find_map(|relation| relation.column(name))
    }

    /// What the columns of an Append show: all of its parts must show the same.
    fn merge(&mut self, parts: Vec<Vec<Exposure>>) -> Result<Vec<Exposure>, MaskError> {
        let Some(masked) = parts.iter().find_map(|part| exposed(part)) else {
            return Ok(parts.into_iter().next().unwrap_or_default());
        };
        self.appended = Some(masked.clone());
        let mut parts = parts.into_iter();
        let mut merged = parts.next().unwrap_or_default();
        for part in parts {
            if part != merged {
                let why = "in a UNION with columns that are not masked in the same way";
                self.refuse(MaskError::used(&masked, why))?;
            }
            for (column, other) in merged.iter_mut().zip(part) {
                if *column == Exposure::None {
                    *column = other;
                }
            }
        }
        Ok(merged)
    }
}

#[cfg(test)]
mod tests {
    use types::Masks;

    use super::*;

    /// DI-3: a plan of Citus shows neither the masked table nor the uses of its columns.
    #[test]
    fn no_plan_of_citus_is_let_through_while_columns_are_masked() {
        let column = types::MaskedColumn {
            schema: "shop".to_owned(),
            table: "customers".to_owned(),
            column: "name".to_owned(),
            mask: Mask::Null,
        };
        let masks = Masks::new(vec![column], types::MaskKey::new(types::Secret::new("key".to_owned())));
        let answer = r#"{"server_version": 150000, "columns": [{"place": 1, "oid": 16400, "schema": "shop",
            "table": "customers", "kind": "r", "number": 2, "is_text": true}]}"#;
        let relations = MaskedRelations::parse(answer, &masks).unwrap();
        let plans: HashMap<String, Value> =
            serde_json::from_str(include_str!("../../testdata/citus_plans.json")).unwrap();
        assert_eq!(plans.len(), 7);
        for (name, case) in &plans {
            let sql = case.get("sql").and_then(Value::as_str).unwrap();
            let plan = case.get("plan");
            for is_declared in [false, true] {
                let masked = result_masks(sql, plan, &relations, &[None], is_declared);
                // It reads no table. The function policy refuses it.
                assert_eq!(masked.is_ok(), name == "escape", "{name}: {masked:?}");
            }
        }
    }
}
