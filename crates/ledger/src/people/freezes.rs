//! Freezes: an operator stops the writes of an account, of an actor, or of everybody, and resumes them.

use std::time::Duration;

use pg::WriterPool;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::evidence::records::Records;
use crate::evidence::values::rfc3339;

const TIMEOUT: Duration = Duration::from_secs(30);

const FREEZE_SQL: &str = "select countersign.freeze($1, $2, $3, $4)";
const UNFREEZE_SQL: &str = "select countersign.unfreeze($1, $2, $3)";

const CURRENT_SQL: &str = concat!(
    "select f.kind, f.name, f.frozen_by, f.frozen_login, ",
    rfc3339!("f.frozen_at"),
    " as frozen_at, f.reason from countersign.freeze f where f.unfrozen_at is null order by f.frozen_at, f.kind, f.name"
);

/// Only looks at the newest records, so that the query is fast in a ledger of any size.
const KNOWN_SQL: &str = "\
select exists (select from (select r.account_id, r.actor from countersign.record r order by r.id desc limit 100000) r \
               where case $1 when 'account' then r.account_id = $2 else r.actor = $2 end) \
    or exists (select from countersign.mutation m \
               where m.status = 'pending' and case $1 when 'account' then m.account_id = $2 else m.actor = $2 end) as known";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FreezeScope {
    /// The writes of this account.
    Account(String),
    /// The writes on behalf of this person or agent.
    Actor(String),
    All,
}

impl FreezeScope {
    fn params(&self) -> [Option<String>; 2] {
        let (kind, name) = match self {
            Self::Account(name) => ("account", name.as_str()),
            Self::Actor(name) => ("actor", name.as_str()),
            Self::All => ("all", ""),
        };
        [kind, name].map(|text| Some(text.to_owned()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freeze {
    /// The kind of the scope: `account`, `actor` or `all`.
    pub kind: String,
    /// The account or the actor; empty for `all`.
    pub name: String,
    /// The operating system user of the command line, or the person in the console.
    pub frozen_by: String,
    pub frozen_login: String,
    pub frozen_at: String,
    /// The reason, if one was given.
    pub reason: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Freezes {
    writer: WriterPool,
    records: Records,
}

impl Freezes {
    pub(crate) fn new(writer: WriterPool, records: Records) -> Self {
        Self { writer, records }
    }

    /// Refuses these writes from now on, including those that are running. Returns how many running ones have an
    /// attempt. A freeze that exists already stays unchanged. `who` is the user of the operating system.
    ///
    /// # Errors
    /// The query failed; with SQLSTATE 42501 if the login lacks the role `countersign_operator`.
    pub async fn freeze(&self, scope: &FreezeScope, who: &str, reason: Option<&str>) -> Result<u64, pg::Error> {
        let params = [scope.params().as_slice(), &[Some(who.to_owned()), reason.map(str::to_owned)]].concat();
        let count = self.value(FREEZE_SQL, &params).await?;
        count.parse().map_err(|_| std::io::Error::other("the ledger did not count the writes in flight").into())
    }

    /// Resumes the writes. Returns whether they were frozen.
    pub async fn unfreeze(&self, scope: &FreezeScope, who: &str) -> Result<bool, pg::Error> {
        let params = [scope.params().as_slice(), &[Some(who.to_owned())]].concat();
        Ok(self.value(UNFREEZE_SQL, &params).await? == "t")
    }

    /// The freezes in force, the oldest first.
    pub async fn current(&self) -> Result<Vec<Freeze>, pg::Error> {
        self.records.rows(CURRENT_SQL, &[]).await
    }

    /// Whether the newest records contain a write of this account or actor. If not, the name may be misspelt.
    pub async fn is_known(&self, scope: &FreezeScope) -> Result<bool, pg::Error> {
        if *scope == FreezeScope::All {
            return Ok(true);
        }
        Ok(self.value(KNOWN_SQL, &scope.params()).await? == "t")
    }

    async fn value(&self, sql: &str, params: &[Option<String>]) -> Result<String, pg::Error> {
        let answer = self.writer.run_one(sql, params, Instant::now() + TIMEOUT).await?;
        Ok(answer.rows.into_iter().flatten().flatten().next().unwrap_or_default())
    }
}
