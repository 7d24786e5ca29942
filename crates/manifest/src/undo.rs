//! Builds the undo calls of a write, ready to send.

use serde_json::{Map, Value};
use types::{Rollback, UndoCall};

use crate::{ToolSpec, UndoSpec, ValueSource};

type Row = Map<String, Value>;

/// The undo of one execution of `spec`. It is advice: it names a tool and its arguments, and executes nothing.
///
/// `params` are all effective parameters by name, `rows` the result, and `before` the captured rows. A missing or
/// null value is omitted from the call, and the undo tool treats it as NULL.
///
/// A write that changed nothing has no calls. If a write is declared reversible but its earlier state is not a single
/// captured row, it is reported as irreversible, with the reason, because wrong advice would restore a different
/// state.
#[must_use]
pub fn rollback(spec: &ToolSpec, params: &Row, rows: &[Row], before: &[Row]) -> Rollback {
    match &spec.undo {
        UndoSpec::None if spec.access.writes() => Rollback::by_effects(),
        UndoSpec::None => Rollback::irreversible("This tool changes nothing, so there is nothing to undo."),
        UndoSpec::Irreversible { why } => Rollback::irreversible(why.as_str()),
        UndoSpec::Calls { tool, params: sources, for_each, note } => {
            let uses = |wanted: fn(&ValueSource) -> bool| sources.iter().any(|(_, source)| wanted(source));
            let from_result = uses(|source| matches!(source, ValueSource::Result(_)));
            if rows.is_empty() && (from_result || spec.statements.len() == 1) {
                return Rollback::reversible(Vec::new(), "Nothing was changed, so there is nothing to undo.");
            }
            if uses(|source| matches!(source, ValueSource::Before(_))) && before.len() != 1 {
                return Rollback::irreversible(no_single_image(before.len(), tool));
            }
            let image = before.first();
            let call =
                |row: Option<&Row>| UndoCall { tool: tool.clone(), params: arguments(sources, params, row, image) };
            let calls = if *for_each {
                rows.iter().rev().map(|row| call(Some(row))).collect()
            } else {
                vec![call(rows.first())]
            };
            let note = note.clone().unwrap_or_else(|| format!("Call {tool} to reverse."));
            Rollback::reversible(calls, note)
        }
    }
}

fn no_single_image(images: usize, tool: &str) -> String {
    if images == 0 {
        format!("There was no earlier row, so {tool} has nothing to restore.")
    } else {
        format!("{images} earlier rows were captured, and {tool} can restore only one.")
    }
}

