//! An entry in a JSON file, in which comments and trailing commas are allowed.
//!
//! The library only finds the places; the surrounding text is not reformatted. So everything outside the entry stays
//! the same, byte for byte. A new text is parsed again before it is used, and must have the expected content.

use std::ops::Range;

use jsonc_parser::ast::{Array, Object, ObjectProp, Value as Node};
use jsonc_parser::common::Ranged;
use jsonc_parser::tokens::Token;
use jsonc_parser::{CollectOptions, CommentCollectionStrategy, ParseOptions, parse_to_ast};
use serde_json::{Map, Value};

use super::edit::{EditError, Put, Splice, indentation, line_break, spliced};
use super::json_container::{Comment, Container};
use super::json_style::Style;

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

/// A JSON text whose root is an object.
struct Document<'a> {
    text: &'a str,
    root: Object<'a>,
    commas: Vec<usize>,
    comments: Vec<Comment>,
}

impl<'a> Document<'a> {
    fn parse(text: &'a str) -> Result<Self, EditError> {
        let collect = CollectOptions { comments: CommentCollectionStrategy::AsTokens, tokens: true };
        let parsed = parse_to_ast(text, &collect, &JSONC)
            .map_err(|error| EditError::new(error.range().start, format!("this is not JSON: {}", error.kind())))?;
        let (mut commas, mut comments) = (Vec::new(), Vec::new());
        for token in parsed.tokens.unwrap_or_default() {
            let range = token.range.start..token.range.end;
            match token.token {
                Token::Comma => commas.push(range.start),
                Token::CommentLine(_) => comments.push(Comment { range, is_line: true }),
                Token::CommentBlock(_) => comments.push(Comment { range, is_line: false }),
                _ => {}
            }
        }
        match parsed.value {
            Some(Node::Object(root)) => Ok(Self { text, root, commas, comments }),
            Some(other) => {
                Err(EditError::new(other.start(), format!("the file is {} and not an object", kind(&other))))
            }
            None => Err(EditError::new(text.len(), "the file has no JSON value: write {} into it")),
        }
    }

    fn value(&self) -> Map<String, Value> {
        match Node::Object(self.root.clone()).into() {
            Value::Object(root) => root,
            _ => Map::new(),
        }
    }

    fn style(&self) -> Style {
        let first = self.root.properties.first().and_then(|first| indentation(self.text, first.start()));
        let base = indentation(self.text, self.root.start()).unwrap_or_default();
        let unit = first.and_then(|first| first.strip_prefix(base)).filter(|unit| !unit.is_empty());
        Style { line_break: line_break(self.text), unit: unit.unwrap_or(UNIT).to_owned() }
    }

