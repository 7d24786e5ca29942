//! The session of the person who tries or carries out a change. What a text may not do, it may not do in a function or a
//! `DO` block either, so the session looks at what each statement did.

use std::pin::Pin;
use std::time::Duration;

use pg::{ConnectOptions, PipelineStatement, ServerError, Session, SessionSettings, StatementResult, WriterPool};
use tokio::time::Instant;

use crate::SchemaError;
use crate::setup::Setup;

/// The time limit for a statement of countersign itself.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

/// The role and the login of the session after a statement, and what the transaction has changed beyond the text's
/// reach: a catalog that all databases share, or the definition of one of the ledger's tables. A lock for a change
/// stays until the transaction ends, whatever took it. All objects with an owner are in `pg_shdepend`, and writes to
/// tracked tables write to the ledger's tables, with weaker locks. The search path is that of the text.
const BOUNDARY_SQL: &str = "select pg_catalog.current_setting('role'), session_user::pg_catalog.text, \
    (select pg_catalog.min(case when c.relisshared then pg_catalog.concat('it changes ', c.relname, ', which all databases share') \
        else pg_catalog.concat('it changes the ledger''s ', c.relname) end) \
     from pg_catalog.pg_locks l join pg_catalog.pg_class c on c.oid operator(pg_catalog.=) l.relation \
     join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace \
     where l.pid operator(pg_catalog.=) pg_catalog.pg_backend_pid() and l.locktype operator(pg_catalog.=) 'relation'::pg_catalog.text \
       and l.mode operator(pg_catalog.=) any (case when c.relisshared \
            then array['RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'] \
            when n.nspname operator(pg_catalog.=) 'countersign'::pg_catalog.name \
            then array['ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'] end) \
       and c.relkind operator(pg_catalog.=) any (array['r', 'p', 'v']::pg_catalog.\"char\"[]) \
       and c.relname operator(pg_catalog.<>) 'pg_shdepend'::pg_catalog.name)";

const CANCEL_SQL: &str = "select pg_cancel_backend($1)";

/// What an interrupt of the person ends.
pub(super) type Interrupt<'a> = Pin<&'a mut (dyn Future<Output = ()> + Send)>;

/// A session in which the text of a change runs. Names mean what they mean in the other sessions of the login.
pub(super) struct WorkSession<'a> {
    pub(super) setup: Setup,
    writer: &'a WriterPool,
    interrupt: Interrupt<'a>,
    pub(super) is_interrupted: bool,
    /// The privileges on the ledger beyond those of `init`, before the text.
    privileges: Vec<String>,
}

/// Why a statement of the text, or what it did, is not accepted.
#[derive(Debug)]
pub(super) enum StepError {
    Database(pg::Error),
    /// It went beyond what a schema change may do: the end of a sentence about it.
    Boundary(String),
}

impl From<pg::Error> for StepError {
    fn from(error: pg::Error) -> Self {
        Self::Database(error)
    }
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
            SchemaError::Database(error) => error,
            error => std::io::Error::other(error.to_string()).into(),
        })?;
        Ok(Self { setup, writer, interrupt, is_interrupted: false, privileges: Vec::new() })
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
        self.leave_text().await?;
        self.privileges = self.setup.unexpected_privileges().await?;
        self.setup.session.batch_execute("set local search_path to default").await
    }

    /// Ends the part of the text: countersign's own statements run as the login, with PostgreSQL's own names.
    pub(super) async fn leave_text(&mut self) -> Result<(), pg::Error> {
        let text = "reset session authorization; set local role none; set local search_path = pg_catalog, pg_temp";
        self.setup.session.batch_execute(text).await
    }

    /// Runs one statement of the text in its transaction, and looks at what it did. Returns its notices.
    pub(super) async fn run_within(&mut self, sql: &str) -> Result<Vec<ServerError>, StepError> {
        let notices = self.run(sql).await?;
        let boundary = self.own(BOUNDARY_SQL, &[]).await?.into_row::<3>();
        match boundary {
            Some([Some(role), Some(login), None]) if role == "none" && login == self.setup.user => Ok(notices),
            Some([_, _, Some(beyond)]) => Err(StepError::Boundary(beyond)),
            _ => Err(StepError::Boundary("it changes the role in which the text runs".to_owned())),
        }
    }

    /// Refuses a text that has changed the ledger or who may use it, after [`Self::leave_text`].
    pub(super) async fn check_ledger(&mut self) -> Result<(), StepError> {
        match self.setup.refuse_altered_ledger().await {
            Ok(()) => {}
            Err(SchemaError::Database(error)) => return Err(error.into()),
            Err(error) => return Err(StepError::Boundary(error.to_string())),
        }
        let privileges = self.setup.unexpected_privileges().await?;
        match privileges.into_iter().find(|privilege| !self.privileges.contains(privilege)) {
            None => Ok(()),
            Some(privilege) => Err(StepError::Boundary(format!("it grants {privilege}"))),
        }
    }

    /// Runs one statement of the text, and returns its notices. An interrupt cancels it.
    pub(super) async fn run(&mut self, sql: &str) -> Result<Vec<ServerError>, pg::Error> {
        let pid = Some(self.setup.session.backend_pid().to_string());
        let statement = [PipelineStatement::without_params(sql)];
        let mut running = std::pin::pin!(self.setup.session.run(&statement));
        loop {
            tokio::select! {
                ended = &mut running => {
                    let results = ended.map_err(|failed| failed.error)?;
                    return Ok(results.into_iter().next().unwrap_or_default().notices);
                }
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
