//! The outbox of notices. The transaction that changes a proposal writes the notice. A server claims the notice here,
//! sends it outside any transaction, and settles it.

use std::time::Duration;

use pg::WriterPool;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use types::ProposalId;

use crate::proposals::WriteCounts;

const TIMEOUT: Duration = Duration::from_secs(10);

const CLAIM_SQL: &str = "select countersign.claim_notices($1, make_interval(secs => $2::double precision))::text";
const SETTLE_SQL: &str = "select countersign.settle_notice($1, $2, make_interval(secs => $3::double precision))";

/// A notice that this server has claimed and must send.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Notice {
    /// The id, the same for every attempt.
    pub notice_id: String,
    /// The event: proposed, decided, stale, expired or failed.
    pub event: String,
    /// When the event happened, in RFC 3339.
    pub created_at: String,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// The proposal, without rows and parameters.
    pub data: NoticeData,
}

/// The part of a proposal that a notice contains. Unknown fields are absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeData {
    pub proposal_id: ProposalId,
    pub tool: String,
    /// The title of the tool, for people.
    pub title: String,
    /// The agent's reason for the write, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The numbers of its preview.
    #[serde(flatten)]
    pub counts: Option<WriteCounts>,
    /// The tier: `confirm` or `approve`.
    pub tier: String,
    pub status: String,
    pub account: String,
    /// The person or agent on whose behalf the write was proposed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// The number of people who must approve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<u32>,
    /// The group to which they must belong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvers: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The decision: `confirmed` or `rejected`; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_login: Option<String>,
    /// The channel of the decision, such as `elicitation` or `command_line`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_via: Option<String>,
    /// The error code, if the execution failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// The URL of the proposal in the console, which only the sender of the notice knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Notices {
    writer: WriterPool,
}

impl Notices {
    pub(crate) const fn new(writer: WriterPool) -> Self {
        Self { writer }
    }

    /// Claims at most `most` notices that are due. No other server gets them within `lease`.
    pub async fn claim(&self, most: usize, lease: Duration) -> Result<Vec<Notice>, pg::Error> {
        let params = [Some(most.to_string()), Some(lease.as_secs_f64().to_string())];
        let answer = self.writer.run_one(CLAIM_SQL, &params, Instant::now() + TIMEOUT).await?;
        let texts = answer.rows.into_iter().flatten().flatten();
        Ok(texts.filter_map(|text| serde_json::from_str(&text).ok()).collect())
    }

    /// Ends an attempt. The notice is removed, or becomes due again after `retry_in`.
    ///
    /// # Errors
    /// The query failed. The notice becomes due again at the end of its lease.
    pub async fn settle(&self, notice: &Notice, retry_in: Option<Duration>) -> Result<(), pg::Error> {
        let retry_in = retry_in.map(|pause| pause.as_secs_f64().to_string());
        let params = [Some(notice.notice_id.clone()), Some(notice.attempt.to_string()), retry_in];
        self.writer.run_one(SETTLE_SQL, &params, Instant::now() + TIMEOUT).await.map(drop)
    }
}
