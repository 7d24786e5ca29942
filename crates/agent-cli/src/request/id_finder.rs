//! The id of a line that cannot be read as a whole: whoever sent it waits for an answer to that id. `crates/mcp` has one for
//! JSON-RPC, whose ids may be numbers.

use super::MAX_NAME_BYTES;

/// Finds a string `"id"` at the top level of a JSON object that passes by in pieces. Keeps no more than one short text.
#[derive(Debug, Default)]
pub(crate) struct IdFinder {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Whether the next text at the top level is a key.
    at_key: bool,
    /// Whether the value at the top level is that of `id`.
    at_id: bool,
    /// The text at the top level that is being read.
    text: Vec<u8>,
    id: Option<String>,
}

impl IdFinder {
    pub(crate) fn read(&mut self, piece: &[u8]) {
        piece.iter().for_each(|byte| self.step(*byte));
    }

    pub(crate) fn id(self) -> Option<String> {
        self.id
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            self.keep(byte);
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.keep(byte);
            }
            b'{' | b'[' => {
                self.depth += 1;
                self.at_key = self.depth == 1 && byte == b'{';
            }
            b'}' | b']' => {
                self.end_value();
                self.depth = self.depth.saturating_sub(1);
            }
            b',' => self.end_value(),
            b':' if self.depth == 1 => {
                self.at_id = self.at_key && self.text == b"\"id\"";
                self.at_key = false;
                self.text.clear();
            }
            byte if byte.is_ascii_whitespace() => {}
            byte => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        // Within a text each byte may be written as six.
        if self.depth == 1 && (self.at_key || self.at_id) && self.text.len() <= 6 * MAX_NAME_BYTES {
            self.text.push(byte);
        }
    }

    fn end_value(&mut self) {
        if self.depth != 1 {
            return;
        }
        if self.at_id && self.id.is_none() {
            let id: Option<String> = serde_json::from_slice(&self.text).ok();
            self.id = id.filter(|id| id.len() <= MAX_NAME_BYTES);
        }
        (self.at_key, self.at_id) = (true, false);
        self.text.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<String> {
        let mut finder = IdFinder::default();
        // In pieces of one byte: nothing may depend on where a piece ends.
        text.bytes().for_each(|byte| finder.read(&[byte]));
        finder.id()
    }

    #[test]
    fn an_id_is_found_wherever_it_stands_at_the_top_level_and_nowhere_else() {
        let seven = Some("7".to_owned());
        assert_eq!(found(r#"{"id":"7","params":{"id":"8"}}"#), seven);
        assert_eq!(found(r#"{"params":{"id":"8","a":["}",{"id":"9"}]},"code":"x","id" : "7" }"#), seven);
        assert_eq!(found(r#"{"params":"\"id\":8,\\","id":"7""#), None, "the value has no end");
        assert_eq!(found(r#"{"id":"a\"b","sql":"#), Some("a\"b".to_owned()));
        assert_eq!(found(r#"{"id":7}"#), None);
        assert_eq!(found(r#"[{"id":"8"}]"#), None);
        assert_eq!(found(&format!(r#"{{"id":"{}"}}"#, "x".repeat(2000))), None);
    }
}
