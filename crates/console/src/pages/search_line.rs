//! The search line of the records: `tool:set_status actor:"Anna B" since:7d`.

use std::fmt::{Display, Formatter, Result as Written};

use types::{quoted, visible};

types::text_enum! {
    /// What a part of the line selects by.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum SearchKey {
        Tool = "tool",
        Status = "status",
        Account = "account",
        Actor = "actor",
        Session = "session",
        Table = "table",
        Since = "since",
        Before = "before",
    }
}

/// The parts of a line, each key at most once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SearchLine(Vec<(SearchKey, String)>);

/// Why a line cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SearchLineError {
    #[error("{} has no key: write one before it, such as tool:{}", quoted(.0), visible(.0))]
    NoKey(String),
    #[error("{} is no key", quoted(.0))]
    UnknownKey(String),
    #[error("{0}: has no value")]
    NoValue(&'static str),
    #[error("{0}: is given twice")]
    Twice(&'static str),
    #[error("a quotation mark is not closed")]
    Unclosed,
}

impl SearchLine {
    pub(crate) fn parse(line: &str) -> Result<Self, SearchLineError> {
        let mut found = Self::default();
        let mut rest = line.trim();
        while !rest.is_empty() {
            let (key, behind) = match rest.find([':', '"', ' ']).map(|at| rest.split_at(at)) {
                Some((key, behind)) if behind.starts_with(':') => (key, behind.trim_start_matches(':')),
                _ => return Err(SearchLineError::NoKey(rest.to_owned())),
            };
            let key = SearchKey::parse(key).ok_or_else(|| SearchLineError::UnknownKey(key.to_owned()))?;
            let (value, behind) = value(behind)?;
            if value.is_empty() {
                return Err(SearchLineError::NoValue(key.as_str()));
            }
            found.add(key, value)?;
            rest = behind.trim_start();
        }
        Ok(found)
    }

    /// Adds a part, if it has a value.
    pub(crate) fn add(&mut self, key: SearchKey, value: String) -> Result<(), SearchLineError> {
        if self.get(key).is_some() {
            return Err(SearchLineError::Twice(key.as_str()));
        }
        if !value.is_empty() {
            self.0.push((key, value));
        }
        Ok(())
    }

    pub(crate) fn get(&self, key: SearchKey) -> Option<&str> {
        self.0.iter().find(|(one, _)| *one == key).map(|(_, value)| value.as_str())
    }

    /// The line with one more part; `None` if it has the key.
    pub(crate) fn with(&self, key: SearchKey, value: &str) -> Option<String> {
        let mut longer = self.clone();
        longer.add(key, value.to_owned()).ok().map(|()| longer.to_string())
    }
}

/// A value, which may be quoted, and the rest of the line. A backslash is before a quotation mark of a quoted value.
fn value(text: &str) -> Result<(String, &str), SearchLineError> {
    let Some(text) = text.strip_prefix('"') else {
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return Ok((value.to_owned(), rest));
    };
    let (mut value, mut characters) = (String::new(), text.chars());
    loop {
        match characters.next() {
            Some('"') => return Ok((value, characters.as_str())),
            Some('\\') => value.extend(characters.next()),
            Some(character) => value.push(character),
            None => return Err(SearchLineError::Unclosed),
        }
    }
}

/// The line as people type it.
impl Display for SearchLine {
    fn fmt(&self, f: &mut Formatter<'_>) -> Written {
        for (index, (key, value)) in self.0.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{}:", key.as_str())?;
            if value.contains([' ', '"', '\\']) || value.contains(char::is_whitespace) {
                write!(f, "\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))?;
            } else {
                f.write_str(value)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_is_written() {
        let text = r#"tool:set_status actor:"Anna \"B\" \\ é" since:09:00"#;
        let line = SearchLine::parse(&format!("  {text}  ")).unwrap();
        assert_eq!(line.get(SearchKey::Actor), Some(r#"Anna "B" \ é"#));
        assert_eq!((line.get(SearchKey::Since), line.get(SearchKey::Table)), (Some("09:00"), None));
        assert_eq!(line.to_string(), text);
        assert_eq!(line.with(SearchKey::Table, "a b").unwrap(), format!("{text} table:\"a b\""));
        assert_eq!(line.with(SearchKey::Tool, "x"), None);
        assert_eq!(SearchLine::parse(" ").unwrap().to_string(), "");
    }

    #[test]
    fn a_mistake_is_named() {
        for (line, says) in [
            ("set_status", "\"set_status\" has no key: write one before it, such as tool:set_status"),
            ("tool:a b\u{202e} c:d", "\"b\\u202e c:d\" has no key"),
            ("owner:anna", "\"owner\" is no key"),
            ("tool: actor:b", "tool: has no value"),
            ("actor:\"\"", "actor: has no value"),
            ("tool:a tool:b", "tool: is given twice"),
            ("actor:\"anna", "a quotation mark is not closed"),
            (":a", "\"\" is no key"),
        ] {
            let error = SearchLine::parse(line).unwrap_err().to_string();
            assert!(error.starts_with(says), "{line}: {error}");
        }
    }
}
