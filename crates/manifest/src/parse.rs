//! Parses TOML text to [`file`](crate::file) types, piece by piece, so that a mistake in one tool, parameter or key
//! does not hide mistakes in the others.

use std::ops::Range;

use serde::de::DeserializeOwned;
use serde_spanned::Spanned;
use toml::de::{DeArray, DeTable, DeValue, ValueDeserializer};

use crate::file::{
    BuiltinDeclaration, ManifestFile, NoteDeclaration, ParamDeclaration, RuleDeclaration, ToolDeclaration,
    UndoDeclaration,
};
use crate::{Diagnostic, Diagnostics, Location, Source};

#[derive(Debug)]
pub(crate) struct ParsedTool<'s> {
    pub(crate) source: &'s Source,
    pub(crate) version: String,
    pub(crate) span: Range<usize>,
    /// The name of the tool, for diagnostics; `None` if it has none.
    pub(crate) label: Option<String>,
    /// The declaration; `None` if it could not be parsed at all.
    pub(crate) tool: Option<ToolDeclaration>,
    /// The schema of the extension that the tool requires, as SQL writes it; `None` until the database was asked.
    pub(crate) extension_schema: Option<String>,
    /// Whether every part could be parsed. If not, a part that is absent may only be invalid.
    pub(crate) whole: bool,
}

impl ParsedTool<'_> {
    /// The location of `span`. The span of a missing key is empty; then the location of the tool.
    pub(crate) fn locate(&self, span: Range<usize>) -> Location {
        let offset = if span.is_empty() { self.span.start } else { span.start };
        self.source.locate(offset)
    }

    pub(crate) fn diagnostic(&self, span: Range<usize>, message: impl Into<String>) -> Diagnostic {
        Diagnostic { at: self.locate(span), tool: self.label.clone(), message: message.into() }
    }
}

#[derive(Debug)]
pub(crate) struct ParsedNote<'s> {
    pub(crate) source: &'s Source,
    pub(crate) span: Range<usize>,
    pub(crate) note: NoteDeclaration,
}

impl ParsedNote<'_> {
    /// Creates a diagnostic of this note at `span`, or at the start of the note if `span` is that of a missing key.
    pub(crate) fn diagnostic(&self, span: Range<usize>, message: impl Into<String>) -> Diagnostic {
        let offset = if span.is_empty() { self.span.start } else { span.start };
        Diagnostic { at: self.source.locate(offset), tool: None, message: message.into() }
    }
}

#[derive(Debug)]
pub(crate) struct ParsedBuiltin<'s> {
    pub(crate) source: &'s Source,
    pub(crate) name: String,
    /// The position of the name in the file.
    pub(crate) span: Range<usize>,
    pub(crate) builtin: BuiltinDeclaration,
}

/// The declarations of a manifest that could be parsed.
#[derive(Debug, Default)]
pub(crate) struct ParsedManifest<'s> {
    pub(crate) tools: Vec<ParsedTool<'s>>,
    pub(crate) notes: Vec<ParsedNote<'s>>,
    pub(crate) builtin: Vec<ParsedBuiltin<'s>>,
    pub(crate) instructions: Vec<(&'s Source, Spanned<String>)>,
}

impl ParsedManifest<'_> {
    /// Prefixes the names of all tools, where they are declared and where an undo calls them.
    pub(crate) fn add_prefix(&mut self, prefix: &str) {
        let add = |name: &mut String| name.insert_str(0, prefix);
        for ParsedTool { label, tool, .. } in &mut self.tools {
            let Some(tool) = tool else { continue };
            label.as_mut().map(add);
            let undone_by = tool.undo.as_mut().and_then(|undo| undo.tool.as_mut());
            [Some(&mut tool.name), undone_by].into_iter().flatten().for_each(|name| add(name.get_mut()));
        }
    }
}

