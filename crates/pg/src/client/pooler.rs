//! Detects a connection pooler between this process and PostgreSQL by its behaviour.

use std::time::Duration;

use crate::client::connect_options::ConnectOptions;
use crate::client::error::Error;
use crate::client::session::{PipelineStatement, Session};
use crate::client::session_settings::SessionSettings;

/// How a pooler treats the backends that it lends. `None` if this could not be determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolerReport {
    /// Whether there is a pooler.
    pub has_pooler: bool,
    /// Whether settings that a transaction leaves in a backend remain for the next one (no
    /// `server_reset_query_always`).
    pub keeps_settings: Option<bool>,
    /// Whether it renames prepared statements, so that `EXECUTE` does not find them (`max_prepared_statements`).
    pub renames_statements: bool,
}

/// The number of attempts to get the same backend again.
const TRIES: usize = 5;

const PREPARED: &str = "countersign_doctor";
const MARK: &str = "countersign.doctor";
const MARKED_SQL: &str = "select pg_catalog.pg_backend_pid(), pg_catalog.current_setting('countersign.doctor', true)";

/// The time limit for all answers of the pooler and the server.
const EXAMINE_TIMEOUT: Duration = Duration::from_secs(20);

/// Probes for a pooler over connections of its own. The probe removes its traces from a backend if the pooler does
/// not.
///
/// # Errors
/// An error of the connection or the server; [`Error::Deadline`] after 20 s.
pub async fn probe_pooler(target: &ConnectOptions) -> Result<PoolerReport, Error> {
    tokio::time::timeout(EXAMINE_TIMEOUT, examine(target)).await.unwrap_or(Err(Error::Deadline))
}

async fn examine(target: &ConnectOptions) -> Result<PoolerReport, Error> {
    let mut session = Session::connect(target, &SessionSettings::default()).await?;
    let backend = PipelineStatement::without_params("select pg_catalog.pg_backend_pid()");
    let rows = session.run(&[backend]).await.map_err(|failed| failed.error)?;
    let process = rows.first().and_then(|outcome| outcome.rows.first()?.first()?.clone());
    let has_pooler = process.is_some_and(|process| process != session.backend_pid().to_string());
    let renames_statements = session.is_pooled() && renames(&mut session).await?;
    let mut keeps_settings = None;
    for try_no in 0..TRIES {
        if !has_pooler || keeps_settings.is_some() {
            break;
        }
        keeps_settings = keeps(&mut session, &format!("mark {try_no}")).await?;
    }
    session.close().await;
    Ok(PoolerReport { has_pooler, keeps_settings, renames_statements })
}

/// Whether EXECUTE does not find a statement that the protocol has prepared in the same transaction.
async fn renames(session: &mut Session) -> Result<bool, Error> {
    session.begin(None, &[]).await.map_err(|failed| failed.error)?;
    session.describe(PREPARED, "select 1", &[]).await?;
    let execute = format!("execute {PREPARED}");
    let found = session.run(&[PipelineStatement::without_params(&execute)]).await;
    session.roll_back().await?;
    match found.map_err(|failed| failed.error) {
        Ok(_) => Ok(false),
        // invalid_sql_statement_name
        Err(Error::Server(error)) if error.sqlstate == "26000" => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether a session setting that one transaction has made is still in force in the next one. `None` if the next one
/// has another backend.
async fn keeps(session: &mut Session, mark: &str) -> Result<Option<bool>, Error> {
    let mark = mark.to_owned();
    let set = format!("select pg_catalog.set_config('{MARK}', $1, false)");
    let params = [Some(mark.clone())];
    let steps = [PipelineStatement::new(&set, &params), PipelineStatement::without_params(MARKED_SQL)];
    let before = session.run(&steps).await.map_err(|failed| failed.error)?;
    let reset = format!("reset {MARK}");
    let steps = [PipelineStatement::without_params(MARKED_SQL), PipelineStatement::without_params(&reset)];
    let after = session.run(&steps).await.map_err(|failed| failed.error)?;
    let row = |outcome: Option<&crate::client::session::StatementResult>| {
        outcome
            .and_then(|outcome| <[Option<String>; 2]>::try_from(outcome.rows.first()?.clone()).ok())
            .unwrap_or_default()
    };
    let ([before, _], [after, found]) = (row(before.last()), row(after.first()));
    Ok((before == after).then(|| found == Some(mark)))
}
