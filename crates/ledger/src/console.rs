//! Who is logged in to the console. The tables and rules are in `migrations/baseline/67_console.sql`.

use std::time::Duration;

use pg::WriterPool;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use types::Secret;

/// The time limit of a query.
const DEADLINE: Duration = Duration::from_secs(10);

const MAKE_LINK_SQL: &str = "select countersign.make_console_link(decode($1, 'hex'), $2, $3, $4::text::text[])";
const LOG_IN_SQL: &str = "select countersign.log_in_with_link(decode($1, 'hex'), decode($2, 'hex'))";
const SESSION_SQL: &str =
    "select s.person, s.role, array_to_json(s.groups)::text from countersign.find_console_session(decode($1, 'hex')) s";
const LOG_OUT_SQL: &str = "select countersign.log_out(decode($1, 'hex'))";
const END_SQL: &str = "select countersign.end_console_sessions($1)::text";

/// What a person may do in the console. Each role may do what the ones before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConsoleRole {
    /// Reads.
    Auditor,
    /// Also decides on proposals.
    Reviewer,
    /// Also undoes writes and freezes accounts.
    Operator,
}

/// A person whom the console has verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsolePerson {
    /// The name, which decisions are recorded with.
    pub name: String,
    /// What the person may do.
    pub role: ConsoleRole,
    /// The groups, which `approvers` of a proposal is compared with.
    pub groups: Vec<String>,
}

/// The links and sessions of the console.
#[derive(Debug, Clone)]
pub struct ConsoleSessions {
    writer: WriterPool,
}

impl ConsoleRole {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auditor => "auditor",
            Self::Reviewer => "reviewer",
            Self::Operator => "operator",
        }
    }

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

    /// The role of this name. A name that is not known gives no right to decide.
    fn named(name: &str) -> Self {
        [Self::Operator, Self::Reviewer].into_iter().find(|role| role.as_str() == name).unwrap_or(Self::Auditor)
    }
}

impl ConsoleSessions {
    pub(crate) const fn new(writer: WriterPool) -> Self {
        Self { writer }
    }

    /// Lets this token log a person in, once, within 5 minutes. For members of the ledger's owner.
    ///
    /// # Errors
    /// An error of the database.
    pub async fn make_link(&self, token: &Secret, person: &ConsolePerson) -> Result<(), pg::Error> {
        let params = [hash(token), person.name.clone(), person.role.as_str().to_owned(), array(&person.groups)];
        self.ask(MAKE_LINK_SQL, &params).await.map(drop)
    }

    /// Logs in with a link. The person, or `None` if the link is unknown, used or too old.
    ///
    /// # Errors
    /// An error of the database.
    pub async fn log_in(&self, link: &Secret, session: &Secret) -> Result<Option<String>, pg::Error> {
        let row = self.ask(LOG_IN_SQL, &[hash(link), hash(session)]).await?;
        Ok(row.and_then(|row| row.into_iter().next().flatten()))
    }

    /// Who makes a request with the token of a session; `None` if it has ended.
    ///
    /// # Errors
    /// An error of the database.
    pub async fn find(&self, session: &Secret) -> Result<Option<ConsolePerson>, pg::Error> {
        let Some(row) = self.ask(SESSION_SQL, &[hash(session)]).await? else { return Ok(None) };
        let mut columns = row.into_iter().map(Option::unwrap_or_default);
        let mut next = || columns.next().unwrap_or_default();
        let (name, role, groups) = (next(), next(), next());
        Ok(Some(ConsolePerson {
            name,
            role: ConsoleRole::named(&role),
            groups: serde_json::from_str(&groups).unwrap_or_default(),
        }))
    }

    /// Ends a session.
    ///
    /// # Errors
    /// An error of the database.
    pub async fn log_out(&self, session: &Secret) -> Result<(), pg::Error> {
        self.ask(LOG_OUT_SQL, &[hash(session)]).await.map(drop)
    }

    /// Ends every session and link of a person; how many sessions. For members of the ledger's owner.
    ///
    /// # Errors
    /// An error of the database.
    pub async fn end_all(&self, person: &str) -> Result<u64, pg::Error> {
        let row = self.ask(END_SQL, &[person.to_owned()]).await?;
        Ok(row.and_then(|row| row.into_iter().next().flatten()?.parse().ok()).unwrap_or_default())
    }

    /// The first row.
    async fn ask(&self, sql: &str, params: &[String]) -> Result<Option<Vec<Option<String>>>, pg::Error> {
        let params: Vec<Option<String>> = params.iter().cloned().map(Some).collect();
        let answer = self.writer.run_one(sql, &params, Instant::now() + DEADLINE).await?;
        Ok(answer.rows.into_iter().next())
    }
}

/// SHA-256 in hexadecimal digits.
fn hash(token: &Secret) -> String {
    Sha256::digest(token.expose().as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A PostgreSQL array.
pub(crate) fn array(items: &[String]) -> String {
    let quoted = |item: &String| format!("\"{}\"", item.replace('\\', "\\\\").replace('"', "\\\""));
    format!("{{{}}}", items.iter().map(quoted).collect::<Vec<_>>().join(","))
}
