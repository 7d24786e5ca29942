//! Splits a statement of an agent into tokens, in which literals and parameters are slots. PostgreSQL has accepted the
//! statement; no decision about what it may do depends on this.

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// A keyword or a name, or a literal with a prefix (`E'..'`), which is no slot.
    Word,
    /// A number, or a text in quotes.
    Literal,
    /// `$1`.
    Parameter(usize),
    /// Anything else.
    Symbol,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StatementToken<'a> {
    pub(crate) kind: TokenKind,
    pub(crate) text: &'a str,
    /// Whether white space or a comment stands before it.
    pub(crate) is_apart: bool,
}

impl StatementToken<'_> {
    /// Whether it is this keyword, or this symbol.
    pub(crate) fn is(&self, word: &str) -> bool {
        self.text.eq_ignore_ascii_case(word)
    }

    pub(crate) const fn is_slot(&self) -> bool {
        matches!(self.kind, TokenKind::Literal | TokenKind::Parameter(_))
    }

    /// The token as two statements that differ in slots only have it.
    pub(crate) fn normalized(&self) -> String {
        match self.kind {
            _ if self.is_slot() => "?".to_owned(),
            TokenKind::Word if !self.text.contains(['"', '\'']) => self.text.to_lowercase(),
            _ => self.text.to_owned(),
        }
    }
}

/// The tokens of one statement, without comments and a final semicolon; `None` if it cannot be split.
pub(crate) fn statement_tokens(sql: &str) -> Option<Vec<StatementToken<'_>>> {
    let mut tokens: Vec<StatementToken<'_>> = Vec::new();
    let mut rest = sql;
    let mut is_apart = false;
    while let Some(first) = rest.chars().next() {
        let (kind, width) = match first {
            _ if first.is_ascii_whitespace() => (None, 1),
            '-' if rest.starts_with("--") => (None, rest.find('\n').unwrap_or(rest.len())),
            '/' if rest.starts_with("/*") => (None, comment_width(rest)?),
            '\'' => (Some(TokenKind::Literal), quoted_width(rest, '\'', false)?),
            '"' => (Some(TokenKind::Word), quoted_width(rest, '"', false)?),
            '$' => dollar(rest)?,
            '0'..='9' => (Some(TokenKind::Literal), number_width(rest)),
            _ if is_letter(first) => (Some(TokenKind::Word), word_width(rest)?),
            ':' if rest.starts_with("::") => (Some(TokenKind::Symbol), 2),
            _ if OPERATORS.contains(first) => (Some(TokenKind::Symbol), operator_width(rest)),
            _ => (Some(TokenKind::Symbol), first.len_utf8()),
        };
        let text = rest.get(..width)?;
        if let Some(kind) = kind {
            tokens.push(StatementToken { kind, text, is_apart });
        }
        is_apart = kind.is_none();
        rest = rest.get(width..)?;
    }
    while tokens.pop_if(|last| last.is(";")).is_some() {}
    (!tokens.iter().any(|token| token.is(";"))).then_some(tokens)
}

const OPERATORS: &str = "+-*/<>=~!@#%^&|`?";

fn is_letter(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_' || !c.is_ascii()
}

/// The width of a comment, which may contain others.
fn comment_width(text: &str) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    loop {
        let rest = text.get(at..)?;
        if rest.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
        } else {
            at += rest.chars().next()?.len_utf8();
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

/// The width of a text in quotes, in which the quote is doubled or, with `escapes`, behind a backslash.
fn quoted_width(text: &str, quote: char, escapes: bool) -> Option<usize> {
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        if escapes && letter == '\\' {
            letters.next()?;
        } else if letter == quote && letters.next_if(|(_, next)| *next == quote).is_none() {
            return Some(at + 1);
        }
    }
    None
}

/// A parameter, or a text between two tags such as `$$`.
fn dollar(text: &str) -> Option<(Option<TokenKind>, usize)> {
    let behind = text.get(1..)?;
    let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
    if digits > 0 {
        let number = behind.get(..digits)?.parse().ok()?;
        return Some((Some(TokenKind::Parameter(number)), 1 + digits));
    }
    let tag = text.get(..behind.find('$')? + 2)?;
    let end = text.get(tag.len()..)?.find(tag)?;
    Some((Some(TokenKind::Literal), end + 2 * tag.len()))
}

fn number_width(text: &str) -> usize {
    let mut previous = ' ';
    let is_end = |c: char| {
        let is_sign = matches!(c, '+' | '-') && matches!(previous, 'e' | 'E');
        previous = c;
        !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_') || is_sign)
    };
    text.find(is_end).unwrap_or(text.len())
}

/// The width of a keyword or a name, or of the literal of which it is the prefix.
fn word_width(text: &str) -> Option<usize> {
    let width = text.find(|c: char| !(is_letter(c) || c.is_ascii_digit() || c == '$')).unwrap_or(text.len());
    let behind = text.get(width..)?;
    if behind.starts_with('\'') {
        let escapes = text.get(..width)?.eq_ignore_ascii_case("e");
        return Some(width + quoted_width(behind, '\'', escapes)?);
    }
    Some(width)
}

fn operator_width(text: &str) -> usize {
    let all = text.find(|c| !OPERATORS.contains(c)).unwrap_or(text.len());
    let comments = ["--", "/*"].into_iter().filter_map(|start| text.find(start));
    comments.chain([all]).min().unwrap_or(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalized(sql: &str) -> String {
        let tokens = statement_tokens(sql).unwrap_or_else(|| panic!("{sql}"));
        tokens.iter().map(StatementToken::normalized).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn statements_that_differ_in_slots_comments_and_case_are_the_same() {
        let same = "update shop . orders set note = ? , n = n + ? where id = ? and at < now ( )";
        for sql in [
            "update shop.orders set note = 'it''s; -- a' , n = n + 1.5e-3 where id = $1 and at < now()",
            "UPDATE shop.orders SET note = $$it's$$, n=n+$12 WHERE id=7 AND at<now();",
            "/* a /* nested */ one */ update shop.orders set note = $t$ $$ $t$, -- why\n n = n + 0 where id = $2 and at < NOW() ; ;",
        ] {
            assert_eq!(normalized(sql), same, "{sql}");
        }
        for (sql, tokens) in [
            (
                "insert into \"A b\".\"C\"\"d\" values (E'\\'x', -1)",
                "insert into \"A b\" . \"C\"\"d\" values ( E'\\'x' , - ? )",
            ),
            (
                "delete from größe where a->>'b' = x'1f' and c::int = any ($1)",
                "delete from größe where a ->> ? = x'1f' and c :: int = any ( ? )",
            ),
        ] {
            assert_eq!(normalized(sql), tokens, "{sql}");
        }
    }

    #[test]
    fn a_text_that_does_not_end_or_has_two_statements_is_not_split() {
        for sql in ["update t set a = 'x", "select \"a", "select /* /* */ 1", "select $a$ 1", "select 1; select 2"] {
            assert_eq!(statement_tokens(sql), None, "{sql}");
        }
    }
}