/// Adds the declarations of a manifest.
pub(crate) fn parse<'s>(source: &'s Source, manifest: &mut ParsedManifest<'s>, diagnostics: &mut Diagnostics) {
    let document = match DeTable::parse(&source.text) {
        Ok(document) => document,
        Err(error) => {
            let at = source.locate(error.span().unwrap_or_default().start);
            diagnostics.0.push(Diagnostic {
                at,
                tool: None,
                message: format!("this is not TOML: {}", error.message()),
            });
            return;
        }
    };
    let mut parser = Parser { source, label: None, diagnostics };
    let span = document.span();
    let mut document = document.into_inner();
    let (tools, notes, builtin) = (document.remove("tool"), document.remove("note"), document.remove("builtin"));
    let says_more = builtin.is_some() || document.contains_key("instructions");
    let (version, instructions) = parser.header(document, span.clone());
    let (tools, notes) = (parser.tables(tools, "tool"), parser.tables(notes, "note"));
    if tools.is_empty() && notes.is_empty() && !says_more {
        parser.diagnostic(span, "a manifest declares at least one [[tool]] or [[note]]");
    }
    manifest.instructions.extend(instructions.map(|text| (source, text)));
    manifest.builtin.extend(builtin.into_iter().flat_map(|tables| parser.builtin(tables)));
    manifest.tools.extend(tools.into_iter().map(|table| parser.tool(table, &version)));
    manifest.notes.extend(notes.into_iter().filter_map(|table| parser.note(table)));
}

struct Parser<'s, 'm> {
    source: &'s Source,
    label: Option<String>,
    diagnostics: &'m mut Diagnostics,
}

/// A table whose valid keys were parsed.
struct ParsedTable<T> {
    value: Option<T>,
    /// Known keys with invalid values.
    refused: Vec<String>,
}

impl<T> ParsedTable<T> {
    fn is_whole(&self) -> bool {
        self.value.is_some() && self.refused.is_empty()
    }
}

