//! The requests that have no answer yet, and what they hold: a client may send as much as it likes, and the server's memory
//! must not follow.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{ClientNotification, ErrorCode, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};

/// What all of them may weigh, in bytes of their lines: two of the longest, or a thousand short ones. What becomes of a line
/// takes several times its length.
const MAX_WEIGHT: usize = 8 << 20;

/// What a request weighs at least, in bytes: its task, its answer.
const MIN_WEIGHT: usize = 8 << 10;

/// What a value of a request weighs, in bytes.
const VALUE_WEIGHT: usize = 32;

/// JSON-RPC leaves -32000 to -32099 to servers.
const TOO_MUCH: ErrorCode = ErrorCode(-32000);

/// Shared by both directions of a transport.
#[derive(Debug, Clone, Default)]
pub(crate) struct InFlight {
    weights: Arc<Mutex<HashMap<RequestId, usize>>>,
}

impl InFlight {
    /// Notes a message that came in, made of so many bytes and values.
    ///
    /// # Errors
    /// What a request is answered with that is too much for now.
    pub(crate) fn received(
        &self,
        message: &RxJsonRpcMessage<RoleServer>,
        bytes: usize,
        values: usize,
    ) -> Result<(), Box<ErrorData>> {
        let mut weights = self.weights();
        match message {
            JsonRpcMessage::Request(request) => {
                let weight = MIN_WEIGHT.max(bytes + values * VALUE_WEIGHT);
                let others: usize = weights.values().sum();
                if !weights.is_empty() && others + weight > MAX_WEIGHT {
                    let message = format!(
                        "{} requests of {others} bytes are under way, and this one would be too much: \
                         wait for an answer, then send it again",
                        weights.len()
                    );
                    return Err(Box::new(ErrorData::new(TOO_MUCH, message, None)));
                }
                *weights.entry(request.id.clone()).or_default() += weight;
            }
            JsonRpcMessage::Notification(notification) => {
                // A request that was cancelled is never answered.
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    weights.remove(id);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Notes a message that has been written.
    pub(crate) fn sent(&self, id: &RequestId) {
        self.weights().remove(id);
    }

    fn weights(&self) -> MutexGuard<'_, HashMap<RequestId, usize>> {
        self.weights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which request a message answers.
pub(crate) fn answered(message: &TxJsonRpcMessage<RoleServer>) -> Option<RequestId> {
    match message {
        JsonRpcMessage::Response(response) => Some(response.id.clone()),
        JsonRpcMessage::Error(error) => error.id.clone(),
        _ => None,
    }
}
