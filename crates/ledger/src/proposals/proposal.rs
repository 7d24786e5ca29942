//! What is stored of a proposal, and what becomes one.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use types::{AccountId, ClientInfo, CorrelationId, Failure, Principal, ProposalId, Tier};

use super::preview::Preview;
use super::state::{ProposalStatus, closed};
use crate::executor::{WriteExecutor, WriteRequest};

/// A write that is to be proposed.
#[derive(Clone)]
pub struct NewProposal {
    /// Who wants what.
    pub request: WriteRequest,
    /// The tool.
    pub tool: String,
    /// `meta.tool_version` of its answers.
    pub tool_version: String,
    /// Who has to agree.
    pub tier: Tier,
    /// The caller's own key, if there is one.
    pub idempotency_key: Option<String>,
    /// What would carry it out.
    pub executor: Arc<dyn WriteExecutor>,
}

/// A stored proposal. Times are RFC 3339, UTC.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Proposal {
    /// Its name.
    pub proposal_id: ProposalId,
    /// Whose write it is.
    pub account_id: AccountId,
    /// The label of whoever proposed.
    pub actor: Option<String>,
    /// Where it was proposed from; absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientInfo>,
    /// The tool.
    pub tool_name: String,
    /// The version of the tool.
    pub tool_version: String,
    /// SHA-256 of what the tool does.
    pub definition: String,
    /// Who has to agree.
    pub tier: Tier,
    /// For people: what would happen.
    pub description: String,
    /// Every effective parameter.
    pub params: Map<String, Value>,
    /// The fingerprint of the call.
    pub params_hash: String,
    /// The caller's own key.
    pub idempotency_key: Option<String>,
    /// What the write would come to.
    pub preview: Preview,
    /// What is agreed to, in 64 hexadecimal digits.
    pub digest: String,
    /// When it was proposed.
    pub created_at: String,
    /// Until when it can be agreed to.
    pub expires_at: String,
    /// One that nobody decided on in time reads expired, also before it was ended.
    pub status: ProposalStatus,
    /// Who decided: an account, or a user of the operating system.
    pub decided_by: Option<String>,
    /// The database login that told the decision.
    pub decided_login: Option<String>,
    /// How it was told.
    pub decided_via: Option<String>,
    /// When.
    pub decided_at: Option<String>,
    /// Why it was rejected, in the words of whoever did.
    pub reason: Option<String>,
    /// The mutation that ended it.
    pub correlation_id: Option<CorrelationId>,
    /// Why it failed.
    pub error_code: Option<String>,
    /// The same in a sentence.
    pub error_message: Option<String>,
    /// When it ended.
    pub completed_at: Option<String>,
}

/// A proposal in short: without parameters and preview, which may be large.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProposalSummary {
    /// Its name.
    pub proposal_id: ProposalId,
    /// Whose write it is.
    pub account_id: AccountId,
    /// The label of whoever proposed.
    pub actor: Option<String>,
    /// The tool.
    pub tool_name: String,
    /// Who has to agree.
    pub tier: Tier,
    /// For people: what would happen.
    pub description: String,
    /// What is agreed to.
    pub digest: String,
    /// When it was proposed.
    pub created_at: String,
    /// Until when it can be agreed to.
    pub expires_at: String,
    /// As in [`Proposal`].
    pub status: ProposalStatus,
    /// Who decided.
    pub decided_by: Option<String>,
    /// As in [`Proposal`].
    pub decided_login: Option<String>,
    /// How it was told.
    pub decided_via: Option<String>,
    /// When.
    pub decided_at: Option<String>,
    /// The mutation that ended it.
    pub correlation_id: Option<CorrelationId>,
    /// Why it failed.
    pub error_code: Option<String>,
    /// The same in a sentence.
    pub error_message: Option<String>,
    /// When it ended.
    pub completed_at: Option<String>,
}

/// Which proposals to list.
#[derive(Debug, Clone, Default)]
pub struct ProposalFilter {
    /// Only of this account; `None` for people, who see all.
    pub account: Option<AccountId>,
    /// Only in this state.
    pub status: Option<ProposalStatus>,
    /// The most proposals, the newest first.
    pub limit: u32,
}

impl Proposal {
    /// What is told to whoever wants something of it that its state does not allow.
    #[must_use]
    pub fn closed(&self) -> Failure {
        closed(self.status, self.error_message.as_deref().or(self.reason.as_deref()))
    }

    /// On whose behalf it is carried out.
    #[must_use]
    pub fn request(&self) -> WriteRequest {
        let principal = Principal {
            account_id: self.account_id.clone(),
            actor: self.actor.clone(),
            client: self.client.clone().unwrap_or_default(),
        };
        WriteRequest { principal, params: self.params.clone() }
    }
}
