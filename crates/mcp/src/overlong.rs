//! The id of a request that is too long to be kept: whoever sent it waits for an answer to that id.

use rmcp::model::RequestId;

/// The longest id that is looked at, in bytes.
const MAX_ID_BYTES: usize = 256;

/// Finds `"id"` at the top level of a JSON object that passes by in pieces. Keeps no more than one short text.
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
    id: Option<RequestId>,
}

impl IdFinder {
    pub(crate) fn read(&mut self, piece: &[u8]) {
        for &byte in piece {
            self.step(byte);
        }
    }

    pub(crate) fn id(self) -> Option<RequestId> {
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
        if self.depth == 1 && (self.at_key || self.at_id) && self.text.len() <= MAX_ID_BYTES {
            self.text.push(byte);
        }
    }

    fn end_value(&mut self) {
        if self.depth != 1 {
            return;
        }
        if self.at_id && self.id.is_none() {
            self.id = serde_json::from_slice(&self.text).ok();
        }
        (self.at_key, self.at_id) = (true, false);
        self.text.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<RequestId> {
        let mut finder = IdFinder::default();
        // In pieces of one byte: nothing may depend on where a piece ends.
        text.bytes().for_each(|byte| finder.read(&[byte]));
        finder.id()
    }

    #[test]
    fn an_id_is_found_wherever_it_stands_at_the_top_level_and_nowhere_else() {
        let seven = Some(RequestId::Number(7));
        assert_eq!(found(r#"{"id":7,"params":{"id":8}}"#), seven);
        assert_eq!(found(r#"{"params":{"id":8,"a":["}",{"id":9}]},"method":"x","id" : 7 }"#), seven);
        assert_eq!(found(r#"{"params":"\"id\":8,\\","id":7}"#), seven);
        assert_eq!(found(r#"{"id":"a\"b","x":1}"#), Some(RequestId::String("a\"b".into())));
        assert_eq!(found(r#"{"params":{"id":8}}"#), None);
        assert_eq!(found(r#"[{"id":8}]"#), None);
        assert_eq!(found(&format!(r#"{{"id":"{}"}}"#, "x".repeat(1000))), None);
    }
}
