//! `propose_schema_change`: an agent proposes a change of tables' definitions as text. No server has rights on
//! definitions: a person carries it out in their own login.

use ledger::schema_changes::{MAX_REASON_CHARS, SchemaChange, SchemaChangeStatus, SchemaChanges};
use manifest::Access;
use schema_change::{Finding, SchemaChangeText};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use types::{ErrorCode, Failure, SchemaChangeId};

use super::Builtin;
use crate::schema::{AnyJson, builtin_info};
use crate::tool::{Annotations, Call, Disposition, Tool, ToolInfo, ToolOutput, ToolResult};

pub(super) const NAME: &str = "propose_schema_change";

const DESCRIPTION: &str = "Propose a change of tables, indexes or other definitions as SQL (DDL). Nothing is run or tried here: a \
    person looks at it, tries it and carries it out. The same text again answers the proposal that waits. get_proposal \
    has what became of it. Leave BEGIN and COMMIT out, and use CREATE INDEX CONCURRENTLY on large tables.";

/// What the agent sends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The statements, exactly as they are to be carried out.
    #[schemars(length(min = 1, max = 65536))]
    sql: String,
    /// Why the change is needed, for the person who decides.
    #[schemars(length(min = 1, max = 500))]
    reason: String,
}

/// `data` of the answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SchemaChangeData {
    /// What get_proposal finds it by.
    #[schemars(with = "String")]
    proposal_id: SchemaChangeId,
    /// propose_schema_change.
    action: &'static str,
    /// pending, applying, applied, failed, rejected or expired.
    #[schemars(with = "String")]
    status: SchemaChangeStatus,
    /// Why it was proposed.
    description: String,
    /// What is carried out is exactly what has this digest.
    digest: String,
    /// When it was proposed.
    created_at: String,
    /// Until when a person can begin it.
    expires_at: String,
    /// What a linter advises, by line: worth a better proposal.
    #[schemars(with = "Vec<AnyJson>")]
    findings: Vec<Finding>,
    /// How many steps there are.
    steps: usize,
    /// How many of them have ended.
    ended_steps: u32,
    /// Why it was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    decision_reason: Option<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    error_message: Option<String>,
    /// What happens next.
    message: String,
}

impl SchemaChangeData {
    pub(super) fn new(change: SchemaChange, text: Option<&SchemaChangeText>) -> Self {
        let message = match change.status {
            SchemaChangeStatus::Pending => format!(
                "Nothing was changed. A person carries it out with `countersign schema apply {}`, or rejects it.",
                change.change_id
            ),
            SchemaChangeStatus::Applying => {
                "A person has begun to carry it out, and its end is not on record.".to_owned()
            }
            SchemaChangeStatus::Applied => "It was carried out.".to_owned(),
            SchemaChangeStatus::Failed => "It failed. What had ended before stays. Propose what is left.".to_owned(),
            SchemaChangeStatus::Rejected => {
                "It was rejected; nothing was changed. Do not propose it again unless asked to.".to_owned()
            }
            SchemaChangeStatus::Expired => "Nobody carried it out in time; nothing was changed.".to_owned(),
        };
        Self {
            proposal_id: change.change_id,
            action: NAME,
            status: change.status,
            description: change.reason,
            digest: change.digest,
            created_at: change.created_at,
            expires_at: change.expires_at,
            findings: text.map(|text| text.findings().to_vec()).unwrap_or_default(),
            steps: text.map(|text| text.steps().len()).unwrap_or_default(),
            ended_steps: change.ended_steps,
            decision_reason: change.decision_reason,
            error_message: change.error_message,
            message,
        }
    }
}

pub(super) fn tool(changes: SchemaChanges) -> Box<dyn Tool> {
    let info = builtin_info::<Arguments, SchemaChangeData>(NAME, "Propose a schema change", DESCRIPTION, Access::Admin);
    let info = ToolInfo { hints: Annotations { read_only: false, destructive: false, idempotent: true }, ..info };
    Builtin::boxed(info, changes, |changes, given, call| Box::pin(propose(changes, given, call)))
}

/// Parses on a thread of its own, since a text can take a while.
pub(super) async fn parse(sql: String) -> Result<SchemaChangeText, Failure> {
    let parsed = tokio::task::spawn_blocking(move || SchemaChangeText::parse(&sql)).await;
    let refused = |message: String| Failure::new(ErrorCode::InvalidParams, message);
    let parsed = parsed.map_err(|error| refused(format!("{NAME}: sql cannot be read: {error}")))?;
    parsed.map_err(|error| refused(format!("{NAME}: sql: {error}")))
}

async fn propose(changes: &SchemaChanges, given: Arguments, call: Call) -> ToolResult {
    let reason = given.reason.trim();
    if reason.is_empty() || reason.chars().count() > MAX_REASON_CHARS {
        let message = format!("{NAME}: reason takes 1 to {MAX_REASON_CHARS} characters");
        return Err(Failure::new(ErrorCode::InvalidParams, message).into());
    }
    let text = parse(given.sql.clone()).await?;
    let change = changes.propose(&call.principal, reason, &given.sql).await?;
    let output = ToolOutput::read(&SchemaChangeData::new(change, Some(&text)))?;
    Ok(ToolOutput { success: Disposition::Proposed, ..output })
}
