//! Describes and plans a new text in the transaction in which it will run.

use super::function_policy::failure;
use super::mask::Masking;
use super::read_transaction::push_planning;
use super::statement_metadata::StatementMetadata;
use super::{ReadError, Reader, refusal};
use crate::client::error::Error;
use crate::client::session::{MAX_PIPELINE_BYTES, Session, StatementDescription};
use crate::client::wire::{Event, FieldDescription, Purpose, StatementId, row_texts};
use crate::query::columns;
use crate::query::plan::{PlanParameters, PlanResult};

/// A statement that was described in the open transaction.
pub(super) struct Described {
    pub(super) metadata: StatementMetadata,
    /// Its plan for any parameters, if one was requested.
    pub(super) planned: Option<PlanResult>,
    /// The table columns that its result columns show.
    pub(super) sources: Vec<Option<(u32, i16)>>,
    /// The catalog's answer about masked columns, if it was requested.
    pub(super) masked_columns: Option<String>,
}

impl Reader {
    /// Opens the transaction and describes the statement in it. With a number of parameters, also plans the statement
    /// for any values of so many parameters. The statement is not run.
    pub(super) async fn describe(
        &self,
        session: &mut Session,
        (name, sql): (&str, &str),
        planned_params: Option<usize>,
    ) -> Result<Described, ReadError> {
        let masking = self.masking.as_ref().filter(|_| planned_params.is_some());
        let pushed = session.push_whole(|session| {
            self.push_opening(session)?;
            let statement = session.connection.next_statement();
            session.connection.push_parse(name, sql, &[])?;
            session.connection.push_describe_statement(name)?;
            let asked = masking.map(|masking| masking.push(session)).transpose()?;
            let explain =
                planned_params.map(|count| push_explain(session, name, count, masking.is_some())).transpose()?;
            session.connection.push_sync(Purpose::Call);
            Ok::<_, Error>((statement, asked, explain))
        });
        // If the text cannot be queued, the statements that open the transaction are not sent either.
        let (statement, asked, explain) = pushed.inspect_err(|_| session.invalidate_boundary_statements())?;
        session.connection.flush().await.map_err(Error::Lost)?;
        let (mut planned, mut masked_columns) = (None, None);
        let mut take = |event: &Event| {
            if let Event::Row(id, body) = event {
                if Some(*id) == explain {
                    planned = Some(PlanResult::parse(row_texts(body)?.first().copied().flatten()));
                } else if Some(*id) == asked {
                    masked_columns = row_texts(body)?.first().copied().flatten().map(str::to_owned);
                }
            }
            Ok(())
        };
        let (described, refused) = session.receive_description(&mut take).await.map_err(failure)?;
        let (not_planned, refused) = match refused {
            Some(refused) if Some(refused.statement) == explain => (Some(refused.error), None),
            refused => (None, refused),
        };
        if let Some(refused) = refused {
            if refused.statement != statement {
                session.invalidate_boundary_statements();
            }
            let refused_role = self.refused_role(session, refused.statement);
            return Err(refused_role.unwrap_or_else(|| refusal(refused.into())));
        }
        let StatementDescription { params, columns: raw } = described;
        let returns_rows = raw.is_some();
        // Reported before an error of planning. That error says less: only that the reader may not write to the
        // table.
        if !returns_rows && !self.allow_commands {
            return Err(ReadError::NoResultColumns);
        }
        if let Some(error) = not_planned {
            masking.map_or(Ok(()), Masking::check_planning)?;
            planned = Some(PlanResult::refused(error).map_err(failure)?);
        }
        let raw = raw.unwrap_or_default();
        let metadata = self.resolve(session, &params, &raw).await?;
        let metadata = match &metadata.row_types {
            Some(row_types) if !row_types.are_current(session).await? => {
                self.types.forget();
                self.resolve(session, &params, &raw).await?
            }
            _ => metadata,
        };
        let sources = raw.iter().map(|column| column.source).collect();
        Ok(Described { metadata: StatementMetadata { returns_rows, ..metadata }, planned, sources, masked_columns })
    }

    async fn resolve(
        &self,
        session: &mut Session,
        params: &[u32],
        raw: &[FieldDescription],
    ) -> Result<StatementMetadata, Error> {
        let params = self.types.resolve_all(session, params).await?;
        let columns = columns::resolve(&self.types, session, raw).await?;
        Ok(StatementMetadata::new(params, columns, raw.iter().map(|column| column.type_oid).collect()))
    }
}

/// Queues EXPLAIN of a statement for any values of so many parameters.
pub(super) fn push_explain(
    session: &mut Session,
    name: &str,
    param_count: usize,
    is_masked: bool,
) -> Result<StatementId, Error> {
    push_planning(session, is_masked)?;
    let usual = std::mem::replace(&mut session.connection.max_message_bytes, MAX_PIPELINE_BYTES);
    let explain = session.connection.next_statement();
    session.connection.push_parse("", &PlanParameters::AnyValues(param_count).explain(name, false), &[])?;
    session.connection.push_bind("", "", &[])?;
    session.connection.push_execute("", 0)?;
    session.connection.max_message_bytes = usual;
    Ok(explain)
}
