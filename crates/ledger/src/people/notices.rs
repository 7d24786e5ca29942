//! The outbox of notices. A proposal's notice is written by the transaction of its change; a server claims it here, sends it
//! outside of any transaction, and settles it.

use std::time::Duration;

use pg::WriterPool;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use types::ProposalId;

/// The time limit for one query.
const DEADLINE: Duration = Duration::from_secs(10);

const CLAIM_SQL: &str = "select countersign.claim_notices($1, make_interval(secs => $2::double precision))::text";
const SETTLE_SQL: &str = "select countersign.settle_notice($1, $2, make_interval(secs => $3::double precision))";

/// A notice that this server has to send.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Notice {
    /// The id, the same for every attempt.
    pub notice_id: String,
    /// What happened: proposed, decided, stale, expired or failed.
    pub event: String,
    /// When, in RFC 3339.
    pub created_at: String,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// The proposal, without rows, parameters and texts of agents.
    pub data: NoticeData,
}

/// What a notice says of its proposal. What is not known is absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeData {
    /// Its name.
    pub proposal_id: ProposalId,
    /// Its tool.
    pub tool: String,
    /// Its tier.
    pub tier: String,
    /// Its status.
    pub status: String,
    /// Its account.
    pub account: String,
    /// On behalf of this person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// How many people have to approve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<u32>,
    /// The group that they have to be in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvers: Option<String>,
    /// Until when it can be agreed to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// What was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    /// Who decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// The database login of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_login: Option<String>,
    /// The way in which it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_via: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// The page of the proposal; the sender of the notice knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

/// The notices of one ledger.
#[derive(Debug, Clone)]
pub struct Notices {
    writer: WriterPool,
}

impl Notices {
    pub(crate) const fn new(writer: WriterPool) -> Self {
        Self { writer }
    }

    /// At most `most` notices that are due. No other server gets them within `lease`.
    ///
    /// # Errors
    /// The database cannot be asked.
    pub async fn claim(&self, most: usize, lease: Duration) -> Result<Vec<Notice>, pg::Error> {
        let params = [Some(most.to_string()), Some(lease.as_secs_f64().to_string())];
        let answer = self.writer.run_one(CLAIM_SQL, &params, Instant::now() + DEADLINE).await?;
        let texts = answer.rows.into_iter().flatten().flatten();
        Ok(texts.filter_map(|text| serde_json::from_str(&text).ok()).collect())
    }

    /// Ends an attempt: the notice is removed, or due again after `retry_in`.
    ///
    /// # Errors
    /// The database cannot be asked. The notice is due again at the end of its lease.
    pub async fn settle(&self, notice: &Notice, retry_in: Option<Duration>) -> Result<(), pg::Error> {
        let retry_in = retry_in.map(|pause| pause.as_secs_f64().to_string());
        let params = [Some(notice.notice_id.clone()), Some(notice.attempt.to_string()), retry_in];
        self.writer.run_one(SETTLE_SQL, &params, Instant::now() + DEADLINE).await.map(drop)
    }
}
