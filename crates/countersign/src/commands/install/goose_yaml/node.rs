//! YAML as a tree of nodes with their places.

use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};
use serde_json::{Number, Value};

use crate::commands::install::edit::EditError;

const MAX_DEPTH: usize = 100;

/// A node, with its place in bytes.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) range: Range<usize>,
    kind: Kind,
    marks: (usize, Option<String>),
    /// Whether it is written in brackets or braces.
    is_in_brackets: bool,
}

#[derive(Debug, Clone)]
enum Kind {
    Scalar { text: String, is_plain: bool },
    Sequence(Vec<Node>),
    Mapping(Vec<(Node, Node)>),
    Alias(usize),
}

impl Node {
    fn new(kind: Kind) -> Self {
        Self { range: 0..0, kind, marks: (0, None), is_in_brackets: false }
    }

    /// A scalar.
    pub(super) fn text(text: &str) -> Self {
        Self::new(Kind::Scalar { text: text.to_owned(), is_plain: true })
    }

    pub(super) fn mapping(pairs: Vec<(Self, Self)>) -> Self {
        Self::new(Kind::Mapping(pairs))
    }

    pub(super) fn pairs(&self) -> Option<&Vec<(Self, Self)>> {
        match &self.kind {
            Kind::Mapping(pairs) => Some(pairs),
            _ => None,
        }
    }

    pub(super) fn pairs_mut(&mut self) -> Option<&mut Vec<(Self, Self)>> {
        match &mut self.kind {
            Kind::Mapping(pairs) => Some(pairs),
            _ => None,
        }
    }

    pub(super) fn pair(&self, name: &str) -> Option<(&Self, &Self)> {
        self.pairs()?.iter().find(|(key, _)| key.is_text(name)).map(|(key, value)| (key, value))
    }

    pub(super) fn value_mut(&mut self, name: &str) -> Option<&mut Self> {
        self.pairs_mut()?.iter_mut().find(|(key, _)| key.is_text(name)).map(|(_, value)| value)
    }

    pub(super) fn is_text(&self, wanted: &str) -> bool {
        matches!(&self.kind, Kind::Scalar { text, .. } if text == wanted)
    }

    /// `{}`, `null` or nothing.
    pub(super) fn is_empty(&self) -> bool {
        match &self.kind {
            Kind::Mapping(pairs) => pairs.is_empty(),
            Kind::Scalar { .. } => self.marks == (0, None) && self.value().is_null(),
            _ => false,
        }
    }

    /// The end of the last token of the node.
    pub(super) fn last_byte(&self) -> Option<usize> {
        let of_pair = |(key, value): &(Self, Self)| value.last_byte().or(Some(key.range.end));
        let inside = match &self.kind {
            Kind::Scalar { text, is_plain: true } if text.is_empty() => return None,
            Kind::Scalar { .. } | Kind::Alias(_) => return Some(self.range.end),
            Kind::Sequence(nodes) => nodes.last().and_then(Self::last_byte),
            Kind::Mapping(pairs) => pairs.last().and_then(of_pair),
        };
        // A node in brackets has an end of its own. A block node ends where the next node begins.
        if self.is_in_brackets { Some(self.range.end) } else { inside }
    }

    /// Whether each member is written on separate lines.
    pub(super) fn is_block_mapping(&self) -> bool {
        self.pairs().is_some() && !self.is_in_brackets
    }

    /// Whether both nodes have the same content, regardless of their places.
    pub(super) fn means(&self, other: &Self) -> bool {
        let is_same = match (&self.kind, &other.kind) {
            (Kind::Scalar { text, is_plain }, Kind::Scalar { text: other, is_plain: plain }) => {
                (text, is_plain) == (other, plain)
            }
            (Kind::Alias(of), Kind::Alias(other)) => of == other,
            (Kind::Sequence(nodes), Kind::Sequence(others)) => {
                nodes.len() == others.len() && nodes.iter().zip(others).all(|(node, other)| node.means(other))
            }
            (Kind::Mapping(pairs), Kind::Mapping(others)) => {
                pairs.len() == others.len()
                    && pairs.iter().zip(others).all(|(pair, other)| pair.0.means(&other.0) && pair.1.means(&other.1))
            }
            _ => false,
        };
        is_same && self.marks == other.marks
    }

