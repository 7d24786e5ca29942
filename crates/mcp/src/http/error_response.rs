//! What is answered to a request that gets no further: a status, and a JSON-RPC error without an id for clients that show it.

use axum::body::Body;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use rmcp::model::{ErrorCode, ErrorData, JsonRpcError, RequestId};
use tools::metrics::RefusalReason;

use super::STOPPING;
use super::failed_attempts::AttemptLimitError;
use super::host_check::HostError;
use super::quota::QuotaError;
use crate::auth;
use crate::message::ParseError;

/// JSON-RPC leaves -32000 to -32099 to servers.
const REFUSED: ErrorCode = ErrorCode(-32000);

/// Why a request gets no further.
#[derive(Debug)]
pub(crate) enum HttpError {
    Host(HostError),
    /// Not ready yet: why.
    Unavailable(String),
    /// Not any more.
    Stopping,
    Unauthenticated {
        error: auth::AuthError,
        metadata_url: Option<String>,
    },
    /// Too many requests of its address had no valid token.
    TooManyAttempts(AttemptLimitError),
    /// All connections are in use, and this one is kept for probes.
    NoConnection,
    Quota(QuotaError),
    TooManySessions {
        most: u32,
    },
    /// The body is no JSON as far as its type says.
    NotJson,
    TooLarge {
        most: usize,
    },
    TooSlow,
    /// The client went away in the middle.
    Broken,
    Malformed(ParseError),
    NoSuchSession,
    /// A message to `/message` that does not say which session is meant, or says it twice.
    NoSessionNamed,
    /// The session has a request with this id that is not answered yet.
    IdInUse(Option<RequestId>),
}

impl std::fmt::Debug for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unreadable").field("code", &self.error.code).finish_non_exhaustive()
    }
}

