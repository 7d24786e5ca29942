//! Splits an expression that PostgreSQL has printed, with all its parentheses, into tokens.

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    /// A keyword, a name or a number. A quoted name keeps its quotes.
    Word(String),
    /// The value of a string literal.
    Text(String),
    /// An operator, a parenthesis, a bracket, a comma, or `::`.
    Symbol(String),
}

impl Token {
    pub(crate) fn is(&self, symbol: &str) -> bool {
        matches!(self, Self::Symbol(text) if text == symbol)
    }

    pub(crate) fn is_word(&self, word: &str) -> bool {
        matches!(self, Self::Word(text) if text == word)
    }
}

/// `None` if the text contains anything else, such as a string with escapes.
pub(crate) fn tokens(text: &str) -> Option<Vec<Token>> {
    const OPERATORS: &str = "+-*/<>=~!@#%^&|`?";
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let width = match first {
            ' ' => 1,
            '\'' => {
                let (value, width) = quoted(rest, '\'')?;
                tokens.push(Token::Text(value));
                width
            }
            '"' => {
                let width = name_width(rest, 0)?;
                tokens.push(Token::Word(rest.get(..width)?.to_owned()));
                width
            }
            '(' | ')' | '[' | ']' | ',' => {
                tokens.push(Token::Symbol(first.to_string()));
                1
            }
            ':' if rest.starts_with("::") => {
                tokens.push(Token::Symbol("::".to_owned()));
                2
            }
            _ if OPERATORS.contains(first) => {
                let width = rest.find(|c| !OPERATORS.contains(c)).unwrap_or(rest.len());
                tokens.push(Token::Symbol(rest.get(..width)?.to_owned()));
                width
            }
            _ if first.is_alphanumeric() || first == '_' => {
                let width = name_width(rest, 0)?;
                // `E'..'` is a string with escapes.
                if rest.get(width..)?.starts_with('\'') {
                    return None;
                }
                tokens.push(Token::Word(rest.get(..width)?.to_owned()));
                width
            }
            _ => return None,
        };
        rest = rest.get(width..)?;
    }
    Some(tokens)
}

/// The width of the qualified name or the number at this position.
fn name_width(text: &str, start: usize) -> Option<usize> {
    let rest = text.get(start..)?;
    let is_end = |c: char| !(c.is_alphanumeric() || matches!(c, '_' | '$'));
    let width = if rest.starts_with('"') { quoted(rest, '"')?.1 } else { rest.find(is_end).unwrap_or(rest.len()) };
    let end = start + width;
    if text.get(end..)?.starts_with('.') { name_width(text, end + 1) } else { Some(end) }
}

/// The value of the literal at the start of the text, and its width.
fn quoted(text: &str, quote: char) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        if letter != quote {
            value.push(letter);
        } else if letters.next_if(|(_, next)| *next == quote).is_some() {
            value.push(quote);
        } else {
            return Some((value, at + 1));
        }
    }
    None
}

/// Removes parentheses around the whole expression.
pub(crate) fn bare(tokens: &[Token]) -> &[Token] {
    let mut inner = tokens;
    while let [first, middle @ .., last] = inner {
        let mut depth = 1_i32;
        let closes_early = middle.iter().any(|token| {
            depth += if token.is("(") { 1 } else { -i32::from(token.is(")")) };
            depth == 0
        });
        if !first.is("(") || !last.is(")") || closes_early {
            break;
        }
        inner = middle;
    }
    inner
}

/// The tokens outside of all parentheses and brackets, with their positions.
pub(crate) fn outer(tokens: &[Token]) -> impl Iterator<Item = (usize, &Token)> {
    let mut depth = 0_i32;
    tokens.iter().enumerate().filter(move |(_, token)| {
        let was = depth;
        if token.is("(") || token.is("[") {
            depth += 1;
        } else if token.is(")") || token.is("]") {
            depth -= 1;
        }
        was == 0 && depth == 0
    })
}

/// The operands of AND. An expression with OR or NOT outside of parentheses counts as one condition.
pub(crate) fn conjuncts(tokens: &[Token]) -> Vec<&[Token]> {
    let tokens = bare(tokens);
    let has = |word: &str| outer(tokens).any(|(_, token)| token.is_word(word));
    if has("OR") || has("NOT") || !has("AND") {
        return vec![tokens];
    }
    parts(tokens, |token| token.is_word("AND")).into_iter().flat_map(conjuncts).collect()
}

/// Splits at the separators outside of all parentheses.
pub(crate) fn parts(tokens: &[Token], is_separator: impl Fn(&Token) -> bool) -> Vec<&[Token]> {
    let separators: Vec<usize> = outer(tokens).filter(|(_, token)| is_separator(token)).map(|(at, _)| at).collect();
    let starts = std::iter::once(0).chain(separators.iter().map(|at| at + 1));
    let ends = separators.iter().copied().chain([tokens.len()]);
    starts.zip(ends).filter_map(|(start, end)| tokens.get(start..end)).collect()
}

/// The two sides of a comparison, if its operator is the only one.
pub(crate) fn comparison(tokens: &[Token]) -> Option<(&[Token], &str, &[Token])> {
    const OPERATORS: [&str; 7] = ["=", "<>", "<", "<=", ">", ">=", "~"];
    let is_operator = |token: &Token| matches!(token, Token::Symbol(text) if text != "::" && text != ",");
    // An expression with OR, NOT or IS is not a comparison, or not only one.
    if outer(tokens).any(|(_, token)| ["OR", "NOT", "IS"].iter().any(|word| token.is_word(word))) {
        return None;
    }
    let mut found = outer(tokens).filter(|(_, token)| is_operator(token));
    let (at, operator) = found.next()?;
    let Token::Symbol(operator) = operator else { return None };
    let is_only = found.next().is_none() && OPERATORS.contains(&operator.as_str());
    is_only.then_some((tokens.get(..at)?, operator.as_str(), tokens.get(at + 1..)?))
}

/// Splits a cast: the value, and the name of the type.
pub(crate) fn cast(tokens: &[Token]) -> (&[Token], Option<String>) {
    let tokens = bare(tokens);
    let Some((at, _)) = outer(tokens).filter(|(_, token)| token.is("::")).last() else { return (tokens, None) };
    let (value, ty) = tokens.split_at_checked(at).unwrap_or_default();
    let words = ty.iter().skip(1).map(|token| match token {
        Token::Word(text) | Token::Symbol(text) | Token::Text(text) => text.as_str(),
    });
    (bare(value), Some(words.collect::<Vec<_>>().join(" ")))
}
