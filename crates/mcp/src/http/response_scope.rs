//! One request and its answer: what is held until the answer has been written, or its client has gone.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http::request::Parts;
use http_body::{Body as HttpBody, Frame, SizeHint};
use rmcp::service::{RequestContext, RoleServer};
use tokio_util::sync::CancellationToken;
use tools::ResponsePermit;

/// Travels with the request to whoever answers it. The answer's body ends it.
#[derive(Clone, Default)]
pub(crate) struct ResponseScope {
    state: Arc<Mutex<State>>,
    client_gone_token: CancellationToken,
}

#[derive(Default)]
struct State {
    is_finished: bool,
    kept: Vec<Box<dyn Send>>,
    /// Ends the answer, whatever is left of it.
    end: Option<End>,
}

type End = Pin<Box<dyn Future<Output = ()> + Send>>;

impl ResponseScope {
    /// That of the request which this context belongs to, if it came over HTTP.
    pub(crate) fn of(context: &RequestContext<RoleServer>) -> Option<&Self> {
        context.extensions.get::<Parts>().and_then(|parts| parts.extensions.get())
    }

    /// Keeps something until the end.
    pub(crate) fn keep_alive(&self, thing: impl Send + 'static) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.is_finished {
            state.kept.push(Box::new(thing));
        }
    }

    /// The same for the room of an answer.
    pub(crate) fn keep_alive_room(&self, room: Option<ResponsePermit>) {
        if let Some(room) = room {
            self.keep_alive(room);
        }
    }

    /// Ends the answer when this returns.
    pub(crate) fn end_when(&self, end: impl Future<Output = ()> + Send + 'static) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).end = Some(Box::pin(end));
    }

    /// Ends when the client has gone before its answer was whole.
    pub(crate) async fn client_gone(&self) {
        self.client_gone_token.cancelled().await;
    }

    /// The body of the answer, whose end is the end of the exchange.
    pub(crate) fn into_body<B>(self, body: B) -> Body
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let end = self.state.lock().unwrap_or_else(PoisonError::into_inner).end.take();
        Body::new(ScopedBody {
            body: Box::pin(body),
            remaining: Bytes::new(),
            response_scope: self,
            is_complete: false,
            is_cut: false,
            end,
        })
    }

    fn end(&self, is_complete: bool) {
        if !is_complete {
            self.client_gone_token.cancel();
        }
        let kept = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.is_finished = true;
            std::mem::take(&mut state.kept)
        };
        drop(kept);
    }
}

/// A request that gets no further has its end as well: a handler that is dropped in the middle.
pub(crate) struct PendingBody(Option<ResponseScope>);

impl PendingBody {
    pub(crate) fn new(response_scope: ResponseScope) -> Self {
        Self(Some(response_scope))
    }

    /// There is an answer, which will end the exchange.
    pub(crate) fn take_scope(mut self) -> ResponseScope {
        self.0.take().unwrap_or_default()
    }
}

impl Drop for PendingBody {
    fn drop(&mut self) {
        if let Some(response_scope) = self.0.take() {
            response_scope.end(false);
        }
    }
}

/// An answer is handed on in slices: whoever writes it asks for the next one when the ones before are on their way, so the last
/// of a large answer is not gone before most of it has been taken.
const MAX_FRAME_BYTES: usize = 64 << 10;

struct ScopedBody<B> {
    body: Pin<Box<B>>,
    /// What is left of the frame that is being handed on.
    remaining: Bytes,
    response_scope: ResponseScope,
    is_complete: bool,
    end: Option<End>,
    /// It was ended before it was whole.
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
        self.is_complete |= matches!(polled, Poll::Ready(None)) || self.is_end_stream();
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

impl<B> Drop for ScopedBody<B> {
    fn drop(&mut self) {
        let is_complete = self.is_complete && self.remaining.is_empty();
        self.response_scope.end(is_complete);
    }
}
