//! What a statement does, by triggers that are there only while it is tried, and by the rows before and after it. It knows
//! nothing of previews and faces.

use testkit::Database;
use tokio_postgres::Client;

/// The rows of a tracked table that a statement changes in one way.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) table: String,
    /// `insert`, `update` or `delete`.
    pub(super) change: String,
    pub(super) rows: u64,
    /// Those of them that a proposal does not list.
    pub(super) unlisted: u64,
    /// The columns that differ in a listed row, but for sensitive ones; of inserted and deleted rows none.
    pub(super) columns: Vec<String>,
    pub(super) is_sensitive: bool,
}

/// What a statement does.
#[derive(Debug, Clone)]
pub(super) struct Done {
    /// The number of rows that the statement says it has changed.
    pub(super) affected: u64,
    pub(super) changes: Vec<Change>,
}

pub(super) struct Oracle(Client);

impl Oracle {
    pub(super) async fn new(db: &Database) -> Self {
        db.run(include_str!("oracle.sql")).await;
        Self(db.connect().await)
    }

    /// What the statement does as the login of a server; `None` if PostgreSQL refuses it. All of it is rolled back.
    pub(super) async fn tries(&self, space: &str, sql: &str) -> Option<Done> {
        self.0
            .batch_execute(&format!("begin; select oracle.watch('{space}'); set local role countersign_writer"))
            .await
            .unwrap();
        let tried = self.0.execute(sql, &[]).await.ok();
        let done = match tried {
            Some(affected) if self.0.batch_execute("set constraints all immediate; reset role").await.is_ok() => {
                Some(Done { affected, changes: self.changes().await })
            }
            _ => None,
        };
        self.0.batch_execute("rollback").await.unwrap();
        done
    }

    async fn changes(&self) -> Vec<Change> {
        self.0.execute("select oracle.look(true)", &[]).await.unwrap();
        let rows = self.0.query("select * from oracle.changes", &[]).await.unwrap();
        let change = |row: &tokio_postgres::Row| Change {
            table: row.get(0),
            change: row.get(1),
            rows: row.get::<_, i64>(2).unsigned_abs(),
            unlisted: row.get::<_, i64>(3).unsigned_abs(),
            columns: row.get(4),
            is_sensitive: row.get(5),
        };
        rows.iter().map(change).collect()
    }
}
