//! Masks: what a read may show of the columns that are masked for its caller.
//!
//! A masked column may be a result column on its own; its values are replaced in the answer. Any other use is
//! refused, since a condition, an order or an expression would reveal the value. Each read looks up the masked
//! columns in its own transaction, so that partitions and renamed tables are included. The documentation of `plan`
//! lists its limits.

mod nodes;
mod plan;
mod relations;

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use types::{MaskedColumn, Masks};

use self::relations::{ColumnMask, MaskedRelations, RELATIONS_SQL};
use super::error::MaskError;
use super::function_policy::forbidden;
use super::mentioned_names::mentioned_names;
use super::{ReadError, ReadRequest, Reader, RowFormat};
use crate::client::error::Error;
use crate::client::session::{MAX_PIPELINE_BYTES, Session};
use crate::client::wire::StatementId;
use crate::query::referenced_objects::{FunctionCall, called};
use crate::query::row_writer::ColumnMasks;
use crate::query::value;

const FUNCTIONS_SQL: &str = include_str!("functions.sql");

const RULES_SQL: &str = include_str!("rules.sql");

const GENERATED_SQL: &str = include_str!("generated.sql");

/// The functions behind `pg_stat_activity`, `pg_stat_statements` and similar views, which return the texts of
/// statements. No caller with masks reads them, not even by the tools of manifests: only their views are known, whose
/// columns have no masks.
const STATEMENT_TEXTS: [&str; 3] = ["pg_stat_get_activity", "pg_stat_get_backend_activity", "pg_stat_statements"];

fn is_statement_text(function: &str) -> bool {
    STATEMENT_TEXTS.contains(&function)
}

impl MaskError {
    /// `usage` is the end of a sentence.
    fn used(masked: &ColumnMask, usage: &str) -> Self {
        let column = &masked.column;
        Self::new(format_args!(
            "{column} is masked: it may only be a result column by itself, and this query uses it {usage}"
        ))
    }

    fn table_used(masked: &ColumnMask, usage: &str) -> Self {
        let column = &masked.column;
        Self::new(format_args!("{column} is masked, so its table may not be read {usage}"))
    }

    fn refused(masked: &ColumnMask) -> Self {
        Self::new(format_args!("{} is masked: it may not be read", masked.column))
    }

    fn statistics(relation: &str) -> Self {
        Self::new(format_args!("{relation} has values of masked columns: it may not be read"))
    }

    fn statements(function: &str) -> Self {
        Self::new(format_args!(
            "{function} shows the statements of others, with values of masked columns in them: it may not be called"
        ))
    }

    fn function(schema: &str, name: &str) -> Self {
        Self::new(format_args!(
            "{schema}.{name} may not be called: it may read masked columns, since it is not declared IMMUTABLE"
        ))
    }

    fn renaming_view(schema: String, view: String) -> Self {
        Self::new(format_args!(
            "the view {schema}.{view} gives other names to the columns of a table with masked columns \
             (from customers as c (a, b)): define it with names in its SELECT list instead"
        ))
    }

    fn not_planned() -> Self {
        Self::new(
            "PostgreSQL could not plan the query: perhaps it writes, or reads a table that this server may not read. Its error is \
             not shown while columns are masked, since it may quote their values",
        )
    }

    fn no_plan() -> Self {
        Self::new("only queries with a plan may be run while columns are masked: SELECT, WITH, VALUES and TABLE")
    }

    fn custom_scan() -> Self {
        Self::new(
            "an extension reads a part of this query (Custom Scan), and its plan does not show the use of columns: such a \
             query may not run while columns are masked",
        )
    }

    fn misfit(column: &str, why: &str) -> Self {
        Self::new(format_args!("the mask of {column} does not fit the database: {why}"))
    }

    fn no_catalog() -> Self {
        Self::new("the catalog gave no answer about masked columns")
    }
}

/// The rules of views that do not rename the columns of a table, each as `oid:version`.
#[derive(Debug, Default)]
pub(super) struct CheckedRules(Mutex<HashSet<String>>);

