//! MCP over standard input and output. A client starts the process and shows little if the process exits. So the
//! process serves the read tools before its databases are available, and their responses explain the failure.

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use super::{Running, Starting};
use crate::commands::bootstrap;

pub(super) async fn serve(starting: Starting, stop: CancellationToken) -> anyhow::Result<()> {
    let Starting { server, mut databases, sources, hangup } = starting;
    let settings = server.current_settings();
    let mut running = Running::default();
    if let Some(settled) = stop.run_until_cancelled(running.settle(&mut databases)).await {
        settled?;
    }
    if !databases.is_empty() {
        super::check_files(&settings, server.demo)?;
    }
    server.is_serving.send_replace(true);
    server.reload_at(hangup, sources, None);
    let outcome = mcp::serve_stdio(bootstrap::server(&server.registry, &settings, server.elicitation()), stop).await;
    running.extend(join_all(databases.into_iter().map(super::database::StartingDatabase::stop)).await);
    running.drain().await;
    Ok(outcome?)
}
