//! One task writes all events. Queries wait for room in its queue, so a slow reader slows them down and events do not
//! pile up. The answers of the input loop have a separate queue, which takes precedence.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::events::{Event, Request};
use crate::log::LogFilters;
use crate::output::Output;
use crate::undelivered::Undelivered;

/// Maximum number of queued events of queries.
const QUEUED_EVENTS: usize = 16;
/// Maximum number of queued events of the input loop.
const QUEUED_ANSWERS: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutputClosedError;

enum Outgoing {
    /// Serialised events, and the number of the commit that one of them reports.
    Events(Vec<u8>, Option<u64>),
    /// Answered when everything queued before it has been passed to the operating system.
    Written(oneshot::Sender<()>),
}

/// Sends the events of queries, or the answers of the input loop. Each waits for its turn.
#[derive(Clone)]
pub(crate) struct EventSender {
    queue: mpsc::Sender<Outgoing>,
    form: Output,
    undelivered: Undelivered,
}

impl EventSender {
    pub(crate) async fn emit(&self, event: &Event) -> Result<(), OutputClosedError> {
        self.place(&[event]).await.map(ReservedSlot::send)
    }

    /// Waits for space for some events, which are then queued together without waiting.
    pub(crate) async fn place(&self, events: &[&Event]) -> Result<ReservedSlot<'_>, OutputClosedError> {
        // Announced first: the steps after this may fail.
        let commit = events.iter().find_map(|event| event.commit()).map(|commit| self.undelivered.announce(commit));
        let mut bytes = Vec::new();
        for rendered in events.iter().map(|event| self.form.render(event)) {
            if bytes.is_empty() { bytes = rendered } else { bytes.extend_from_slice(&rendered) }
        }
        let permit = self.queue.reserve().await.map_err(|_| OutputClosedError)?;
        Ok(ReservedSlot { permit, bytes, commit })
    }

    /// [`place`](Self::place) for a terminal event, and for the event about it that `log` asks for.
    pub(crate) async fn place_last(
        &self,
        event: &Event,
        request: &Request,
        log: &LogFilters,
    ) -> Result<ReservedSlot<'_>, OutputClosedError> {
        let line = event.as_log(Some(&request.id), &request.session).filter(|line| log.choose(line.event));
        let line = line.map(|line| Event::Log(Box::new(line)));
        let events: Vec<&Event> = line.iter().chain([event]).collect();
        self.place(&events).await
    }

    /// Waits until every queued event was written.
    pub(crate) async fn written(&self) -> Result<(), OutputClosedError> {
        let (written, is_written) = oneshot::channel();
        self.queue.send(Outgoing::Written(written)).await.map_err(|_| OutputClosedError)?;
        is_written.await.map_err(|_| OutputClosedError)
    }
}

/// Events with a reserved slot in the queue.
pub(crate) struct ReservedSlot<'o> {
    permit: mpsc::Permit<'o, Outgoing>,
    bytes: Vec<u8>,
    commit: Option<u64>,
}

impl ReservedSlot<'_> {
    pub(crate) fn send(self) {
        self.permit.send(Outgoing::Events(self.bytes, self.commit));
    }
}

#[derive(Clone, Default)]
pub(crate) struct WriterTask {
    /// Committed writes whose result was not written.
    pub(crate) undelivered: Undelivered,
    /// Incremented by every successful write to the output.
    progress: Arc<AtomicU64>,
}

impl WriterTask {
    /// The number of writes that the operating system has accepted.
    pub(crate) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }
}

/// Starts the task. The first sender is that of the queries, the second that of the input loop. `closed` is cancelled
/// when the output cannot be written to. The task ends when both senders are dropped, and returns whether everything
/// was written.
pub(crate) fn start<W>(
    output: W,
    form: Output,
    closed: CancellationToken,
    writing: &WriterTask,
) -> (EventSender, EventSender, JoinHandle<bool>)
where
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (event_sender, events) = mpsc::channel(QUEUED_EVENTS);
    let (answers, own) = mpsc::channel(QUEUED_ANSWERS);
    let writer = Writer { output, writing: writing.clone(), unflushed: Vec::new() };
    let task = tokio::spawn(async move {
        // Also dropped on a panic: no task may wait for output that is never written.
        let closed = closed.drop_guard();
        let is_written = writer.write(events, own).await.is_ok();
        if is_written {
            closed.disarm();
        }
        is_written
    });
    let sender = |queue| EventSender { queue, form, undelivered: writing.undelivered.clone() };
    (sender(event_sender), sender(answers), task)
}

struct Writer<W> {
    output: W,
    writing: WriterTask,
    /// Commits whose results were written and may still be buffered.
    unflushed: Vec<u64>,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    async fn write(
        mut self,
        mut events: mpsc::Receiver<Outgoing>,
        mut answers: mpsc::Receiver<Outgoing>,
    ) -> std::io::Result<()> {
        loop {
            let outgoing = tokio::select! {
                biased;
                Some(answer) = answers.recv() => answer,
                Some(event) = events.recv() => event,
                else => return self.flush().await,
            };
            match outgoing {
                Outgoing::Events(bytes, commit) => {
                    self.write_all(&bytes).await?;
                    self.unflushed.extend(commit);
                    if events.is_empty() && answers.is_empty() {
                        self.flush().await?;
                    }
                }
                Outgoing::Written(written) => {
                    self.flush().await?;
                    // The receiver may be gone.
                    let _ = written.send(());
                }
            }
        }
    }

    async fn write_all(&mut self, mut bytes: &[u8]) -> std::io::Result<()> {
        while !bytes.is_empty() {
            let count = self.output.write(bytes).await?;
            if count == 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            self.writing.progress.fetch_add(1, Ordering::Relaxed);
            bytes = bytes.get(count..).unwrap_or_default();
        }
        Ok(())
    }

    async fn flush(&mut self) -> std::io::Result<()> {
        self.output.flush().await?;
        self.writing.undelivered.delivered(self.unflushed.drain(..));
        Ok(())
    }
}
