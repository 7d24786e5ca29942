//! Makes SQL of a tool's rules, and lets PostgreSQL describe it.
//!
//! This module never parses the text of a condition. The parameters and the principal are columns of two derived
//! tables, `param` and `principal`, so PostgreSQL itself resolves their names:
//! ```text
//! select (select (param.amount > 100)) from (select $1 as "amount") as param,
//!     (select $2::text as account_id, $3::text as actor) as principal
//! ```

use types::{
    ConditionShape, DescribeError, DescribeStatement, ReferencedObjects, Rule, Scalar, StatementShape, ToolLimit,
    TypeKind,
};

use crate::file::{LimitDeclaration, RuleDeclaration, ToolDeclaration};
use crate::infer::{InferredTypes, UnavailableError};
use crate::parse::ParsedTool;
use crate::source::offset_in_string;
use crate::{Diagnostics, ToolSpec};

/// The columns of `principal`, in the order of their parameters, which follow those of the tool.
const PRINCIPAL_COLUMNS: [&str; 2] = ["account_id", "actor"];

const LONGEST_PERIOD_S: u32 = 24 * 60 * 60;

/// The conditions of a tool's rules, as parts of a query. The first parameters of the query are those of the tool,
/// followed by the account and the actor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conditions {
    /// An expression that returns the values of the conditions as an array.
    pub values: String,
    /// The FROM clause of the query.
    pub from: String,
}

impl Conditions {
    /// The conditions of the tool.
    #[must_use]
    pub fn of(spec: &ToolSpec) -> Self {
        let values: Vec<String> = spec.rules.iter().map(|rule| value(&rule.when)).collect();
        let names: Vec<&str> = spec.params.iter().map(|param| param.name.as_str()).collect();
        Self { values: format!("array[{}]::pg_catalog.bool[]", values.join(", ")), from: from(&names) }
    }
}

/// The expression for one condition. It fails if the text returns several rows. The line break ends a comment at the
/// end of the text.
fn value(when: &str) -> String {
    format!("{VALUE_START}{when}\n))")
}

const VALUE_START: &str = "(select (\n";

fn from(params: &[&str]) -> String {
    // The format of manifests allows no quotes in names.
    let params_sql: Vec<String> =
        params.iter().enumerate().map(|(index, name)| format!("${} as \"{name}\"", index + 1)).collect();
    let columns = PRINCIPAL_COLUMNS.iter().enumerate();
    let principal: Vec<String> =
        columns.map(|(index, name)| format!("${}::pg_catalog.text as {name}", params.len() + index + 1)).collect();
    format!("(select {}) as param, (select {}) as principal", params_sql.join(", "), principal.join(", "))
}

/// Parses a period such as `15m` to seconds; `None` if it is invalid or too long.
pub(crate) fn seconds(period: &str) -> Option<u32> {
    let (number, unit) = period.split_at_checked(period.len().checked_sub(1)?)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        _ => return None,
    };
    let is_number = !number.starts_with('0') && number.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = number.parse::<u32>().ok().filter(|_| is_number)?.checked_mul(unit)?;
    (1..=LONGEST_PERIOD_S).contains(&seconds).then_some(seconds)
}

/// The limit of a declaration, which was checked.
pub(crate) fn tool_limit(declared: &LimitDeclaration) -> Option<ToolLimit> {
    let number = |declared: &Option<serde_spanned::Spanned<i64>>| {
        declared.as_ref().map(|number| u32::try_from(*number.get_ref())).transpose().ok()
    };
    Some(ToolLimit {
        calls: number(&declared.calls)?,
        rows: number(&declared.rows)?,
        per_s: seconds(declared.per.get_ref())?,
        by: declared.by,
    })
}

/// The rule of a declaration, which was checked.
pub(crate) fn rule(declared: &RuleDeclaration) -> Option<Rule> {
    Some(Rule {
        when: declared.when.as_ref()?.get_ref().trim().to_owned(),
        then: *declared.then.as_ref()?.get_ref(),
        message: declared.message.as_ref().map(|message| message.get_ref().trim().to_owned()),
    })
}

