//! The requests that have no answer yet, and what they hold: a client may send as much as it likes, and the server's memory
//! must not follow.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{ClientNotification, ErrorCode, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use tools::ResponsePermit;

/// What all of them may weigh, in bytes of their lines: two of the longest, or a thousand short ones. What becomes of a line
/// takes several times its length.
pub(crate) const MAX_IN_FLIGHT_BYTES: usize = 8 << 20;

/// What a request weighs at least, in bytes: its task, its answer.
const MIN_REQUEST_BYTES: usize = 8 << 10;

/// What a value of a request weighs, in bytes.
const BYTES_PER_VALUE: usize = 32;

/// JSON-RPC leaves -32000 to -32099 to servers.
const TOO_MANY_REQUESTS: ErrorCode = ErrorCode(-32000);

/// Shared by both directions of a transport.
#[derive(Debug, Clone, Default)]
pub(crate) struct InFlightRequests {
    requests: Arc<Mutex<HashMap<RequestId, Request>>>,
}

#[derive(Debug, Default)]
struct Request {
    bytes: usize,
    /// Of its answer, once there is one.
    room: Option<ResponsePermit>,
}

impl InFlightRequests {
    /// Notes a message that came in, made of so many bytes and values.
    ///
    /// # Errors
    /// What a request is answered with that is too much for now.
    pub(crate) fn admit(
        &self,
        message: &RxJsonRpcMessage<RoleServer>,
        bytes: usize,
        values: usize,
    ) -> Result<(), Box<ErrorData>> {
        let mut requests = self.requests();
        match message {
            JsonRpcMessage::Request(request) => {
                let bytes = request_bytes(bytes, values);
                let others: usize = requests.values().map(|request| request.bytes).sum();
                if !requests.is_empty() && others + bytes > MAX_IN_FLIGHT_BYTES {
                    let message = format!(
                        "{} requests of {others} bytes are under way, and this one would be too much: \
                         wait for an answer, then send it again",
                        requests.len()
                    );
                    return Err(Box::new(ErrorData::new(TOO_MANY_REQUESTS, message, None)));
                }
                requests.entry(request.id.clone()).or_default().bytes += bytes;
            }
            JsonRpcMessage::Notification(notification) => {
                // A request that was cancelled is never answered.
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    requests.remove(id);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Keeps the room of an answer until it has been written; one that is not on its way any more keeps none.
    pub(crate) fn attach_room(&self, id: &RequestId, room: Option<ResponsePermit>) {
        if let Some(request) = self.requests().get_mut(id) {
            request.room = room;
        }
    }

    /// Notes a message that has been written.
    pub(crate) fn remove(&self, id: &RequestId) {
        self.requests().remove(id);
    }

    fn requests(&self) -> MutexGuard<'_, HashMap<RequestId, Request>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a request weighs, in bytes, that is made of so many bytes and values.
pub(crate) fn request_bytes(bytes: usize, values: usize) -> usize {
    MIN_REQUEST_BYTES.max(bytes + values * BYTES_PER_VALUE)
}

/// Which request a message answers.
pub(crate) fn answered_id(message: &TxJsonRpcMessage<RoleServer>) -> Option<RequestId> {
    match message {
        JsonRpcMessage::Response(response) => Some(response.id.clone()),
        JsonRpcMessage::Error(error) => error.id.clone(),
        _ => None,
    }
}
