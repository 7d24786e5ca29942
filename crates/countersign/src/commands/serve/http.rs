//! MCP over HTTP. The process listens before the database is available, and survives outages of the database.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures_util::future::{join_all, select_all};
use mcp_http::Backend;
use tokio::net::TcpListener;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::database::StartingDatabase;
use super::http_frontend::HttpFrontend;
use super::{Running, Starting};
use crate::settings::HttpSettings;

/// The interval at which freed memory is returned to the system, such as after bursts of requests.
const GIVE_BACK: Duration = Duration::from_secs(10);

pub(super) async fn serve(starting: Starting, options: &HttpSettings, stop: CancellationToken) -> anyhow::Result<()> {
    let Starting { server, mut databases, sources, hangup } = starting;
    let settings = server.current_settings();
    let authenticator = settings.authenticator()?;
    anyhow::ensure!(
        options.listen.ip().is_loopback() || !authenticator.is_empty(),
        "--http {} can be reached from other machines, and nobody would have to say who they are: configure [[tokens]] \
         (`countersign token new` makes one) or [oauth], or listen on 127.0.0.1",
        options.listen
    );
    let http = HttpFrontend::new(options, authenticator, &settings, server.metrics.clone())?;
    let http_state = server.http.get_or_init(|| Arc::clone(&http.state));
    for database in &databases {
        let failure = database.failure.borrow();
        if failure.has_changed() {
            http_state.set_starting(failure.message.clone());
        }
    }
    let listener = TcpListener::bind(options.listen)
        .await
        .with_context(|| format!("cannot listen on {} (--http)", options.listen))?;
    let scheme = if http.tls.is_some() { "https" } else { "http" };
    tracing::info!("listening on {scheme}://{}/mcp", listener.local_addr()?);
    let serving = mcp_http::serve_http(listener, http.tls.clone(), Arc::clone(&http.state), stop.clone());
    let serving = tokio::spawn(serving);
    let giving_back = tokio::spawn(give_memory_back());
    let mut running = Running::default();
    if let Some(started) = stop.run_until_cancelled(started(&mut running, &mut databases)).await {
        started?;
        let (registry, elicitation, content) = (server.registry.clone(), server.elicitation(), settings.content.into());
        http.state.open(Backend { registry, elicitation, content });
        server.is_serving.send_replace(true);
        server.reload_at(hangup, sources, Some(http));
    }
    serving.await.context("serving ended")?;
    giving_back.abort();
    running.extend(join_all(databases.into_iter().map(StartingDatabase::stop)).await);
    running.drain().await;
    Ok(())
}

/// Waits until one database was reached, and it is known which others take longer.
async fn started(running: &mut Running, databases: &mut Vec<StartingDatabase>) -> anyhow::Result<()> {
    running.settle(databases).await?;
    if !running.is_empty() {
        return Ok(());
    }
    let (ended, index, _) = select_all(databases.iter_mut().map(|database| Box::pin(database.ended()))).await;
    databases.remove(index);
    running.extend([Some(ended?)]);
    Ok(())
}

async fn give_memory_back() {
    let mut ticks = tokio::time::interval(GIVE_BACK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let begun = Instant::now();
        if tokio::task::spawn_blocking(malloc_tuning::give_back).await.is_ok() {
            tracing::debug!(took = ?begun.elapsed(), "freed memory was given back");
        }
    }
}
