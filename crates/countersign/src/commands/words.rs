//! Arguments that take one of several words.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Reads one of these words. Each has a help, or none if that is empty, and stands for a value.
pub(crate) fn one_of<T, const N: usize>(words: [(&'static str, &'static str, T); N]) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let known = words.map(|(word, help, _)| {
        let known = PossibleValue::new(word);
        if help.is_empty() { known } else { known.help(help) }
    });
    PossibleValuesParser::new(known).try_map(move |given| {
        let found = words.iter().find(|(word, ..)| *word == given);
        found.map(|(.., value)| *value).ok_or("there is no such word")
    })
}
