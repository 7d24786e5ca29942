//! Changes of tables' definitions. Agents propose them as text, and people carry them out in their own logins.
//!
//! ```text
//! propose   an agent's text is stored (`SchemaChanges::propose`), or a person's (`bring`)
//! stored    a change as the table has it: one that was altered there is not loaded
//! impact    tries a change in the person's login, in a transaction that is rolled back
//! apply     carries it out step by step; `step` has the session in which the text runs
//! ```

mod apply;
mod impact;
mod schema_change;
mod step;
mod stored;

use std::time::Duration;

use pg::WriterPool;
use tokio::time::Instant;
use types::{ErrorCode, Failure, IdPrefix, Principal, SchemaChangeId, Secret};

pub use apply::{ApplyError, ApplyEvent, ApplyOptions, ApplyOutcome};
pub use impact::{
    BlockedStatements, FailedStatement, Impact, ImpactOptions, LockTaken, RewrittenRelation, ScannedTable,
    StatementNotice, UntriedStatement,
};
pub use schema_change::{SchemaChange, SchemaChangeOrigin, SchemaChangeStatus};
pub use stored::AlteredSchemaChange;

use self::stored::StoredSchemaChange;
use crate::evidence::records::Records;
use crate::evidence::values::rfc3339;
use crate::people::proposals::{decision_failure, may_not_decide};
use crate::write::failures::ledger_failure;

/// A change as it was proposed, or the finding that it was altered since.
pub type Loaded = Result<SchemaChange, AlteredSchemaChange>;

/// The maximum number of changes of an account that wait.
const MAX_PENDING: u32 = 20;

/// The maximum length of the reason of a change, in characters.
pub const MAX_REASON_CHARS: usize = 500;

const COLUMNS_SQL: &str = concat!(
    "select c.change_id, c.account_id, c.actor, c.origin, c.reason, c.sql, c.digest, c.proposed_login, \
     c.caller_context::text as hashed_context, extract(epoch from c.created_at)::text as hashed_creation, \
     extract(epoch from c.expires_at)::text as hashed_expiry, ",
    rfc3339!("c.created_at"),
    " as created_at, ",
    rfc3339!("c.expires_at"),
    " as expires_at, case when c.status = 'pending' and c.expires_at <= clock_timestamp() then 'expired' else c.status end as status, \
     c.decided_by, c.decided_login::text as decided_login, ",
    rfc3339!("c.decided_at"),
    " as decided_at, c.decision_reason, c.error_message, ",
    rfc3339!("c.completed_at"),
    " as completed_at, c.ended_steps from countersign.schema_change c "
);
const ONE_SQL: &str = "where c.change_id = $1::uuid and ($2::text is null \
    or c.account_id = $2 and (c.caller_context is null or c.caller_context::text = $3))";
const LIST_SQL: &str = "where $1::text is null or c.status = $1 order by c.id desc limit $2::bigint";
const OPEN_SQL: &str = "where c.status = 'applying' or c.status = 'pending' and c.expires_at > clock_timestamp() order by c.id limit $1::bigint";
const FIND_SQL: &str = "where c.change_id between $1::uuid and $2::uuid order by c.id desc limit $3::bigint";
const WAITING_SQL: &str = "select count(*) from countersign.schema_change c \
    where c.status = 'applying' or c.status = 'pending' and c.expires_at > clock_timestamp()";
const PROPOSE_SQL: &str =
    "select * from countersign.propose_schema_change($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::integer)";
const BRING_SQL: &str = "select * from countersign.bring_schema_change($1, $2, $3, $4)";
const NONCE_SQL: &str = "select countersign.begin_decision($1)";
const ENDED_STEPS_SQL: &str = "select c.ended_steps from countersign.schema_change c where c.change_id = $1::uuid";
const REJECT_SQL: &str = "select countersign.reject_schema_change($1, $2, $3, $4)";

/// The schema changes of one database.
#[derive(Debug, Clone)]
pub struct SchemaChanges {
    writer: WriterPool,
    records: Records,
    timeout: Duration,
}

impl SchemaChanges {
    pub(crate) fn new(writer: WriterPool, records: Records, timeout: Duration) -> Self {
        Self { writer, records, timeout }
    }

    /// Stores the change that an agent proposes, or returns the pending one with the same text.
    pub async fn propose(&self, owner: &Principal, reason: &str, sql: &str) -> Result<SchemaChange, Failure> {
        let client = &owner.client;
        let params = [
            Some(SchemaChangeId::new().to_string()),
            Some(owner.account_id.as_str().to_owned()),
            owner.actor.clone(),
            client.session_id.clone(),
            client.name.clone(),
            client.version.clone(),
            client.trace_id.clone(),
            owner.context.to_json(),
            Some(reason.to_owned()),
            Some(sql.to_owned()),
            Some(MAX_PENDING.to_string()),
        ];
        self.store(PROPOSE_SQL, &params).await
    }

    /// Stores the change that a person brings. `who` is the user of the operating system.
    pub async fn bring(&self, who: &str, reason: &str, sql: &str) -> Result<SchemaChange, Failure> {
        let params = [SchemaChangeId::new().to_string(), who.to_owned(), reason.to_owned(), sql.to_owned()].map(Some);
        self.store(BRING_SQL, &params).await
    }

    async fn store(&self, sql: &str, params: &[Option<String>]) -> Result<SchemaChange, Failure> {
        let answer = self.run(sql, params).await?;
        match answer.into_row::<2>() {
            Some([_, Some(id)]) => match SchemaChangeId::parse(&id) {
                Some(id) => self.get(None, id).await?.ok_or_else(not_found),
                None => Err(not_found()),
            },
            _ => {
                let message = format!("{MAX_PENDING} schema changes of this account wait already; nothing was stored");
                Err(Failure::new(ErrorCode::NotPermitted, message)
                    .hint("Ask a person to carry them out or to reject them: countersign schema list."))
            }
        }
    }

