//! What a text must be before it is parsed, and the place of what is wrong with it.

use squawk_lexer::{TokenKind, tokenize};

/// The maximum length of a text.
pub const MAX_BYTES: usize = 64 << 10;

/// The maximum depth of parentheses and brackets, and the maximum number of operators in a row. The parser takes time
/// that grows with the square of both, and its stack with both.
const MAX_NESTED: usize = 100;

/// The stack of the parser. Memory is only taken as it is used.
const STACK_BYTES: usize = 256 << 20;

/// A place in a text. Both count from 1, the column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub line: u32,
    pub column: u32,
}

impl Position {
    pub(crate) fn of(sql: &str, offset: usize) -> Self {
        let before = sql.get(..offset).unwrap_or(sql);
        let line = before.rsplit('\n').next().unwrap_or_default();
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Self { line: count(before.matches('\n').count() + 1), column: count(line.chars().count() + 1) }
    }
}

/// The reason why a text cannot be carried out, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {}, column {}: {reason}", position.line, position.column)]
pub struct SchemaChangeError {
    pub position: Position,
    pub reason: String,
}

impl SchemaChangeError {
    pub(crate) fn new(sql: &str, offset: usize, reason: impl Into<String>) -> Self {
        Self { position: Position::of(sql, offset), reason: reason.into() }
    }
}

pub(crate) fn check(sql: &str) -> Result<(), SchemaChangeError> {
    if sql.len() > MAX_BYTES {
        let reason = format!("the text has {} bytes, and a schema change at most {MAX_BYTES}", sql.len());
        return Err(SchemaChangeError::new(sql, 0, reason));
    }
    if let Some((offset, hidden)) = sql.char_indices().find(|(_, c)| is_hidden(*c)) {
        let reason = format!("the character U+{:04X} would hide from a reader what the text does", u32::from(hidden));
        return Err(SchemaChangeError::new(sql, offset, reason));
    }
    check_nesting(sql)
}

/// Whether a terminal or a page could show the text as another one because of this character.
fn is_hidden(c: char) -> bool {
    let is_layout = matches!(c, '\n' | '\r' | '\t');
    let is_directing =
        matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
    c.is_control() && !is_layout || is_directing
}

fn check_nesting(sql: &str) -> Result<(), SchemaChangeError> {
    let (mut offset, mut depth, mut operators) = (0_usize, 0_usize, 0_usize);
    for token in tokenize(sql) {
        let length = usize::try_from(token.len).unwrap_or(usize::MAX);
        let text = sql.get(offset..offset.saturating_add(length)).unwrap_or_default();
        match token.kind {
            TokenKind::OpenParen | TokenKind::OpenBracket => (depth, operators) = (depth + 1, 0),
            TokenKind::CloseParen | TokenKind::CloseBracket => (depth, operators) = (depth.saturating_sub(1), 0),
            TokenKind::Whitespace | TokenKind::LineComment | TokenKind::BlockComment { .. } => {}
            TokenKind::Ident if text.eq_ignore_ascii_case("not") => operators += 1,
            TokenKind::Semi => (depth, operators) = (0, 0),
            TokenKind::Ident | TokenKind::Literal { .. } => operators = 0,
            _ => operators += 1,
        }
        if depth > MAX_NESTED || operators > MAX_NESTED {
            let reason = format!("the text is nested more than {MAX_NESTED} deep");
            return Err(SchemaChangeError::new(sql, offset, reason));
        }
        offset += length;
    }
    Ok(())
}

/// Runs the parser in a thread: what is nested deeply must not take the stack of the caller.
pub(crate) fn on_large_stack<T: Send>(
    parse: impl FnOnce() -> Result<T, SchemaChangeError> + Send,
) -> Result<T, SchemaChangeError> {
    let failed = |reason: String| Err(SchemaChangeError { position: Position { line: 1, column: 1 }, reason });
    std::thread::scope(|scope| match std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, parse) {
        Ok(thread) => thread.join().unwrap_or_else(|_| failed("the parser cannot read this text".to_owned())),
        Err(error) => failed(format!("the text cannot be parsed now: {error}")),
    })
}
