//! Finds the `id` of a request whose line is too long to be kept. The error answer needs this id: most clients drop
//! an error without one, and then wait forever.

use serde_json::Value;

/// Finds the value of `id` at the top level of a JSON object that arrives in pieces. Memory is bounded by
/// `max_bytes`.
#[derive(Debug)]
pub struct IdScanner {
    /// The maximum length of an id, in bytes of JSON.
    max_bytes: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Whether the next string at the top level is a key.
    at_key: bool,
    /// Whether the current top-level value belongs to `id`.
    at_id: bool,
    /// The key or the id that is being read, as JSON.
    text: Vec<u8>,
    id: Option<Value>,
}

impl IdScanner {
    /// A scanner for ids of at most `max_bytes` bytes of JSON. Longer ids are not found.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        let (in_string, escaped, at_key, at_id) = (false, false, false, false);
        Self { max_bytes, depth: 0, in_string, escaped, at_key, at_id, text: Vec::new(), id: None }
    }

    /// The id in a whole text, which need not be JSON.
    #[must_use]
    pub fn find(text: &[u8], max_bytes: usize) -> Option<Value> {
        let mut scanner = Self::new(max_bytes);
        scanner.read(text);
        scanner.id()
    }

    pub fn read(&mut self, piece: &[u8]) {
        piece.iter().for_each(|byte| self.step(*byte));
    }

    /// The id, of any JSON type, if the object has one.
    #[must_use]
    pub fn id(self) -> Option<Value> {
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
        if self.depth == 1 && (self.at_key || self.at_id) && self.text.len() <= self.max_bytes {
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
    use serde_json::json;

    use super::*;

    fn found(text: &str) -> Option<Value> {
        let mut scanner = IdScanner::new(256);
        text.as_bytes().chunks(3).for_each(|piece| scanner.read(piece));
        scanner.id()
    }

    #[test]
    fn an_id_is_found_anywhere_at_the_top_level_and_nowhere_else() {
        let seven = Some(json!(7));
        assert_eq!(found(r#"{"id":7,"params":{"id":8}}"#), seven);
        assert_eq!(found(r#"{"params":{"id":8,"a":["}",{"id":9}]},"method":"x","id" : 7 }"#), seven);
        assert_eq!(found(r#"{"params":"\"id\":8,\\","id":7}"#), seven);
        assert_eq!(found(r#"{"params":"\"id\":8,\\","id":"7""#), None, "the value has no end");
        assert_eq!(found(r#"{"id":"a\"b","x":1}"#), Some(json!("a\"b")));
        assert_eq!(found(r#"{"params":{"id":8}}"#), None);
        assert_eq!(found(r#"[{"id":8}]"#), None);
        assert_eq!(found(&format!(r#"{{"id":"{}"}}"#, "x".repeat(1000))), None);
    }
}
