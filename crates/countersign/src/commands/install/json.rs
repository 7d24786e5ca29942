//! An entry in a JSON file, in which comments and trailing commas are allowed.
//!
//! The library finds the places, and everything outside the entry stays the same, byte for byte. Its own editor
//! (`jsonc_parser::cst`) promises less: it breaks an object of one line into several, and it drops blank lines and the
//! comments beside a member that it removes. A new text is parsed again before it is used, and must have the expected
//! content.

use std::borrow::Cow;
use std::ops::Range;

use jsonc_parser::ast::Value as Node;
use jsonc_parser::common::Ranged;
use jsonc_parser::tokens::{Token, TokenAndRange};
use jsonc_parser::{CollectOptions, CommentCollectionStrategy, ParseOptions, parse_to_ast};
use serde_json::{Map, Value};

use super::edit::{EditError, Put, Splice, indentation, line_break, line_start, spliced};

/// JSON with comments and trailing commas, otherwise strict.
const JSONC: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_loose_object_property_names: false,
    allow_trailing_commas: true,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// The indentation for a file that has none.
const UNIT: &str = "  ";

/// What an entry is in its object or array.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place<'p> {
    /// The member of this name.
    Member(&'p str),
    /// The element with this id.
    Element(&'p str),
}

impl<'p> Place<'p> {
    fn name(self) -> &'p str {
        match self {
            Self::Member(name) | Self::Element(name) => name,
        }
    }

    /// What the entry is in, when there is no entry.
    fn empty(self) -> Value {
        match self {
            Self::Member(_) => Value::Object(Map::new()),
            Self::Element(_) => Value::Array(Vec::new()),
        }
    }

    fn holder(self) -> &'static str {
        match self {
            Self::Member(_) => "an object",
            Self::Element(_) => "an array",
        }
    }

    fn is_of(self, item: &Item<'_>) -> bool {
        match self {
            Self::Member(name) => item.name == Some(name),
            Self::Element(id) => has_id(&item.node.clone().into(), id),
        }
    }

    /// The text of the entry. On several lines if `line`, a line break and the indentation, is given.
    fn write(self, value: &Value, line: Option<&str>, unit: &str) -> String {
        let value = write(value, line, unit);
        match self {
            Self::Member(name) => format!("{}: {value}", Value::from(name)),
            Self::Element(_) => value,
        }
    }
}

fn has_id(element: &Value, id: &str) -> bool {
    element.get("id").and_then(Value::as_str) == Some(id)
}

/// Writes a value as a person would: lists on one line, and objects too unless `line` is given.
fn write(value: &Value, line: Option<&str>, unit: &str) -> String {
    match value {
        Value::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(|element| write(element, None, unit)).collect();
            format!("[{}]", elements.join(", "))
        }
        Value::Object(members) if !members.is_empty() => {
            let inner = line.map(|line| format!("{line}{unit}"));
            let members = members.iter().map(|(name, value)| Place::Member(name).write(value, inner.as_deref(), unit));
            let separator = inner.as_deref().map_or_else(|| ", ".to_owned(), |inner| format!(",{inner}"));
            let members = members.collect::<Vec<_>>().join(&separator);
            format!("{{{}{members}{}}}", inner.unwrap_or_default(), line.unwrap_or_default())
        }
        other => other.to_string(),
    }
}

fn kind(node: &Node<'_>) -> &'static str {
    match node {
        Node::StringLit(_) => "a text",
        Node::NumberLit(_) => "a number",
        Node::BooleanLit(_) => "true or false",
        Node::Object(_) => "an object",
        Node::Array(_) => "an array",
        Node::NullKeyword(_) => "null",
    }
}

/// A JSON text whose root is an object.
struct Document<'a> {
    text: &'a str,
    root: Node<'a>,
    tokens: Vec<TokenAndRange<'a>>,
    line_break: &'static str,
    /// One level of indentation.
    unit: &'a str,
}

