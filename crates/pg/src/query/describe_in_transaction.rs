//! Describes statements within an open transaction, as it sees the definitions that it has changed itself. The
//! transaction stays as it was.

use tokio::sync::Mutex;
use tokio::time::Instant;
use types::{ConditionShape, DescribeError, DescribeStatement, Requirements, RequirementsCheck, StatementShape};

use super::describe::{
    Described, REFUSED_IN_CONDITIONS_SQL, REQUIREMENTS_SQL, ask_here, refused_functions, requirements_check,
};
use super::plan::{RELEASE, SAVEPOINT};
use super::value;
use crate::client::error::Error;
use crate::client::session::Session;

const BACK: &str = "rollback to savepoint before_description; release savepoint before_description";

/// Describes statements in the open transaction of a session.
#[derive(Debug)]
pub struct TransactionDescriber<'a> {
    session: Mutex<&'a mut Session>,
    until: Instant,
    reader: Option<&'a str>,
}

impl<'a> TransactionDescriber<'a> {
    /// Nothing is described after `until`. `reader` is the login of reads, which may need a role that a tool requires;
    /// `None` for the login of the session.
    #[must_use]
    pub fn new(session: &'a mut Session, until: Instant, reader: Option<&'a str>) -> Self {
        Self { session: Mutex::new(session), until, reader }
    }

    async fn described(&self, sql: &str, param_types: &[u32]) -> Result<Described, DescribeError> {
        let mut session = self.session.lock().await;
        let left = self.until.saturating_duration_since(Instant::now()).as_millis();
        if left == 0 {
            return Err(DescribeError::Unavailable("the time of the trial is over".to_owned()));
        }
        let begin = format!("savepoint before_description; set local statement_timeout = {left}");
        session.batch_execute(&begin).await.map_err(unavailable)?;
        let described = ask_here(&mut session, sql, param_types, Some((SAVEPOINT, RELEASE))).await;
        session.batch_execute(BACK).await.map_err(unavailable)?;
        described.map_err(unavailable)?
    }
}

impl DescribeStatement for TransactionDescriber<'_> {
    async fn describe(&self, sql: &str, param_types: &[u32]) -> Result<StatementShape, DescribeError> {
        Ok(self.described(sql, param_types).await?.shape)
    }

    async fn check_requirements(&self, requirements: &Requirements) -> Result<RequirementsCheck, DescribeError> {
        let Requirements { extension, role } = requirements;
        let params = [extension.clone(), role.clone(), self.reader.map(str::to_owned)];
        let rows = self.session.lock().await.rows(REQUIREMENTS_SQL, &params).await.map_err(unavailable)?;
        requirements_check(rows.into_iter().next())
    }

    async fn describe_condition(&self, sql: &str, param_types: &[u32]) -> Result<ConditionShape, DescribeError> {
        let Described { shape, functions } = self.described(sql, param_types).await?;
        let refused = if functions.is_empty() {
            Vec::new()
        } else {
            let names = value::text_array(&functions.into_iter().collect::<Vec<_>>());
            let mut session = self.session.lock().await;
            let rows = session.rows(REFUSED_IN_CONDITIONS_SQL, &[Some(names)]).await.map_err(unavailable)?;
            refused_functions(rows)
        };
        Ok(ConditionShape { shape, refused_functions: refused })
    }
}

fn unavailable(error: Error) -> DescribeError {
    DescribeError::Unavailable(error.to_string())
}