fn arguments(sources: &[(String, ValueSource)], params: &Row, row: Option<&Row>, image: Option<&Row>) -> Row {
    let value = |source: &ValueSource| match source {
        ValueSource::Param(name) => params.get(name),
        ValueSource::Result(name) => row.and_then(|row| row.get(name)),
        ValueSource::Before(name) => image.and_then(|image| image.get(name)),
    };
    sources
        .iter()
        .filter_map(|(name, source)| Some((name.clone(), value(source).filter(|value| !value.is_null())?.clone())))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::json;
    use types::{ReferencedObjects, StatementShape};

    use super::*;
    use types::{ApprovalRule, Tier};

    use crate::{Access, Location, RowExpectation, StatementSpec};

    fn write(undo: UndoSpec) -> ToolSpec {
        let referenced_objects = ReferencedObjects::Planned {
            schemas: Vec::new(),
            changes: true,
            overwrites: false,
            locks: false,
            tables: Vec::new(),
            remote: Vec::new(),
        };
        let shape = StatementShape {
            params: Vec::new(),
            columns: Some(Vec::new()),
            origins: Vec::new(),
            key: Vec::new(),
            referenced_objects,
        };
        ToolSpec {
            name: "change".into(),
            title: None,
            summary: None,
            description: "Changes.".into(),
            version: "1.0".into(),
            declared_at: Location { path: "m.toml".into(), line: 1, column: 1 },
            access: Access::Write,
            tier: Tier::Auto,
            rule: ApprovalRule::default(),
            undo_tier: Tier::Auto,
            reason: None,
            params: Vec::new(),
            before: None,
            after: None,
            statements: vec![StatementSpec { sql: "..".into(), param_types: Vec::new(), shape }],
            set: None,
            executor: None,
            executor_at: None,
            rows: RowExpectation::Any,
            max_rows: Some(10),
            not_found: None,
            undo,
            rules: Vec::new(),
            limit: None,
            dedup_window: Duration::from_secs(300),
            input_schema: Arc::default(),
            output_schema: Arc::default(),
            annotations: Map::new(),
            meta: Map::new(),
        }
    }

    fn calls(source: ValueSource, for_each: bool) -> ToolSpec {
        let params = vec![("id".to_owned(), source)];
        write(UndoSpec::Calls { tool: "unchange".into(), params, for_each, note: None })
    }

    fn row(value: Value) -> Row {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn values_come_from_the_result_the_parameters_or_the_row_before() {
        let (params, rows, before) =
            (row(json!({"id": 1})), [row(json!({"id": 2}))], [row(json!({"id": 9_223_372_036_854_775_807_i64}))]);
        for (source, id) in [
            (ValueSource::Param("id".into()), json!(1)),
            (ValueSource::Result("id".into()), json!(2)),
            (ValueSource::Before("id".into()), json!(9_223_372_036_854_775_807_i64)),
        ] {
            let undo = rollback(&calls(source, false), &params, &rows, &before);
            assert!(undo.reversible);
            assert_eq!(undo.undo_tool.as_deref(), Some("unchange"));
            assert_eq!(undo.undo_params.unwrap()["id"], id);
            assert_eq!(undo.note, "Call unchange to reverse.");
        }
    }

    #[test]
    fn one_call_a_row_goes_from_the_last_row_to_the_first() {
        let spec = calls(ValueSource::Result("id".into()), true);
        let rows: Vec<Row> = (1..=3).map(|id| row(json!({"id": id}))).collect();
        let undo = rollback(&spec, &Row::new(), &rows, &[]);
        let ids: Vec<&Value> = undo.undo_calls.iter().map(|call| &call.params["id"]).collect();
        assert_eq!(ids, [&json!(3), &json!(2), &json!(1)]);
        assert_eq!(undo.undo_params.unwrap()["id"], 3);
    }

    #[test]
    fn a_write_that_touched_nothing_needs_no_call() {
        let undo = rollback(&calls(ValueSource::Result("id".into()), false), &Row::new(), &[], &[]);
        assert!(undo.reversible && undo.undo_tool.is_none());
        assert!(undo.note.contains("Nothing was changed"));
    }

    #[test]
    fn without_exactly_one_row_before_there_is_no_advice_to_restore_one() {
        let spec = calls(ValueSource::Before("id".into()), false);
        let rows = [row(json!({"id": 1}))];
        assert!(!rollback(&spec, &Row::new(), &rows, &[]).reversible);
        let two = [row(json!({"id": 1})), row(json!({"id": 2}))];
        assert!(!rollback(&spec, &Row::new(), &rows, &two).reversible);
    }

    #[test]
    fn a_null_is_left_out_of_the_call() {
        let rows = [row(json!({"id": null}))];
        let undo = rollback(&calls(ValueSource::Result("id".into()), false), &Row::new(), &rows, &[]);
        assert_eq!(undo.undo_params, Some(Row::new()));
    }

    #[test]
    fn the_operators_sentences_are_passed_on() {
        let why = rollback(&write(UndoSpec::Irreversible { why: "Gone for good.".into() }), &Row::new(), &[], &[]);
        assert_eq!((why.reversible, why.note.as_str()), (false, "Gone for good."));
        let note = Some("Unlike to reverse".to_owned());
        let spec = write(UndoSpec::Calls { tool: "unlike".into(), params: Vec::new(), for_each: false, note });
        assert_eq!(rollback(&spec, &Row::new(), &[Row::new()], &[]).note, "Unlike to reverse");
    }
}
