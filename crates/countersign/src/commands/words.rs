//! Arguments that take one of several words, or a text of people.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use ledger::proposals::MAX_REASON_CHARS;

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

/// Reads a reason or a question.
pub(crate) fn reason(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a reason or a question needs a text; leave --reason out if there is none".to_owned()),
        text if text.chars().count() > MAX_REASON_CHARS => {
            Err(format!("a reason or a question takes {MAX_REASON_CHARS} characters at most"))
        }
        text => Ok(text.to_owned()),
    }
}