impl<'s> Parser<'s, '_> {
    fn diagnostic(&mut self, span: Range<usize>, message: impl Into<String>) {
        let at = self.source.locate(span.start);
        self.diagnostics.0.push(Diagnostic { at, tool: self.label.clone(), message: message.into() });
    }

    /// Checks the keys outside the tools. Returns the version and the instructions.
    fn header(&mut self, table: DeTable<'s>, span: Range<usize>) -> (String, Option<Spanned<String>>) {
        let ParsedTable { value, refused } = self.piece::<ManifestFile>(table, span.clone());
        let Some(file) = value else { return (String::new(), None) };
        for (key, value) in [("name", &file.name), ("version", &file.version)] {
            if value.get_ref().trim().is_empty() && !refused.iter().any(|refused| refused == key) {
                self.diagnostic(
                    span.clone(),
                    format!("a manifest needs a {key}, such as {key} = \"{}\"", example(key)),
                );
            }
        }
        (file.version.into_inner(), file.instructions)
    }

    fn builtin(&mut self, tables: Spanned<DeValue<'s>>) -> Vec<ParsedBuiltin<'s>> {
        let span = tables.span();
        let DeValue::Table(tables) = tables.into_inner() else {
            self.diagnostic(span, "builtin is a table for each tool, as in [builtin.query_database]");
            return Vec::new();
        };
        let mut parsed_builtins = Vec::new();
        for (name, table) in tables {
            let (span, at) = (name.span(), table.span());
            match table.into_inner() {
                DeValue::Table(table) => {
                    let builtin = self.piece::<BuiltinDeclaration>(table, at).value;
                    let name = name.into_inner().into_owned();
                    parsed_builtins.extend(builtin.map(|builtin| ParsedBuiltin {
                        source: self.source,
                        name,
                        span,
                        builtin,
                    }));
                }
                other => {
                    self.diagnostic(at, format!("a built-in tool is a table, not {}", with_article(other.type_str())))
                }
            }
        }
        parsed_builtins
    }

    fn note(&mut self, table: Spanned<DeTable<'s>>) -> Option<ParsedNote<'s>> {
        let span = table.span();
        let piece = self.piece::<NoteDeclaration>(table.into_inner(), span.clone());
        let note = NoteDeclaration { refused: piece.refused, ..piece.value? };
        Some(ParsedNote { source: self.source, span, note })
    }

    fn tool(&mut self, table: Spanned<DeTable<'s>>, version: &str) -> ParsedTool<'s> {
        let span = table.span();
        let mut table = table.into_inner();
        self.label = table.get("name").and_then(|name| name.get_ref().as_str()).map(str::to_owned);
        let (params, rules, undo) = (table.remove("param"), table.remove("rule"), table.remove("undo"));
        let piece = self.piece::<ToolDeclaration>(table, span.clone());
        let mut whole = piece.is_whole();
        let mut tool = piece.value;
        if let Some(tool) = &mut tool {
            tool.refused = piece.refused;
        }

        for param in self.tables(params, "param") {
            let at = param.span();
            let piece = self.piece::<ParamDeclaration>(param.into_inner(), at);
            whole &= piece.is_whole();
            if let (Some(tool), Some(mut param)) = (&mut tool, piece.value) {
                param.refused = piece.refused;
                tool.param.push(param);
            }
        }
        for rule in self.tables(rules, "rule") {
            let at = rule.span();
            let piece = self.piece::<RuleDeclaration>(rule.into_inner(), at);
            whole &= piece.is_whole();
            if let (Some(tool), Some(rule)) = (&mut tool, piece.value) {
                tool.rule.push(RuleDeclaration { refused: piece.refused, ..rule });
            }
        }
        if let Some(undo) = undo {
            let at = undo.span();
            let piece = match undo.into_inner() {
                DeValue::Table(undo) => self.piece::<UndoDeclaration>(undo, at),
                other => {
                    self.diagnostic(at, format!("undo is a table, not {}", with_article(other.type_str())));
                    ParsedTable { value: None, refused: Vec::new() }
                }
            };
            whole &= piece.is_whole();
            if let Some(tool) = &mut tool {
                match piece.value {
                    Some(undo) => tool.undo = Some(UndoDeclaration { refused: piece.refused, ..undo }),
                    None => tool.refused.push("undo".to_owned()),
                }
            }
        }
        let label = self.label.take();
        ParsedTool {
            source: self.source,
            version: version.to_owned(),
            span,
            label,
            tool,
            extension_schema: None,
            whole,
        }
    }

    /// The tables of an array of tables.
    fn tables(&mut self, value: Option<Spanned<DeValue<'s>>>, key: &str) -> Vec<Spanned<DeTable<'s>>> {
        let Some(value) = value else { return Vec::new() };
        let span = value.span();
        let items = match value.into_inner() {
            DeValue::Array(items) => items,
            other => {
                self.diagnostic(span.clone(), format!("{key} is written as [[{key}]], with two brackets"));
                DeArray::from_iter([Spanned::new(span, other)])
            }
        };
        let mut tables = Vec::new();
        for item in items {
            let span = item.span();
            match item.into_inner() {
                DeValue::Table(table) => tables.push(Spanned::new(span, table)),
                other => self.diagnostic(span, format!("{key} is a table, not {}", with_article(other.type_str()))),
            }
        }
        tables
    }

    /// Parses one table. If serde rejects a key, the mistake is recorded, the key is removed, and the rest is parsed
    /// again, because serde stops at the first error.
    fn piece<T: DeserializeOwned>(&mut self, mut table: DeTable<'s>, span: Range<usize>) -> ParsedTable<T> {
        let mut refused = Vec::new();
        loop {
            let root = Spanned::new(span.clone(), DeValue::Table(table.clone()));
            let error = match T::deserialize(ValueDeserializer::from(root)) {
                Ok(value) => return ParsedTable { value: Some(value), refused },
                Err(error) => error,
            };
            let at = error.span().unwrap_or_else(|| span.clone());
            let culprit = table
                .iter()
                .find(|(key, value)| contains(&key.span(), &at) || contains(&value.span(), &at))
                .map(|(key, _)| key.clone());
            match culprit {
                Some(key) => {
                    let unknown = contains(&key.span(), &at);
                    let message = if unknown { String::new() } else { format!("{}: ", key.get_ref()) };
                    self.diagnostic(at, format!("{message}{}", error.message()));
                    table.remove(key.get_ref().as_ref());
                    if !unknown {
                        refused.push(key.into_inner().into_owned());
                    }
                }
                None => {
                    self.diagnostic(at, error.message().to_owned());
                    return ParsedTable { value: None, refused };
                }
            }
        }
    }
}

fn contains(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    !outer.is_empty() && outer.start <= inner.start && inner.end <= outer.end
}

fn example(key: &str) -> &'static str {
    if key == "name" { "social" } else { "1.0" }
}

fn with_article(kind: &str) -> String {
    let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {kind}")
}