    fn container(&self, range: Range<usize>, members: Vec<Range<usize>>) -> Container<'_> {
        let inside = range.start + 1..range.end.saturating_sub(1);
        Container { text: self.text, inside, members, commas: &self.commas, comments: &self.comments }
    }

    fn object(&self, object: &Object<'_>) -> Container<'_> {
        let members = object.properties.iter().map(|property| property.start()..property.end()).collect();
        self.container(object.start()..object.end(), members)
    }

    fn array(&self, array: &Array<'_>) -> Container<'_> {
        let members = array.elements.iter().map(|element| element.start()..element.end()).collect();
        self.container(array.start()..array.end(), members)
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

/// The property of an object with this name, and its index.
fn property<'o, 'a>(object: &'o Object<'a>, name: &str) -> Result<Option<(usize, &'o ObjectProp<'a>)>, EditError> {
    let mut found = object.properties.iter().enumerate().filter(|(_, property)| property.name.as_str() == name);
    let (first, second) = (found.next(), found.next());
    match second {
        Some((_, second)) => {
            Err(EditError::new(second.start(), format!("\"{name}\" is there twice: keep one of them")))
        }
        None => Ok(first),
    }
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Writes `value` as the member `name` of the object `key` of the root.
pub(super) fn put(text: &str, key: &str, name: &str, value: &Value, replace: bool) -> Result<Put, EditError> {
    if is_blank(text) {
        let style = Style { line_break: line_break(text), unit: UNIT.to_owned() };
        let root = Value::from_iter([(key, Value::from_iter([(name, value.clone())]))]);
        return Ok(Put::Written(format!("{}{}", style.write(&root, Some("")), style.line_break)));
    }
    let document = Document::parse(text)?;
    let style = document.style();
    let splices = match property(&document.root, key)? {
        None => {
            let servers = Value::from_iter([(name, value.clone())]);
            document.object(&document.root).add(&style, |indent| style.member(key, &servers, indent))
        }
        Some((_, servers)) => {
            let Node::Object(servers) = &servers.value else {
                let what = kind(&servers.value);
                return Err(EditError::new(servers.value.start(), format!("\"{key}\" is {what} and not an object")));
            };
            match property(servers, name)? {
                None => document.object(servers).add(&style, |indent| style.member(name, value, indent)),
                Some((_, old)) => {
                    if let Some(put) = Put::beside(old.value.clone().into(), value, replace) {
                        return Ok(put);
                    }
                    let text = style.write(value, indentation(text, old.start()));
                    vec![Splice { range: old.value.start()..old.value.end(), text }]
                }
            }
        }
    };
    let mut expected = document.value();
    let servers = expected.entry(key).or_insert_with(|| Value::Object(Map::new()));
    if let Some(servers) = servers.as_object_mut() {
        servers.insert(name.to_owned(), value.clone());
    }
    checked(text, &splices, &expected).map(Put::Written)
}

/// The member `name` of the object `key` of the root.
pub(super) fn get(text: &str, key: &str, name: &str) -> Result<Option<Value>, EditError> {
    if is_blank(text) {
        return Ok(None);
    }
    let document = Document::parse(text)?;
    let Some((_, ObjectProp { value: Node::Object(servers), .. })) = property(&document.root, key)? else {
        return Ok(None);
    };
    Ok(property(servers, name)?.map(|(_, found)| found.value.clone().into()))
}

/// Removes the member `name` of the object `key`. `None` if there is none.
pub(super) fn take(text: &str, key: &str, name: &str) -> Result<Option<String>, EditError> {
    if is_blank(text) {
        return Ok(None);
    }
    let document = Document::parse(text)?;
    let Some((_, ObjectProp { value: Node::Object(servers), .. })) = property(&document.root, key)? else {
        return Ok(None);
    };
    let Some((number, _)) = property(servers, name)? else { return Ok(None) };
    let mut expected = document.value();
    if let Some(servers) = expected.get_mut(key).and_then(Value::as_object_mut) {
        servers.shift_remove(name);
    }
    checked(text, &document.object(servers).remove(number), &expected).map(Some)
}

/// Writes `value`, an object with an id, as an element of the array `key` of the root.
pub(super) fn put_element(text: &str, key: &str, value: &Value, replace: bool) -> Result<Put, EditError> {
    let document = Document::parse(text)?;
    let style = document.style();
    let mut expected = document.value();
    let mut splices = Vec::new();
    match property(&document.root, key)? {
        None => {
            let elements = Value::from(vec![value.clone()]);
            splices.extend(document.object(&document.root).add(&style, |indent| style.member(key, &elements, indent)));
            expected.insert(key.to_owned(), elements);
        }
        Some((_, ObjectProp { value: Node::Array(array), .. })) => {
            let old = array.elements.iter().position(|element| has_id(element, value));
            let list = expected.get_mut(key).and_then(Value::as_array_mut);
            match old.and_then(|number| array.elements.get(number)).zip(old) {
                None => {
                    splices.extend(document.array(array).add(&style, |indent| style.write(value, indent)));
                    list.into_iter().for_each(|list| list.push(value.clone()));
                }
                Some((old, number)) => {
                    if let Some(put) = Put::beside(old.clone().into(), value, replace) {
                        return Ok(put);
                    }
                    let text = style.write(value, indentation(text, old.start()));
                    splices.push(Splice { range: old.start()..old.end(), text });
                    list.and_then(|list| list.get_mut(number)).into_iter().for_each(|old| *old = value.clone());
                }
            }
        }
        Some((_, other)) => {
            let what = kind(&other.value);
            return Err(EditError::new(other.value.start(), format!("\"{key}\" is {what} and not an array")));
        }
    }
    checked(text, &splices, &expected).map(Put::Written)
}

/// Removes the element of the array `key` of the root that has the id of `value`. `None` if there is none.
pub(super) fn take_element(text: &str, key: &str, value: &Value) -> Result<Option<String>, EditError> {
    let document = Document::parse(text)?;
    let Some((_, ObjectProp { value: Node::Array(array), .. })) = property(&document.root, key)? else {
        return Ok(None);
    };
    let Some(number) = array.elements.iter().position(|element| has_id(element, value)) else { return Ok(None) };
    let mut expected = document.value();
    if let Some(list) = expected.get_mut(key).and_then(Value::as_array_mut) {
        list.remove(number);
    }
    checked(text, &document.array(array).remove(number), &expected).map(Some)
}

fn has_id(element: &Node<'_>, value: &Value) -> bool {
    let element: Value = element.clone().into();
    element.get("id").is_some_and(|id| Some(id) == value.get("id"))
}

/// The new text, if it parses to the expected content.
fn checked(text: &str, splices: &[Splice], expected: &Map<String, Value>) -> Result<String, EditError> {
    let text = spliced(text, splices);
    match Document::parse(&text) {
        Ok(document) if document.value() == *expected => {}
        _ => return Err(EditError::unsafe_edit()),
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
