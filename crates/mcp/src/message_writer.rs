//! Writes messages while they are serialized.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use serde::Serialize;
use tokio::io::AsyncWrite;

/// The number of bytes that are collected before they are written.
const PART_BYTES: usize = 64 << 10;

/// Serializes a message as a line into an output, as far as the output accepts it without waiting. Returns the rest.
///
/// So a client reads the first parts of a large answer while the server serializes the others. The whole line is in
/// memory only if the client does not read.
pub(crate) fn write_without_waiting<W>(output: &mut W, message: &impl Serialize) -> io::Result<Vec<u8>>
where
    W: AsyncWrite + Unpin,
{
    let mut line = PartialLine { output, unwritten: Vec::new(), write_at: PART_BYTES };
    serde_json::to_writer(&mut line, message)?;
    line.unwritten.push(b'\n');
    Ok(line.unwritten)
}

struct PartialLine<'a, W> {
    output: &'a mut W,
    unwritten: Vec<u8>,
    /// The length of `unwritten` at which the output is tried.
    write_at: usize,
}

impl<W: AsyncWrite + Unpin> PartialLine<'_, W> {
    fn write_part(&mut self) -> io::Result<()> {
        // The task that writes the rest will wait for the output.
        let mut context = Context::from_waker(Waker::noop());
        let mut written = 0;
        while let Some(part) = self.unwritten.get(written..).filter(|part| !part.is_empty()) {
            match Pin::new(&mut *self.output).poll_write(&mut context, part) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => written += count,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => break,
            }
        }
        self.unwritten.drain(..written);
        self.write_at = self.unwritten.len() + PART_BYTES;
        Ok(())
    }
}

impl<W: AsyncWrite + Unpin> io::Write for PartialLine<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.unwritten.extend_from_slice(bytes);
        if self.unwritten.len() >= self.write_at {
            self.write_part()?;
        }
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(bytes).map(|_| ())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    const TEXT_BYTES: usize = 1 << 20;

    /// Serializes a megabyte into a pipe of this size. Returns what the pipe took, and the rest.
    async fn write(pipe_bytes: usize) -> (Vec<u8>, Vec<u8>) {
        let (mut reader, mut writer) = tokio::io::duplex(pipe_bytes);
        let text: Vec<&str> = vec!["0123456789012"; TEXT_BYTES / 16];
        let rest = write_without_waiting(&mut writer, &text).unwrap();
        drop(writer);
        let mut taken = Vec::new();
        reader.read_to_end(&mut taken).await.unwrap();
        let line = [taken.as_slice(), &rest].concat();
        assert_eq!(line, [serde_json::to_vec(&text).unwrap().as_slice(), b"\n"].concat());
        (taken, rest)
    }

    #[tokio::test]
    async fn an_output_that_takes_everything_has_all_but_the_last_part() {
        let (_, rest) = write(2 * TEXT_BYTES).await;
        assert!(rest.len() <= PART_BYTES, "{} bytes are left", rest.len());
    }

    #[tokio::test]
    async fn what_an_output_does_not_take_is_left_in_order() {
        for pipe_bytes in [1, 100, PART_BYTES + 1] {
            assert_eq!(write(pipe_bytes).await.0.len(), pipe_bytes);
        }
    }

    #[tokio::test]
    async fn a_closed_output_is_an_error() {
        let (reader, mut writer) = tokio::io::duplex(100);
        drop(reader);
        let message = "x".repeat(TEXT_BYTES);
        assert!(write_without_waiting(&mut writer, &[message]).is_err());
    }
}