    pub(super) fn value(&self) -> Value {
        match &self.kind {
            Kind::Alias(_) => Value::Null,
            Kind::Sequence(nodes) => nodes.iter().map(Self::value).collect(),
            Kind::Mapping(pairs) => {
                let name = |key: &Self| match key.value() {
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                pairs.iter().map(|(key, value)| (name(key), value.value())).collect()
            }
            Kind::Scalar { text, is_plain: false } => Value::from(text.as_str()),
            Kind::Scalar { text, .. } => match text.as_str() {
                "" | "~" | "null" | "Null" | "NULL" => Value::Null,
                "true" | "True" | "TRUE" => Value::Bool(true),
                "false" | "False" | "FALSE" => Value::Bool(false),
                text => text.parse::<i64>().map_or_else(|_| Value::from(text), |n| Value::Number(Number::from(n))),
            },
        }
    }
}

/// Parses a document. `None` if the text contains only comments.
///
/// # Errors
/// The text is not YAML, or has more than one document.
pub(super) fn parse(text: &str) -> Result<Option<Node>, EditError> {
    Reader::new(text).document()
}

/// Builds nodes from the parser's events. Their places are in characters.
struct Reader<'t> {
    text: &'t str,
    parser: Parser<'t, saphyr_parser::StrInput<'t>>,
    /// The byte offset of each character, and the end.
    bytes: Vec<usize>,
}

impl<'t> Reader<'t> {
    fn new(text: &'t str) -> Self {
        let bytes = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        Self { text, parser: Parser::new_from_str(text), bytes }
    }

    fn byte(&self, characters: usize) -> usize {
        self.bytes.get(characters).copied().unwrap_or(self.text.len())
    }

    fn next(&mut self) -> Result<(Event<'t>, Span), EditError> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => {
                let at = self.byte(error.marker().index());
                Err(EditError::new(at, format!("this is not YAML: {}", error.info())))
            }
            None => Err(EditError::unsafe_edit()),
        }
    }

    fn document(mut self) -> Result<Option<Node>, EditError> {
        let mut document = None;
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(document),
                (Event::DocumentStart(_), span) if document.is_some() => {
                    let message = "this is the second document of the file: add the entry by hand";
                    return Err(EditError::new(self.byte(span.start.index()), message));
                }
                (Event::DocumentStart(_), _) => {
                    let first = self.next()?;
                    document = Some(self.node(first, 0)?);
                }
                _ => {}
            }
        }
    }

    fn node(&mut self, (event, span): (Event<'t>, Span), depth: usize) -> Result<Node, EditError> {
        let start = self.byte(span.start.index());
        if depth > MAX_DEPTH {
            return Err(EditError::new(start, format!("this is nested more than {MAX_DEPTH} levels deep")));
        }
        let mut end = self.byte(span.end.index());
        let tag = |tag: Option<std::borrow::Cow<'_, Tag>>| tag.map(|tag| tag.to_string());
        let is_in_brackets = self.text.get(start..).is_some_and(|rest| rest.starts_with(['{', '[']));
        let (kind, marks) = match event {
            Event::Alias(of) => (Kind::Alias(of), (0, None)),
            Event::Scalar(text, style, anchor, its) => {
                let kind = Kind::Scalar { text: text.into_owned(), is_plain: style == ScalarStyle::Plain };
                (kind, (anchor, tag(its)))
            }
            Event::SequenceStart(anchor, its) => {
                let mut nodes = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, span) => {
                            end = self.byte(span.end.index());
                            break;
                        }
                        next => nodes.push(self.node(next, depth + 1)?),
                    }
                }
                (Kind::Sequence(nodes), (anchor, tag(its)))
            }
            Event::MappingStart(anchor, its) => {
                let mut pairs = Vec::new();
                loop {
                    match self.next()? {
                        (Event::MappingEnd, span) => {
                            end = self.byte(span.end.index());
                            break;
                        }
                        next => {
                            let key = self.node(next, depth + 1)?;
                            let value = self.next()?;
                            pairs.push((key, self.node(value, depth + 1)?));
                        }
                    }
                }
                (Kind::Mapping(pairs), (anchor, tag(its)))
            }
            _ => return Err(EditError::unsafe_edit()),
        };
        Ok(Node { range: start..end, kind, marks, is_in_brackets })
    }
}
