//! Texts of others before the eyes of a person. Whoever wrote a value may have put anything into it: no control character
//! of theirs reaches a terminal or a dialogue (attacks AU11, AP09), and no line of theirs looks like one of ours.

/// Whether a character does something to a terminal, or to the order or the look of what stands around it, instead of
/// being shown: C0 and C1 controls, line and paragraph separators, bidirectional controls, zero-width characters, tags.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
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
