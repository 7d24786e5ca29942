//! Rejected requests and their responses: a status, and a JSON-RPC error for clients that display it.

use auth::AuthError;
use axum::body::Body;
use axum::response::IntoResponse;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_server::AttemptLimitError;
use mcp::message::{ParseError, SERVER_ERROR};
use rmcp::model::{ErrorCode, ErrorData, JsonRpcError, RequestId};
use tools::metrics::RefusalReason;

use crate::host_check::HostError;
use crate::quota::QuotaError;

pub(crate) const STOPPING: &str = "the server is stopping";

#[derive(Debug)]
pub(crate) enum HttpError {
    Host(HostError),
    /// The server is not ready, for this reason.
    Unavailable(String),
    Stopping,
    Unauthenticated {
        error: AuthError,
        metadata_url: Option<String>,
    },
    /// Too many requests of the address had no valid token.
    TooManyAttempts(AttemptLimitError),
    /// All connections are in use, and this one is reserved for health checks.
    NoConnection,
    Quota(QuotaError),
    TooManySessions {
        most: u32,
    },
    NotJson,
    TooLarge {
        most: usize,
    },
    TooSlow,
    /// The client closed the connection before the end of the message.
    Broken,
    Malformed(ParseError),
    NoSuchSession,
    /// A message to `/message` without a session id, or with two.
    NoSessionNamed,
    /// The session has an unanswered request with this id.
    IdInUse(Option<RequestId>),
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
            Self::Host(error) => error.to_string(),
            Self::Unavailable(reason) => reason.clone(),
            Self::Stopping => STOPPING.to_owned(),
            Self::Unauthenticated { error, .. } => error.message(),
            Self::TooManyAttempts(error) => format!("too many requests of this address had no valid token: {error}"),
            Self::NoConnection => {
                "the server has reached its limit of connections: wait a second, then send the request again".to_owned()
            }
            Self::Quota(error) => error.to_string(),
            Self::TooManySessions { most } => {
                format!("the account has {most} sessions in use, which is its limit: close one, then try again")
            }
            Self::NotJson => "a message requires the content type application/json".to_owned(),
            Self::TooLarge { most } => format!("the message is longer than {most} bytes"),
            Self::TooSlow => "the message did not arrive in time".to_owned(),
            Self::Broken => "the message is incomplete".to_owned(),
            Self::Malformed(parse_error) => parse_error.error.message.to_string(),
            Self::IdInUse(_) => {
                "the session has an unanswered request with this id: give each request its own id".to_owned()
            }
            Self::NoSessionNamed => {
                "send messages to the URL of the endpoint event of /sse: /message?sessionId=..., with one sessionId"
                    .to_owned()
            }
            Self::NoSuchSession => "the session does not exist: open one with initialize".to_owned(),
        }
    }

    fn reason(&self, status: StatusCode) -> Option<RefusalReason> {
        Some(match self {
            Self::Host(HostError::Host) => RefusalReason::Host,
            Self::Host(HostError::Origin | HostError::CrossSite) => RefusalReason::Origin,
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

    fn log_message(&self) -> String {
        match self {
            Self::Unauthenticated { error, .. } => error.log_message(),
            // The text of the error may quote the message, so only its code is logged.
            Self::Malformed(parse_error) => format!("a body is not a message (code {})", parse_error.error.code.0),
            _ => self.message(),
        }
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response<Body> {
        let mut status = self.status();
        let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::new();
        let (mut code, mut id): (ErrorCode, Option<RequestId>) = (SERVER_ERROR, None);
        match &self {
            Self::Unauthenticated { error, metadata_url } => {
                status = error.status();
                headers.extend(error.retry_after_s().map(|wait| (header::RETRY_AFTER, HeaderValue::from(wait))));
                headers.extend(error.challenge(metadata_url.as_deref()).map(|value| (header::WWW_AUTHENTICATE, value)));
            }
            Self::Quota(error) => headers.push((header::RETRY_AFTER, HeaderValue::from(error.retry_after_s()))),
            Self::TooManyAttempts(_) => {
                headers.push((header::RETRY_AFTER, HeaderValue::from(AttemptLimitError::retry_after_s())));
                headers.push((header::CONNECTION, HeaderValue::from_static("close")));
            }
            // A slot may be free as soon as one of its requests has been answered.
            Self::TooManySessions { .. } => headers.push((header::RETRY_AFTER, HeaderValue::from(1))),
            Self::Unavailable(_) | Self::Stopping | Self::NoConnection => {
                headers.push((header::RETRY_AFTER, HeaderValue::from(1)));
                headers.push((header::CONNECTION, HeaderValue::from_static("close")));
            }
            // The rest of the body is not read.
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
}

/// What is counted and logged of a rejection. The router takes it from the response's extensions.
#[derive(Debug, Clone)]
pub(crate) struct RejectionReport {
    pub(crate) reason: Option<RefusalReason>,
    pub(crate) message: String,
}

impl From<AttemptLimitError> for HttpError {
    fn from(error: AttemptLimitError) -> Self {
        Self::TooManyAttempts(error)
    }
}

impl From<QuotaError> for HttpError {
    fn from(error: QuotaError) -> Self {
        Self::Quota(error)
    }
}