const MAX_RULES: usize = 5_000;

impl CheckedRules {
    fn unchecked(&self, rules: &[String]) -> Vec<String> {
        let checked = self.checked();
        rules.iter().filter(|rule| !checked.contains(*rule)).cloned().collect()
    }

    fn remember(&self, rules: Vec<String>) {
        self.checked().extend(rules);
    }

    fn checked(&self) -> MutexGuard<'_, HashSet<String>> {
        let mut checked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if checked.len() > MAX_RULES {
            checked.clear();
        }
        checked
    }
}

/// The masks of a reader's caller.
#[derive(Debug, Clone)]
pub(super) struct Masking {
    masks: Arc<Masks>,
    rules: Arc<CheckedRules>,
    /// Whether the operator wrote the statements. Then only their result columns are masked.
    is_declared: bool,
}

impl Reader {
    /// The database columns that these masks apply to, including those of partitions and child tables.
    pub async fn masked_columns(&self, masks: &Masks) -> Result<Vec<MaskedColumn>, ReadError> {
        Ok(self.masked_relations(masks).await?.columns())
    }

    /// Checks that these masks fit the database, and that no view or generated column defeats them.
    pub async fn check_masks(&self, masks: &Masks) -> Result<(), ReadError> {
        let rules = rule_oids(&self.masked_relations(masks).await?.rules);
        if let Some([schema, view]) =
            self.ask_catalog::<[String; 2]>(RULES_SQL, &[json!(rules)]).await?.into_iter().next()
        {
            return Err(MaskError::renaming_view(schema, view).into());
        }
        let names = masked_names(masks).map(|names| json!(names));
        for [schema, table, generated, column] in self.ask_catalog::<[String; 4]>(GENERATED_SQL, &names).await? {
            if masks.of(&schema, &table, &generated).is_none() {
                let why = format!("{generated} is computed from it: mask this column as well");
                return Err(MaskError::misfit(&format!("{schema}.{table}.{column}"), &why).into());
            }
        }
        Ok(())
    }

    async fn masked_relations(&self, masks: &Masks) -> Result<MaskedRelations, ReadError> {
        let answer = self.ask_catalog(RELATIONS_SQL, &masked_names(masks).map(|names| json!(names))).await?;
        let [answer]: [Value; 1] = answer.into_iter().next().ok_or_else(MaskError::no_catalog)?;
        Ok(MaskedRelations::parse(&answer.to_string(), masks)?)
    }

    /// The rows of one of the server's own queries about the catalog.
    async fn ask_catalog<T: DeserializeOwned>(&self, sql: &str, params: &[Value]) -> Result<Vec<T>, ReadError> {
        let request = ReadRequest::new(sql, params, RowFormat::Array);
        let rows = self.for_trusted_sql().read(&request).await?.rows;
        Ok(rows.deserialize().map_err(|_| MaskError::no_catalog())?)
    }
}

/// The oids of rules, each given as `oid:version`.
fn rule_oids(rules: &[String]) -> Vec<String> {
    rules.iter().filter_map(|rule| rule.split_once(':')).map(|(oid, _)| oid.to_owned()).collect()
}

/// The arguments of [`RELATIONS_SQL`]: the schemas, tables and columns.
fn masked_names(masks: &Masks) -> [Vec<String>; 3] {
    let names = |of: fn(&MaskedColumn) -> &String| masks.columns.iter().map(of).cloned().collect();
    [names(|it| &it.schema), names(|it| &it.table), names(|it| &it.column)]
}

impl Masking {
    pub(super) const fn new(masks: Arc<Masks>, rules: Arc<CheckedRules>, is_declared: bool) -> Self {
        Self { masks, rules, is_declared }
    }

    /// Hides why a query could not be planned. PostgreSQL calls STABLE functions while it plans, before these
    /// functions are known, and an error may quote their results.
    ///
    /// # Errors
    /// [`MaskError`], unless the operator wrote the query.
    pub(super) fn check_planning(&self) -> Result<(), MaskError> {
        if self.is_declared { Ok(()) } else { Err(MaskError::not_planned()) }
    }

