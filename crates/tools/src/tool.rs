//! What a tool is.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ledger::ExecutorRegistry;
use ledger::read::ResponsePermit;
use manifest::Access;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use tokio::time::Instant;
use types::{CorrelationId, Failure, Principal, ProposalId, Rollback, Tier};

/// Everything that a client is told about a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolInfo {
    /// `^[a-zA-Z0-9_-]{1,64}$`, unique.
    pub name: String,
    /// For people.
    pub title: Option<String>,
    /// For the agent.
    pub description: String,
    /// `meta.tool_version` of its answers.
    pub version: String,
    /// Which profiles have it.
    pub access: Access,
    /// Who must agree before it writes; `None` for a tool that does not write by itself.
    pub tier: Option<Tier>,
    /// JSON Schema of the arguments.
    pub input_schema: Map<String, Value>,
    /// JSON Schema of the envelope.
    pub output_schema: Map<String, Value>,
    /// MCP's hints.
    pub hints: Annotations,
    /// The arguments whose values no message may quote.
    pub sensitive: Vec<String>,
    /// MCP's `_meta`; empty for none.
    pub meta: Map<String, Value>,
}

/// The key of MCP's `_meta` that has the tier of a tool.
pub const TIER: &str = "countersign/tier";

impl ToolInfo {
    /// The description as clients get it: with a sentence on the tier.
    #[must_use]
    pub fn full_description(&self) -> String {
        let sentence = match self.tier {
            None => return self.description.clone(),
            Some(Tier::Auto) => "Tier auto: written at once.",
            Some(Tier::Confirm) => "Tier confirm: the user has to agree to its proposal first.",
            Some(Tier::Approve) => "Tier approve: somebody else has to approve its proposal first.",
        };
        format!("{} {sentence}", self.description.trim_end())
    }

    /// `_meta` as clients get it: the operator's own, and the tier.
    #[must_use]
    pub fn full_meta(&self) -> Map<String, Value> {
        let mut meta = self.meta.clone();
        meta.extend(self.tier.map(|tier| (TIER.to_owned(), tier.as_str().into())));
        meta
    }
}

/// MCP's tool annotations that follow from what the tool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Annotations {
    /// It changes nothing.
    pub read_only: bool,
    /// It may take something away that no tool brings back.
    pub destructive: bool,
    /// The same call again changes nothing more.
    pub idempotent: bool,
}

impl Annotations {
    /// The same with what a manifest says otherwise, under MCP's names.
    #[must_use]
    pub fn overridden(self, annotations: &Map<String, Value>) -> Self {
        let said = |name: &str, otherwise| annotations.get(name).and_then(Value::as_bool).unwrap_or(otherwise);
        Self {
            read_only: said("readOnlyHint", self.read_only),
            destructive: said("destructiveHint", self.destructive),
            idempotent: said("idempotentHint", self.idempotent),
        }
    }
}

/// Who calls, and what is known of the client behind it.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// The principal.
    pub principal: Principal,
    /// As [`Call::asks_user`].
    pub asks_user: bool,
    /// As [`Call::said`].
    pub said: Option<UserDecision>,
}

impl From<Principal> for Caller {
    /// A client that cannot ask its user anything.
    fn from(principal: Principal) -> Self {
        Self { principal, ..Self::default() }
    }
}

/// A question to the user of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The proposal that the user decides on.
    pub proposal_id: ProposalId,
    /// Digest of the proposal as it is shown.
    pub digest: String,
    /// Text of the question.
    pub text: String,
}

/// The user's answer to a [`Question`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserDecision {
    /// The proposal that the question was about.
    pub proposal_id: ProposalId,
    /// Digest of the proposal when the user was asked.
    pub digest: String,
    /// The answer.
    pub answer: UserAnswer,
}

/// The three outcomes of an MCP elicitation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserAnswer {
    /// The user agreed.
    Accept,
    /// The user declined.
    Decline,
    /// The user closed the question without a choice.
    Cancel,
}

