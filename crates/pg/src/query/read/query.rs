//! Runs one read on one session and keeps its rows.

use super::row_buffer::RowBuffer;
use super::{ReadError, ReadRequest, Reader, ResultSet, too_large};
use crate::client::session::{Session, TransactionSettings};
use crate::query::columns;
use crate::query::value;

impl Reader {
    pub(super) async fn query_on(
        &self,
        session: &mut Session,
        request: &ReadRequest<'_>,
    ) -> Result<ResultSet, ReadError> {
        session.settings = TransactionSettings::within(request.account.unwrap_or_default(), self.limits.deadline);
        let mut rows = RowBuffer::new(&self.limits, request);
        let text = (request.sql, request.params.len());
        self.run(session, text, |types| value::encode_all(request.params, types), &mut rows).await?;
        let columns = match rows.changed() {
            None => None,
            Some(raw) => {
                // The schema has changed since the text was described. The arrived rows and columns are the answer.
                session.statements.forget(request.sql);
                self.types.forget();
                session.await_reset().await?;
                Some(columns::resolve(&self.types, session, &raw).await?)
            }
        };
        rows.finish(columns).map_err(too_large)
    }
}