    /// Queues the query for the relations that have masked columns.
    pub(super) fn push(&self, session: &mut Session) -> Result<StatementId, Error> {
        let params = masked_names(&self.masks).map(|names| Some(value::text_array(&names)));
        let usual = std::mem::replace(&mut session.connection.max_message_bytes, MAX_PIPELINE_BYTES);
        let asked = session.connection.next_statement();
        session.connection.push_parse("", RELATIONS_SQL, &[])?;
        session.connection.push_bind("", "", &params)?;
        session.connection.push_execute("", 0)?;
        session.connection.max_message_bytes = usual;
        Ok(asked)
    }

    /// The masks of the result columns of a query with this plan. `answer` is the catalog's answer about the masked
    /// columns.
    pub(super) async fn inspect(
        &self,
        session: &mut Session,
        (sql, plan): (&str, Option<&Value>),
        sources: &[Option<(u32, i16)>],
        answer: Option<&str>,
    ) -> Result<ColumnMasks, ReadError> {
        let answer = answer.ok_or_else(MaskError::no_catalog)?;
        let relations = MaskedRelations::parse(answer, &self.masks)?;
        if let Some(call) = plan.and_then(|plan| called(plan).into_iter().find(|call| is_statement_text(&call.name))) {
            return Err(MaskError::statements(&call.name).into());
        }
        if !self.is_declared {
            self.check_rules(session, &relations.rules).await?;
            self.check_functions(session, sql, plan.ok_or_else(MaskError::no_plan)?).await?;
        }
        let columns = plan::result_masks(sql, plan, &relations, sources, self.is_declared)?;
        Ok(ColumnMasks { columns, key: self.masks.key.clone() })
    }

    /// Refuses every query while a view renames columns of a masked table.
    async fn check_rules(&self, session: &mut Session, rules: &[String]) -> Result<(), ReadError> {
        let rules = self.rules.unchecked(rules);
        if rules.is_empty() {
            return Ok(());
        }
        let found = session.rows(RULES_SQL, &[Some(value::text_array(&rule_oids(&rules)))]).await?;
        match found.into_iter().next().map(<[Option<String>; 2]>::try_from) {
            Some(Ok([Some(schema), Some(view)])) => Err(MaskError::renaming_view(schema, view).into()),
            _ => {
                self.rules.remember(rules);
                Ok(())
            }
        }
    }

    /// Refuses functions that may read masked columns: those that the plan shows, and those whose name occurs in the
    /// text. A plan does not show every call, but a call needs the name of the function.
    async fn check_functions(&self, session: &mut Session, sql: &str, plan: &Value) -> Result<(), ReadError> {
        let calls: BTreeSet<FunctionCall> =
            called(plan).into_iter().filter(|call| call.schema.as_deref() != Some("pg_catalog")).collect();
        let mentioned = mentioned_names(sql);
        if let Some(name) = mentioned.iter().find(|name| is_statement_text(name)) {
            return Err(MaskError::statements(name).into());
        }
        let names: BTreeSet<String> = calls.iter().map(|call| call.name.clone()).chain(mentioned.clone()).collect();
        let names = Vec::from_iter(names);
        if let Some(forbidden) = forbidden(session, &names).await? {
            return Err(forbidden);
        }
        for row in session.rows(FUNCTIONS_SQL, &[Some(value::text_array(&names))]).await? {
            let Ok([Some(schema), Some(name)]) = <[Option<String>; 2]>::try_from(row) else { continue };
            let is_called = |call: &FunctionCall| {
                call.name == name && call.schema.as_ref().is_none_or(|of_call| *of_call == schema)
            };
            let is_trusted = self.masks.trusted_functions.iter().any(|it| it.0 == schema && it.1 == name);
            if !is_trusted && (mentioned.contains(&name) || calls.iter().any(is_called)) {
                return Err(MaskError::function(&schema, &name).into());
            }
        }
        Ok(())
    }
}
