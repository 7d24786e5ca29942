//! Words that mix scripts: `аdmin` with a Cyrillic `а` looks like another word (Unicode Technical Standard 39,
//! section 5).
//!
//! The crate unicode-security 0.1.3 cannot be used. It judges identifiers, but parameters are texts: it gives `µm`
//! and `x²` the worst level. It also does not name the scripts.

use unicode_script::{Script, UnicodeScript};

/// Scripts that one language mixes, also with Latin letters (UTS 39, "highly restrictive").
const WRITTEN_TOGETHER: [&[Script]; 3] = [
    &[Script::Latin, Script::Han, Script::Hiragana, Script::Katakana],
    &[Script::Latin, Script::Han, Script::Bopomofo],
    &[Script::Latin, Script::Han, Script::Hangul],
];

/// A word that mixes scripts of which no language mixes all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MixedWord<'a> {
    word: &'a str,
    scripts: Vec<Script>,
}

impl MixedWord<'_> {
    /// The word, in which all characters except ASCII are escaped as `\u{..}`.
    #[must_use]
    pub fn escaped(&self) -> String {
        escaped(self.word)
    }

    /// The scripts in the order of the word: `Cyrillic and Latin letters`.
    #[must_use]
    pub fn letters(&self) -> String {
        let names: Vec<&str> = self.scripts.iter().map(|script| script.full_name()).collect();
        format!("{} letters", names.join(" and "))
    }
}

/// The words of a text that mix scripts.
pub fn mixed_words(text: &str) -> impl Iterator<Item = MixedWord<'_>> {
    let words = text.split(|c: char| !c.is_alphanumeric());
    words.map(|word| MixedWord { word, scripts: scripts(word) }).filter(|word| is_suspicious(&word.scripts))
}

/// The scripts of a word's letters in their order. Digits and marks belong to every script.
fn scripts(word: &str) -> Vec<Script> {
    let mut scripts = Vec::new();
    for script in word.chars().map(|c| c.script()) {
        if !matches!(script, Script::Common | Script::Inherited | Script::Unknown) && !scripts.contains(&script) {
            scripts.push(script);
        }
    }
    scripts
}

fn is_suspicious(scripts: &[Script]) -> bool {
    scripts.len() > 1 && !WRITTEN_TOGETHER.iter().any(|together| scripts.iter().all(|script| together.contains(script)))
}

/// Escapes all characters except ASCII as `\u{..}`.
#[must_use]
pub fn escaped(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_ascii() && !c.is_ascii_control() { c.to_string() } else { c.escape_unicode().to_string() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_one_script_and_of_one_language_are_fine() {
        for fine in [
            "admin@x.test",
            "привет мир",
            "hello мир",
            "東京タワーのTシャツ",
            "naïve café 10µm",
            "한국어 2026",
            "αβγ",
            "😀a",
        ] {
            assert_eq!(mixed_words(fine).next(), None, "{fine}");
        }
    }

    #[test]
    fn letters_that_look_like_others_are_named_in_escaped_form() {
        let found: Vec<_> =
            mixed_words("to \u{430}dmin of p\u{3bf}st").map(|one| (one.escaped(), one.letters())).collect();
        let named = [("\\u{430}dmin", "Cyrillic and Latin letters"), ("p\\u{3bf}st", "Latin and Greek letters")];
        assert_eq!(found, named.map(|(word, letters)| (word.to_owned(), letters.to_owned())));
    }
}
