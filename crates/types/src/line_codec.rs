//! Input split into lines of bounded length, for front ends that read one message per line.

use std::io;

use serde_json::Value;
use tokio_util::bytes::{Bytes, BytesMut};
use tokio_util::codec::Decoder;

use crate::id_scanner::IdScanner;

/// A message without the byte order mark of UTF-8 with which some clients begin it.
#[must_use]
pub fn without_byte_order_mark(message: Bytes) -> Bytes {
    let mark = b"\xef\xbb\xbf";
    if message.starts_with(mark) { message.slice(mark.len()..) } else { message }
}

/// One line of an input, without its line end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A complete line that is not blank.
    Complete(Bytes),
    /// A line over the limit. Only the `id` of its JSON object is kept.
    TooLong(Option<Value>),
}

/// Decodes lines that end in `\n` or `\r\n`. Blank lines are skipped, and the last line needs no line end.
///
/// tokio-util's `LinesCodec` cannot replace it. `LinesCodec` discards the id of an over-long line together with the
/// line, and clients drop an error without an id. It rejects lines that are not UTF-8 before a parser can report
/// them. After its error for an over-long line, `FramedRead` waits for more input before it decodes what it has
/// buffered.
#[derive(Debug)]
pub struct LineCodec {
    max_bytes: usize,
    max_id_bytes: usize,
    /// The number of buffered bytes that were searched and contain no line end.
    searched: usize,
    /// Scans the current line for its id, once it is over the limit.
    too_long: Option<IdScanner>,
}

impl LineCodec {
    /// A codec for lines of at most `max_bytes` bytes, without their line end. From a longer line it keeps an id of
    /// at most `max_id_bytes` bytes of JSON.
    #[must_use]
    pub fn new(max_bytes: usize, max_id_bytes: usize) -> Self {
        Self { max_bytes, max_id_bytes, searched: 0, too_long: None }
    }

    /// Ends the current line; `line` is its last part.
    fn end_line(&mut self, line: &Bytes) -> Option<Line> {
        let length = line.strip_suffix(b"\r").unwrap_or(line).len();
        if length > self.max_bytes {
            self.too_long.get_or_insert_with(|| IdScanner::new(self.max_id_bytes));
        }
        if let Some(mut scanner) = self.too_long.take() {
            scanner.read(line);
            return Some(Line::TooLong(scanner.id()));
        }
        let line = without_byte_order_mark(line.slice(..length));
        (!line.trim_ascii().is_empty()).then_some(Line::Complete(line))
    }
}

impl Decoder for LineCodec {
    type Item = Line;
    type Error = io::Error;

    fn decode(&mut self, buffer: &mut BytesMut) -> io::Result<Option<Line>> {
        loop {
            let unsearched = buffer.get(self.searched..).unwrap_or_default();
            if let Some(end) = unsearched.iter().position(|byte| *byte == b'\n') {
                let line = buffer.split_to(self.searched + end + 1).freeze();
                let line = line.slice(..self.searched + end);
                self.searched = 0;
                if let Some(line) = self.end_line(&line) {
                    return Ok(Some(line));
                }
                continue;
            }
            // One byte over the limit may be the `\r` of the line end.
            if self.too_long.is_none() && buffer.len() > self.max_bytes + 1 {
                self.too_long = Some(IdScanner::new(self.max_id_bytes));
            }
            if let Some(scanner) = &mut self.too_long {
                scanner.read(buffer);
                buffer.clear();
            }
            self.searched = buffer.len();
            return Ok(None);
        }
    }

    fn decode_eof(&mut self, buffer: &mut BytesMut) -> io::Result<Option<Line>> {
        if let Some(line) = self.decode(buffer)? {
            return Ok(Some(line));
        }
        self.searched = 0;
        Ok(self.end_line(&buffer.split().freeze()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 16;

    /// Decodes an input that arrives in pieces of `step` bytes.
    fn lines(input: &[u8], step: usize) -> Vec<Line> {
        let (mut codec, mut buffer, mut found) = (LineCodec::new(MAX, 256), BytesMut::new(), Vec::new());
        for piece in input.chunks(step) {
            buffer.extend_from_slice(piece);
            found.extend(std::iter::from_fn(|| codec.decode(&mut buffer).unwrap()));
        }
        found.extend(std::iter::from_fn(|| codec.decode_eof(&mut buffer).unwrap()));
        found
    }

    fn complete(text: &str) -> Line {
        Line::Complete(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn blank_lines_are_skipped_and_the_last_line_needs_no_end() {
        for step in 1..20 {
            assert_eq!(lines(b"a\r\n\n \t\r\n\r\nb", step), [complete("a"), complete("b")]);
            assert_eq!(lines(b"", step), []);
            assert_eq!(lines(b"\n\n", step), []);
        }
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_line() {
        let input = b"\xef\xbb\xbfa\n\xef\xbb\xbf\r\n\xef\xbb\xbfb\r\n a\xef\xbb\xbf";
        for step in 1..20 {
            assert_eq!(lines(input, step), [complete("a"), complete("b"), complete(" a\u{feff}")]);
        }
    }

    #[test]
    fn an_over_long_line_is_reported_once_and_the_next_line_is_read() {
        let (fits, too_long) = ("x".repeat(MAX), format!(r#"{{"x":"{}","id":7}}"#, "y".repeat(3 * MAX)));
        let input = format!("{fits}\r\n{fits}z\n{too_long}\nb\n{too_long}");
        let too_long_line = || Line::TooLong(Some(7.into()));
        let expected = [complete(&fits), Line::TooLong(None), too_long_line(), complete("b"), too_long_line()];
        for step in 1..200 {
            assert_eq!(lines(input.as_bytes(), step), expected, "{step}");
        }
    }
}
