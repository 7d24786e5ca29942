//! The report of `init`.

/// A relation that the reader's login was not granted SELECT on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedRelation {
    /// Schema and name, as SQL writes them.
    pub relation: String,
    /// Its owner, who could grant it.
    pub owner: String,
}

/// The changes that `init` has made, or would make in a dry run.
#[derive(Debug, Clone, Default)]
pub struct InitReport {
    /// Whether the ledger did not exist before.
    pub is_new: bool,
    /// The version of the ledger's schema.
    pub version: i32,
    /// The roles that were created.
    pub roles: Vec<String>,
    /// The reader's login, if there is one.
    pub reader: Option<String>,
    /// The relations that the reader's login was granted SELECT on: schema and name, as SQL writes them.
    pub granted: Vec<String>,
    /// The relations that this login may not grant.
    pub skipped: Vec<SkippedRelation>,
    /// The relations that existed at an earlier `init` and that the reader's login cannot read: left as they are.
    pub unreadable: Vec<String>,
    /// Other changes, each a sentence without a full stop.
    pub changes: Vec<String>,
    /// Warnings for an administrator, each a sentence without a full stop.
    pub warnings: Vec<String>,
    /// Every statement that changes something, in order. Secrets are left out.
    pub statements: Vec<String>,
}