impl<'a> Document<'a> {
    fn parse(text: &'a str) -> Result<Self, EditError> {
        let collect = CollectOptions { comments: CommentCollectionStrategy::AsTokens, tokens: true };
        let parsed = parse_to_ast(text, &collect, &JSONC)
            .map_err(|error| EditError::new(error.range().start, format!("this is not JSON: {}", error.kind())))?;
        let root =
            parsed.value.ok_or_else(|| EditError::new(text.len(), "the file has no JSON value: write {} into it"))?;
        let Node::Object(object) = &root else {
            return Err(EditError::new(root.start(), format!("the file is {} and not an object", kind(&root))));
        };
        let first = object.properties.first().and_then(|first| indentation(text, first.start()));
        let base = indentation(text, root.start()).unwrap_or_default();
        let unit = first.and_then(|first| first.strip_prefix(base)).filter(|unit| !unit.is_empty());
        let (line_break, unit) = (line_break(text), unit.unwrap_or(UNIT));
        Ok(Self { text, tokens: parsed.tokens.unwrap_or_default(), line_break, unit, root })
    }

    /// The members of an object, or the elements of an array.
    fn items<'d>(&'d self, node: &'d Node<'a>) -> Items<'d> {
        let range = |of: &dyn Ranged| of.start()..of.end();
        let items = match node {
            Node::Object(object) => {
                let members = object.properties.iter();
                members.map(|it| Item { name: Some(it.name.as_str()), range: range(it), node: &it.value }).collect()
            }
            Node::Array(array) => {
                array.elements.iter().map(|it| Item { name: None, range: range(it), node: it }).collect()
            }
            _ => Vec::new(),
        };
        Items { document: self, inside: node.start() + 1..node.end().saturating_sub(1), items }
    }

    /// The object or array `key` of the root. `None` if there is none.
    fn holder(&self, key: &str, place: Place<'_>) -> Result<Option<Items<'_>>, EditError> {
        let holder = self.items(&self.root).find(Place::Member(key))?.map(|(_, node)| node);
        Ok(holder.filter(|node| kind(node) == place.holder()).map(|node| self.items(node)))
    }

    fn entry(&self, key: &str, place: Place<'_>) -> Result<Option<Value>, EditError> {
        let Some(holder) = self.holder(key, place)? else { return Ok(None) };
        Ok(holder.find(place)?.map(|(_, node)| node.clone().into()))
    }

    /// The content without the entry, and without an object or array `key` that has no other.
    fn rest(&self, key: &str, place: Place<'_>) -> Value {
        let mut rest = Value::from(self.root.clone());
        match (rest.get_mut(key), place) {
            (Some(Value::Object(members)), Place::Member(name)) => drop(members.shift_remove(name)),
            (Some(Value::Array(elements)), Place::Element(id)) => elements.retain(|element| !has_id(element, id)),
            _ => {}
        }
        if let Some(root) = rest.as_object_mut().filter(|root| root.get(key) == Some(&place.empty())) {
            root.shift_remove(key);
        }
        rest
    }
}

/// A member of an object, or an element of an array.
struct Item<'d> {
    name: Option<&'d str>,
    range: Range<usize>,
    node: &'d Node<'d>,
}

/// The members of an object, or the elements of an array, and the text around them.
struct Items<'d> {
    document: &'d Document<'d>,
    /// The text between the brackets.
    inside: Range<usize>,
    items: Vec<Item<'d>>,
}

impl<'d> Items<'d> {
    /// The index and the value of an entry.
    fn find(&self, place: Place<'_>) -> Result<Option<(usize, &'d Node<'d>)>, EditError> {
        let mut found = self.items.iter().enumerate().filter(|(_, item)| place.is_of(item));
        let (first, second) = (found.next(), found.next());
        match second {
            Some((_, second)) => {
                let message = format!("\"{}\" is there twice: keep one of them", place.name());
                Err(EditError::new(second.range.start, message))
            }
            None => Ok(first.map(|(number, item)| (number, item.node))),
        }
    }

