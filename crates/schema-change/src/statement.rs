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
    /// The part of the text that the step stands for, with the comments between its statements. All steps together
    /// have the whole text. It is for readers: only `statements` run.
    pub source: String,
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
    let mut shown_up_to = 0;
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
        let end = usize::from(node.text_range().end());
        let source = sql.get(shown_up_to..end).unwrap_or_default();
        shown_up_to = end;
        match steps.last_mut() {
            Some(step) if !step.is_alone && !is_alone => {
                step.statements.push(statement);
                step.source.push_str(source);
            }
            _ => {
                let number = u32::try_from(steps.len() + 1).unwrap_or(u32::MAX);
                steps.push(SchemaChangeStep {
                    number,
                    is_alone,
                    statements: vec![statement],
                    source: source.to_owned(),
                });
            }
        }
    }
    let Some(last) = steps.last_mut() else {
        return Err(SchemaChangeError::new(sql, 0, "the text has no statement"));
    };
    last.source.push_str(sql.get(shown_up_to..).unwrap_or_default());
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

const ROLE_REFUSAL: &str =
    "a schema change runs in the login of the person who carries it out: it cannot change the role";

const SERVER_REFUSAL: &str = "the statement is about roles, databases or the whole server, so about more than this database: run it outside of \
     countersign";

/// The settings that change the role.
const ROLE_SETTINGS: [&str; 2] = ["role", "session_authorization"];

/// Why a statement cannot be part of a schema change. What a function or a `DO` block does is not seen here: the
/// session in which the text runs looks at what a statement did (`ledger::schema_changes`, `boundary`).
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
        Kind::SET_ROLE | Kind::RESET_ROLE | Kind::SET_SESSION_AUTH | Kind::RESET_SESSION_AUTH => ROLE_REFUSAL,
        Kind::SET | Kind::RESET if names_role_setting(node) => ROLE_REFUSAL,
        _ if sets_role_by_function(node) => ROLE_REFUSAL,
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
        | Kind::DROP_SUBSCRIPTION
        | Kind::ALTER_DATABASE
        | Kind::ALTER_TABLESPACE
        | Kind::CREATE_ROLE
        | Kind::CREATE_USER
        | Kind::CREATE_GROUP
        | Kind::ALTER_ROLE
        | Kind::ALTER_USER
        | Kind::ALTER_GROUP
        | Kind::DROP_ROLE
        | Kind::DROP_USER
        | Kind::DROP_GROUP
        | Kind::DROP_OWNED
        | Kind::REASSIGN => SERVER_REFUSAL,
        Kind::GRANT | Kind::REVOKE if is_about_server(node) => SERVER_REFUSAL,
        Kind::COMMENT_ON | Kind::SECURITY_LABEL
            if has_descendant(node, &[Kind::OBJECT_DATABASE, Kind::OBJECT_ROLE, Kind::OBJECT_TABLESPACE]) =>
        {
            SERVER_REFUSAL
        }
        Kind::PREPARE | Kind::EXECUTE | Kind::DEALLOCATE | Kind::DISCARD => {
            "prepared statements and DISCARD are no part of a schema change"
        }
        _ => return None,
    })
}

/// Whether the setting of a `SET` or `RESET` is one that changes the role. PostgreSQL ignores the case of a setting's
/// name also in quotes.
fn names_role_setting(node: &SyntaxNode) -> bool {
    let mut names = node.descendants().filter(|one| one.kind() == SyntaxKind::CONFIG_PARAMETER_REF);
    names.any(|name| is_role_setting(name.text().to_string().trim().trim_matches('"')))
}

fn is_role_setting(name: &str) -> bool {
    ROLE_SETTINGS.iter().any(|setting| name.eq_ignore_ascii_case(setting))
}

/// Whether the statement calls `set_config` with the name of a setting that changes the role.
fn sets_role_by_function(node: &SyntaxNode) -> bool {
    let tokens: Vec<_> = node
        .descendants_with_tokens()
        .filter_map(SyntaxElement::into_token)
        .filter(|token| !token.kind().is_trivia())
        .collect();
    tokens.windows(3).any(|words| {
        let [function, parenthesis, setting] = words else { return false };
        function.text().trim_matches('"').eq_ignore_ascii_case("set_config")
            && parenthesis.kind() == SyntaxKind::L_PAREN
            && is_role_setting(setting.text().trim_matches('\''))
    })
}

/// Whether a `GRANT` or `REVOKE` is of a role, or of a privilege on a database, a tablespace or a server's setting.
fn is_about_server(node: &SyntaxNode) -> bool {
    use SyntaxKind as Kind;
    !has_descendant(node, &[Kind::ON_PRIVILEGE_OBJECTS_CLAUSE])
        || has_descendant(node, &[Kind::PRIVILEGE_DATABASE, Kind::PRIVILEGE_TABLESPACE, Kind::PRIVILEGE_PARAMETER])
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
