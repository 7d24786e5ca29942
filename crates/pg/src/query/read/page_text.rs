//! Builds the query for the rows after a key.
//!
//! ```text
//! select page.c1 as "id", page.c2 as "name" from (
//! THE QUERY
//! ) as page (c1, c2) where row(page.c1) operator(pg_catalog.>) row($1) order by page.c1
//! ```
//! An agent's text cannot break out of this frame: it has been parsed alone before, as one statement that returns
//! rows. So it consists of whole tokens, its quotes, comments and parentheses are closed, and the line break ends a
//! `--` comment. The result is parsed by the extended protocol, which takes one statement, and inspected like any
//! other text (`function_policy`).

use std::fmt::Write as _;

use super::page_order::PageKey;
use crate::client::literal;

/// The query without a trailing `;`. The `;` may also be part of a comment, so the result must be parsed alone before
/// it is used.
pub(super) fn without_end(sql: &str) -> &str {
    sql.trim_end_matches(|c: char| c == ';' || c.is_ascii_whitespace())
}

/// A statement that contains the query. It is only parsed, never run.
pub(super) fn as_part(sql: &str) -> String {
    format!("select from (\n{sql}\n) as page")
}

/// The number of characters before the query in the statement of a page, for error positions.
pub(super) fn chars_before(names: &[String]) -> u32 {
    u32::try_from(head(names).chars().count()).unwrap_or(u32::MAX)
}

fn head(names: &[String]) -> String {
    let columns =
        names.iter().enumerate().map(|(index, name)| format!("{} as {}", column(index), literal::identifier(name)));
    format!("select {} from (\n", columns.collect::<Vec<_>>().join(", "))
}

fn column(index: usize) -> String {
    format!("page.c{}", index + 1)
}

/// The query for the rows after these key values. `param_count` is the number of the query's own parameters. The
/// values that are not NULL become the parameters after them.
pub(super) fn page_query(
    sql: &str,
    names: &[String],
    keys: &[PageKey],
    values: &[Option<String>],
    param_count: usize,
) -> String {
    let mut text = head(names);
    let aliases: Vec<String> = (1..=names.len()).map(|number| format!("c{number}")).collect();
    let mut next = param_count;
    let mut bounds = Vec::new();
    for (key, value) in keys.iter().zip(values) {
        next += usize::from(value.is_some());
        bounds.push(Bound { key, param: value.is_some().then_some(next) });
    }
    let order: Vec<String> = keys.iter().map(sort_key).collect();
    let (aliases, condition, order) = (aliases.join(", "), condition(&bounds), order.join(", "));
    // Writing to a String cannot fail.
    let _ = write!(text, "{sql}\n) as page ({aliases}) where {condition} order by {order}");
    text
}

fn sort_key(key: &PageKey) -> String {
    let direction = if key.is_descending { "desc" } else { "asc" };
    let nulls = if key.nulls_first { "first" } else { "last" };
    format!("{} {direction} nulls {nulls}", column(key.index))
}

/// A key, and the number of the parameter with its value; `None` for NULL.
struct Bound<'a> {
    key: &'a PageKey,
    param: Option<usize>,
}

impl Bound<'_> {
    fn compare(&self, operator: &str, param: usize) -> String {
        format!("{} operator(pg_catalog.{operator}) ${param}", column(self.key.index))
    }

    fn direction(&self) -> &'static str {
        if self.key.is_descending { "<" } else { ">" }
    }

    /// The condition that a row comes after this key.
    fn is_behind(&self) -> String {
        let column = column(self.key.index);
        match self.param {
            Some(param) if self.key.not_null || self.key.nulls_first => self.compare(self.direction(), param),
            Some(param) => format!("({} or {column} is null)", self.compare(self.direction(), param)),
            None if self.key.nulls_first => format!("{column} is not null"),
            None => "false".to_owned(),
        }
    }

    fn is_equal(&self) -> String {
        match self.param {
            Some(param) => self.compare("=", param),
            None => format!("{} is null", column(self.key.index)),
        }
    }
}

