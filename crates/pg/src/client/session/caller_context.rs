//! The role and the claims of a caller in the transactions of its statements.
//!
//! ```text
//! BEGIN · account, timeouts · CONTEXT · ROLE · the caller's statements · LOGIN · the server's statements · COMMIT
//! ```
//! `CONTEXT` checks the role in the transaction that uses it: it fails (SQLSTATE 22P02) for one that callers may not
//! have. All settings end with the transaction.

use types::{CallerContext, RoleName};

use super::{PipelineStatement, Session, StatementResult};
use crate::client::error::Error;

/// Makes the settings `countersign.role` and `countersign.claim_NAME`. A reason why the role is refused is no number.
pub(crate) const CONTEXT_SQL: &str = concat!(
    "select pg_catalog.set_config('countersign.role', coalesce(case when f.why is null then f.role \
                else f.why::pg_catalog.int4::pg_catalog.text end, ''), true), \
            (select pg_catalog.count(pg_catalog.set_config(pg_catalog.concat('countersign.claim_', c.key), c.value, true)) \
             from pg_catalog.json_each_text($2::pg_catalog.json) c) from (",
    include_str!("caller_role.sql"),
    ") f"
);

/// The following statements run as the role of `CONTEXT`.
pub(crate) const ROLE_SQL: &str =
    "select pg_catalog.set_config('role', pg_catalog.current_setting('countersign.role'), true)";

/// The following statements run as the login again.
const LOGIN_SQL: &str = "set local role to default";

const CHECK_SQL: &str = concat!("select f.why from (", include_str!("caller_role.sql"), ") f");

/// The statements that begin and end the part of a transaction that runs for a caller.
#[derive(Debug, Clone)]
pub struct ContextStatements {
    params: [Option<String>; 2],
    has_role: bool,
}

impl ContextStatements {
    /// `None` if the statements of the caller run as those of the login.
    #[must_use]
    pub fn of(context: &CallerContext) -> Option<Self> {
        let claims = serde_json::to_string(&context.claims).unwrap_or_default();
        let role = context.role.as_ref().map(|role| role.as_str().to_owned());
        let has_role = role.is_some();
        (!context.is_empty()).then_some(Self { params: [role, Some(claims)], has_role })
    }

    /// Makes the settings of the caller. It fails if the role may not be used.
    #[must_use]
    pub const fn context(&self) -> PipelineStatement<'_> {
        PipelineStatement::new(CONTEXT_SQL, &self.params)
    }

    /// Begins the caller's part; `None` if the caller has no role.
    #[must_use]
    pub fn role(&self) -> Option<PipelineStatement<'static>> {
        self.has_role.then_some(PipelineStatement::without_params(ROLE_SQL))
    }

    /// Ends the caller's part; `None` if the caller has no role.
    #[must_use]
    pub fn login(&self) -> Option<PipelineStatement<'static>> {
        self.has_role.then_some(PipelineStatement::without_params(LOGIN_SQL))
    }

    pub(crate) const fn params(&self) -> &[Option<String>; 2] {
        &self.params
    }
}

impl Session {
    /// Why callers of this login may not have a role: the end of a sentence about it. `None` if they may.
    ///
    /// # Errors
    /// An error of the server or the connection.
    pub async fn check_caller_role(&mut self, role: &RoleName) -> Result<Option<String>, Error> {
        let role = [Some(role.as_str().to_owned())];
        let answers = self.run(&[PipelineStatement::new(CHECK_SQL, &role)]).await.map_err(|failed| failed.error)?;
        Ok(answers.into_iter().next().and_then(StatementResult::into_value))
    }
}
