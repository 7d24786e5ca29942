//! Keeps a read from changing what policies of row level security use: the account, the claims and the role of the
//! caller.
//!
//! SET returns no rows, so `set_config` is the only way to change them. The text of a query is searched for calls: a
//! plan does not show every part of a query (`function_policy`), and a call needs the function's name. Calls in views
//! are searched in the plan. In both, the first argument must be the name of another setting, as a plain literal.
//! Bodies of functions are not searched: the author of a function is responsible for the settings in it.

use serde_json::Value;

use super::mentioned_names::has_unicode_identifiers;
use crate::query::referenced_objects::called;

const FUNCTION: &str = "set_config";
const OURS: &str = "countersign.";

/// Settings that change the role.
const ROLES: [&str; 2] = ["role", "session_authorization"];

const IS_OURS: &str = "settings of countersign say on whose behalf a query runs";
const IS_ROLE: &str = "it changes the role that a query runs as";
const NOT_LITERAL: &str = "its first argument must be the name of the setting, as a plain literal";
const UNICODE: &str = "an identifier with Unicode escapes may stand for it, so write identifiers without U&";

/// The reason why this query may not run: the end of a sentence about [`FUNCTION`].
pub(super) fn refusal(sql: &str, plan: Option<&Value>) -> Option<(&'static str, &'static str)> {
    let is_called = |plan: &&Value| called(plan).iter().any(|call| call.name == FUNCTION);
    let why = refusal_of_text(sql).or_else(|| plan.filter(is_called).and_then(refusal_of_plan))?;
    Some((FUNCTION, why))
}

fn refusal_of_plan(plan: &Value) -> Option<&'static str> {
    match plan {
        Value::Array(items) => items.iter().find_map(refusal_of_plan),
        Value::Object(node) => node.values().find_map(refusal_of_plan),
        Value::String(text) => refusal_of_text(text),
        _ => None,
    }
}

fn refusal_of_text(sql: &str) -> Option<&'static str> {
    if has_unicode_identifiers(sql) {
        return Some(UNICODE);
    }
    let sql = sql.to_ascii_lowercase();
    sql.split(FUNCTION).skip(1).find_map(|behind| {
        let behind = behind.strip_prefix('"').unwrap_or(behind).trim_start();
        match behind.strip_prefix('(') {
            Some(arguments) => match setting(arguments) {
                Some(name) if ROLES.contains(&name) => Some(IS_ROLE),
                Some(name) => name.starts_with(OURS).then_some(IS_OURS),
                None => Some(NOT_LITERAL),
            },
            // A parenthesis may follow a comment. Without a parenthesis, the name is not a call.
            None => (behind.starts_with("/*") || behind.starts_with("--")).then_some(NOT_LITERAL),
        }
    })
}

/// The first of these arguments, if it is a single literal of plain letters.
fn setting(arguments: &str) -> Option<&str> {
    let (name, rest) = arguments.trim_start().strip_prefix('\'')?.split_once('\'')?;
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'));
    let rest = rest.strip_prefix("::text").unwrap_or(rest).trim_start();
    (is_plain && rest.starts_with(',')).then_some(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_literal_that_names_another_setting_is_let_through() {
        for (sql, expected) in [
            ("select set_config('TimeZone', 'UTC', true), \"set_config\" ( 'work_mem'::text , '1MB', true)", None),
            ("select 'set_config', my_set_config_too from set_config where set_config.a = 1", None),
            ("select set_config('countersign.account_id', 'x', true)", Some(IS_OURS)),
            ("select pg_catalog.SET_CONFIG ('CounterSign.Account_Id'::text, 'x', true)", Some(IS_OURS)),
            ("select set_config('Role', 'none', true)", Some(IS_ROLE)),
            ("select set_config('session_authorization'::text, current_user, true)", Some(IS_ROLE)),
            ("select set_config('countersign.claim_tenant', 'x', true)", Some(IS_OURS)),
            ("values (1), (set_config('a.b', '', true)), (set_config($1, '', true))", Some(NOT_LITERAL)),
            ("select set_config/* */('a.b', 'x', true)", Some(NOT_LITERAL)),
            ("select set_config--\n('a.b', 'x', true)", Some(NOT_LITERAL)),
            ("select set_config('countersign' || '.account_id', 'x', true)", Some(NOT_LITERAL)),
            ("select set_config('countersign.'\n'account_id', 'x', true)", Some(NOT_LITERAL)),
            ("select set_config(E'\\x63ountersign.account_id', 'x', true)", Some(NOT_LITERAL)),
            ("select set_config('\\x63ountersign.account_id', 'x', true)", Some(NOT_LITERAL)),
            ("select set_config(new_value => 'x', setting_name => 'a.b', is_local => true)", Some(NOT_LITERAL)),
            ("select U&\"s\\0065t_config\"('countersign.account_id', 'x', true)", Some(UNICODE)),
        ] {
            assert_eq!(refusal_of_text(sql), expected, "{sql}");
        }
    }

    #[test]
    fn a_view_that_calls_it_is_seen_in_the_plan_and_its_name_in_a_literal_is_no_call() {
        let plan = |output: &str| json!([{"Plan": {"Node Type": "Result", "Output": [output]}}]);
        let why = |output: &str| refusal("table v", Some(&plan(output))).map(|(_, why)| why);
        assert_eq!(why("set_config('countersign.account_id'::text, 'x'::text, true)"), Some(IS_OURS));
        assert_eq!(why("set_config(v.name, 'x'::text, true)"), Some(NOT_LITERAL));
        assert_eq!(why("set_config('work_mem'::text, 'x'::text, true)"), None);
        assert_eq!(why("'set_config(x)'::text"), None);
    }
}
