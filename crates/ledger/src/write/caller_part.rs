//! The parts of a write's transaction that run for its caller, and those of the ledger between them.

use std::sync::Arc;

use pg::{ContextStatements, PipelineStatement};
use types::{CallerContext, Failure, RoleName};

/// Whose rights statements have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    /// Those of the caller's role: the statements of a tool.
    Caller,
    /// Those of the login: the statements of the ledger.
    Login,
}

/// What of a caller's context is in force in a transaction.
#[derive(Debug)]
pub(crate) struct CallerPart {
    statements: Arc<ContextStatements>,
    role: Option<RoleName>,
    is_set: bool,
    is_role: bool,
}

/// The statements that must precede others.
#[derive(Debug, Clone)]
pub(crate) struct ContextSteps {
    statements: Arc<ContextStatements>,
    sets_context: bool,
    role: Option<Rights>,
}

impl CallerPart {
    /// `None` for a caller without a role and claims.
    pub(crate) fn of(context: &CallerContext) -> Option<Self> {
        let statements = Arc::new(ContextStatements::of(context)?);
        Some(Self { statements, role: context.role.clone(), is_set: false, is_role: false })
    }

    /// What must precede statements with these rights. It counts as sent.
    pub(crate) fn enter(&mut self, rights: Rights) -> ContextSteps {
        let is_role = rights == Rights::Caller && self.role.is_some();
        let sets_context = !std::mem::replace(&mut self.is_set, true);
        let changes = std::mem::replace(&mut self.is_role, is_role) != is_role;
        ContextSteps { statements: Arc::clone(&self.statements), sets_context, role: changes.then_some(rights) }
    }

    /// Notes that the settings of the transaction were reset.
    pub(crate) const fn was_reset(&mut self) {
        self.is_set = false;
        self.is_role = false;
    }

    /// Notes that the role of the transaction was reset.
    pub(crate) const fn has_left_role(&mut self) {
        self.is_role = false;
    }

    /// The failure if the statements that enter the part were refused.
    pub(crate) fn refused(&self) -> Option<Failure> {
        self.role.as_ref().map(RoleName::refused)
    }
}

impl ContextSteps {
    pub(crate) fn steps(&self) -> Vec<PipelineStatement<'_>> {
        let role = match self.role {
            Some(Rights::Caller) => self.statements.role(),
            Some(Rights::Login) => self.statements.login(),
            None => None,
        };
        self.sets_context.then(|| self.statements.context()).into_iter().chain(role).collect()
    }
}

/// The statements of [`ContextSteps`], if there are any.
pub(crate) fn steps(entered: Option<&ContextSteps>) -> Vec<PipelineStatement<'_>> {
    entered.map(ContextSteps::steps).unwrap_or_default()
}
