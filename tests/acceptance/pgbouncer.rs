//! Behind PgBouncer in transaction mode, where each transaction may have another backend, which somebody else had just before
//! (docs/setup/pgbouncer.md): reads and writes keep what they promise, nothing of a call is left for the next one, and a
//! server that was not told of the pooler does not work at all. The crashes are in `chaos`.

mod cost;
mod leftovers;
mod lost;
mod reads;
mod told;
mod writes;

use testkit::{PgBouncer, Server, database};

/// A server behind a PgBouncer that has fewer backends than the server would like to have.
async fn behind_a_pooler() -> (PgBouncer, Server) {
    let pooler = PgBouncer::with(&database().await, &[("default_pool_size", "2")]).await;
    let server = Server::start(Server::command_pooled(&pooler)).await;
    (pooler, server)
}
