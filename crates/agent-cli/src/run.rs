//! An [`Invocation`] from its beginning to its end.

use std::sync::Arc;
use std::time::Duration;

use pg::{DbExecutor, Surroundings};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::connection::Layers;
use crate::events::{Event, Log, Startup};
use crate::invocation::{FrontEnd, Invocation, Mode};
use crate::options::Defaults;
use crate::pipe::Pipe;
use crate::{one_shot, redaction, writer};

/// How long an end that was asked for by a signal may take: what is in flight, what stops it, and a reader.
const LAST_GRACE: Duration = Duration::from_secs(20);

/// Runs it to its end; the code to exit with.
///
/// `surroundings` are for what libpq looks at beside the variables of the invocation (TLS, password files). `stop` ends it as
/// `close` does. Nothing is written but events, to `stdout`. `reader_gone` comes when nobody reads them any more, before a write
/// fails: what is not committed by then is undone.
pub async fn run<R, W>(
    invocation: Invocation,
    executor: Arc<dyn DbExecutor>,
    surroundings: Surroundings,
    stdin: R,
    stdout: W,
    reader_gone: impl Future<Output = ()>,
    stop: CancellationToken,
) -> u8
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let defaults = match &invocation.mode {
        Mode::Pipe(defaults) => *defaults,
        Mode::OneShot(_) => Defaults::default(),
    };
    let config = Config::new(defaults, invocation.log.clone());
    let layers = Layers::new(invocation.connection.clone(), &invocation.env, surroundings);
    let closed = CancellationToken::new();
    let (outlet, answers, writing) = writer::start(stdout, invocation.output, closed.clone());
    if config.log.choose("startup") {
        let _ = outlet.emit(&startup(&invocation, &config)).await;
    }
    let running = async {
        let code = match invocation.mode {
            Mode::OneShot(one_shot) => {
                drop(answers);
                let stopped = async {
                    tokio::select! {
                        () = closed.cancelled() => {}
                        () = stop.cancelled() => {}
                    }
                };
                one_shot::run(*one_shot, &config, &layers, &executor, stdin, outlet, stopped).await
            }
            Mode::Pipe(_) => {
                let pipe = Pipe::new(config, layers, Arc::clone(&executor), outlet, answers);
                pipe.run(stdin, &closed, &stop).await
            }
        };
        executor.drain().await;
        // All ways to the writer are closed: it ends when the reader has taken what is left.
        let _ = writing.await;
        code
    };
    let code = tokio::select! {
        biased;
        code = running => code,
        () = overdue(&stop) => one_shot::FAILED,
        () = watch(reader_gone, &closed) => one_shot::FAILED,
    };
    if closed.is_cancelled() { one_shot::FAILED } else { code }
}

/// Ends nothing by itself.
async fn watch(reader_gone: impl Future<Output = ()>, closed: &CancellationToken) {
    reader_gone.await;
    closed.cancel();
    std::future::pending().await
}

/// Long after the stop: nobody reads what is left to say.
async fn overdue(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(LAST_GRACE).await;
}

fn startup(invocation: &Invocation, config: &Config) -> Event {
    let connection = &invocation.connection;
    let front_end = match invocation.front_end {
        FrontEnd::Query => "query",
        FrontEnd::Pipe => "pipe",
        FrontEnd::Psql => "psql",
    };
    let secret = |secret: &Option<contract::Secret>| secret.as_ref().map(|_| redaction::STARS);
    let shown = |text: &Option<String>| text.as_deref().map(redaction::without_password);
    let mut args = json!({
        "front_end": front_end,
        "dsn_secret": secret(&connection.dsn_secret),
        "conninfo_secret": secret(&connection.conninfo_secret),
        "host": shown(&connection.host),
        "port": connection.port,
        "user": shown(&connection.user),
        "dbname": shown(&connection.dbname),
        "password_secret": secret(&connection.password_secret),
        "audit": invocation.audit,
        "config": invocation.config,
    });
    if let Some(args) = args.as_object_mut() {
        args.retain(|_, value| !value.is_null());
    }
    let startup = Startup {
        version: env!("CARGO_PKG_VERSION"),
        argv: invocation.shown_argv.clone(),
        args,
        config: config.clone(),
        env: redaction::env(&invocation.env),
    };
    Event::Log(Box::new(Log { event: "startup", startup: Some(Box::new(startup)), ..Log::default() }))
}