impl HttpError {
    const fn status(&self) -> StatusCode {
        match self {
            Self::Host(_) => StatusCode::FORBIDDEN,
            Self::Unavailable(_) | Self::Stopping | Self::NoConnection => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unauthenticated { .. } => StatusCode::UNAUTHORIZED,
            Self::Quota(_) | Self::TooManyAttempts(_) | Self::TooManySessions { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Broken | Self::Malformed(_) | Self::IdInUse(_) | Self::NoSessionNamed => StatusCode::BAD_REQUEST,
            Self::NoSuchSession => StatusCode::NOT_FOUND,
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Host(why) => why.to_string(),
            Self::Unavailable(reason) => reason.clone(),
            Self::Stopping => STOPPING.to_owned(),
            Self::Unauthenticated { error, .. } => error.message(),
            Self::TooManyAttempts(why) => why.to_string(),
            Self::NoConnection => {
                "the server has as many connections as it may have: wait a second, then send the request again"
                    .to_owned()
            }
            Self::Quota(what) => what.to_string(),
            Self::TooManySessions { most } => {
                format!(
                    "the account has {most} sessions, all of them in use, and may have no more: close one, then open it again"
                )
            }
            Self::NotJson => "a message is sent with the content type application/json".to_owned(),
            Self::TooLarge { most } => format!("the message is longer than {most} bytes"),
            Self::TooSlow => "the message did not arrive in time".to_owned(),
            Self::Broken => "the message ended in the middle".to_owned(),
            Self::Malformed(parse_error) => parse_error.error.message.to_string(),
            Self::IdInUse(_) => {
                "the session has a request with this id that is not answered yet: give each request an id of its own"
                    .to_owned()
            }
            Self::NoSessionNamed => {
                "a message goes to the address that the stream of /sse gave: /message?sessionId=..., once".to_owned()
            }
            Self::NoSuchSession => "there is no such session: open one with initialize".to_owned(),
        }
    }

    /// What it counts as.
    fn reason(&self, status: StatusCode) -> Option<RefusalReason> {
        Some(match self {
            Self::Host(HostError::Host) => RefusalReason::Host,
            Self::Host(HostError::Origin | HostError::AppState) => RefusalReason::Origin,
            Self::Unauthenticated { .. } if status == StatusCode::FORBIDDEN => RefusalReason::Forbidden,
            Self::Unauthenticated { .. } if status == StatusCode::UNAUTHORIZED => RefusalReason::Unauthenticated,
            Self::Quota(QuotaError::Rate { .. } | QuotaError::InFlightBytes) | Self::TooManyAttempts(_) => {
                RefusalReason::RateLimited
            }
            Self::NoConnection => RefusalReason::TooManyConnections,
            Self::Quota(QuotaError::Streams { .. }) => RefusalReason::TooManyStreams,
            Self::TooManySessions { .. } => RefusalReason::TooManySessions,
            Self::TooLarge { .. } => RefusalReason::BodyTooLarge,
            Self::TooSlow => RefusalReason::TooSlow,
            Self::Stopping => RefusalReason::Draining,
            _ => return None,
        })
    }

    /// The answer.
    pub(crate) fn response(self) -> Response<Body> {
        let mut status = self.status();
        let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::new();
        let (mut code, mut id): (ErrorCode, Option<RequestId>) = (REFUSED, None);
        match &self {
            Self::Unauthenticated { error, metadata_url } => {
                status = error.status();
                headers.extend(error.retry_after_s().map(|wait| (header::RETRY_AFTER, HeaderValue::from(wait))));
                headers.extend(error.challenge(metadata_url.as_deref()).map(|value| (header::WWW_AUTHENTICATE, value)));
            }
            Self::Quota(what) => headers.push((header::RETRY_AFTER, HeaderValue::from(what.retry_after_s()))),
            Self::TooManyAttempts(_) => {
                headers.push((header::RETRY_AFTER, HeaderValue::from(AttemptLimitError::retry_after_s())));
                headers.push((header::CONNECTION, HeaderValue::from_static("close")));
            }
            // As soon as one of them has been answered.
            Self::TooManySessions { .. } => headers.push((header::RETRY_AFTER, HeaderValue::from(1))),
            Self::Unavailable(_) | Self::Stopping | Self::NoConnection => {
                headers.push((header::RETRY_AFTER, HeaderValue::from(1)));
                headers.push((header::CONNECTION, HeaderValue::from_static("close")));
            }
            // What is left of the body is not read.
            Self::TooLarge { .. } | Self::TooSlow => {
                headers.push((header::CONNECTION, HeaderValue::from_static("close")))
            }
            Self::Malformed(parse_error) => (code, id) = (parse_error.error.code, parse_error.id.clone()),
            Self::IdInUse(request) => (code, id) = (ErrorCode::INVALID_REQUEST, request.clone()),
            _ => {}
        }
        let error = JsonRpcError::new(id, ErrorData::new(code, self.message(), None));
        let mut response = Response::new(Body::from(serde_json::to_vec(&error).unwrap_or_default()));
        *response.status_mut() = status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response.headers_mut().extend(headers);
        let report = RejectionReport { reason: self.reason(status), message: self.log_message() };
        response.extensions_mut().insert(report);
        response
    }

    fn log_message(&self) -> String {
        match self {
            Self::Unauthenticated { error, .. } => error.log_message(),
            // Not its words: they may quote the message.
            Self::Malformed(parse_error) => format!("a body is not a message (code {})", parse_error.error.code.0),
            _ => self.message(),
        }
    }
}

/// What is counted and logged of a refusal: travels with its answer to where the request is known.
#[derive(Debug, Clone)]
pub(crate) struct RejectionReport {
    pub(crate) reason: Option<RefusalReason>,
    pub(crate) message: String,
}

impl From<AttemptLimitError> for HttpError {
    fn from(why: AttemptLimitError) -> Self {
        Self::TooManyAttempts(why)
    }
}

impl From<QuotaError> for HttpError {
    fn from(what: QuotaError) -> Self {
        Self::Quota(what)
    }
}
