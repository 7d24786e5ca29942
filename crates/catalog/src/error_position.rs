//! The position in a query to which PostgreSQL's error points: its line for users and models, and the name at that
//! position. It only serves the texts of hints; no decision depends on it.

use std::ops::Range;

/// The maximum length of the quoted line.
const LINE_CHARS: usize = 72;

/// `LINE 3: select handel from ...` and a caret below the position, as psql shows it. `position` is in characters from
/// 1; the position just after the end is valid too.
pub(crate) fn line_at(query: &str, position: u32) -> Option<String> {
    let offset = (position as usize).checked_sub(1)?;
    let before: String = query.chars().take(offset).collect();
    if before.chars().count() < offset {
        return None;
    }
    let number = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
    let start = offset - column;
    let line: Vec<char> = query.chars().skip(start).take_while(|it| *it != '\n').map(printable).collect();
    // A long line is cut around the position.
    let from = if column + 10 > LINE_CHARS { column - LINE_CHARS / 2 } else { 0 };
    let shown: String = line.iter().skip(from).take(LINE_CHARS).collect();
    let lead = if from > 0 { "..." } else { "" };
    let tail = if line.len() > from + LINE_CHARS { "..." } else { "" };
    let head = format!("LINE {number}: {lead}");
    let caret = " ".repeat(head.len() + column - from);
    Some(format!("{head}{}{tail}\n{caret}^", shown.trim_end()))
}

/// Replaces control characters such as tabs, which would shift the caret.
fn printable(letter: char) -> char {
    if letter.is_control() { ' ' } else { letter }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IdentifierAt {
    /// The parts of the name as PostgreSQL reads them: `"My Table".id` has the parts `My Table` and `id`. Empty if
    /// there is no name.
    pub(crate) parts: Vec<String>,
    /// The range of the name, in characters from 0.
    pub(crate) span: Range<usize>,
}

/// The name at `position`, in characters from 1.
pub(crate) fn name_at(query: &str, position: u32) -> IdentifierAt {
    let start = (position as usize).saturating_sub(1);
    // Each character, with the position after it.
    let mut letters = query.chars().enumerate().skip(start).map(|(at, letter)| (letter, at + 1)).peekable();
    let mut identifier = IdentifierAt { parts: Vec::new(), span: start..start };
    loop {
        let mut part = String::new();
        let mut end = identifier.span.end;
        if let Some((_, at)) = letters.next_if(|it| it.0 == '"') {
            end = at;
            while let Some((letter, at)) = letters.next() {
                end = at;
                // A quote within quotes is doubled.
                if letter == '"' && letters.next_if(|it| it.0 == '"').is_none() {
                    break;
                }
                part.push(letter);
            }
        } else {
            while let Some((letter, at)) = letters.next_if(|it| is_name_letter(it.0)) {
                end = at;
                part.push(letter.to_ascii_lowercase());
            }
        }
        if part.is_empty() {
            return identifier;
        }
        identifier.parts.push(part);
        identifier.span.end = end;
        while letters.next_if(|it| it.0.is_whitespace()).is_some() {}
        if letters.next_if(|it| it.0 == '.').is_none() {
            return identifier;
        }
        while letters.next_if(|it| it.0.is_whitespace()).is_some() {}
    }
}

/// The words of a query in lower case, except the name at `except`.
pub(crate) fn words(query: &str, except: &IdentifierAt) -> impl Iterator<Item = String> {
    let span = except.span.clone();
    let kept = query.chars().enumerate().map(move |(at, letter)| if span.contains(&at) { ' ' } else { letter });
    let text: String = kept.map(|letter| if is_name_letter(letter) { letter } else { ' ' }).collect();
    let words: Vec<String> = text.split(' ').filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
    words.into_iter()
}

/// The word in lower case before `position`, if only white space separates them.
pub(crate) fn word_before(query: &str, position: u32) -> String {
    let before: String = query.chars().take((position as usize).saturating_sub(1)).collect();
    let before = before.trim_end();
    let start = before.char_indices().rev().take_while(|(_, letter)| is_name_letter(*letter)).last();
    start.and_then(|(at, _)| before.get(at..)).unwrap_or_default().to_lowercase()
}

/// The first quoted text in a message.
pub(crate) fn quoted_in(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once('"')?;
    rest.split_once('"').map(|(name, _)| name)
}

pub(crate) fn is_name_letter(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '$'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_shown_with_a_caret_below_the_place() {
        let query = "select id\nfrom social.twet\nwhere id = 1";
        assert_eq!(line_at(query, 16).unwrap(), "LINE 2: from social.twet\n             ^");
        assert_eq!(line_at("selec 1", 1).unwrap(), "LINE 1: selec 1\n        ^");
        assert_eq!(line_at("select", 7).unwrap(), "LINE 1: select\n              ^");
        assert_eq!(line_at("a\r\n\tb", 5).unwrap(), "LINE 2:  b\n         ^");
        assert_eq!(line_at("select 'é', x", 13).unwrap(), "LINE 1: select 'é', x\n                    ^");
        assert_eq!(line_at("select", 9), None);
        assert_eq!(line_at("select", 0), None);
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let query = format!("select {} nope from t where {}", "x, ".repeat(100), "y ".repeat(100));
        let shown = line_at(&query, 309).unwrap();
        let (line, caret) = shown.split_once('\n').unwrap();
        assert!(line.starts_with("LINE 1: ...") && line.ends_with("..."), "{line}");
        assert!(line.len() < 100);
        assert!(line[caret.len() - 1..].starts_with("nope"), "{shown}");
    }

    #[test]
    fn the_name_at_a_place_is_read_as_postgresql_reads_it() {
        let parts = |query: &str, position| name_at(query, position).parts;
        assert_eq!(parts("select * from social.Twet where", 15), ["social", "twet"]);
        assert_eq!(parts(r#"select "My ""Table""" . id"#, 8), [r#"My "Table""#, "id"]);
        assert_eq!(parts("select frob(1)", 8), ["frob"]);
        assert_eq!(parts("select 1 = 'a'", 10), [""; 0]);
        assert_eq!(parts("select 'x'::regclass", 8), [""; 0]);
        assert_eq!(parts("select", 70), [""; 0]);
        assert_eq!(parts(r#"select "unfinished"#, 8), ["unfinished"]);
    }

    #[test]
    fn the_words_of_a_query_are_all_but_those_of_the_name_that_does_not_exist() {
        let query = "select é.tweet , b from Social.tweet";
        let identifier = name_at(query, 8);
        assert_eq!(identifier.span, 7..14);
        assert_eq!(words(query, &identifier).collect::<Vec<_>>(), ["select", "b", "from", "social", "tweet"]);
        assert_eq!(words("a \"B c\"", &IdentifierAt::default()).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(name_at(r#"x."y""z" (1)"#, 1).span, 0..8);
    }

    #[test]
    fn the_word_before_a_place_stands_right_before_it() {
        assert_eq!(word_before("select é WHER  id", 16), "wher");
        assert_eq!(word_before("select a, id", 11), "");
        assert_eq!(word_before("selec 1", 1), "");
        assert_eq!(word_before("x", 90), "x");
    }

    #[test]
    fn a_quoted_name_is_found_in_a_message() {
        assert_eq!(quoted_in("column \"id\" specified in USING"), Some("id"));
        assert_eq!(quoted_in("no \"end"), None);
        assert_eq!(quoted_in("none"), None);
    }
}
