//! Response bodies that release the resources of their request when they have been written.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http_body::{Body as HttpBody, Frame, SizeHint};
use mcp::ResponseScope;

/// The most bytes of one frame. hyper asks for the next frame when it has written the ones before, so the last frame
/// of a large response leaves only when most of the response has been read.
const MAX_FRAME_BYTES: usize = 64 << 10;

/// Ends a response early when it completes.
type End = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The scope of a response that has no body yet. Dropping it, as axum does with a cancelled handler, finishes the
/// scope.
#[derive(Default)]
pub(crate) struct PendingBody {
    guard: FinishOnDrop,
    end: Option<End>,
}

#[derive(Default)]
struct FinishOnDrop {
    scope: ResponseScope,
    is_complete: bool,
}

impl Drop for FinishOnDrop {
    fn drop(&mut self) {
        self.scope.finish(self.is_complete);
    }
}

impl PendingBody {
    pub(crate) fn scope(&self) -> &ResponseScope {
        &self.guard.scope
    }

    /// Keeps a value until the response has been written.
    pub(crate) fn keep_alive(&self, value: impl Send + 'static) {
        self.guard.scope.keep_alive(value);
    }

    /// Ends the response when this future completes, whatever is left of it.
    pub(crate) fn end_when(&mut self, end: impl Future<Output = ()> + Send + 'static) {
        self.end = Some(Box::pin(end));
    }

    /// The body of the response. The scope is finished when the body has been written or dropped.
    pub(crate) fn into_body<B>(self, body: B) -> Body
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let Self { guard, end } = self;
        Body::new(ScopedBody { body: Box::pin(body), remaining: Bytes::new(), guard, end, is_cut: false })
    }
}

struct ScopedBody<B> {
    body: Pin<Box<B>>,
    /// The rest of the current frame of `body`.
    remaining: Bytes,
    guard: FinishOnDrop,
    end: Option<End>,
    /// Whether the response was ended before it was complete.
    is_cut: bool,
}

impl<B> ScopedBody<B> {
    fn next_frame(&mut self) -> Frame<Bytes> {
        let most = self.remaining.len().min(MAX_FRAME_BYTES);
        Frame::data(self.remaining.split_to(most))
    }
}

impl<B: HttpBody<Data = Bytes>> HttpBody for ScopedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.end.as_mut().is_some_and(|end| end.as_mut().poll(context).is_ready()) {
            (self.end, self.is_cut) = (None, true);
        }
        if self.is_cut {
            return Poll::Ready(None);
        }
        let mut polled = Poll::Ready(None);
        if self.remaining.is_empty() {
            polled = match self.body.as_mut().poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        self.remaining = data;
                        Poll::Pending
                    }
                    Err(other) => Poll::Ready(Some(Ok(other))),
                },
                polled => polled,
            };
        }
        if !self.remaining.is_empty() {
            polled = Poll::Ready(Some(Ok(self.next_frame())));
        }
        self.guard.is_complete |= matches!(polled, Poll::Ready(None)) || self.is_end_stream();
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.is_cut || self.remaining.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (of_body, remaining) = (self.body.size_hint(), self.remaining.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower() + remaining);
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper + remaining);
        }
        hint
    }
}
