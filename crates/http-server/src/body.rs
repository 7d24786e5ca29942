//! Reads the body of a request, with limits on its size and its time.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::{BodyExt, LengthLimitError, Limited};

/// How long the body of a request may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(15);

/// Why a body could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The body took too long to arrive.
    #[error("the body of the request did not arrive within {} s", BODY_TIMEOUT.as_secs())]
    TooSlow,
    /// The body is too large.
    #[error("the body of the request has more than {0} bytes")]
    TooLarge(usize),
    /// The client is gone, or sent an invalid body.
    #[error("the body of the request is broken")]
    Broken,
}

/// Reads a body of at most `max_bytes` bytes.
///
/// # Errors
/// [`BodyError`]: the rest of the body is not read, so the connection must be closed after the response.
pub async fn read_body(body: Body, max_bytes: usize) -> Result<Bytes, BodyError> {
    match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, max_bytes).collect()).await {
        Err(_) => Err(BodyError::TooSlow),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge(max_bytes)),
        Ok(Err(_)) => Err(BodyError::Broken),
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;

    use super::*;

    /// S-4
    #[tokio::test(start_paused = true)]
    async fn a_body_is_bounded_in_time_and_size() {
        let endless = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        assert_eq!(read_body(endless, 10).await, Err(BodyError::TooSlow));
        assert_eq!(read_body(Body::from("0123456789x"), 10).await, Err(BodyError::TooLarge(10)));
        assert_eq!(read_body(Body::from("0123456789"), 10).await.as_deref(), Ok(b"0123456789".as_slice()));
    }
}
