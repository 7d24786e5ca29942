//! The statements of a text, and the steps in which they are carried out.

use squawk_syntax::ast::AstNode;
use squawk_syntax::syntax_error::SyntaxError;
use squawk_syntax::{Parse, SourceFile, SyntaxElement, SyntaxKind, SyntaxNode};

use crate::text::{Position, SchemaChangeError};

/// One statement of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The text from its first word to its semicolon.
    pub sql: String,
    /// The line of its first word, from 1.
    pub line: u32,
}

/// Statements that are carried out together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaChangeStep {
    /// The number, from 1.
    pub number: u32,
    /// Whether it is one statement that cannot run in a transaction.
    pub is_alone: bool,
    pub statements: Vec<Statement>,
}

impl SchemaChangeStep {
    /// The text of the step.
    #[must_use]
    pub fn sql(&self) -> String {
        let texts: Vec<&str> = self.statements.iter().map(|statement| statement.sql.as_str()).collect();
        texts.join("\n")
    }

    /// The line of the first statement.
    #[must_use]
    pub fn line(&self) -> u32 {
        self.statements.first().map_or(1, |statement| statement.line)
    }

    /// Whether the statement lets others read and write while it waits: it then needs no limit on that.
    #[must_use]
    pub fn is_concurrent(&self) -> bool {
        self.is_alone && self.statements.iter().all(|one| has_word(&one.sql, "concurrently"))
    }
}

/// Whether a text has this word outside of quotes and comments.
fn has_word(sql: &str, word: &str) -> bool {
    let mut offset = 0;
    squawk_lexer::tokenize(sql).any(|token| {
        let end = offset + usize::try_from(token.len).unwrap_or_default();
        let text = sql.get(offset..end).unwrap_or_default();
        offset = end;
        token.kind == squawk_lexer::TokenKind::Ident && text.eq_ignore_ascii_case(word)
    })
}

pub(crate) fn steps(sql: &str, parse: &Parse<SourceFile>) -> Result<Vec<SchemaChangeStep>, SchemaChangeError> {
    if let Some(error) = parse.errors().first() {
        return Err(syntax_error(sql, error));
    }
    let mut steps: Vec<SchemaChangeStep> = Vec::new();
    for element in parse.tree().syntax().children_with_tokens() {
        let offset = usize::from(element.text_range().start());
        let node = match element {
            SyntaxElement::Node(node) if node.kind() == SyntaxKind::EMPTY_STMT => continue,
            SyntaxElement::Node(node) => node,
            SyntaxElement::Token(token) if token.kind().is_trivia() || token.kind() == SyntaxKind::SEMICOLON => {
                continue;
            }
            SyntaxElement::Token(_) => return Err(SchemaChangeError::new(sql, offset, "syntax error: no statement")),
        };
        if let Some(reason) = refusal(&node) {
            return Err(SchemaChangeError::new(sql, offset, reason));
        }
        let statement = Statement { sql: node.text().to_string(), line: Position::of(sql, offset).line };
        let is_alone = runs_alone(&node);
        match steps.last_mut() {
            Some(step) if !step.is_alone && !is_alone => step.statements.push(statement),
            _ => {
                let number = u32::try_from(steps.len() + 1).unwrap_or(u32::MAX);
                steps.push(SchemaChangeStep { number, is_alone, statements: vec![statement] });
            }
        }
    }
    if steps.is_empty() {
        return Err(SchemaChangeError::new(sql, 0, "the text has no statement"));
    }
    Ok(steps)
}

fn syntax_error(sql: &str, error: &SyntaxError) -> SchemaChangeError {
    let offset = usize::from(error.range().start());
    let before = sql.get(..offset).unwrap_or_default();
    let line = before.rfind('\n').map_or(0, |at| at + 1);
    // An unknown character ends the token: the place of the error is behind it.
    let start = sql.get(line..).unwrap_or_default();
    if start.trim_start().starts_with('\\') {
        let at = line + start.len() - start.trim_start().len();
        return SchemaChangeError::new(sql, at, "psql's meta commands (\\d, \\i ..) are not SQL: leave them out");
    }
    SchemaChangeError::new(sql, offset, format!("syntax error: {}", error.message()))
}

/// Why a statement cannot be part of a schema change.
fn refusal(node: &SyntaxNode) -> Option<&'static str> {
    use SyntaxKind as Kind;
    Some(match node.kind() {
        Kind::BEGIN
        | Kind::COMMIT_TRANSACTION
        | Kind::ROLLBACK_TRANSACTION
        | Kind::SAVEPOINT_CREATE
        | Kind::RELEASE_SAVEPOINT
        | Kind::ROLLBACK_TO_SAVEPOINT
        | Kind::PREPARE_TRANSACTION
        | Kind::COMMIT_PREPARED
        | Kind::ROLLBACK_PREPARED
        | Kind::SET_TRANSACTION => {
            "countersign begins and ends the transactions of a schema change: leave BEGIN, COMMIT, ROLLBACK and SAVEPOINT out"
        }
        Kind::SET_ROLE | Kind::RESET_ROLE | Kind::SET_SESSION_AUTH | Kind::RESET_SESSION_AUTH => {
            "a schema change runs in the login of the person who carries it out: it cannot change the role"
        }
        Kind::COPY if has_descendant(node, &[Kind::COPY_STDIN, Kind::COPY_STDOUT]) => {
            "COPY from or to the client has no data here"
        }
        Kind::CREATE_DATABASE
        | Kind::DROP_DATABASE
        | Kind::ALTER_SYSTEM
        | Kind::CREATE_TABLESPACE
        | Kind::DROP_TABLESPACE
        | Kind::CREATE_SUBSCRIPTION
        | Kind::ALTER_SUBSCRIPTION
        | Kind::DROP_SUBSCRIPTION => "the statement is about more than this database: run it outside of countersign",
        Kind::PREPARE | Kind::EXECUTE | Kind::DEALLOCATE | Kind::DISCARD => {
            "prepared statements and DISCARD are no part of a schema change"
        }
        _ => return None,
    })
}

/// Whether PostgreSQL refuses the statement in a transaction.
fn runs_alone(node: &SyntaxNode) -> bool {
    use SyntaxKind as Kind;
    match node.kind() {
        Kind::VACUUM => true,
        Kind::CREATE_INDEX | Kind::DROP_INDEX => has_token(node, Kind::CONCURRENTLY_KW),
        Kind::REINDEX => {
            let whole = [Kind::REINDEX_TARGET_DATABASE, Kind::REINDEX_TARGET_SCHEMA, Kind::REINDEX_TARGET_SYSTEM];
            has_token(node, Kind::CONCURRENTLY_KW) || has_descendant(node, &whole)
        }
        Kind::ALTER_TABLE => has_descendant(node, &[Kind::DETACH_CONCURRENTLY]),
        _ => false,
    }
}

fn has_descendant(node: &SyntaxNode, kinds: &[SyntaxKind]) -> bool {
    node.descendants().any(|one| kinds.contains(&one.kind()))
}

fn has_token(node: &SyntaxNode, kind: SyntaxKind) -> bool {
    node.descendants_with_tokens().any(|one| one.kind() == kind)
}
