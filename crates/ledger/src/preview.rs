//! A write that is shown and not made: the executor's work in a transaction that is always rolled back. No record, no
//! guard row, no question whether it is a duplicate; but the constraints are checked, the deferred ones as well.
//!
//! ```text
//! round trip 1   BEGIN · limits, account · SAVEPOINT · the executor's statements
//! round trip 2   SET CONSTRAINTS ALL IMMEDIATE · ROLLBACK
//! ```
//! A caller that goes away drops the session in the middle: PostgreSQL rolls back. Sequences are not rolled back, by
//! PostgreSQL's own rule: a preview may leave gaps in numbers.

use std::time::Duration;

use contract::{ErrorCode, Failure};
use pg::{Lease, Step, Writer};
use tokio::time::Instant;

use crate::executor::{Executor, Opening, Order, Refusal, Work, WriteTx, sql_failure, too_large};
use crate::gate::CANCEL_GRACE;

/// What the executor would do with these parameters.
pub(crate) async fn preview(
    writer: &Writer,
    executor: &dyn Executor,
    order: &Order,
    deadline: Instant,
) -> Result<Work, Failure> {
    let mut lease = writer.lease(deadline).await.map_err(|error| failure(&error))?;
    let outcome =
        tokio::time::timeout_at(deadline + CANCEL_GRACE, roll_back(writer, &mut lease, executor, order, deadline));
    match outcome.await {
        Ok(Ok(work)) => Ok(work),
        Ok(Err(Refusal::Failure(failure))) => Err(failure),
        Ok(Err(Refusal::Lost(error))) => {
            lease.discard();
            if matches!(error, pg::Error::Lost(_)) {
                writer.forget_idle();
            }
            Err(failure(&error))
        }
        Err(_) => {
            lease.discard();
            Err(failure(&pg::Error::Deadline))
        }
    }
}

async fn roll_back(
    writer: &Writer,
    lease: &mut Lease,
    executor: &dyn Executor,
    order: &Order,
    deadline: Instant,
) -> Result<Work, Refusal> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let timeout_ms = left.as_millis().min(i32::MAX as u128).to_string();
    let account = &order.principal.account_id;
    let opening = Opening::Preview([Some(timeout_ms), Some(account.as_str().to_owned())]);
    let mut tx = WriteTx::new(lease, writer, account, opening);
    let work = match executor.preview(&mut tx, order).await {
        Ok(work) => tx.open().await.map(|()| work),
        refused => refused,
    };
    let work = match work {
        Ok(work) => match lease.session().run(&[Step::plain("set constraints all immediate")]).await {
            Ok(_) => Ok(work),
            Err(failed) => match failed.error {
                pg::Error::Server(error) => Err(sql_failure(&error).into()),
                error => Err(Refusal::Lost(error)),
            },
        },
        Err(lost @ Refusal::Lost(_)) => return Err(lost),
        refused => refused,
    };
    lease.session().run(&[Step::plain("rollback")]).await.map_err(|failed| Refusal::Lost(failed.error))?;
    work
}

fn failure(error: &pg::Error) -> Failure {
    match error {
        pg::Error::Connect(_) | pg::Error::Busy { .. } => {
            Failure::new(ErrorCode::DatabaseUnavailable, error.to_string())
        }
        pg::Error::Deadline => Failure::new(
            ErrorCode::Timeout,
            "the preview did not finish within its deadline and was rolled back; nothing was written",
        ),
        pg::Error::MessageTooLarge { .. } | pg::Error::TooManyValues { .. } => too_large(),
        pg::Error::Server(error) => sql_failure(error),
        pg::Error::Lost(_) | pg::Error::Unread => {
            tracing::warn!(%error, "a preview lost its connection");
            let message =
                "the connection was lost during the preview; nothing was written, and the preview can be repeated";
            Failure::new(ErrorCode::DatabaseUnavailable, message)
        }
    }
}