    fn text(&self, range: Range<usize>) -> &'d str {
        self.document.text.get(range).unwrap_or_default()
    }

    fn is_blank(&self, range: Range<usize>) -> bool {
        self.text(range).trim().is_empty()
    }

    fn comments(&self, within: Range<usize>) -> impl Iterator<Item = &TokenAndRange<'d>> {
        let is_comment = |token: &Token<'_>| matches!(token, Token::CommentLine(_) | Token::CommentBlock(_));
        self.document.tokens.iter().filter(move |it| within.contains(&it.range.start) && is_comment(&it.token))
    }

    fn comma_after(&self, number: usize) -> Option<usize> {
        let start = self.items.get(number)?.range.end;
        let end = self.items.get(number + 1).map_or(self.inside.end, |next| next.range.start);
        let mut tokens = self.document.tokens.iter();
        let comma = tokens.find(|it| (start..end).contains(&it.range.start) && matches!(it.token, Token::Comma));
        comma.map(|comma| comma.range.start)
    }

    /// Adds an entry at the end.
    fn add(&self, place: Place<'_>, value: &Value) -> Vec<Splice> {
        let Document { text, line_break, unit, .. } = *self.document;
        let Some(last) = self.items.last() else {
            let line = self.text(line_start(text, self.inside.start)..self.inside.start);
            let base = line.get(..line.len() - line.trim_start_matches([' ', '\t']).len()).unwrap_or_default();
            let line = format!("{line_break}{base}{unit}");
            let entry = format!("{line}{}", place.write(value, Some(&line), unit));
            return vec![match self.comments(self.inside.clone()).last() {
                Some(comment) => Splice::insert(comment.range.end, entry),
                None => Splice { range: self.inside.clone(), text: format!("{entry}{line_break}{base}") },
            }];
        };
        let comma = self.comma_after(self.items.len() - 1);
        let end = comma.map_or(last.range.end, |comma| comma + 1);
        // If the file has trailing commas, the new entry gets one too.
        let closing = if comma.is_some() { "," } else { "" };
        let (at, entry) = match indentation(text, last.range.start) {
            Some(indent) => {
                let line = format!("{line_break}{indent}");
                let is_space = |text: &str| text.trim_matches([' ', '\t']).is_empty();
                let beside = self.comments(end..self.inside.end).map(|comment| comment.range);
                let at = beside.fold(end, |at, it| if is_space(self.text(at..it.start)) { it.end } else { at });
                (at, format!("{line}{}{closing}", place.write(value, Some(&line), unit)))
            }
            None => {
                let first = self.comma_after(0).and_then(|comma| text.get(comma + 1..));
                let is_dense = self.items.len() > 1 && first.is_some_and(|it| !it.starts_with(char::is_whitespace));
                (end, format!("{}{}{closing}", if is_dense { "" } else { " " }, place.write(value, None, unit)))
            }
        };
        let comma = comma.is_none().then(|| Splice::insert(last.range.end, ","));
        comma.into_iter().chain([Splice::insert(at, entry)]).collect()
    }

    /// Removes an item with its line, and the comma that belonged to it.
    fn remove(&self, number: usize) -> Vec<Splice> {
        let Some(item) = self.items.get(number).map(|item| item.range.clone()) else { return Vec::new() };
        let comma = self.comma_after(number);
        let end = comma.filter(|comma| self.is_blank(item.end..*comma)).map_or(item.end, |comma| comma + 1);
        let is_blank = self.is_blank(self.inside.start..item.start) && self.is_blank(end..self.inside.end);
        if self.items.len() == 1 && is_blank {
            return vec![Splice::remove(self.inside.clone())];
        }
        let comma = match comma {
            None => number.checked_sub(1).and_then(|before| self.comma_after(before)),
            Some(comma) => Some(comma).filter(|comma| *comma >= end),
        };
        let item = Splice::remove(self.lead(&item, end)..end);
        let mut splices: Vec<Splice> =
            comma.map(|comma| Splice::remove(comma..comma + 1)).into_iter().chain([item]).collect();
        splices.sort_by_key(|splice| splice.range.start);
        splices
    }

    /// The start of the text to remove before an item: its indentation and the line break before it.
    fn lead(&self, item: &Range<usize>, end: usize) -> usize {
        let blank = self.text(self.inside.start..item.start).trim_end_matches([' ', '\t']);
        let line = blank.strip_suffix("\r\n").or_else(|| blank.strip_suffix('\n'));
        let Some(line) = line else { return self.inside.start + blank.len() };
        let lead = self.inside.start + line.len();
        // If the line break were removed, the rest of the line would become part of the comment before it.
        let is_after_comment = self
            .comments(self.inside.start..lead)
            .any(|comment| comment.range.end == lead && matches!(comment.token, Token::CommentLine(_)));
        let rest = self.text(end..self.document.text.len());
        let is_last_on_line = rest.trim_start_matches([' ', '\t', '\r']).starts_with('\n');
        if is_after_comment && !is_last_on_line { item.start } else { lead }
    }
}

