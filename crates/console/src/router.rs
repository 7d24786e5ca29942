//! The routes.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use http_server::ReloadableTls;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::state::Console;
use crate::{assets, guard, message, pages};

/// The most connections at once.
const CONNECTIONS: usize = 256;

/// Serves the console until `stop` is cancelled.
pub async fn serve(listener: TcpListener, tls: Option<ReloadableTls>, console: Console, stop: CancellationToken) {
    http_server::serve_router(listener, tls, router(Arc::new(console)), CONNECTIONS, stop).await;
}

fn router(console: Arc<Console>) -> Router {
    Router::new()
        .route("/", get(pages::inbox::show))
        .route("/login", get(pages::login::explain).post(pages::login::log_in))
        .route("/login/{token}", get(pages::login::ask))
        .route("/logout", post(pages::login::log_out))
        .route("/proposals/{id}", get(pages::proposal::show))
        .route("/proposals/{id}/approve", post(pages::proposal::approve))
        .route("/proposals/{id}/reject", post(pages::proposal::reject))
        .route(assets::STYLE_PATH, get(assets::style))
        .fallback(message::not_found)
        .layer(from_fn_with_state(Arc::clone(&console), guard::check))
        .with_state(console)
}
