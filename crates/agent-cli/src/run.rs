//! Execution of an [`Invocation`] from start to exit.

use std::sync::Arc;
use std::time::Duration;

use pg::{ConnectEnvironment, SqlExecutor};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::connection::ConnectionLayers;
use crate::events::{Event, Log, Startup};
use crate::invocation::{Invocation, Mode};
use crate::options::Defaults;
use crate::pipe::Pipe;
use crate::run_query::StopSignals;
use crate::writer::WriterTask;
use crate::{one_shot, redaction, writer};

/// The time limit for an end that a signal has requested: for requests in flight, for their cancellation, and for a
/// reader of the output that is stalled. Any other end waits this long only for a stalled reader.
const LAST_GRACE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    pub code: u8,
    /// Line for standard error about committed writes whose results could not be delivered.
    pub complaint: Option<String>,
}

/// Runs the invocation and returns its result.
///
/// `environment` has what libpq reads in addition to the variables of the invocation (TLS, password files). Only
/// events are written to `stdout`. `reader_gone` completes when the output has no reader any more, before a write
/// fails; statements that are not committed by then are undone.
pub async fn run<R, W>(
    invocation: Invocation,
    executor: Arc<dyn SqlExecutor>,
    environment: ConnectEnvironment,
    stdin: R,
    stdout: W,
    reader_gone: impl Future<Output = ()>,
    stop: StopSignals,
) -> Exit
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let defaults = match &invocation.mode {
        Mode::Pipe(defaults) => *defaults,
        Mode::OneShot(_) => Defaults::default(),
    };
    let config = Config::new(defaults, invocation.log.clone());
    let (flags, shared) = (invocation.connection.clone(), invocation.database.clone());
    let layers = ConnectionLayers::new(flags, &invocation.env, shared, environment);
    let (closed, ending) = (CancellationToken::new(), CancellationToken::new());
    let writing = WriterTask::default();
    let (event_sender, answers, written) = writer::start(stdout, invocation.output, closed.clone(), &writing);
    if config.log.choose("startup") {
        let _ = event_sender.emit(&startup(&invocation, &config)).await;
    }
    let running = async {
        let code = match invocation.mode {
            Mode::OneShot(one_shot) => {
                drop(answers);
                let stopped = async {
                    tokio::select! {
                        () = closed.cancelled() => {}
                        () = stop.asked.cancelled() => {}
                    }
                };
                one_shot::run(*one_shot, &config, &layers, &executor, stdin, event_sender, stopped).await
            }
            Mode::Pipe(_) => {
                let pipe = Pipe::new(config, layers, Arc::clone(&executor), event_sender, answers);
                pipe.run(stdin, &closed, &stop, &ending).await
            }
        };
        executor.drain().await;
        // All senders are closed: the writer ends when the reader has read the rest.
        if written.await.unwrap_or(false) { code } else { one_shot::FAILED }
    };
    let code = tokio::select! {
        biased;
        code = running => code,
        () = overdue(&stop.asked) => one_shot::FAILED,
        () = unread(&ending, &writing) => one_shot::FAILED,
        () = watch(reader_gone, &closed) => one_shot::FAILED,
    };
    let complaint = writing.undelivered.complaint();
    Exit { code: if complaint.is_some() { one_shot::RESULT_LOST } else { code }, complaint }
}

/// Cancels `closed` when the reader is gone. Never completes.
async fn watch(reader_gone: impl Future<Output = ()>, closed: &CancellationToken) {
    reader_gone.await;
    closed.cancel();
    std::future::pending().await
}

/// Completes when the time limit after the stop has passed: the output has no reader.
async fn overdue(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(LAST_GRACE).await;
}

/// Completes when the end has begun and nothing has been read from the output for a long time.
async fn unread(ending: &CancellationToken, writing: &WriterTask) {
    ending.cancelled().await;
    loop {
        let before = writing.progress();
        tokio::time::sleep(LAST_GRACE).await;
        if writing.progress() == before {
            return;
        }
    }
}

fn startup(invocation: &Invocation, config: &Config) -> Event {
    let connection = invocation.connection.shown().map(|(key, text)| (key, json!(redaction::without_password(text))));
    let front_end = std::iter::once(("front_end", json!(invocation.front_end.as_str())));
    let others = [("audit", json!(invocation.audit)), ("config", json!(invocation.config))];
    let args = front_end.chain(connection).chain(others.into_iter().filter(|(_, value)| !value.is_null()));
    let startup = Startup {
        version: env!("CARGO_PKG_VERSION"),
        argv: invocation.shown_argv.clone(),
        args: args.collect(),
        config: config.clone(),
        env: redaction::env(&invocation.env),
    };
    Event::Log(Box::new(Log { event: "startup", startup: Some(Box::new(startup)), ..Log::default() }))
}
