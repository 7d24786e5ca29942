//! The statement over bare tokio-postgres: BEGIN READ ONLY, the statement and ROLLBACK in one pipeline, or one UPDATE.

use ledger::read::ReadLimits;
use testkit::Database;
use tokio::sync::{Mutex, mpsc};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use crate::call::{BY_KEY, Call, LARGE, LARGE_ROWS, UPDATE};

/// Connections of tokio-postgres, as many as a reader has, with the prepared statements of each.
pub(crate) struct Bare {
    free: Mutex<mpsc::UnboundedReceiver<Connection>>,
    returned: mpsc::UnboundedSender<Connection>,
}

struct Connection {
    client: Client,
    by_key: Statement,
    large: Statement,
    update: Statement,
}

impl Bare {
    pub(crate) async fn new(db: &Database) -> Self {
        let (returned, free) = mpsc::unbounded_channel();
        for _ in 0..ReadLimits::default().sessions {
            let client = db.connect().await;
            let by_key = client.prepare(BY_KEY).await.unwrap();
            let large = client.prepare(LARGE).await.unwrap();
            let update = client.prepare(UPDATE).await.unwrap();
            assert!(returned.send(Connection { client, by_key, large, update }).is_ok());
        }
        Self { free: Mutex::new(free), returned }
    }

    pub(crate) async fn run(&self, call: &Call) {
        let connection = self.free.lock().await.recv().await.unwrap();
        let Connection { client, by_key, large, update } = &connection;
        match call {
            Call::Seen(id) => {
                let params: [&(dyn ToSql + Sync); 1] = [id];
                check_row(&read(client, client.query(by_key, &params)).await, *id);
            }
            Call::New(id, text) => check_row(&read(client, client.query_typed(text, &[])).await, *id),
            Call::Write(_, id, n) => {
                let row = client.query_one(update, &[id, n]).await.unwrap();
                assert_eq!(row.get::<_, i64>(0), *id);
            }
            Call::Large => assert_eq!(read(client, client.query(large, &[])).await.len(), LARGE_ROWS as usize),
        }
        assert!(self.returned.send(connection).is_ok());
    }
}

async fn read(client: &Client, query: impl Future<Output = Result<Vec<Row>, tokio_postgres::Error>>) -> Vec<Row> {
    let (began, rows, ended) =
        tokio::join!(client.batch_execute("begin read only"), query, client.batch_execute("rollback"));
    began.and(ended).unwrap();
    rows.unwrap()
}

fn check_row(rows: &[Row], id: i64) {
    assert_eq!((rows[0].get::<_, i64>(0), rows[0].get::<_, &str>(2).is_empty()), (id, false));
}
