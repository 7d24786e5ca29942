//! `/sse` and `/message`: the transport of protocol 2024-11-05, for clients that still use it. Each request is a
//! POST; all answers of a session arrive on its one event stream.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use rmcp::ServiceExt;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::body::{self, RequestBody};
use crate::client_address::ClientAddress;
use crate::error_response::HttpError;
use crate::request_context::HttpRequestContext;
use crate::response_body::PendingBody;
use crate::sse_sessions::SseTransport;
use crate::state::{AppState, AuthenticatedClient};

/// The interval of the comments that keep a silent stream open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Debug, Deserialize)]
pub(crate) struct SseTarget {
    #[serde(rename = "sessionId")]
    session_id: String,
}

pub(crate) async fn open(
    State(state): State<Arc<AppState>>,
    Extension(caller): Extension<ClientAddress>,
    headers: HeaderMap,
) -> Result<Response<Body>, HttpError> {
    let mut pending = PendingBody::default();
    let client = state.authorize(&caller, &headers).await?;
    state.open_stream(&client, &headers, &mut pending)?;
    let AuthenticatedClient { identity, account, active, .. } = client;
    let (transport, outbox) = state.sse.open(identity.clone());
    let context = HttpRequestContext {
        identity,
        account,
        backend: active.backend.clone(),
        initialize: None,
        stop: state.stop.clone(),
    };
    let ended = state.streams.child_token();
    tokio::spawn(serve(context, transport, ended.clone()));
    let endpoint = Event::default().event("endpoint").data(format!("/message?sessionId={}", outbox.session_id()));
    // Dropped with the stream: the count of sessions, and the guard that ends the session's task.
    let guards = (state.metrics.http().session(), ended.clone().drop_guard());
    let messages = stream::unfold((outbox, guards), |(mut outbox, guards)| async move {
        let event = outbox.next_event().await?;
        Some((Ok::<_, Infallible>(event), (outbox, guards)))
    });
    let events = stream::once(async { Ok(endpoint) }).chain(messages).take_until(ended.cancelled_owned());
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    let (mut parts, body) = Sse::new(events).keep_alive(keep_alive).into_response().into_parts();
    // nginx holds back a stream otherwise, also its head.
    parts.headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(Response::from_parts(parts, pending.into_body(body)))
}

async fn serve(context: HttpRequestContext, transport: SseTransport, ended: CancellationToken) {
    match context.mcp_server().with_session_id().serve_with_ct(transport, ended).await {
        Ok(running) => drop(running.waiting().await),
        Err(error) => {
            // The error may contain text of the client.
            let error = types::quoted(&error.to_string());
            tracing::debug!(error, "a client opened a stream and no session");
        }
    }
}

/// `POST /message?sessionId=...`: accepts a message of a session.
pub(crate) async fn message(
    State(state): State<Arc<AppState>>,
    Extension(caller): Extension<ClientAddress>,
    request: Request<Body>,
) -> Result<(StatusCode, &'static str), HttpError> {
    let client = state.authorize(&caller, request.headers()).await?;
    // The query is read only after the caller has been authenticated.
    let Query(target) = Query::<SseTarget>::try_from_uri(request.uri()).map_err(|_| HttpError::NoSessionNamed)?;
    let session = state.sse.get(&target.session_id, &client.identity).ok_or(HttpError::NoSuchSession)?;
    let pending = PendingBody::default();
    // From here on: an accepted message is answered even if the server is told to stop.
    pending.keep_alive(state.track_request());
    let RequestBody { message, in_flight_bytes, .. } = body::read(request, &client.account).await?;
    state.check_scope(&client, &message)?;
    pending.keep_alive(in_flight_bytes);
    session.enqueue(message, pending).await?;
    Ok((StatusCode::ACCEPTED, "Accepted"))
}
