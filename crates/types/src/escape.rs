//! Escapes texts of other users before people see them. Such a text may contain anything. Escaped, it cannot send
//! control characters to a terminal or a dialogue, and none of its lines can look like a line of the program.

use serde_json::Value;

/// Whether a character controls a terminal, or changes the order or look of its surroundings, instead of being
/// visible: C0 and C1 controls, line and paragraph separators, and characters that may be omitted from display
/// (`Default_Ignorable_Code_Point`): bidirectional controls, zero-width characters, fillers, variation selectors,
/// tags.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// The text on one line, with hidden characters escaped as in JSON: `\n`, `\u001b`.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            hidden if is_hidden(hidden) => push_escape(&mut line, hidden),
            other => line.push(other),
        }
    }
    line
}

fn push_escape(line: &mut String, character: char) {
    let mut units = [0; 2];
    for unit in character.encode_utf16(&mut units) {
        line.push_str(&format!("\\u{unit:04x}"));
    }
}

/// The beginning of a text: this many characters, and then `…` if there are more.
#[must_use]
pub fn beginning(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// A value in a sentence, its text cut to this many characters. Quotes keep a text of other characters than those of
/// one word apart from the words around it.
#[must_use]
pub fn in_sentence(value: &Value, characters: usize) -> String {
    let Value::String(text) = value else { return beginning(&visible(&value.to_string()), characters) };
    let is_word = |character: char| character.is_ascii_alphanumeric() || "_-.:+@/".contains(character);
    let is_plain = !text.is_empty() && text != "null" && text.chars().all(is_word);
    if is_plain {
        beginning(text, characters)
    } else {
        format!("\"{}\"", beginning(&visible(text), characters).replace('"', "\\\""))
    }
}

const MAX_WORD_CHARS: usize = 64;

/// A caller's text for a message: quoted, on one line, and cut to 64 characters.
#[must_use]
pub fn quoted(word: &str) -> String {
    let mut short: String = word.chars().take(MAX_WORD_CHARS).collect();
    if short.len() < word.len() {
        short.push('…');
    }
    format!("\"{}\"", visible(&short))
}
