//! The sessions of the console. The tables and rules are in `migrations/baseline/67_console.sql`.

mod sign_in;

use std::time::Duration;

use pg::WriterPool;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use types::Secret;

pub use sign_in::PendingSignIn;

const TIMEOUT: Duration = Duration::from_secs(10);

const MAKE_LINK_SQL: &str = "select countersign.make_console_link(decode($1, 'hex'), $2, $3, $4::text::text[])";
const NOTE_ADDRESS_SQL: &str = "select countersign.note_console_address($1)";
const ADDRESS_SQL: &str = "select a.origin from countersign.console_address a";
const LOG_IN_SQL: &str = "select countersign.log_in_with_link(decode($1, 'hex'), decode($2, 'hex'))";
const SESSION_SQL: &str = "select s.person, s.role, array_to_json(s.groups)::text, s.method, s.sign_in_age_s::text \
                           from countersign.find_console_session(decode($1, 'hex')) s";
const LOG_OUT_SQL: &str = "select countersign.log_out(decode($1, 'hex'))";
const END_SQL: &str = "select countersign.end_console_sessions($1)::text";

types::text_enum! {
    /// What a person may do in the console. Each role includes the rights of the roles before it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum ConsoleRole {
        /// May read.
        Auditor = "auditor",
        /// May also decide on proposals.
        Reviewer = "reviewer",
        /// May also undo writes and freeze accounts.
        Operator = "operator",
    }
}

/// A person whom the console has verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsolePerson {
    /// The name that is recorded with decisions.
    pub name: String,
    /// What the person may do.
    pub role: ConsoleRole,
    /// The groups of the person, which are compared with the `approvers` of a proposal.
    pub groups: Vec<String>,
}

/// How a person signed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignInMethod {
    /// With a one-time link that an owner of the ledger made.
    Link,
    /// At an OpenID Connect provider.
    Oidc,
}

/// A session of the console that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleSession {
    pub person: ConsolePerson,
    pub method: SignInMethod,
    /// The time since the sign-in; `None` if the provider does not report it.
    pub sign_in_age: Option<Duration>,
}

#[derive(Debug, Clone)]
pub struct ConsoleSessions {
    writer: WriterPool,
}

impl ConsoleRole {
    /// Whether a person of this role decides on proposals.
    #[must_use]
    pub fn may_decide(self) -> bool {
        self >= Self::Reviewer
    }

    /// Whether a person of this role undoes writes and freezes accounts.
    #[must_use]
    pub fn may_undo(self) -> bool {
        self >= Self::Operator
    }

    /// The role of this name. An unknown name is an auditor, who may not decide.
    fn named(name: &str) -> Self {
        Self::parse(name).unwrap_or(Self::Auditor)
    }
}

impl ConsoleSessions {
    pub(crate) const fn new(writer: WriterPool) -> Self {
        Self { writer }
    }

    /// Stores a token with which a person can log in once, within 5 minutes. Only members of the ledger's owner may
    /// do this.
    pub async fn make_link(&self, token: &Secret, person: &ConsolePerson) -> Result<(), pg::Error> {
        let params = [hash(token), person.name.clone(), person.role.as_str().to_owned(), array(&person.groups)];
        self.ask(MAKE_LINK_SQL, &params).await.map(drop)
    }

    /// Stores the address of a console that starts.
    pub async fn note_address(&self, origin: &str) -> Result<(), pg::Error> {
        self.ask(NOTE_ADDRESS_SQL, &[origin.to_owned()]).await.map(drop)
    }

    /// The address of the console that was started last; `None` before the first one. Only members of the ledger's
    /// owner may read it.
    pub async fn address(&self) -> Result<Option<String>, pg::Error> {
        let row = self.ask(ADDRESS_SQL, &[]).await?;
        Ok(row.and_then(|row| row.into_iter().next().flatten()))
    }

    /// Logs in with a link. Returns the person's name, or `None` if the link is unknown, used or expired.
    pub async fn log_in(&self, link: &Secret, session: &Secret) -> Result<Option<String>, pg::Error> {
        let row = self.ask(LOG_IN_SQL, &[hash(link), hash(session)]).await?;
        Ok(row.and_then(|row| row.into_iter().next().flatten()))
    }

    /// The session of this token; `None` if it has ended.
    pub async fn find(&self, session: &Secret) -> Result<Option<ConsoleSession>, pg::Error> {
        let Some(row) = self.ask(SESSION_SQL, &[hash(session)]).await? else { return Ok(None) };
        let mut columns = row.into_iter();
        let mut next = || columns.next().flatten();
        let (name, role, groups) = (next().unwrap_or_default(), next(), next().unwrap_or_default());
        let (method, age_s) = (next(), next());
        let role = ConsoleRole::named(role.as_deref().unwrap_or_default());
        let person = ConsolePerson { name, role, groups: serde_json::from_str(&groups).unwrap_or_default() };
        let method = if method.as_deref() == Some("oidc") { SignInMethod::Oidc } else { SignInMethod::Link };
        let age_s = age_s.and_then(|age_s| age_s.parse::<f64>().ok());
        let sign_in_age = age_s.and_then(|age_s| Duration::try_from_secs_f64(age_s.max(0.0)).ok());
        Ok(Some(ConsoleSession { person, method, sign_in_age }))
    }

    pub async fn log_out(&self, session: &Secret) -> Result<(), pg::Error> {
        self.ask(LOG_OUT_SQL, &[hash(session)]).await.map(drop)
    }

    /// Ends all sessions and links of a person, and returns the number of sessions. Only members of the ledger's
    /// owner may do this.
    pub async fn end_all(&self, person: &str) -> Result<u64, pg::Error> {
        let row = self.ask(END_SQL, &[person.to_owned()]).await?;
        Ok(row.and_then(|row| row.into_iter().next().flatten()?.parse().ok()).unwrap_or_default())
    }

    /// The first row of a query's result.
    async fn ask(&self, sql: &str, params: &[String]) -> Result<Option<Vec<Option<String>>>, pg::Error> {
        let params: Vec<Option<String>> = params.iter().cloned().map(Some).collect();
        self.ask_with_nulls(sql, &params).await
    }

    async fn ask_with_nulls(
        &self,
        sql: &str,
        params: &[Option<String>],
    ) -> Result<Option<Vec<Option<String>>>, pg::Error> {
        let answer = self.writer.run_one(sql, params, Instant::now() + TIMEOUT).await?;
        Ok(answer.rows.into_iter().next())
    }
}

/// SHA-256 of a token, in hexadecimal.
pub(crate) fn hash(token: &Secret) -> String {
    Sha256::digest(token.expose().as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A text array in PostgreSQL's text form.
pub(crate) fn array(items: &[String]) -> String {
    let quoted = |item: &String| format!("\"{}\"", item.replace('\\', "\\\\").replace('"', "\\\""));
    format!("{{{}}}", items.iter().map(quoted).collect::<Vec<_>>().join(","))
}
