//! Execution of `query` and `psql`: one statement, its events, and the exit code.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt;
use pg::{NamedSession, SqlExecutor};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, DEFAULT_SESSION};
use crate::connection::{ConnectionFields, ConnectionLayers};
use crate::error::{CliError, EventErrorCode};
use crate::events::{Event, Request};
use crate::invocation::{OneShot, Sql};
use crate::redaction;
use crate::request::{MAX_SQL_BYTES, check_sql};
use crate::run_query::{self, ExecutionContext, StopTokens};
use crate::writer::{EventSender, OutputClosedError};

const ID: &str = "query";

/// Exit codes.
pub(crate) const DONE: u8 = 0;
pub(crate) const FAILED: u8 = 1;
pub(crate) const WRONG_ARGUMENTS: u8 = 2;
/// Exit code if a write was committed, or may have been, and its result could not be delivered.
pub(crate) const RESULT_LOST: u8 = 3;

/// Runs the statement and returns the exit code. `stopped` stops it early.
pub(crate) async fn run<R: AsyncRead + Unpin>(
    one_shot: OneShot,
    config: &Config,
    layers: &ConnectionLayers,
    executor: &Arc<dyn SqlExecutor>,
    stdin: R,
    event_sender: EventSender,
    stopped: impl Future<Output = ()>,
) -> u8 {
    let started = Instant::now();
    let request = Request { id: ID.to_owned(), session: DEFAULT_SESSION.to_owned(), started };
    let prepared = async {
        let sql = text(&one_shot.sql, stdin).await?;
        let target = layers.target(&ConnectionFields::default())?;
        Ok::<_, CliError>((sql, NamedSession { session: DEFAULT_SESSION.to_owned(), generation: 0, target }))
    };
    let mut stopped = std::pin::pin!(stopped);
    let prepared = tokio::select! {
        biased;
        prepared = prepared => prepared.map_err(|problem| (problem, WRONG_ARGUMENTS)),
        () = &mut stopped => {
            Err((CliError::new(EventErrorCode::Cancelled, "the statement was not read to its end"), FAILED))
        }
    };
    let (sql, place) = match prepared {
        Ok(prepared) => prepared,
        Err((problem, code)) => {
            let _ = event_sender.emit(&Event::error(None, problem, request.trace().duration_ms)).await;
            return code;
        }
    };
    let query = one_shot.options.resolve(&config.defaults).query(sql, one_shot.params, true);
    let (executor, cancel) = (executor.as_ref(), CancellationToken::new());
    let running = async {
        if one_shot.dry_run {
            run_query::describe(executor, &place, &request, query, &cancel).await
        } else {
            let stop = StopTokens::only(&cancel);
            run_query::run(ExecutionContext::Alone(executor, &place), &request, query, &event_sender, &stop).await.event
        }
    };
    let mut running = std::pin::pin!(std::panic::AssertUnwindSafe(running).catch_unwind());
    let ended = tokio::select! {
        biased;
        ended = &mut running => ended,
        () = &mut stopped => {
            cancel.cancel();
            running.await
        }
    };
    let event = ended.unwrap_or_else(|_| request.defect());
    match event_sender.place_last(&event, &request, &config.log).await {
        Ok(placed) => placed.send(),
        Err(OutputClosedError) => return FAILED,
    }
    if event.is_failure() { FAILED } else { DONE }
}

async fn text<R: AsyncRead + Unpin>(sql: &Sql, stdin: R) -> Result<String, CliError> {
    let (place, bytes) = match sql {
        Sql::Text(text) => return Ok(text.clone()),
        Sql::Stdin => {
            let mut bytes = Vec::new();
            let read = stdin.take(MAX_SQL_BYTES as u64 + 1).read_to_end(&mut bytes).await;
            ("standard input".to_owned(), read.map(|_| bytes))
        }
        Sql::File(file) => (redaction::without_password(&file.display().to_string()), contents(file)),
    };
    let bytes =
        bytes.map_err(|error| CliError::invalid(format!("the statement cannot be read from {place}: {error}")))?;
    let mut text = String::from_utf8(bytes).map_err(|_| CliError::invalid(format!("{place} is not UTF-8")))?;
    // Editors on Windows put a byte order mark in front of a text.
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    check_sql(&text).map_err(|problem| CliError { message: format!("{place}: {problem}"), ..problem })?;
    Ok(text)
}

fn contents(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(MAX_SQL_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
