//! Inference of the types of a tool's parameters and result columns, by describing its statements.
//!
//! All statements of a tool share its parameters, but PostgreSQL infers types for one statement at a time. It rejects
//! a statement (42P18) if a parameter gets no type in it. So each statement is described with the types learned from
//! the others, until no more types are learned. At the end, each statement is described once more with all types, so
//! that it accepts every parameter.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use serde_spanned::Spanned;
use types::{DescribeError, DescribeStatement, PgType, StatementShape};

use crate::file::ToolDeclaration;
use crate::missing_privileges::{INSUFFICIENT_PRIVILEGE, MissingPrivileges};
use crate::parse::ParsedTool;
use crate::source::offset_in_string;
use crate::{Diagnostic, Diagnostics, StatementSpec};

/// What PostgreSQL reports about a tool.
#[derive(Debug)]
pub(crate) struct InferredTypes {
    /// The types of `$1`, `$2`, ...
    pub(crate) params: Vec<Arc<PgType>>,
    pub(crate) before: Option<StatementSpec>,
    pub(crate) after: Option<StatementSpec>,
    /// The statements of `sql`; empty if the tool has an executor.
    pub(crate) statements: Vec<StatementSpec>,
}

impl InferredTypes {
    /// All statements: `before`, `sql`, `after`.
    pub(crate) fn all(&self) -> impl Iterator<Item = &StatementSpec> {
        self.before.iter().chain(&self.statements).chain(&self.after)
    }

    /// The shape of the statement whose rows are the result; `None` for an executor.
    pub(crate) fn result(&self) -> Option<&StatementShape> {
        self.statements.last().map(|statement| &statement.shape)
    }
}

/// The database did not answer. The mistake is recorded already.
#[derive(Debug)]
pub(crate) struct UnavailableError;

/// Describes the statements of a completely parsed tool. `Ok(None)` if the tool was not parsed completely, or if its
/// statements have mistakes. If the tool has an executor, only `before` and `after` determine the types of the
/// parameters.
pub(crate) async fn infer(
    parsed: &ParsedTool<'_>,
    database: &impl DescribeStatement,
    diagnostics: &mut Diagnostics,
    denied: &mut MissingPrivileges,
) -> Result<Option<InferredTypes>, UnavailableError> {
    let Some(tool) = parsed.tool.as_ref().filter(|_| parsed.whole) else { return Ok(None) };
    if tool.executor.is_some() && tool.before.is_none() {
        // This is reported as another mistake. Without a statement, no parameter has a type.
        return Ok(None);
    }
    let mut texts = texts(tool, parsed.extension_schema.as_deref());
    if texts.is_empty() || texts.iter().any(|text| text.sql.trim().is_empty()) {
        return Ok(None);
    }
    let known = vec![None; tool.param.len()];
    let mut inference = Inference { parsed, tool, database, known, found: Vec::new(), denied: Vec::new() };
    let shapes = inference.run(&texts).await;
    diagnostics.0.append(&mut inference.found);
    inference.denied.iter().for_each(|why| denied.note(parsed.diagnostic(parsed.span.clone(), why)));
    let Some(shapes) = shapes? else { return Ok(None) };
    texts.retain(|text| text.key != SETS_NULL);

    let params: Vec<Arc<PgType>> = inference.known.into_iter().flatten().collect();
    let param_types: Vec<u32> = params.iter().map(|ty| ty.oid).collect();
    let mut statements: Vec<StatementSpec> = texts
        .into_iter()
        .zip(shapes)
        .map(|(text, shape)| StatementSpec { sql: text.sql.into_owned(), param_types: param_types.clone(), shape })
        .collect();
    let before = tool.before.is_some().then(|| statements.remove(0));
    let after = if tool.after.is_some() { statements.pop() } else { None };
    Ok(Some(InferredTypes { params, before, after, statements }))
}

struct StatementText<'a> {
    key: &'static str,
    sql: Cow<'a, str>,
    span: Range<usize>,
    /// The number of bytes at the start that are at the same position in the manifest; `None` for all.
    same: Option<usize>,
}

/// The key of a statement that determines the type of the parameter with `sets_null`. It is the last one, and is
/// never executed.
const SETS_NULL: &str = "sets_null";

/// Stands for the schema of the required extension in a statement.
const EXTENSION: &str = "{extension}";

