//! The HTTP interface of a witness.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{Extension, Path, State};
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http_server::{ConnectionLimits, HttpConnection, HttpServer, TrustedProxies, limit_requests};
use tlog::{Checkpoint, CheckpointRequest, Hash, SignedNote, Verdict, VerifierKey, WitnessState, judge};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::StateFile;

/// The maximum size of a request, in bytes: a note of 64 KiB and a proof of 63 hashes.
const MAX_BODY_BYTES: usize = 72 << 10;

const CONNECTIONS: usize = 64;

/// The maximum number of connections per address, except loopback.
const CONNECTIONS_PER_ADDRESS: usize = 16;

#[derive(Debug)]
struct Witness {
    logs: Vec<VerifierKey>,
    /// Locked from the decision until it is on the disk, so that no size is cosigned after a larger one.
    state: Mutex<StateFile>,
}

impl Witness {
    fn new(state: StateFile, logs: Vec<VerifierKey>) -> Self {
        Self { logs, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, StateFile> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_checkpoint(&self, body: &str) -> Response {
        let mut state = self.state();
        let known = |origin: &str| {
            let newest = state.cosigned().iter().find(|(checkpoint, _)| checkpoint.origin == origin);
            newest.map(|(checkpoint, _)| WitnessState { size: checkpoint.size, root: checkpoint.root })
        };
        let verdict = judge(body, &self.logs, known);
        match verdict {
            Verdict::Cosign(checkpoint) => self.cosign(&mut state, body, checkpoint),
            Verdict::Malformed => refusal(
                StatusCode::BAD_REQUEST,
                "the request is malformed, or its old size is larger than its checkpoint",
            ),
            Verdict::Unsigned => {
                refusal(StatusCode::FORBIDDEN, "no key that this witness trusts for the log has signed the checkpoint")
            }
            Verdict::UnknownLog => refusal(StatusCode::NOT_FOUND, "this witness does not know the log"),
            Verdict::Conflict(size) => {
                let content_type = [(header::CONTENT_TYPE, "text/x.tlog.size")];
                (StatusCode::CONFLICT, content_type, format!("{size}\n")).into_response()
            }
            Verdict::Inconsistent => {
                tracing::warn!(
                    request = body,
                    "a checkpoint does not go on from what was cosigned: keep it as evidence"
                );
                let why = "the checkpoint does not go on from what this witness has cosigned";
                refusal(StatusCode::UNPROCESSABLE_ENTITY, why)
            }
        }
    }

    fn cosign(&self, state: &mut StateFile, body: &str, checkpoint: Checkpoint) -> Response {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map(|since| since.as_secs()).unwrap_or_default();
        let Ok(CheckpointRequest { checkpoint: mut note, .. }) = body.parse() else {
            return refusal(StatusCode::BAD_REQUEST, "the request is malformed");
        };
        let cosignature = state.key().sign(note.text(), time);
        note.retain_signed_by(&self.logs);
        note.add([cosignature.clone()]);
        let (origin, size) = (checkpoint.origin.clone(), checkpoint.size);
        if let Err(error) = state.keep(checkpoint, note) {
            tracing::error!("nothing is cosigned: {error}");
            return refusal(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the checkpoint could not be kept, so it is not cosigned",
            );
        }
        tracing::info!(origin, size, "cosigned");
        ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], cosignature.to_string()).into_response()
    }

    /// The newest cosigned checkpoint of the log whose origin has this hash.
    fn checkpoint(&self, origin_hash: &str) -> Option<SignedNote> {
        let state = self.state();
        let is_meant = |origin: &str| Hash::of(&[origin.as_bytes()]).to_hex() == origin_hash;
        state.cosigned().iter().find(|(checkpoint, _)| is_meant(&checkpoint.origin)).map(|(_, note)| note.clone())
    }
}

fn refusal(status: StatusCode, why: &'static str) -> Response {
    (status, format!("{why}\n")).into_response()
}

/// Serves a witness that cosigns the checkpoints of these keys until `stop` is cancelled.
pub async fn serve(listener: TcpListener, state: StateFile, logs: Vec<VerifierKey>, stop: CancellationToken) {
    let connections = ConnectionLimits::new(CONNECTIONS, CONNECTIONS_PER_ADDRESS, TrustedProxies::default());
    let server = HttpServer { listener, tls: None, router: router(Arc::new(Witness::new(state, logs))), connections };
    let on_refusal = |peer, error| tracing::warn!(%peer, %error, "a connection was refused");
    http_server::serve(server, on_refusal, stop, std::future::ready(())).await;
}

fn router(witness: Arc<Witness>) -> Router {
    Router::new()
        .route("/add-checkpoint", post(add_checkpoint))
        .route("/{origin_hash}/checkpoint", get(checkpoint))
        .layer(from_fn_with_state(MAX_BODY_BYTES, limit_requests))
        .with_state(witness)
}

async fn add_checkpoint(
    State(witness): State<Arc<Witness>>,
    Extension(connection): Extension<Arc<HttpConnection>>,
    body: String,
) -> Response {
    // The decision waits for the disk.
    let answered = tokio::task::spawn_blocking(move || witness.add_checkpoint(&body)).await;
    // The request is authenticated: a known log has signed it.
    if answered.as_ref().is_ok_and(|answer| [StatusCode::OK, StatusCode::CONFLICT].contains(&answer.status())) {
        connection.mark_authenticated();
    }
    answered.unwrap_or_else(|_| refusal(StatusCode::INTERNAL_SERVER_ERROR, "the request failed"))
}

async fn checkpoint(State(witness): State<Arc<Witness>>, Path(origin_hash): Path<String>) -> Response {
    match witness.checkpoint(&origin_hash) {
        Some(note) => ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], note.to_string()).into_response(),
        None => refusal(StatusCode::NOT_FOUND, "this witness has cosigned no checkpoint of such a log"),
    }
}
