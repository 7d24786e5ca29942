//! Ends connections whose client reads too slowly: a client that reads its response one byte at a time would occupy
//! the memory of the whole response.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long a client may take to read [`MIN_PROGRESS_BYTES`] bytes.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);

/// With the timeout, this is 1.6 kB/s: slower than any usable network.
const MIN_PROGRESS_BYTES: usize = 16 << 10;

/// A stream with a minimum write throughput. Writes fail with [`io::ErrorKind::TimedOut`] if the client reads less
/// than [`MIN_PROGRESS_BYTES`] bytes within [`STALL_TIMEOUT`] while output is pending. Without pending output it may
/// be silent for any time.
#[derive(Debug)]
pub(crate) struct MinThroughput<S> {
    stream: S,
    /// Runs while output is pending.
    stall_timer: Option<Pin<Box<Sleep>>>,
    /// Bytes written since the timer started.
    progress: usize,
}

impl<S> MinThroughput<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, stall_timer: None, progress: 0 }
    }

    /// Updates the timer after a write.
    fn track<T>(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
        bytes: impl Fn(&T) -> usize,
    ) -> Poll<io::Result<T>> {
        match polled {
            Poll::Ready(Ok(done)) => {
                self.progress += bytes(&done);
                if self.progress >= MIN_PROGRESS_BYTES {
                    (self.stall_timer, self.progress) = (None, 0);
                }
                Poll::Ready(Ok(done))
            }
            Poll::Ready(error) => Poll::Ready(error),
            Poll::Pending => {
                let stall_timer = self.stall_timer.get_or_insert_with(|| Box::pin(sleep(STALL_TIMEOUT)));
                if stall_timer.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the client reads its response too slowly",
                    )));
                }
                Poll::Pending
            }
        }
    }

    /// Stops the timer: no output is pending.
    fn reset(&mut self) {
        (self.stall_timer, self.progress) = (None, 0);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MinThroughput<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MinThroughput<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.track(context, polled, |written| *written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.track(context, polled, |written| *written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(context);
        ready!(self.track(context, polled, |()| 0))?;
        self.reset();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(context);
        self.track(context, polled, |()| 0)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_a_byte_a_second_is_cut_off_and_one_that_takes_its_time_is_not() {
        let (ours, mut theirs) = duplex(1024);
        let writing = tokio::spawn(async move { MinThroughput::new(ours).write_all(&[0; 256 << 10]).await });
        let started = Instant::now();
        while !writing.is_finished() {
            let _byte = theirs.read_u8().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(writing.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() < 2 * STALL_TIMEOUT, "{:?}", started.elapsed());

        let (ours, mut theirs) = duplex(1024);
        let writing = tokio::spawn(async move { MinThroughput::new(ours).write_all(&[0; 256 << 10]).await });
        let mut piece = [0; 4096];
        while !writing.is_finished() {
            let _bytes = theirs.read(&mut piece).await.unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        writing.await.unwrap().unwrap();
    }
}