/// The texts of `before`, of `sql` in order, of `after`, and of the statement [`SETS_NULL`].
fn texts<'a>(tool: &'a ToolDeclaration, extension_schema: Option<&str>) -> Vec<StatementText<'a>> {
    let image = |key, sql: &'_ Spanned<String>| (key, sql.span());
    let text = |(key, span), sql| StatementText { key, sql: Cow::Borrowed(sql), span, same: None };
    let before = tool.before.iter().map(|sql| text(image("before", sql), sql.get_ref().as_str()));
    let after = tool.after.iter().map(|sql| text(image("after", sql), sql.get_ref().as_str()));
    let set = tool.set_clause();
    let statements = tool.sql.get_ref().texts.iter().enumerate().map(|(index, (sql, span))| {
        let span = span.clone().unwrap_or_else(|| tool.sql.span());
        match set.as_ref().filter(|set| set.statement == index) {
            Some(set) => StatementText { key: "sql", sql: set.whole().into(), span, same: Some(set.start()) },
            None => match extension_schema.zip(sql.find(EXTENSION)) {
                Some((schema, start)) => {
                    StatementText { key: "sql", sql: sql.replace(EXTENSION, schema).into(), span, same: Some(start) }
                }
                None => text(("sql", span), sql.as_str()),
            },
        }
    });
    let nulls = tool.param.iter().zip(1..).filter(|(param, _)| param.names_null());
    let nulls = nulls.map(|(param, number)| StatementText {
        key: SETS_NULL,
        sql: format!("select ${number}::pg_catalog.text[]").into(),
        span: param.name.span(),
        same: Some(0),
    });
    before.chain(statements).chain(after).chain(nulls).collect()
}

/// PostgreSQL: "could not determine data type of parameter $n".
const INDETERMINATE_DATATYPE: &str = "42P18";

/// The `pg_type.oid` of the pseudo-type `trigger`, for a parameter that a statement is assumed not to use. If the
/// statement does use it, it is rejected, so that no wrong type is learned.
const UNUSABLE: u32 = 2279;

struct Inference<'a, 's, D> {
    parsed: &'a ParsedTool<'s>,
    tool: &'a ToolDeclaration,
    database: &'a D,
    known: Vec<Option<Arc<PgType>>>,
    found: Vec<Diagnostic>,
    /// PostgreSQL's messages about missing privileges.
    denied: Vec<String>,
}

enum DescribeOutcome {
    Described,
    /// A type is missing that another statement may determine.
    Postponed,
    /// The mistake is recorded.
    Refused,
}

