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
pub(crate) struct Exchange {
    state: Arc<Mutex<State>>,
    gone: CancellationToken,
}

#[derive(Default)]
struct State {
    is_over: bool,
    held: Vec<Box<dyn Send>>,
    /// Ends the answer, whatever is left of it.
    end: Option<End>,
}

type End = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Exchange {
    /// That of the request which this context belongs to, if it came over HTTP.
    pub(crate) fn of(context: &RequestContext<RoleServer>) -> Option<&Self> {
        context.extensions.get::<Parts>().and_then(|parts| parts.extensions.get())
    }

    /// Keeps something until the end.
    pub(crate) fn hold(&self, thing: impl Send + 'static) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.is_over {
            state.held.push(Box::new(thing));
        }
    }

    /// The same for the room of an answer.
    pub(crate) fn hold_room(&self, room: Option<ResponsePermit>) {
        if let Some(room) = room {
            self.hold(room);
        }
    }

    /// Ends the answer when this returns.
    pub(crate) fn end_after(&self, end: impl Future<Output = ()> + Send + 'static) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).end = Some(Box::pin(end));
    }

    /// Ends when the client has gone before its answer was whole.
    pub(crate) async fn deserted(&self) {
        self.gone.cancelled().await;
    }

    /// The body of the answer, whose end is the end of the exchange.
    pub(crate) fn answer<B>(self, body: B) -> Body
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let end = self.state.lock().unwrap_or_else(PoisonError::into_inner).end.take();
        Body::new(Answer {
            body: Box::pin(body),
            rest: Bytes::new(),
            exchange: self,
            is_whole: false,
            is_cut: false,
            end,
        })
    }

    fn end(&self, is_whole: bool) {
        if !is_whole {
            self.gone.cancel();
        }
        let held = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.is_over = true;
            std::mem::take(&mut state.held)
        };
        drop(held);
    }
}

/// A request that gets no further has its end as well: a handler that is dropped in the middle.
pub(crate) struct Unanswered(Option<Exchange>);

impl Unanswered {
    pub(crate) fn new(exchange: Exchange) -> Self {
        Self(Some(exchange))
    }

    /// There is an answer, which will end the exchange.
    pub(crate) fn answered(mut self) -> Exchange {
        self.0.take().unwrap_or_default()
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(exchange) = self.0.take() {
            exchange.end(false);
        }
    }
}

/// An answer is handed on in slices: whoever writes it asks for the next one when the ones before are on their way, so the last
/// of a large answer is not gone before most of it has been taken.
const SLICE: usize = 64 << 10;

struct Answer<B> {
    body: Pin<Box<B>>,
    /// What is left of the frame that is being handed on.
    rest: Bytes,
    exchange: Exchange,
    is_whole: bool,
    end: Option<End>,
    /// It was ended before it was whole.
    is_cut: bool,
}

impl<B> Answer<B> {
    fn slice(&mut self) -> Frame<Bytes> {
        let most = self.rest.len().min(SLICE);
        Frame::data(self.rest.split_to(most))
    }
}

impl<B: HttpBody<Data = Bytes>> HttpBody for Answer<B> {
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
        if self.rest.is_empty() {
            polled = match self.body.as_mut().poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        self.rest = data;
                        Poll::Pending
                    }
                    Err(other) => Poll::Ready(Some(Ok(other))),
                },
                polled => polled,
            };
        }
        if !self.rest.is_empty() {
            polled = Poll::Ready(Some(Ok(self.slice())));
        }
        self.is_whole |= matches!(polled, Poll::Ready(None)) || self.is_end_stream();
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.is_cut || self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (of_body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower() + rest);
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

impl<B> Drop for Answer<B> {
    fn drop(&mut self) {
        let is_whole = self.is_whole && self.rest.is_empty();
        self.exchange.end(is_whole);
    }
}