/// Lets PostgreSQL describe the condition of each rule, and checks the result.
///
/// # Errors
/// The database did not answer. The mistake is recorded already.
pub(crate) async fn check_rules(
    parsed: &ParsedTool<'_>,
    inferred: &InferredTypes,
    database: &impl DescribeStatement,
    diagnostics: &mut Diagnostics,
) -> Result<(), UnavailableError> {
    let Some(tool) = &parsed.tool else { return Ok(()) };
    let names: Vec<&str> = tool.param.iter().map(|param| param.name.get_ref().as_str()).collect();
    let mut types: Vec<u32> = inferred.params.iter().map(|ty| ty.oid).collect();
    types.extend([TEXT; PRINCIPAL_COLUMNS.len()]);
    for (index, rule) in tool.rule.iter().enumerate() {
        let Some(when) = rule.when.as_ref().filter(|when| !when.get_ref().trim().is_empty()) else { continue };
        let when_text = when.get_ref().trim();
        let start = format!("select {VALUE_START}");
        let sql = format!("select {} from {}", value(when_text), from(&names));
        let described = match unbalanced(when_text, &names, &types, database).await {
            Some(error) => Err(error),
            None => database.describe_condition(&sql, &types).await,
        };
        let (at, message) = match described {
            Ok(shape) => (when.span(), mistake(&shape, types.len())),
            Err(DescribeError::Unavailable(why)) => {
                let message = format!("the database could not be asked whether this fits: {why}");
                diagnostics.0.push(parsed.diagnostic(when.span(), message));
                return Err(UnavailableError);
            }
            Err(DescribeError::Refused { message, sqlstate, position, .. }) => {
                let token = parsed.source.text.get(when.span()).unwrap_or_default();
                let inside = position.and_then(|position| (position as usize).checked_sub(start.chars().count()));
                let offset = inside.map_or(0, |position| offset_in_string(token, position));
                let at = when.span().start + offset;
                let help = match sqlstate.as_str() {
                    // Undefined column, undefined table, or ambiguous column.
                    "42703" | "42P01" | "42702" => help_with_names(tool),
                    _ => String::new(),
                };
                (at..when.span().end.max(at), Some(format!("{message} (SQLSTATE {sqlstate}){help}")))
            }
        };
        if let Some(message) = message {
            diagnostics.0.push(parsed.diagnostic(at, format!("rule {}: when: {message}", index + 1)));
        }
    }
    Ok(())
}

/// PostgreSQL's error for a text that closes the parentheses around it, such as `true) or (true`. Without these
/// parentheses it is not an expression.
async fn unbalanced(
    when: &str,
    params: &[&str],
    types: &[u32],
    database: &impl DescribeStatement,
) -> Option<DescribeError> {
    if !when.contains(')') {
        return None;
    }
    let start = format!("select {VALUE_START}").chars().count();
    let bare = format!("select{:width$}{when}\n from {}", " ", from(params), width = start - "select".len());
    match database.describe(&bare, types).await {
        Err(error @ DescribeError::Refused { .. }) => Some(error),
        _ => None,
    }
}

/// `pg_type.oid` of `text`.
const TEXT: u32 = 25;

fn help_with_names(tool: &ToolDeclaration) -> String {
    let params = tool.param.iter().map(|param| format!("param.{}", param.name.get_ref()));
    let principal = PRINCIPAL_COLUMNS.iter().map(|name| format!("principal.{name}"));
    format!("; a condition can use {}", params.chain(principal).collect::<Vec<_>>().join(", "))
}

/// The reason why a query of this shape is not a valid condition.
fn mistake(condition: &ConditionShape, params: usize) -> Option<String> {
    let ConditionShape { shape, refused_functions } = condition;
    let StatementShape { params: used, columns, referenced_objects, .. } = shape;
    let types: Vec<_> = columns.iter().flatten().map(|column| column.ty.base()).collect();
    match types.as_slice() {
        [ty] if ty.kind == TypeKind::Scalar(Scalar::Bool) => {}
        [ty] => {
            let name = ty.sql_name();
            return Some(format!(
                "it is of type {name}, and a condition is of type boolean: compare it with something"
            ));
        }
        _ => return Some("it is not one expression: write one of type boolean".to_owned()),
    }
    if used.len() > params {
        return Some(format!("${} is no parameter of the tool: use param.x", used.len()));
    }
    match referenced_objects {
        ReferencedObjects::Planned { tables, changes, locks, .. } => {
            if let Some(table) = tables.first() {
                return Some(format!(
                    "it reads {}.{}, and a condition reads no table: use parameters and principal only",
                    table.schema, table.table
                ));
            }
            if *changes || *locks {
                return Some("it changes or locks rows, and a condition has no effects".to_owned());
            }
        }
        ReferencedObjects::Unplanned(why) | ReferencedObjects::Forbidden(why) => {
            return Some(format!("PostgreSQL makes no plan for it, so what it does is not known: {why}"));
        }
    }
    let (name, why) = refused_functions.first()?;
    Some(format!(
        "it may not call {name}: {why}. Use immutable functions, or stable ones of PostgreSQL itself such as now()"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_a_number_and_a_unit_of_a_day_at_most() {
        for (text, expected) in [("1s", Some(1)), ("15m", Some(900)), ("24h", Some(86_400)), ("86400s", Some(86_400))] {
            assert_eq!(seconds(text), expected, "{text}");
        }
        for text in
            ["", "h", "1", "0s", "25h", "86401s", "-1s", "+1s", "1.5h", "1d", "1 h", "007s", "99999999999h", "1é"]
        {
            assert_eq!(seconds(text), None, "{text}");
        }
    }

    #[test]
    fn parameters_and_principal_are_columns() {
        assert_eq!(
            from(&["amount", "userId"]),
            "(select $1 as \"amount\", $2 as \"userId\") as param, \
             (select $3::pg_catalog.text as account_id, $4::pg_catalog.text as actor) as principal"
        );
        assert!(from(&[]).starts_with("(select ) as param, (select $1::pg_catalog.text as account_id"));
    }
}