    /// A change of this caller, or of anybody if `owner` is `None`.
    ///
    /// # Errors
    /// It was altered in the database ([`AlteredSchemaChange`]), or the database failed.
    pub async fn get(&self, owner: Option<&Principal>, id: SchemaChangeId) -> Result<Option<SchemaChange>, Failure> {
        let account = owner.map(|owner| owner.account_id.as_str().to_owned());
        let params = [Some(id.to_string()), account, owner.and_then(|owner| owner.context.to_json())];
        Ok(self.read(ONE_SQL, &params).await?.into_iter().next().transpose()?)
    }

    /// The newest changes of all accounts first.
    pub async fn list(&self, status: Option<SchemaChangeStatus>, limit: u32) -> Result<Vec<Loaded>, Failure> {
        self.read(LIST_SQL, &[status.map(|status| status.as_str().to_owned()), Some(limit.to_string())]).await
    }

    /// The changes that wait for a person, the oldest first.
    pub async fn open(&self, limit: u32) -> Result<Vec<Loaded>, Failure> {
        self.read(OPEN_SQL, &[Some(limit.to_string())]).await
    }

    /// The number of changes that wait for a person.
    pub async fn waiting(&self) -> Result<u64, Failure> {
        self.count(WAITING_SQL, &[]).await
    }

    async fn count(&self, sql: &str, params: &[Option<String>]) -> Result<u64, Failure> {
        let count = self.run(sql, params).await?.into_value();
        Ok(count.and_then(|count| count.parse().ok()).unwrap_or_default())
    }

    /// The changes whose id begins with this prefix, newest first.
    pub async fn find(&self, prefix: &IdPrefix, limit: u32) -> Result<Vec<Loaded>, Failure> {
        let [low, high] = prefix.range();
        self.read(FIND_SQL, &[Some(low), Some(high), Some(limit.to_string())]).await
    }

    /// Rejects a pending change, or gives one up that was begun: also one that was altered. Returns the number of steps
    /// that had ended; `None` if it was not begun.
    pub async fn reject(&self, id: SchemaChangeId, who: &str, reason: Option<&str>) -> Result<Option<u64>, Failure> {
        let nonce = self.begin_decision(id).await?;
        let nonce = Some(nonce.expose().to_owned());
        let params = [Some(id.to_string()), Some(who.to_owned()), reason.map(str::to_owned), nonce];
        let answer = self.writer.run_one(REJECT_SQL, &params, Instant::now() + self.timeout).await;
        let answer = answer.map_err(|error| decision_failure(&error, "countersign schema show"))?;
        match answer.into_value().unwrap_or_default().as_str() {
            "done" | "rejected" => Ok(None),
            "given_up" => {
                let unread = |failure| Failure {
                    message: "the schema change was given up, and how many of its steps had ended could not be read"
                        .to_owned(),
                    ..failure
                };
                self.count(ENDED_STEPS_SQL, &[Some(id.to_string())]).await.map(Some).map_err(unread)
            }
            verdict => Err(refused(verdict)),
        }
    }

    /// Prepares the decision on a change that the person has seen: SQL within one statement of the person's session
    /// cannot decide.
    pub(super) async fn begin_decision(&self, id: SchemaChangeId) -> Result<Secret, Failure> {
        let nonce = self.run(NONCE_SQL, &[Some(id.to_string())]).await?.into_value();
        nonce.map(Secret::new).ok_or_else(not_found)
    }

    async fn run(&self, sql: &str, params: &[Option<String>]) -> Result<pg::StatementResult, Failure> {
        let answer = self.writer.run_one(sql, params, Instant::now() + self.timeout).await;
        answer.map_err(|error| may_not_decide(&error).unwrap_or_else(|| ledger_failure(&error)))
    }

    /// Reads changes. Every text that is shown, tried or carried out comes from here.
    async fn read(&self, which: &str, params: &[Option<String>]) -> Result<Vec<Loaded>, Failure> {
        let rows = self.records.rows(&format!("{COLUMNS_SQL}{which}"), params).await;
        let rows: Vec<StoredSchemaChange> = rows.map_err(|error| ledger_failure(&error))?;
        Ok(rows.into_iter().map(StoredSchemaChange::verified).collect())
    }
}

/// The failure if there is no such change.
#[must_use]
pub fn not_found() -> Failure {
    Failure::new(ErrorCode::NotFound, "there is no schema change with this id")
}

/// The failure of a decision that the ledger refuses.
fn refused(verdict: &str) -> Failure {
    let refused = |message: &str| Failure::new(ErrorCode::NotPermitted, message);
    match verdict {
        "not_found" => not_found(),
        "proposer" => refused("you have proposed this schema change, and nobody carries out their own proposals")
            .hint("A different person must carry it out."),
        "nonce_unknown" => {
            refused("more than 15 minutes have passed since the schema change was shown; nothing was done")
                .hint("Run the command again.")
        }
        "busy" => refused("the schema change is being carried out by another process; nothing was done"),
        "digest_mismatch" => refused("the schema change has another digest than what was shown; nothing was done"),
        "altered" => {
            refused("the stored schema change is not what was proposed: somebody has altered it; nothing was done")
        }
        "expired" => refused("the schema change has expired; nothing was done").hint("It must be proposed again."),
        status => refused(&format!("the schema change is {status} already")),
    }
}
