//! The parameters and result columns of a statement, as Describe reports them.

use super::Session;
use crate::client::error::{Error, ServerError};
use crate::client::wire::{Connection, Event, Failure, FieldDescription, Purpose, StatementId};

/// The parameters and the result columns of a statement.
#[derive(Debug, Clone, Default)]
pub struct StatementDescription {
    /// `pg_type.oid` of each parameter.
    pub params: Vec<u32>,
    /// The result columns; `None` if the statement returns no rows.
    pub columns: Option<Vec<FieldDescription>>,
}

impl Session {
    /// Parses and describes a statement under `name` without running it. It replaces an earlier statement of this
    /// name.
    ///
    /// # Errors
    /// [`Error::Server`] if PostgreSQL does not accept the text.
    pub async fn describe(
        &mut self,
        name: &str,
        sql: &str,
        param_types: &[u32],
    ) -> Result<StatementDescription, Error> {
        self.connection.push_whole(|connection| {
            connection.push_close_statement(name)?;
            push_describe(connection, name, sql, param_types)
        })?;
        self.connection.flush().await?;
        let (described, failure) = self.receive_description(&mut |_| Ok(())).await?;
        failure.map_or(Ok(described), |failure| Err(failure.into()))
    }

    /// Queues the end of the statement that was described under `name`.
    pub fn push_close(&mut self, name: &str) -> Result<(), Error> {
        Ok(self.connection.push_close_statement(name)?)
    }

    /// Receives the answer to Describe up to the next ReadyForQuery. Returns the first error. `also` receives every
    /// event.
    pub(crate) async fn receive_description(
        &mut self,
        also: &mut (impl FnMut(&Event) -> Result<(), Error> + Send),
    ) -> Result<(StatementDescription, Option<Failure>), Error> {
        let mut described = StatementDescription::default();
        let mut failure = None;
        let mut take = |event| {
            also(&event)?;
            match event {
                Event::Parameters(statement, params) => match params {
                    Some(params) => described.params = params,
                    // PostgreSQL may describe more parameters than Bind can carry: Bind has a count of 16 bits.
                    None => failure = Some(Failure { statement, error: too_many_params() }),
                },
                Event::Columns(_, columns) => described.columns = columns,
                _ => {}
            }
            Ok(())
        };
        let refused = self.connection.converse(&mut take).await?;
        Ok((described, failure.or(refused)))
    }
}

fn too_many_params() -> Box<ServerError> {
    Box::new(ServerError {
        hint: Some("Give many values as one array: ... = any($1).".to_owned()),
        // program_limit_exceeded
        ..ServerError::synthetic("54000", format!("a statement takes at most {} parameters", u16::MAX))
    })
}

fn push_describe(
    connection: &mut Connection,
    name: &str,
    sql: &str,
    param_types: &[u32],
) -> Result<StatementId, Error> {
    let statement = connection.next_statement();
    connection.push_parse(name, sql, param_types)?;
    connection.push_describe_statement(name)?;
    connection.push_sync(Purpose::Call);
    Ok(statement)
}
