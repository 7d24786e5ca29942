//! Input split into lines of bounded length, for front ends that read one message per line.

use std::io;

use tokio_util::bytes::{Bytes, BytesMut};
use tokio_util::codec::{AnyDelimiterCodec, AnyDelimiterCodecError, Decoder};

/// One line of an input, without its line end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A complete line that is not blank.
    Complete(Bytes),
    /// A line over the limit. Its bytes are discarded as they arrive.
    TooLong,
}

/// Decodes lines that end in `\n` or `\r\n`. Blank lines are skipped, and the last line needs no line end.
///
/// It wraps [`AnyDelimiterCodec`] instead of `LinesCodec` for two reasons. A line that is not UTF-8 must reach the
/// parser, which reports it. And an over-long line must be an item: after an error `FramedRead` waits for more input
/// before it decodes what it has buffered already.
#[derive(Debug)]
pub struct LineCodec {
    codec: AnyDelimiterCodec,
    max_bytes: usize,
}

impl LineCodec {
    /// A codec for lines of at most `max_bytes` bytes, without their line end.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        // One byte more, for the `\r` of a line end.
        Self { codec: AnyDelimiterCodec::new_with_max_length(b"\n".to_vec(), Vec::new(), max_bytes + 1), max_bytes }
    }

    fn next_line(
        &mut self,
        buffer: &mut BytesMut,
        decode: fn(&mut AnyDelimiterCodec, &mut BytesMut) -> Result<Option<Bytes>, AnyDelimiterCodecError>,
    ) -> io::Result<Option<Line>> {
        loop {
            let line = match decode(&mut self.codec, buffer) {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(None),
                Err(AnyDelimiterCodecError::MaxChunkLengthExceeded) => return Ok(Some(Line::TooLong)),
                Err(AnyDelimiterCodecError::Io(error)) => return Err(error),
            };
            let length = line.strip_suffix(b"\r").unwrap_or(&line).len();
            if length > self.max_bytes {
                return Ok(Some(Line::TooLong));
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some(Line::Complete(line.slice(..length))));
            }
        }
    }
}

impl Decoder for LineCodec {
    type Item = Line;
    type Error = io::Error;

    fn decode(&mut self, buffer: &mut BytesMut) -> io::Result<Option<Line>> {
        self.next_line(buffer, AnyDelimiterCodec::decode)
    }

    fn decode_eof(&mut self, buffer: &mut BytesMut) -> io::Result<Option<Line>> {
        self.next_line(buffer, AnyDelimiterCodec::decode_eof)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 16;

    /// Decodes an input that arrives in pieces of `step` bytes.
    fn lines(input: &[u8], step: usize) -> Vec<Line> {
        let (mut codec, mut buffer, mut found) = (LineCodec::new(MAX), BytesMut::new(), Vec::new());
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
        // B6-09
        for step in 1..20 {
            assert_eq!(lines(b"a\r\n\n \t\r\n\r\nb", step), [complete("a"), complete("b")]);
            assert_eq!(lines(b"", step), []);
            assert_eq!(lines(b"\n\n", step), []);
        }
    }

    #[test]
    fn an_over_long_line_is_reported_once_and_the_next_line_is_read() {
        let (fits, too_long) = ("x".repeat(MAX), "y".repeat(3 * MAX));
        let input = format!("{fits}\r\n{fits}z\n{too_long}\nb\n{too_long}");
        let expected = [complete(&fits), Line::TooLong, Line::TooLong, complete("b"), Line::TooLong];
        for step in 1..200 {
            assert_eq!(lines(input.as_bytes(), step), expected, "{step}");
        }
    }
}
