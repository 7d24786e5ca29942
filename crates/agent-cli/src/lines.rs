//! Input by lines, none of which takes more than its share of memory.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use types::IdFinder;

use crate::request::{self, MAX_LINE_BYTES};

/// How much room is kept for the next line, in bytes.
const IDLE_LINE_BYTES: usize = 64 << 10;

/// A line without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// All of it.
    Whole(Vec<u8>),
    /// It was longer than [`MAX_LINE_BYTES`]: only its id was kept.
    TooLong(Option<String>),
}

/// Lines of an input. Reading may be given up at any time, and goes on where it was.
pub(crate) struct Lines<R> {
    input: BufReader<R>,
    line: Vec<u8>,
    too_long: Option<IdFinder>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input: BufReader::new(input), line: Vec::new(), too_long: None }
    }

    /// The next line that is not blank; `None` at the end. What stands behind the last line end is a line, too.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let available = self.input.fill_buf().await?;
            let is_end = available.is_empty();
            let line_end = available.iter().position(|byte| *byte == b'\n');
            let piece = available.get(..line_end.unwrap_or(available.len())).unwrap_or_default();
            // One more than the limit: it may be the \r of a line's end.
            if self.too_long.is_none() && self.line.len() + piece.len() > MAX_LINE_BYTES + 1 {
                let finder = self.too_long.insert(request::id_finder());
                finder.read(&std::mem::take(&mut self.line));
            }
            match &mut self.too_long {
                Some(finder) => finder.read(piece),
                None => self.line.extend_from_slice(piece),
            }
            let take = piece.len() + usize::from(line_end.is_some());
            self.input.consume(take);
            if (line_end.is_some() || is_end)
                && let Some(line) = self.take_line()
            {
                return Ok(Some(line));
            }
            if is_end {
                return Ok(None);
            }
        }
    }

    /// What was read so far, unless it is blank.
    fn take_line(&mut self) -> Option<Line> {
        if let Some(finder) = self.too_long.take() {
            return Some(Line::TooLong(request::found_id(finder)));
        }
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        let line = (!line.trim_ascii().is_empty()).then(|| line.to_vec());
        self.line.clear();
        self.line.shrink_to(IDLE_LINE_BYTES);
        line.map(Line::Whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(input: &[u8]) -> Vec<Line> {
        let mut lines = Lines::new(input);
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            found.push(line);
        }
        found
    }

    fn whole(text: &str) -> Line {
        Line::Whole(text.into())
    }

    #[tokio::test]
    async fn blank_lines_are_passed_over_and_the_last_line_needs_no_end() {
        // B6-09
        assert_eq!(lines(b"a\r\n\n \t\r\n\r\nb").await, [whole("a"), whole("b")]);
        assert_eq!(lines(b"").await, []);
        assert_eq!(lines(b"\n\n").await, []);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_passed_over_up_to_its_end() {
        let fits = "x".repeat(MAX_LINE_BYTES);
        let too_long = format!(r#"{{"id":"q","x":"{}"}}"#, "y".repeat(3 * MAX_LINE_BYTES));
        let input = format!("{fits}\r\n{too_long}\nb\n{too_long}");
        let expected = [whole(&fits), Line::TooLong(Some("q".into())), whole("b"), Line::TooLong(Some("q".into()))];
        assert_eq!(lines(input.as_bytes()).await, expected);
    }
}
