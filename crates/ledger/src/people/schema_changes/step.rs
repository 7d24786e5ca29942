//! The session of the person who tries or carries out a change.

use std::pin::Pin;
use std::time::Duration;

use pg::{ConnectOptions, PipelineStatement, Session, SessionSettings, StatementResult, WriterPool};
use tokio::time::Instant;

use crate::setup::Setup;

/// The time limit for a statement of countersign itself.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

const CANCEL_SQL: &str = "select pg_cancel_backend($1)";

/// What an interrupt of the person ends.
pub(super) type Interrupt<'a> = Pin<&'a mut (dyn Future<Output = ()> + Send)>;

/// A session in which the text of a change runs. Names mean what they mean in the other sessions of the login.
pub(super) struct WorkSession<'a> {
    pub(super) setup: Setup,
    writer: &'a WriterPool,
    interrupt: Interrupt<'a>,
    pub(super) is_interrupted: bool,
}

impl<'a> WorkSession<'a> {
    pub(super) async fn open(
        target: &ConnectOptions,
        writer: &'a WriterPool,
        interrupt: Interrupt<'a>,
    ) -> Result<Self, pg::Error> {
        // The role of the database's settings would carry the change out instead of the login.
        let settings = SessionSettings::default().with("role", "none").with_login_search_path();
        let session = Session::connect(target, &settings).await.map_err(pg::Error::from)?;
        let setup = Setup::new(session).await.map_err(|error| match error {
            crate::SchemaError::Database(error) => error,
            error => std::io::Error::other(error.to_string()).into(),
        })?;
        Ok(Self { setup, writer, interrupt, is_interrupted: false })
    }

    /// Begins a transaction that has an id. So the functions of the ledger that are for decisions refuse it, whatever
    /// the text calls.
    pub(super) async fn begin(&mut self, lock_timeout: Duration) -> Result<(), pg::Error> {
        let text = format!(
            "begin isolation level read committed; set local lock_timeout = {}; select pg_catalog.pg_current_xact_id()",
            lock_timeout.as_millis()
        );
        self.setup.session.batch_execute(&text).await
    }

    /// Begins the part of the text, in which names mean what they mean to the login.
    pub(super) async fn enter_text(&mut self) -> Result<(), pg::Error> {
        self.setup.session.batch_execute("set local search_path to default").await
    }

    /// Ends the part of the text: countersign's own statements run as the login, with PostgreSQL's own names.
    pub(super) async fn leave_text(&mut self) -> Result<(), pg::Error> {
        let text = "reset session authorization; set local role none; set local search_path = pg_catalog, pg_temp";
        self.setup.session.batch_execute(text).await
    }

    /// Runs one statement of the text. An interrupt cancels it.
    pub(super) async fn run(&mut self, sql: &str) -> Result<(), pg::Error> {
        let pid = Some(self.setup.session.backend_pid().to_string());
        let statement = [PipelineStatement::without_params(sql)];
        let mut running = std::pin::pin!(self.setup.session.run(&statement));
        loop {
            tokio::select! {
                ended = &mut running => return ended.map(drop).map_err(|failed| failed.error),
                () = &mut self.interrupt, if !self.is_interrupted => {
                    self.is_interrupted = true;
                    self.writer.run_one(CANCEL_SQL, std::slice::from_ref(&pid), Instant::now() + TIMEOUT).await?;
                }
            }
        }
    }

    /// Waits, unless the person interrupts.
    pub(super) async fn pause(&mut self, time: Duration) {
        if !self.is_interrupted {
            tokio::select! {
                () = tokio::time::sleep(time) => {}
                () = &mut self.interrupt => self.is_interrupted = true,
            }
        }
    }

    /// Runs one of countersign's own statements.
    pub(super) async fn own(&mut self, sql: &str, params: &[Option<String>]) -> Result<StatementResult, pg::Error> {
        let statement = [PipelineStatement::new(sql, params)];
        let results = self.setup.session.run(&statement).await.map_err(|failed| failed.error)?;
        Ok(results.into_iter().next().unwrap_or_default())
    }

    pub(super) async fn rollback(&mut self) -> Result<(), pg::Error> {
        self.setup.session.batch_execute("rollback").await
    }
}
