//! Maps the claims of an ID token to a person with a role and groups.

use auth::{IdToken, is_label};
use ledger::console::{ConsolePerson, ConsoleRole};
use review::is_same_person;

/// The claim whose values count only if the provider has verified them.
const EMAIL: &str = "email";

/// The rules for a person's name, role and groups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PersonRules {
    /// The claim with the name of the person. `email` counts only with `email_verified`.
    pub person_claim: String,
    pub groups_claim: String,
    /// People who also undo writes and freeze accounts, by name.
    pub operators: Vec<String>,
    /// Groups of the provider whose members also undo writes and freeze accounts.
    pub operator_groups: Vec<String>,
    /// People who decide on proposals, by name.
    pub reviewers: Vec<String>,
    /// People who read, by name.
    pub auditors: Vec<String>,
    /// Groups of the provider whose members decide on proposals.
    pub reviewer_groups: Vec<String>,
    /// Groups of the provider whose members read.
    pub auditor_groups: Vec<String>,
    /// Groups of the provider, each with the name that `approvers` of a tool use for it. If empty, all groups count
    /// under the provider's names.
    pub groups: Vec<(String, String)>,
    /// The names under which agents of the person propose.
    pub accounts: Option<AccountClaims>,
}

/// How servers derive the account of a person's agents, if these have tokens of the same issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountClaims {
    pub account_claim: String,
    pub account_prefix: String,
    /// The claim with the actor.
    pub label_claim: Option<String>,
}

/// A person whom the provider has verified.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SignedIn {
    pub(crate) person: ConsolePerson,
    /// The names under which agents of the person propose.
    pub(crate) accounts: Vec<String>,
}

/// Why a verified person may not use the console.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PersonError {
    /// The ID token has no name, or none that counts. The text is logged for the operator.
    NoName(String),
    /// No role is configured for the person.
    NoRole(String),
}

impl PersonRules {
    pub(crate) fn person(&self, token: &IdToken) -> Result<SignedIn, PersonError> {
        let name = self.name(token)?.to_owned();
        let groups: Vec<&str> = token.texts(&self.groups_claim).collect();
        let role = self.role(&name, &groups).ok_or_else(|| PersonError::NoRole(name.clone()))?;
        let accounts = self.accounts.as_ref().map(|accounts| accounts.names(token)).unwrap_or_default();
        Ok(SignedIn { person: ConsolePerson { name, role, groups: self.approver_groups(&groups) }, accounts })
    }

    fn name<'t>(&self, token: &'t IdToken) -> Result<&'t str, PersonError> {
        let claim = &self.person_claim;
        let name = token.text(claim).filter(|name| is_label(name));
        let name = name.ok_or_else(|| PersonError::NoName(format!("the ID token has no usable claim {claim}")))?;
        if claim == EMAIL && !token.is_true("email_verified") {
            return Err(PersonError::NoName("the provider has not verified the address (email_verified)".to_owned()));
        }
        Ok(name)
    }

    fn role(&self, name: &str, groups: &[&str]) -> Option<ConsoleRole> {
        let is_named = |people: &[String]| people.iter().any(|person| is_same_person(person, name));
        let is_member = |of: &[String]| of.iter().any(|group| groups.contains(&group.as_str()));
        let roles = [
            (ConsoleRole::Operator, &self.operators, &self.operator_groups),
            (ConsoleRole::Reviewer, &self.reviewers, &self.reviewer_groups),
            (ConsoleRole::Auditor, &self.auditors, &self.auditor_groups),
        ];
        let role = roles.into_iter().find(|(_, people, of)| is_named(people) || is_member(of));
        role.map(|(role, ..)| role)
    }

    fn approver_groups(&self, groups: &[&str]) -> Vec<String> {
        if self.groups.is_empty() {
            return groups.iter().map(ToString::to_string).collect();
        }
        let mapped = self.groups.iter().filter(|(theirs, _)| groups.contains(&theirs.as_str()));
        mapped.map(|(_, ours)| ours.clone()).collect()
    }
}

impl AccountClaims {
    fn names(&self, token: &IdToken) -> Vec<String> {
        let account = token.text(&self.account_claim).map(|account| format!("{}{account}", self.account_prefix));
        let label = self.label_claim.as_deref().and_then(|claim| token.text(claim)).map(str::to_owned);
        account.into_iter().chain(label).collect()
    }
}
