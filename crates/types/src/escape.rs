//! Escapes texts of other users for people. A value may contain anything: none of its control characters reaches a
//! terminal or a dialogue, and none of its lines looks like a line of the program.

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

/// The text on one line, hidden characters as JSON writes them: `\n`, `\u001b`.
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

/// The most of a caller's word that a message repeats, in characters.
const MAX_WORD_CHARS: usize = 64;

/// A caller's word as a message shows it: in quotes, on one line, not endless.
#[must_use]
pub fn quoted(word: &str) -> String {
    let mut short: String = word.chars().take(MAX_WORD_CHARS).collect();
    if short.len() < word.len() {
        short.push('…');
    }
    format!("\"{}\"", visible(&short))
}
