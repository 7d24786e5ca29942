//! MCP over standard input and output. A client starts the process and shows little if the process exits. So the
//! process serves the read tools before its database is available, and their responses explain the failure.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ledger::ConnectOptions;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use types::{ErrorCode, Failure};

use super::{Obstacle, RunningServer, Served, Startup};
use crate::commands::bootstrap;
use crate::settings::Settings;

/// Maximum wait for a database that neither responds nor refuses, before a client is served without one.
const PATIENCE: Duration = Duration::from_secs(2);

/// The time limit for another connection after that.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

const HINT: &str = "The server keeps trying, and announces its tools (notifications/tools/list_changed) once it is connected. \
    If this lasts, tell the operator: the message says what PostgreSQL, or the network, has answered.";

pub(super) async fn serve(start: Startup, settings: Settings, stop: CancellationToken) -> anyhow::Result<()> {
    let (demo, target) = (start.demo, start.target.clone());
    let (progress, mut failure) = watch::channel(not_yet("the database has not answered yet"));
    let tools = bootstrap::unavailable_tools(&settings, demo, &failure, &start.metrics)?;
    let served = Served::new(tools, &settings)?;
    let is_serving = Arc::new(AtomicBool::new(false));
    let mut starting =
        tokio::spawn(started(start, settings.clone(), served.clone(), progress, Arc::clone(&is_serving)));

    let started = tokio::select! {
        started = &mut starting => Some(started??),
        Ok(()) = failure.changed() => None,
        () = no_answer(&target) => None,
        () = stop.cancelled() => None,
    };
    if started.is_none() {
        bootstrap::check_files(&settings, demo)?;
    }
    is_serving.store(true, Ordering::Relaxed);
    let server = bootstrap::server(&served.registry, &settings, served.elicitation.clone());
    let outcome = mcp::serve_stdio(server, stop).await;
    let running = match started {
        Some(running) => Some(running),
        None if starting.is_finished() => starting.await?.ok(),
        None => {
            starting.abort();
            starting.await.ok().and_then(Result::ok)
        }
    };
    if let Some(running) = running {
        running.drain().await;
    }
    Ok(outcome?)
}

/// Returns when the database has not responded for a while. A start that is slow for another reason is not
/// interrupted.
async fn no_answer(target: &ConnectOptions) {
    loop {
        tokio::time::sleep(PATIENCE).await;
        if !matches!(tokio::time::timeout(LAST_PATIENCE, ledger::can_connect(target)).await, Ok(Ok(()))) {
            return;
        }
    }
}

/// Starts as soon as the database is available. Errors in the database or the manifests stop the start. If clients
/// are served already, their calls return the errors instead.
async fn started(
    start: Startup,
    settings: Settings,
    served: Served,
    progress: watch::Sender<Failure>,
    is_serving: Arc<AtomicBool>,
) -> anyhow::Result<RunningServer> {
    let told = |obstacle: Obstacle<'_>| {
        let failure = match obstacle {
            Obstacle::Unfit(error) if !is_serving.load(Ordering::Relaxed) => return ControlFlow::Break(error),
            Obstacle::Unfit(error) => {
                Failure { retryable: false, ..not_yet(&format!("the server cannot start: {error:#}")) }
            }
            Obstacle::NoConnection(error) => Failure { hint: Some(HINT.to_owned()), ..Failure::from(error) },
        };
        progress.send_if_modified(|known| {
            let is_new = known.message != failure.message;
            if is_new {
                tracing::error!("not connected to the database: {}", failure.message);
                *known = failure;
            }
            is_new
        });
        ControlFlow::Continue(())
    };
    let opened = start.open_when_possible(&settings, told).await?;
    let running = start.run(opened, served, &settings, None)?;
    running.announce(&settings);
    Ok(running)
}

fn not_yet(why: &str) -> Failure {
    Failure::new(ErrorCode::DatabaseUnavailable, why).hint(HINT)
}
