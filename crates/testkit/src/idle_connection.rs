//! A connection that the statements of a test use one after another.

use std::mem;
use std::sync::{Mutex, PoisonError};

use tokio_postgres::{Client, Error, NoTls, SimpleQueryMessage};

use crate::background::background;

/// Holds the connection between two statements. Concurrent statements get one connection each; the last one to end
/// leaves its connection here.
#[derive(Debug, Default)]
pub(crate) struct IdleConnection(Mutex<Option<Client>>);

impl IdleConnection {
    /// Runs statements in a session that looks like a new one. Locks and temporary tables do not outlive the call.
    pub(crate) async fn simple_query(&self, url: &str, sql: &str) -> Result<Vec<SimpleQueryMessage>, Error> {
        let client = self.usable(url).await;
        let (result, reset) = tokio::join!(client.simple_query(sql), client.batch_execute("discard all"));
        // A transaction that is still open refuses the reset. It ends with its connection.
        if reset.is_ok() {
            let _other = self.replace(Some(client));
        }
        result
    }

    /// The idle connection if the server still answers on it, otherwise a new one.
    async fn usable(&self, url: &str) -> Client {
        if let Some(client) = self.replace(None)
            && client.check_connection().await.is_ok()
        {
            return client;
        }
        let url = url.to_owned();
        let connecting = background().spawn(async move {
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
            tokio::spawn(connection);
            Ok::<_, Error>(client)
        });
        connecting.await.expect("connecting does not panic").expect("a connection for the test")
    }

    fn replace(&self, client: Option<Client>) -> Option<Client> {
        mem::replace(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner), client)
    }
}
