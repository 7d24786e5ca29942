//! A database that knows a handful of statements, and answers as PostgreSQL does.

#![expect(clippy::panic, reason = "clippy does not see that this is only for tests")]

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use contract::{Column, Describe, DescribeError, PgType, Scalar, StatementShape, TypeKind};
use countersign_manifest::{Catalog, Mistakes, Source};

/// `pg_type.oid` of the pseudo-type `trigger`: no operator takes it.
const TRIGGER: u32 = 2279;

#[derive(Default)]
pub(crate) struct Database {
    statements: HashMap<String, Known>,
}

struct Known {
    /// What the statement's own text says of each parameter; `None` for one that it does not use.
    params: Vec<Option<&'static str>>,
    columns: Option<Vec<Column>>,
}

impl Database {
    /// Adds a statement. A column's type is followed by `!` if it is never null; no columns means no result.
    pub(crate) fn knows(mut self, sql: &str, params: &[Option<&'static str>], columns: &[(&str, &str)]) -> Self {
        let columns: Vec<Column> = columns
            .iter()
            .map(|(name, ty)| Column {
                name: (*name).to_owned(),
                ty: ty_named(ty.trim_end_matches('!')),
                not_null: ty.ends_with('!'),
            })
            .collect();
        let columns = (!columns.is_empty()).then_some(columns);
        self.statements.insert(sql.to_owned(), Known { params: params.to_vec(), columns });
        self
    }
}

fn ty_named(name: &str) -> Arc<PgType> {
    let (oid, scalar) = match name {
        "bool" => (16, Scalar::Bool),
        "int4" => (23, Scalar::Int4),
        "int8" => (20, Scalar::Int8),
        "text" => (25, Scalar::Text),
        "varchar" => (1043, Scalar::Text),
        "timestamptz" => (1184, Scalar::Timestamptz),
        other => panic!("no type {other}"),
    };
    Arc::new(PgType { oid, name: name.to_owned(), kind: TypeKind::Scalar(scalar) })
}

fn ty_of(oid: u32) -> Arc<PgType> {
    let names = ["bool", "int4", "int8", "text", "varchar", "timestamptz"];
    let known = names.into_iter().map(ty_named).find(|ty| ty.oid == oid);
    known.unwrap_or_else(|| Arc::new(PgType { oid, name: "trigger".to_owned(), kind: TypeKind::Scalar(Scalar::Text) }))
}

fn refused(sqlstate: &str, message: String, position: Option<u32>) -> DescribeError {
    DescribeError::Refused { message, sqlstate: sqlstate.to_owned(), hint: None, position }
}

impl Describe for Database {
    async fn describe(&self, sql: &str, param_types: &[u32]) -> Result<StatementShape, DescribeError> {
        let Some(known) = self.statements.get(sql.trim()) else {
            let position = sql.find("oops").map(|byte| sql[..byte].chars().count() as u32 + 1);
            return Err(refused("42601", "syntax error at or near \"oops\"".to_owned(), position));
        };
        let mut params = Vec::new();
        for index in 0..known.params.len().max(param_types.len()) {
            let given = param_types.get(index).copied().filter(|&oid| oid != 0);
            let inferred = known.params.get(index).copied().flatten();
            params.push(match (given, inferred) {
                (Some(TRIGGER), Some(_)) => return Err(refused("42883", "operator does not exist".to_owned(), None)),
                (Some(oid), _) => ty_of(oid),
                (None, Some(name)) => ty_named(name),
                (None, None) => {
                    let message = format!("could not determine data type of parameter ${}", index + 1);
                    return Err(refused("42P18", message, None));
                }
            });
        }
        Ok(StatementShape { params, columns: known.columns.clone() })
    }
}

/// Compiles these texts as `m0.toml`, `m1.toml`, ...
pub(crate) fn compile(texts: &[&str], database: &impl Describe) -> Result<Catalog, Mistakes> {
    let sources: Vec<Source> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| Source { path: format!("m{index}.toml").into(), text: (*text).to_owned() })
        .collect();
    ready(countersign_manifest::compile(&sources, &["query_database"], database))
}

/// The database above never waits.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the database of the tests never waits"),
    }
}
