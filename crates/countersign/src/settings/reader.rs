//! Reads tables of a TOML document into groups of keys, and collects the mistakes with their locations.

use std::ops::Range;

use manifest::{Diagnostic, Source};
use serde::de::DeserializeOwned;
use serde_spanned::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// A document that is being read, and the mistakes found so far.
pub(super) struct Reader<'s> {
    pub(super) source: &'s Source,
    pub(super) mistakes: Vec<Diagnostic>,
}

impl<'s> Reader<'s> {
    pub(super) const fn new(source: &'s Source) -> Self {
        Self { source, mistakes: Vec::new() }
    }

    pub(super) fn mistake(&mut self, span: Range<usize>, message: impl Into<String>) {
        let at = self.source.locate(span.start);
        self.mistakes.push(Diagnostic { at, tool: None, message: message.into() });
    }

    /// Everything, if it is TOML.
    pub(super) fn top(&mut self) -> Option<DeTable<'s>> {
        match DeTable::parse(&self.source.text) {
            Ok(document) => Some(document.into_inner()),
            Err(error) => {
                self.mistake(error.span().unwrap_or_default(), format!("this is not TOML: {}", error.message()));
                None
            }
        }
    }

    /// Takes a table out of another one; empty if it is not there.
    pub(super) fn table(&mut self, from: &mut DeTable<'s>, name: &str) -> DeTable<'s> {
        let Some(value) = from.remove(name) else { return DeTable::new() };
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(table) => table,
            other => {
                self.mistake(
                    span,
                    format!("{name} is a table, written as [{name}], and not of type {}", other.type_str()),
                );
                DeTable::new()
            }
        }
    }

    /// Takes the keys of a group out of a table. A key with a wrong value is noted and left out, and the rest is read
    /// again: serde stops at the first mistake.
    pub(super) fn group<T: DeserializeOwned + Default>(&mut self, from: &mut DeTable<'s>, names: &[&str]) -> T {
        let mut table = DeTable::new();
        for name in names {
            if let Some((key, value)) = from.remove_entry(*name) {
                table.insert(key, value);
            }
        }
        loop {
            let root = Spanned::new(0..0, DeValue::Table(table.clone()));
            let error = match T::deserialize(ValueDeserializer::from(root)) {
                Ok(value) => return value,
                Err(error) => error,
            };
            let at = error.span().unwrap_or_default();
            let culprit = table.iter().find(|(_, value)| contains(&value.span(), &at)).map(|(key, _)| key.clone());
            let name = culprit.as_ref().map_or("", |key| key.get_ref().as_ref());
            self.mistake(at, format!("{name}: {}", error.message()));
            if table.remove(name).is_none() {
                return T::default();
            }
        }
    }

    /// What nobody took is unknown.
    pub(super) fn refuse_rest(&mut self, rest: &DeTable<'s>, prefix: &str, known: &[String]) {
        for key in rest.keys() {
            let message = format!("there is no key {prefix}{}; the keys here are: {}", key.get_ref(), known.join(", "));
            self.mistake(key.span(), message);
        }
    }
}

fn contains(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}
