//! The routes.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use http_server::{ConnectionLimits, HttpServer, ReloadableTls, limit_requests};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::oidc::CALLBACK_PATH;
use crate::state::{Console, DatabaseState};
use crate::{assets, guard, message, pages};

const CONNECTIONS: usize = 256;

/// The maximum number of connections per address, except loopback and trusted proxies.
const CONNECTIONS_PER_ADDRESS: usize = 64;

const MAX_FORM_BYTES: usize = 64 << 10;

/// Serves the console until `stop` is cancelled.
pub async fn serve(listener: TcpListener, tls: Option<ReloadableTls>, console: Console, stop: CancellationToken) {
    let connections = ConnectionLimits::new(CONNECTIONS, CONNECTIONS_PER_ADDRESS, console.proxies.clone());
    let server = HttpServer { listener, tls, router: router(Arc::new(console)), connections };
    let on_refusal = |peer, error| tracing::warn!(%peer, %error, "a connection was refused");
    http_server::serve(server, on_refusal, stop, std::future::ready(())).await;
}

fn router(console: Arc<Console>) -> Router {
    let mut router = Router::new()
        .route("/login", get(pages::login::explain).post(pages::login::log_in))
        // These routes have effects. Without a handler of its own, HEAD would have them too.
        .route("/login/oidc", get(pages::sign_in::begin).head(message::not_a_page))
        .route(CALLBACK_PATH, get(pages::sign_in::complete).head(message::not_a_page))
        .route("/login/{token}", get(pages::login::ask))
        .route("/logout", post(pages::login::log_out))
        .route(assets::STYLE_PATH, get(assets::style))
        .route(assets::SCRIPT_PATH, get(assets::script));
    if console.has_several() {
        router = router.route("/", get(pages::inbox::show_all)).route("/proposals/{id}", get(pages::inbox::find));
    }
    let mut router = router.with_state(Arc::clone(&console));
    for database in &console.databases {
        let state = DatabaseState { console: Arc::clone(&console), database: Arc::clone(database) };
        router = router.merge(of_database(&database.base).with_state(state));
    }
    router
        .fallback(message::not_found)
        .method_not_allowed_fallback(message::not_a_page)
        .layer(from_fn_with_state(MAX_FORM_BYTES, limit_requests))
        .layer(from_fn_with_state(console, guard::check))
}

/// The pages of one database, whose paths begin with this one.
fn of_database(base: &str) -> Router<DatabaseState> {
    let at = |page: &str| format!("{base}{page}");
    Router::new()
        .route(&at("/"), get(pages::inbox::show))
        .route(&at("/proposals/{id}"), get(pages::proposal::show))
        .route(&at("/proposals/{id}/approve"), post(pages::proposal::approve))
        .route(&at("/proposals/{id}/check"), post(pages::proposal::check))
        .route(&at("/proposals/{id}/ask"), post(pages::proposal::ask))
        .route(&at("/proposals/{id}/reject"), post(pages::proposal::reject))
        .route(&at("/schema-changes/{id}"), get(pages::schema_change::show))
        .route(&at("/records"), get(pages::records::list))
        .route(&at("/records.jsonl"), get(pages::records::export))
        .route(&at("/records/{id}"), get(pages::record::show))
        .route(&at("/records/{id}/proof"), get(pages::record::prove))
        .route(&at("/records/{id}/try-undo"), get(pages::undo::try_one).post(pages::undo::try_one))
        .route(&at("/records/{id}/undo"), post(pages::undo::undo_one))
        .route(&at("/rows"), get(pages::row_history::show))
        .route(&at("/undo"), get(pages::undo::ask).post(pages::undo::plan))
        .route(&at("/undo/{id}"), get(pages::undo::show).post(pages::undo::run))
        .route(&at("/activity"), get(pages::activity::show))
        .route(&at("/freeze"), post(pages::activity::freeze))
        .route(&at("/unfreeze"), post(pages::activity::unfreeze))
        .route(&at("/log"), get(pages::log::show))
        .route(&at("/log/checkpoint"), get(pages::log::checkpoint))
        .route(&at("/health"), get(pages::health::show))
}
