//! One task writes all events. Whoever runs a query waits for room in its queue, so a reader that is slow slows queries down
//! and nothing piles up; what the input loop has to say itself has a queue of its own, which goes first.

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::events::Event;
use crate::output::Output;

/// Events of queries that wait to be written.
const QUEUED_EVENTS: usize = 16;
/// Answers of the input loop that wait to be written.
const QUEUED_ANSWERS: usize = 256;

/// Nobody reads the output any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutputClosed;

enum Outgoing {
    /// An event as bytes, with its end.
    Event(Vec<u8>),
    /// Answered when everything before it was handed to the operating system.
    Written(oneshot::Sender<()>),
}

/// Where the events of queries go. Each waits for its turn.
#[derive(Clone)]
pub(crate) struct Outlet {
    queue: mpsc::Sender<Outgoing>,
    form: Output,
}

impl Outlet {
    /// Hands an event on.
    pub(crate) async fn emit(&self, event: &Event) -> Result<(), OutputClosed> {
        self.place(event).await.map(Placed::send)
    }

    /// Waits for room for an event, which is then handed on without waiting.
    pub(crate) async fn place(&self, event: &Event) -> Result<Placed<'_>, OutputClosed> {
        let bytes = self.form.render(event);
        let permit = self.queue.reserve().await.map_err(|_| OutputClosed)?;
        Ok(Placed { permit, bytes })
    }

    /// Waits until everything that was handed on was written.
    pub(crate) async fn written(&self) -> Result<(), OutputClosed> {
        let (written, is_written) = oneshot::channel();
        self.queue.send(Outgoing::Written(written)).await.map_err(|_| OutputClosed)?;
        is_written.await.map_err(|_| OutputClosed)
    }
}

/// An event with its place in the queue.
pub(crate) struct Placed<'o> {
    permit: mpsc::Permit<'o, Outgoing>,
    bytes: Vec<u8>,
}

impl Placed<'_> {
    pub(crate) fn send(self) {
        self.permit.send(Outgoing::Event(self.bytes));
    }
}

/// Where the answers of the input loop go.
pub(crate) struct Answers {
    queue: mpsc::Sender<Outgoing>,
    form: Output,
}

impl Answers {
    /// Hands an answer on. Waits only if the reader has left very many of them lying.
    pub(crate) async fn emit(&self, event: &Event) -> Result<(), OutputClosed> {
        self.queue.send(Outgoing::Event(self.form.render(event))).await.map_err(|_| OutputClosed)
    }
}

/// Starts the task. `closed` is cancelled when the output cannot be written to. The task ends when both ways to it are
/// dropped and everything was written.
pub(crate) fn start<W>(output: W, form: Output, closed: CancellationToken) -> (Outlet, Answers, JoinHandle<()>)
where
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (outlet, events) = mpsc::channel(QUEUED_EVENTS);
    let (answers, own) = mpsc::channel(QUEUED_ANSWERS);
    let task = tokio::spawn(async move {
        // Whoever ends this, also a panic: nobody shall wait for what will not be written.
        let closed = closed.drop_guard();
        if write(output, events, own).await.is_ok() {
            closed.disarm();
        }
    });
    (Outlet { queue: outlet, form }, Answers { queue: answers, form }, task)
}

async fn write<W: AsyncWrite + Unpin>(
    mut output: W,
    mut events: mpsc::Receiver<Outgoing>,
    mut answers: mpsc::Receiver<Outgoing>,
) -> std::io::Result<()> {
    loop {
        let outgoing = tokio::select! {
            biased;
            Some(answer) = answers.recv() => answer,
            Some(event) = events.recv() => event,
            else => return output.flush().await,
        };
        match outgoing {
            Outgoing::Event(bytes) => {
                output.write_all(&bytes).await?;
                if events.is_empty() && answers.is_empty() {
                    output.flush().await?;
                }
            }
            Outgoing::Written(written) => {
                output.flush().await?;
                // Nobody may wait for it any more.
                let _ = written.send(());
            }
        }
    }
}
