//! Limits the size of an overview, by omitting details of its largest schemas.
//!
//! For each schema, the overview has one of three levels of detail: its tables with kind, rows, size and comment;
//! their names; or their number.

use std::collections::BinaryHeap;

use serde::Serialize;

use crate::responses::SchemaData;

/// Cuts the overview to `max_bytes` of JSON, and returns whether something was omitted. The largest schema loses
/// details first. If even the schemas without details are too large, the last ones are omitted.
pub(crate) fn fit(mut schemas: Vec<SchemaData>, max_bytes: usize) -> (Vec<SchemaData>, bool) {
    let mut names: Vec<Option<Vec<String>>> = schemas.iter_mut().map(complete_only).collect();
    let mut truncated = schemas.iter().any(|schema| schema.tables.is_none());
    for (schema, names) in schemas.iter_mut().zip(&mut names) {
        if schema.tables.is_none() {
            schema.table_names = names.take();
        }
    }
    let sizes = schemas.iter().enumerate().map(|(index, schema)| (bytes(schema), index));
    let mut largest: BinaryHeap<(usize, usize)> = sizes.collect();
    let mut total: usize = largest.iter().map(|(size, _)| size).sum();
    while total > max_bytes {
        let Some((size, index)) = largest.pop() else { break };
        let (Some(schema), Some(names)) = (schemas.get_mut(index), names.get_mut(index)) else { break };
        if schema.tables.take().is_some() {
            schema.table_names = names.take();
        } else if schema.table_names.take().is_none() {
            continue;
        }
        truncated = true;
        let smaller = bytes(schema);
        total = total - size + smaller;
        largest.push((smaller, index));
    }
    if total > max_bytes {
        truncated = true;
        let shown = fitting(&schemas, max_bytes);
        schemas.truncate(shown);
    }
    (schemas, truncated)
}

/// Cuts the overview of a single schema to as many names as fit.
pub(crate) fn fit_one(mut schema: SchemaData, max_bytes: usize) -> (SchemaData, bool) {
    let names = schema.table_names.take().unwrap_or_default();
    let is_complete = schema.tables.as_ref().is_some_and(|tables| tables.len() as u64 == schema.table_count);
    if is_complete && bytes(&schema) <= max_bytes {
        return (schema, false);
    }
    schema.tables = None;
    schema.table_names = Some(Vec::new());
    let shown = fitting(&names, max_bytes.saturating_sub(bytes(&schema)));
    schema.table_names = Some(names.into_iter().take(shown).collect());
    (schema, true)
}

/// Removes the names, and also an incomplete list of tables, which could be mistaken for a complete one.
fn complete_only(schema: &mut SchemaData) -> Option<Vec<String>> {
    let all = schema.table_count;
    schema.tables = schema.tables.take().filter(|tables| tables.len() as u64 == all);
    schema.table_names.take().filter(|names| names.len() as u64 == all)
}

/// The number of leading items that fit.
pub(crate) fn fitting(items: &[impl Serialize], max_bytes: usize) -> usize {
    let mut remaining = max_bytes;
    let fits = |item| match remaining.checked_sub(bytes(item)) {
        Some(rest) => {
            remaining = rest;
            true
        }
        None => false,
    };
    items.iter().map(fits).take_while(|fits| *fits).count()
}

/// The size as JSON, including a comma.
fn bytes(value: &impl Serialize) -> usize {
    serde_json::to_string(value).map_or(0, |json| json.len() + 1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema(name: &str, count: usize) -> SchemaData {
        let names: Vec<String> = (0..count).map(|n| format!("table_{n}")).collect();
        let tables: Vec<_> = names.iter().map(|name| json!({"name": name, "kind": "table"})).collect();
        let schema = json!({"name": name, "table_count": count, "tables": tables, "table_names": names});
        serde_json::from_value(schema).unwrap()
    }

    fn forms(schemas: &[SchemaData]) -> String {
        let form = |it: &SchemaData| match (&it.tables, &it.table_names) {
            (Some(_), None) => 'T',
            (None, Some(_)) => 'N',
            (None, None) => '-',
            (Some(_), Some(_)) => panic!("not both"),
        };
        schemas.iter().map(form).collect()
    }

    #[test]
    fn the_largest_schema_is_the_first_to_lose_something() {
        let all = || vec![schema("a", 10), schema("b", 1000), schema("c", 20)];
        for (max_bytes, expected, cut) in [
            (1 << 20, "TTT", false),
            (20_000, "TNT", true),
            (3000, "T-T", true),
            (800, "T-N", true),
            (500, "N-N", true),
            (150, "---", true),
        ] {
            let (schemas, truncated) = fit(all(), max_bytes);
            assert_eq!((forms(&schemas), truncated), (expected.to_owned(), cut), "{max_bytes}");
            assert!(bytes(&schemas) <= max_bytes + 2, "{max_bytes}");
        }
        let (schemas, truncated) = fit(all(), 90);
        assert_eq!((schemas.len(), truncated), (2, true));
    }

    #[test]
    fn a_part_of_the_tables_never_looks_like_the_whole() {
        let mut cut = schema("a", 10);
        cut.table_count = 11;
        let (schemas, truncated) = fit(vec![cut, schema("b", 2)], 1 << 20);
        assert_eq!((forms(&schemas), truncated), ("-T".to_owned(), true));
    }

    #[test]
    fn the_one_schema_that_was_asked_for_has_as_many_names_as_fit() {
        let (whole, truncated) = fit_one(schema("a", 10), 1 << 20);
        assert_eq!((forms(&[whole]), truncated), ("T".to_owned(), false));
        let (names, truncated) = fit_one(schema("a", 100), 1500);
        assert_eq!((names.table_names.unwrap().len(), truncated), (100, true));
        let (cut, truncated) = fit_one(schema("a", 1000), 1500);
        assert!(truncated && bytes(&cut) <= 1500, "{}", bytes(&cut));
        assert!(cut.table_names.unwrap().len() > 100);
    }
}