/// Writes `value` as an entry of the object or array `key` of the root.
pub(super) fn put(text: &str, key: &str, place: Place<'_>, value: &Value, replace: bool) -> Result<Put, EditError> {
    let empty = format!("{{}}{}", line_break(text));
    let text = if text.trim().is_empty() { &empty } else { text };
    let document = Document::parse(text)?;
    let root = document.items(&document.root);
    let (key_place, mut text_with) = (Place::Member(key), Cow::Borrowed(text));
    match root.find(key_place)? {
        None => text_with = spliced(text, &root.add(key_place, &place.empty())).into(),
        Some((_, node)) if kind(node) != place.holder() => {
            let message = format!("\"{key}\" is {} and not {}", kind(node), place.holder());
            return Err(EditError::new(node.start(), message));
        }
        Some(_) => {}
    }
    let with_key = Document::parse(&text_with).map_err(|_| EditError::unsafe_edit())?;
    let Some(holder) = with_key.holder(key, place)? else { return Err(EditError::unsafe_edit()) };
    let splices = match holder.find(place)? {
        None => holder.add(place, value),
        Some((number, old)) => {
            if let Some(put) = Put::beside(old.clone().into(), value, replace) {
                return Ok(put);
            }
            let start = holder.items.get(number).map_or(old.start(), |item| item.range.start);
            let line = indentation(&text_with, start).map(|indent| format!("{}{indent}", with_key.line_break));
            vec![Splice { range: old.start()..old.end(), text: write(value, line.as_deref(), with_key.unit) }]
        }
    };
    let new = spliced(&text_with, &splices);
    check(&document, &new, key, place, Some(value))?;
    Ok(Put::Written(new))
}

/// The entry of the object or array `key` of the root.
pub(super) fn get(text: &str, key: &str, place: Place<'_>) -> Result<Option<Value>, EditError> {
    if text.trim().is_empty() { Ok(None) } else { Document::parse(text)?.entry(key, place) }
}

/// Removes the entry. `None` if there is none.
pub(super) fn take(text: &str, key: &str, place: Place<'_>) -> Result<Option<String>, EditError> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let document = Document::parse(text)?;
    let Some(holder) = document.holder(key, place)? else { return Ok(None) };
    let Some((number, _)) = holder.find(place)? else { return Ok(None) };
    let new = spliced(text, &holder.remove(number));
    check(&document, &new, key, place, None)?;
    Ok(Some(new))
}

/// Checks that a new text has this entry, and otherwise the old content.
fn check(old: &Document<'_>, new: &str, key: &str, place: Place<'_>, entry: Option<&Value>) -> Result<(), EditError> {
    let new = Document::parse(new).map_err(|_| EditError::unsafe_edit())?;
    let is_safe = new.entry(key, place)?.as_ref() == entry && new.rest(key, place) == old.rest(key, place);
    if is_safe { Ok(()) } else { Err(EditError::unsafe_edit()) }
}

#[cfg(test)]
mod tests;
