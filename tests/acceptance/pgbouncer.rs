//! PgBouncer in transaction mode: each transaction may get another backend, which another client has just used
//! (docs/setup/pgbouncer.md). Reads and writes keep their promises, and a call leaves no state for the next one. A
//! server without the pooler setting does not work at all. The crashes are in `chaos`.

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