impl<D: DescribeStatement> Inference<'_, '_, D> {
    /// The shapes of all statements, described with all parameters.
    async fn run(&mut self, texts: &[StatementText<'_>]) -> Result<Option<Vec<StatementShape>>, UnavailableError> {
        let mut open: Vec<&StatementText<'_>> = texts.iter().collect();
        while !open.is_empty() {
            let before = (open.len(), self.unknown());
            let mut postponed = Vec::new();
            for text in open {
                if let DescribeOutcome::Postponed = self.attempt(text).await? {
                    postponed.push(text);
                }
            }
            open = postponed;
            if before == (open.len(), self.unknown()) {
                for text in &open {
                    self.probe(text).await?;
                }
                if before.1 == self.unknown() {
                    break;
                }
            }
        }
        if self.is_clean() {
            self.require_types();
        }
        if !self.is_clean() {
            return Ok(None);
        }
        let mut shapes = Vec::new();
        let types = self.types();
        for text in texts {
            match self.describe(text, &types).await? {
                Ok(shape) => shapes.push(shape),
                Err(refusal) => self.refused(text, refusal),
            }
        }
        Ok(self.is_clean().then_some(shapes))
    }

    fn is_clean(&self) -> bool {
        self.found.is_empty() && self.denied.is_empty()
    }

    /// Describes a statement with the types known so far, and learns more types from it.
    async fn attempt(&mut self, text: &StatementText<'_>) -> Result<DescribeOutcome, UnavailableError> {
        let types = self.types();
        Ok(match self.describe(text, &types).await? {
            Ok(shape) => self.learn(text, &shape, &types),
            Err(refusal) => match refusal.untyped {
                Some(number) if number <= self.known.len() => DescribeOutcome::Postponed,
                Some(number) => {
                    self.too_many(text, number);
                    DescribeOutcome::Refused
                }
                None => {
                    self.refused(text, refusal);
                    DescribeOutcome::Refused
                }
            },
        })
    }

    /// Describes a statement as if it did not use the parameters that get no type in it, to learn the types of the
    /// others. Without this, `f($1, $3)` and `g($2, $3)` could not be described.
    async fn probe(&mut self, text: &StatementText<'_>) -> Result<(), UnavailableError> {
        let mut types = self.types();
        for _ in 0..self.known.len() {
            let number = match self.describe(text, &types).await? {
                Ok(shape) => {
                    self.learn(text, &shape, &types);
                    return Ok(());
                }
                Err(RefusedStatement { untyped: Some(number), .. }) if number <= self.known.len() => number,
                Err(_) => return Ok(()),
            };
            types.resize(types.len().max(number), 0);
            if let Some(ty) = number.checked_sub(1).and_then(|index| types.get_mut(index)) {
                *ty = UNUSABLE;
            }
        }
        Ok(())
    }

    fn learn(&mut self, text: &StatementText<'_>, shape: &StatementShape, asked: &[u32]) -> DescribeOutcome {
        if shape.params.len() > self.known.len() {
            self.too_many(text, shape.params.len());
            return DescribeOutcome::Refused;
        }
        for (index, (known, ty)) in self.known.iter_mut().zip(&shape.params).enumerate() {
            if asked.get(index) != Some(&UNUSABLE) && known.is_none() {
                *known = Some(Arc::clone(ty));
            }
        }
        DescribeOutcome::Described
    }

    /// The known types, without unknown ones at the end, which a statement need not use.
    fn types(&self) -> Vec<u32> {
        let known = self.known.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.known.iter().take(known).map(|ty| ty.as_ref().map_or(0, |ty| ty.oid)).collect()
    }

    fn unknown(&self) -> usize {
        self.known.iter().filter(|ty| ty.is_none()).count()
    }

    async fn describe(
        &mut self,
        text: &StatementText<'_>,
        types: &[u32],
    ) -> Result<Result<StatementShape, RefusedStatement>, UnavailableError> {
        match self.database.describe(&text.sql, types).await {
            Ok(shape) => Ok(Ok(shape)),
            Err(DescribeError::Refused { message, sqlstate, hint, position }) => {
                let untyped = (sqlstate == INDETERMINATE_DATATYPE).then(|| parameter_number(&message)).flatten();
                Ok(Err(RefusedStatement { message, sqlstate, hint, position, untyped }))
            }
            Err(DescribeError::Unavailable(why)) => {
                let message = format!("the database could not be asked whether this fits: {why}");
                self.found.push(self.parsed.diagnostic(text.span.clone(), message));
                Err(UnavailableError)
            }
        }
    }

    fn too_many(&mut self, text: &StatementText<'_>, used: usize) {
        let declared = self.known.len();
        let message = format!(
            "{} takes {used} parameters (${used} is the last), but the tool declares {declared} as [[tool.param]]",
            text.key
        );
        self.found.push(self.parsed.diagnostic(text.span.clone(), message));
    }

    fn refused(&mut self, text: &StatementText<'_>, refusal: RefusedStatement) {
        if refusal.sqlstate == INSUFFICIENT_PRIVILEGE {
            self.denied.push(refusal.message);
            return;
        }
        let token = self.parsed.source.text.get(text.span.clone()).unwrap_or_default();
        let position = refusal.position.map(|position| position as usize);
        let position = position.filter(|position| text.same.is_none_or(|same| *position <= same));
        let offset = position.map_or(0, |position| offset_in_string(token, position));
        let at = text.span.start + offset;
        let hint = refusal.hint.map(|hint| format!("; hint: {hint}")).unwrap_or_default();
        let message = format!("{}: {} (SQLSTATE {}){hint}", text.key, refusal.message, refusal.sqlstate);
        self.found.push(self.parsed.diagnostic(at..at.max(text.span.end), message));
    }

    /// Checks that every parameter has a type or a recorded mistake.
    fn require_types(&mut self) {
        for (index, (param, known)) in self.tool.param.iter().zip(&self.known).enumerate() {
            if known.is_none() {
                let number = index + 1;
                let message = format!(
                    "parameter {} (${number}) has no type: no statement uses ${number}, or only where any type would do. \
                     Remove it, or write its type, as in ${number}::text",
                    param.name.get_ref()
                );
                self.found.push(self.parsed.diagnostic(param.name.span(), message));
            }
        }
    }
}

/// PostgreSQL's error for a statement that cannot be prepared.
struct RefusedStatement {
    message: String,
    sqlstate: String,
    hint: Option<String>,
    position: Option<u32>,
    /// The parameter without a type, if that is the only mistake.
    untyped: Option<usize>,
}

/// The `n` in "could not determine data type of parameter $n", in any language of the server.
fn parameter_number(message: &str) -> Option<usize> {
    let (_, after) = message.split_once('$')?;
    let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
    after.get(..digits)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_is_found_in_any_language() {
        assert_eq!(parameter_number("could not determine data type of parameter $12"), Some(12));
        assert_eq!(parameter_number("konnte Datentyp von Parameter $2 nicht ermitteln"), Some(2));
        assert_eq!(parameter_number("no number here"), None);
    }
}