fn condition(bounds: &[Bound<'_>]) -> String {
    let columns: Vec<String> = bounds.iter().map(|bound| column(bound.key.index)).collect();
    let params: Option<Vec<String>> = bounds.iter().map(|bound| Some(format!("${}", bound.param?))).collect();
    let mut directions = bounds.iter().map(Bound::direction);
    let direction = directions.next().unwrap_or(">");
    let is_row = bounds.iter().all(|bound| bound.key.not_null) && directions.all(|other| other == direction);
    // An index supports a row comparison.
    if let (true, Some(params)) = (is_row, params) {
        let (columns, params) = (columns.join(", "), params.join(", "));
        return format!("row({columns}) operator(pg_catalog.{direction}) row({params})");
    }
    let nested = bounds.iter().rev().fold(None, |inner: Option<String>, bound| {
        let behind = bound.is_behind();
        Some(match inner {
            Some(inner) => format!("({behind} or {} and {inner})", bound.is_equal()),
            None => behind,
        })
    });
    let nested = nested.unwrap_or_else(|| "false".to_owned());
    // An index supports this additional bound, but not the OR.
    match bounds.first() {
        Some(bound @ Bound { param: Some(param), key }) if key.not_null => {
            format!("{} and {nested}", bound.compare(&format!("{}=", bound.direction()), *param))
        }
        _ => nested,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use types::{PgType, Scalar, TypeKind};

    use super::*;

    fn key(index: usize, is_descending: bool, not_null: bool) -> PageKey {
        let ty = Arc::new(PgType { oid: 23, name: "int4".to_owned(), kind: TypeKind::Scalar(Scalar::Int4) });
        PageKey { index, ty, is_descending, nulls_first: is_descending, not_null }
    }

    fn of(keys: &[PageKey], values: &[Option<&str>]) -> String {
        let values: Vec<Option<String>> = values.iter().map(|value| value.map(str::to_owned)).collect();
        let text = page_query("Q", &["a \"b\"".to_owned(), "c".to_owned()], keys, &values, 2);
        let head = "select page.c1 as \"a \"\"b\"\"\", page.c2 as \"c\" from (\nQ\n) as page (c1, c2) where ";
        text.strip_prefix(head).unwrap().to_owned()
    }

    #[test]
    fn the_condition_is_a_row_comparison_where_it_says_the_same() {
        assert_eq!(
            of(&[key(1, true, true), key(0, true, true)], &[Some("1"), Some("2")]),
            "row(page.c2, page.c1) operator(pg_catalog.<) row($3, $4) order by page.c2 desc nulls first, page.c1 desc nulls first"
        );
        assert_eq!(
            of(&[key(1, true, true), key(0, false, true)], &[Some("1"), Some("2")]),
            "page.c2 operator(pg_catalog.<=) $3 and (page.c2 operator(pg_catalog.<) $3 or page.c2 operator(pg_catalog.=) $3 \
             and page.c1 operator(pg_catalog.>) $4) order by page.c2 desc nulls first, page.c1 asc nulls last"
        );
    }

    #[test]
    fn null_is_behind_every_value_or_before_it() {
        let condition =
            |keys: &[PageKey], values: &[Option<&str>]| of(keys, values).split(" order by").next().unwrap().to_owned();
        let keys = [key(0, false, false), key(1, false, true)];
        assert_eq!(
            condition(&keys, &[Some("1"), Some("2")]),
            "((page.c1 operator(pg_catalog.>) $3 or page.c1 is null) or page.c1 operator(pg_catalog.=) $3 \
             and page.c2 operator(pg_catalog.>) $4)"
        );
        assert_eq!(
            condition(&keys, &[None, Some("2")]),
            "(false or page.c1 is null and page.c2 operator(pg_catalog.>) $3)"
        );
        let keys = [key(0, true, false), key(1, false, true)];
        assert_eq!(
            condition(&keys, &[None, Some("2")]),
            "(page.c1 is not null or page.c1 is null and page.c2 operator(pg_catalog.>) $3)"
        );
    }

    #[test]
    fn only_the_end_of_the_text_is_left_out() {
        for (sql, expected) in [("select 1;", "select 1"), ("select 1 ; \n;", "select 1"), ("select ';'", "select ';'")]
        {
            assert_eq!(without_end(sql), expected);
        }
    }
}