/// Tools that a caller has. A tool that reaches another tool reaches none beyond these.
pub trait ToolLookup: Debug + Send + Sync {
    /// Info of the tool of this name; `None` if the caller does not have it.
    fn info(&self, name: &str) -> Option<&ToolInfo>;

    /// Executors of all write tools of the server, including those of other profiles.
    fn executors(&self) -> &Arc<ExecutorRegistry>;
}

/// One call, its arguments checked against the schema.
#[derive(Debug)]
pub struct Call {
    /// Who calls.
    pub principal: Principal,
    /// Whether the transport can put a [`Question`] to the user of the client.
    pub asks_user: bool,
    /// What the user said to the question of this very call, when it comes again with that.
    pub said: Option<UserDecision>,
    /// What the agent sent.
    pub arguments: Map<String, Value>,
    /// When the answer is due.
    pub deadline: Instant,
    /// The tools that the caller has.
    pub tools: Arc<dyn ToolLookup>,
}

/// What a call that did not fail came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// It was done.
    Done,
    /// An identical call had been made before, and its answer was given again.
    Duplicate,
    /// Nothing was written yet: somebody has to agree.
    Proposed,
}

/// What a tool answers when it did what it was asked.
#[derive(Debug)]
pub struct ToolOutput {
    /// `data` of the envelope: an object, as the text that is sent.
    pub data: Box<RawValue>,
    /// The room that `data` takes until the client has taken it; large reads only.
    pub room: Option<ResponsePermit>,
    /// The receipt; writes only.
    pub correlation_id: Option<CorrelationId>,
    /// Rows touched; writes that happened only.
    pub rows_affected: Option<u64>,
    /// How to undo it; writes that happened only.
    pub rollback: Option<Rollback>,
    /// Whether it was done, for what is counted.
    pub success: Disposition,
    /// What the user of the client is to be asked before this is the last word; see [`Call::asks_user`].
    pub question: Option<Question>,
}

impl ToolOutput {
    /// The answer of a read that takes so much room.
    ///
    /// # Errors
    /// As [`ToolOutput::read`].
    pub fn of_rows(data: &impl serde::Serialize, room: Option<ResponsePermit>) -> ToolResult {
        Self::read(data).map(|answer| Self { room, ..answer })
    }

    /// The answer of a read. A result that has no JSON form is a defect of the tool.
    ///
    /// # Errors
    /// [`ToolError`] with `internal_error`.
    pub fn read(data: &impl serde::Serialize) -> ToolResult {
        match to_raw_value(data) {
            Ok(data) => {
                let success = Disposition::Done;
                let (correlation_id, rows_affected, rollback) = (None, None, None);
                Ok(Self { data, room: None, correlation_id, rows_affected, rollback, success, question: None })
            }
            Err(error) => {
                tracing::error!(%error, "a result cannot be serialized");
                Err(Failure::new(types::ErrorCode::InternalError, "the result cannot be written as JSON").into())
            }
        }
    }
}

/// What a tool answers when it did not.
#[derive(Debug)]
pub struct ToolError {
    /// The receipt, if the gate was passed.
    pub correlation_id: Option<CorrelationId>,
    /// Why.
    pub failure: Box<Failure>,
}

impl From<Failure> for ToolError {
    fn from(failure: Failure) -> Self {
        Self { correlation_id: None, failure: Box::new(failure) }
    }
}

/// What a call came to.
pub type ToolResult = Result<ToolOutput, ToolError>;

/// Something that an agent can call.
pub trait Tool: Send + Sync + 'static {
    /// What clients are told about it.
    fn info(&self) -> &ToolInfo;

    /// Does it. The arguments have been checked against `info().input_schema`. Dropping the future cancels a read; a
    /// write goes on to its end.
    fn call(&self, call: Call) -> Pin<Box<dyn Future<Output = ToolResult> + Send + '_>>;
}
