//! Reads tables of a TOML document into groups of keys, and collects all errors with their places.

use std::ops::Range;

use manifest::{Diagnostic, Source};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_spanned::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use types::nearest_names;

use super::key_group::properties;

/// A document that is being read, and the errors found so far.
pub(super) struct Reader<'s> {
    pub(super) source: &'s Source,
    pub(super) mistakes: Vec<Diagnostic>,
    /// The table that has a key which the table of this prefix has not.
    elsewhere: fn(&str, &str) -> Option<String>,
}

impl<'s> Reader<'s> {
    pub(super) const fn new(source: &'s Source, elsewhere: fn(&str, &str) -> Option<String>) -> Self {
        Self { source, mistakes: Vec::new(), elsewhere }
    }

    pub(super) fn mistake(&mut self, span: Range<usize>, message: impl Into<String>) {
        let at = self.source.locate(span.start);
        self.mistakes.push(Diagnostic { at, tool: None, message: message.into() });
    }

    /// The root table, if the text is TOML.
    pub(super) fn top(&mut self) -> Option<DeTable<'s>> {
        match DeTable::parse(&self.source.text) {
            Ok(document) => Some(document.into_inner()),
            Err(error) => {
                self.mistake(error.span().unwrap_or_default(), format!("this is not TOML: {}", error.message()));
                None
            }
        }
    }

    /// Takes a table out of another one; an empty table if it does not exist.
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

    /// Takes the keys of a group out of a table. serde stops at the first error, so a key with a wrong value is noted
    /// and removed, and the rest is read again.
    pub(super) fn group<T: DeserializeOwned + Default + JsonSchema>(&mut self, from: &mut DeTable<'s>) -> T {
        let mut table = DeTable::new();
        for name in properties::<T>().keys() {
            if let Some((key, value)) = from.remove_entry(name.as_str()) {
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
            self.mistake(at, format!("{name}: {}", in_words(error.message())));
            if table.remove(name).is_none() {
                return T::default();
            }
        }
    }

    /// Reports the keys that no group has taken as unknown.
    pub(super) fn refuse_rest(&mut self, rest: &DeTable<'s>, prefix: &str, known: &[String]) {
        for key in rest.keys() {
            let name = key.get_ref();
            let advice = (self.elsewhere)(name, prefix)
                .map(|table| format!("it belongs in {table}"))
                .or_else(|| Some(format!("did you mean {}?", nearest_names(name, known).into_iter().next()?)));
            let advice = advice.map(|advice| format!("; {advice}")).unwrap_or_default();
            let message = format!("there is no key {prefix}{name}{advice}; the keys here are: {}", known.join(", "));
            self.mistake(key.span(), message);
        }
    }
}

/// A message of serde, with types in plain words.
fn in_words(message: &str) -> String {
    let Some((before, wanted)) = message.rsplit_once("expected ") else { return message.to_owned() };
    let words = match wanted.trim_start_matches("a nonzero ") {
        "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" | "bool" => "true or false",
        "a sequence" => "a list",
        "a map" => "a table",
        _ => return message.to_owned(),
    };
    format!("{before}expected {words}")
}

fn contains(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}
