//! The interface of a tool: its description, its calls and its output.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ledger::proposals::NewProposal;
use ledger::read::{ReadTrace, ResponsePermit};
use ledger::{ExecutorRegistry, WriteCall, WriteExecutor, WriteOutput, WriteRequest};
use manifest::Access;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use types::{
    CorrelationId, ErrorCode, Failure, MAX_WRITE_REASON_CHARS, Masks, NumberFields, Principal, ProposalId, REASON,
    ReasonRule, Redaction, Rollback, Rule, StandbyAge, Tier, ToolLimit,
};

use crate::call_database::CallDatabase;
use crate::policy_text;

/// The name of the tool that runs SQL of the caller that writes.
pub(crate) const EXECUTE_SQL: &str = "execute_sql";

/// The description of a tool for clients.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolInfo {
    /// `^[a-zA-Z0-9_-]{1,64}$`, unique.
    pub name: String,
    /// Title for users.
    pub title: Option<String>,
    /// Description for the agent.
    pub description: String,
    /// `meta.tool_version` of the tool's responses.
    pub version: String,
    /// Access class, which decides the profiles that have the tool.
    pub access: Access,
    /// Approval that a write needs; `None` for a tool that does not write by itself.
    pub tier: Option<Tier>,
    /// Whether a call needs a reason; `None` for a tool without the argument [`REASON`] of every write.
    pub reason: Option<ReasonRule>,
    /// Rules that require more approval for some calls, or refuse them.
    pub rules: Vec<Rule>,
    /// The limit of calls in a period.
    pub limit: Option<ToolLimit>,
    /// JSON Schema of the arguments.
    pub input_schema: Arc<Map<String, Value>>,
    /// JSON Schema of the envelope.
    pub output_schema: Arc<Map<String, Value>>,
    /// MCP's annotations.
    pub hints: Annotations,
    /// Names of the arguments whose values must not appear in any message.
    pub sensitive: Vec<String>,
    /// MCP's `_meta`; empty if there is none.
    pub meta: Map<String, Value>,
}

/// Key of MCP's `_meta` that contains the tier of a tool.
pub const TIER: &str = "countersign/tier";

/// Keys of MCP's `_meta` that contain the rules and the limit of a tool, if it has any.
const RULES: &str = "countersign/rules";
const LIMIT: &str = "countersign/limit";

impl ToolInfo {
    /// Description as clients get it, with sentences about the tier, the rules and the limit.
    #[must_use]
    pub fn full_description(&self) -> String {
        let sentence = match self.tier {
            None => return self.description.clone(),
            Some(Tier::Auto) => "Tier auto: written at once.",
            Some(Tier::Confirm) => "Tier confirm: the user has to agree to its proposal first.",
            Some(Tier::Approve) => "Tier approve: somebody else has to approve its proposal first.",
        };
        let policy = policy_text::sentences(&self.rules, self.limit);
        format!("{} {sentence}{policy}", self.description.trim_end())
    }

    /// The schema of the arguments with [`REASON`], if the tool has it.
    pub(crate) fn schema_with_reason(&self) -> Arc<Map<String, Value>> {
        let mut schema = Arc::clone(&self.input_schema);
        let Some(rule) = self.reason else { return schema };
        let all = Arc::make_mut(&mut schema);
        let property = json!({
            "type": "string",
            "maxLength": MAX_WRITE_REASON_CHARS,
            "description": "Why, for people.",
        });
        if let Some(properties) = all.entry("properties").or_insert_with(|| json!({})).as_object_mut() {
            properties.insert(REASON.to_owned(), property);
        }
        let required = all.entry("required").or_insert_with(|| json!([])).as_array_mut();
        if let Some(required) = required.filter(|_| rule == ReasonRule::Required) {
            required.push(REASON.into());
        }
        schema
    }

    /// Takes the reason out of checked arguments.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidParams`]: the tool needs a reason, and this one is blank; or it has U+0000, which
    /// PostgreSQL cannot store.
    pub(crate) fn take_reason(&self, arguments: &mut Map<String, Value>) -> Result<Option<String>, Failure> {
        let Some(rule) = self.reason else { return Ok(None) };
        let given = arguments.remove(REASON);
        let reason = given.as_ref().and_then(Value::as_str).map(str::trim).filter(|reason| !reason.is_empty());
        let refused = |why: &str| Failure::new(ErrorCode::InvalidParams, format!("{}: reason {why}", self.name));
        match reason {
            None if rule == ReasonRule::Required => Err(refused("is blank: say why you write")),
            Some(reason) if reason.contains('\0') => Err(refused("holds U+0000")),
            reason => Ok(reason.map(str::to_owned)),
        }
    }

    /// The schema of the arguments for clients.
    #[must_use]
    pub fn listed_schema(&self) -> Map<String, Value> {
        manifest::listed(&self.input_schema)
    }

    /// `_meta` as clients get it: the operator's entries, the tier, the rules and the limit.
    #[must_use]
    pub fn full_meta(&self) -> Map<String, Value> {
        let mut meta = self.meta.clone();
        meta.extend(self.tier.map(|tier| (TIER.to_owned(), tier.as_str().into())));
        if !self.rules.is_empty() {
            meta.insert(RULES.to_owned(), policy_text::rules(&self.rules));
        }
        meta.extend(self.limit.map(|limit| (LIMIT.to_owned(), json!(limit))));
        meta
    }
}

/// MCP's tool annotations, derived from the kind of tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Annotations {
    /// The tool changes nothing.
    pub read_only: bool,
    /// The tool may remove something that no tool can restore.
    pub destructive: bool,
    /// A repeated identical call has no further effect.
    pub idempotent: bool,
}

impl Annotations {
    /// These annotations, overridden by those of the manifest, whose keys are MCP's names.
    #[must_use]
    pub fn overridden(self, annotations: &Map<String, Value>) -> Self {
        let hint = |name: &str, otherwise| annotations.get(name).and_then(Value::as_bool).unwrap_or(otherwise);
        Self {
            read_only: hint("readOnlyHint", self.read_only),
            destructive: hint("destructiveHint", self.destructive),
            idempotent: hint("idempotentHint", self.idempotent),
        }
    }
}

/// The caller, and what is known about its client.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// The principal.
    pub principal: Principal,
    /// See [`Call::asks_user`].
    pub asks_user: bool,
    /// See [`Call::decision`].
    pub decision: Option<UserDecision>,
}

impl From<Principal> for Caller {
    /// A caller whose client cannot ask its user a question.
    fn from(principal: Principal) -> Self {
        Self { principal, ..Self::default() }
    }
}

/// A page that the user of the client is asked to open (URL elicitation).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// The proposal that the page is about.
    pub proposal_id: ProposalId,
    /// The address of the page.
    pub url: String,
    /// What the page is for.
    pub text: String,
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
    /// How long after the question it came.
    pub answered_after: Duration,
}

/// The user's action in an MCP elicitation. Some clients send one without a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserAnswer {
    /// The user agreed.
    Accept,
    /// The user declined.
    Decline,
    /// The client closed the question without a choice.
    Cancel,
}

/// The tools of a caller. A tool that calls another tool is limited to these.
pub trait ToolLookup: Debug + Send + Sync {
    /// The description of this tool; `None` if the caller does not have it.
    fn info(&self, name: &str) -> Option<&ToolInfo>;

    /// The failure of every call of this tool, if the caller has it but it does not fit the database.
    fn unfit(&self, name: &str) -> Option<Failure>;

    /// Checks arguments against the schema of this tool. Returns them without those that count as absent, and without
    /// the reason.
    ///
    /// # Errors
    /// A failure that names every mistake, or the tool if the caller does not have it.
    fn check(&self, name: &str, arguments: Map<String, Value>) -> Result<Map<String, Value>, Failure>;

    /// Executors of all write tools of the server, including those of other profiles.
    fn executors(&self) -> &Arc<ExecutorRegistry>;
}

/// One call, whose arguments were checked against the schema.
#[derive(Debug)]
pub struct Call {
    pub principal: Principal,
    pub profile: Arc<str>,
    /// Whether the transport can show a [`Question`] to the user of the client.
    pub asks_user: bool,
    /// The user's answer to the question of this call, if the transport repeats the call with it.
    pub decision: Option<UserDecision>,
    /// The agent's reason for the write, if it gave one.
    pub reason: Option<String>,
    /// Arguments that the agent sent, without its reason.
    pub arguments: Map<String, Value>,
    pub deadline: Instant,
    pub tools: Arc<dyn ToolLookup>,
    /// The masks of the caller. `None` for a caller without masks, and for a read, whose reader applies the masks
    /// itself.
    pub masks: Option<Arc<Masks>>,
    /// Collects facts about a read for the log of reads; `None` if the call is not logged.
    pub trace: Option<Arc<ReadTrace>>,
    /// The database that the call is about; `None` if the server has one without a name.
    pub database: Option<Arc<CallDatabase>>,
}

impl Call {
    /// A write of this tool with these parameters, on behalf of the caller.
    pub(crate) fn write(&self, tool: &str, params: Map<String, Value>, executor: &Arc<dyn WriteExecutor>) -> WriteCall {
        WriteCall {
            request: WriteRequest { principal: self.principal.clone(), params },
            tool: tool.to_owned(),
            reason: self.reason.clone(),
            redaction: Redaction::default(),
            idempotency_key: None,
            deadline: self.deadline,
            executor: Arc::clone(executor),
        }
    }
}

/// Kind of success of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Disposition {
    /// The tool did the work.
    #[default]
    Done,
    /// The response repeats the result of an earlier identical call.
    Duplicate,
    /// Nothing was written yet: the write needs approval.
    Proposed,
}

/// Output of a successful call.
#[derive(Debug, Default)]
pub struct ToolOutput {
    /// `data` of the envelope: a JSON object as the text that is sent.
    pub data: Box<RawValue>,
    /// Memory permit for `data`, kept until the client has received it; large reads only.
    pub permit: Option<ResponsePermit>,
    /// How far behind the standby was that answered; reads only.
    pub standby: Option<StandbyAge>,
    /// Correlation id of the write's record; writes only.
    pub correlation_id: Option<CorrelationId>,
    /// Number of rows touched; executed writes only.
    pub rows_affected: Option<u64>,
    /// Instructions for the undo; executed writes only.
    pub rollback: Option<Rollback>,
    /// Kind of success, for the metrics.
    pub success: Disposition,
    /// Question for the user of the client, asked before this output is final; see [`Call::asks_user`].
    pub question: Option<Question>,
    /// A page that the user of the client is asked to open. The user's reply has no effect.
    pub page: Option<PageRequest>,
    /// Whether the tool has applied the masks of the call to the rows in `data`. Otherwise the registry masks them by
    /// column name.
    pub is_masked: bool,
    /// The fields of this answer whose numbers are of type `numeric`, or inside JSON documents; `None` for the fields
    /// of the tool.
    pub number_fields: Option<Arc<NumberFields>>,
}

impl ToolOutput {
    /// Output of a read, with the memory permit for its size, and the standby that answered.
    pub fn of_rows(
        data: &impl serde::Serialize,
        (permit, standby): (Option<ResponsePermit>, Option<StandbyAge>),
    ) -> ToolResult {
        Self::read(data).map(|answer| Self { permit, standby, ..answer })
    }

    /// The output of an executed write.
    pub fn of_write(data: &impl serde::Serialize, correlation_id: CorrelationId, output: &WriteOutput) -> ToolResult {
        let (rows_affected, rollback) = (Some(output.rows_affected), Some(output.rollback.clone()));
        let correlation_id = Some(correlation_id);
        Self::read(data).map(|answer| Self { correlation_id, rows_affected, rollback, ..answer })
    }

    /// The output of a read. A result that cannot be serialized is a defect of the tool.
    pub fn read(data: &impl serde::Serialize) -> ToolResult {
        match to_raw_value(data) {
            Ok(data) => Ok(Self { data, ..Self::default() }),
            Err(error) => {
                tracing::error!(%error, "a result cannot be serialized");
                Err(Failure::new(types::ErrorCode::InternalError, "the result cannot be written as JSON").into())
            }
        }
    }
}

/// Error of a failed call.
#[derive(Debug)]
pub struct ToolError {
    /// Correlation id of the write's record, if the call passed the gate.
    pub correlation_id: Option<CorrelationId>,
    /// Reason of the failure.
    pub failure: Box<Failure>,
}

impl From<Failure> for ToolError {
    fn from(failure: Failure) -> Self {
        Self { correlation_id: None, failure: Box::new(failure) }
    }
}

/// Result of a call.
pub type ToolResult = Result<ToolOutput, ToolError>;

/// A tool that an agent can call.
pub trait Tool: Send + Sync + 'static {
    /// Info that clients get about the tool.
    fn info(&self) -> &ToolInfo;

    /// The fields of the tool's answers whose numbers are of type `numeric`, or inside JSON documents. `None` if they
    /// differ between answers.
    fn number_fields(&self) -> Option<&Arc<NumberFields>> {
        None
    }

    /// Executes the call. The arguments are already validated against `info().input_schema`. Dropping the
    /// future cancels a read; a write continues to its end.
    fn call(&self, call: Call) -> Pin<Box<dyn Future<Output = ToolResult> + Send + '_>>;
}

/// The future of [`WriteTool::prepare`].
pub(crate) type Prepared<'a> = Pin<Box<dyn Future<Output = Result<(WriteCall, NewProposal), Failure>> + Send + 'a>>;

/// A tool whose calls are writes, or proposals of writes.
pub(crate) trait WriteTool: Send + Sync + 'static {
    /// The write that these arguments request, and what its proposal would have. They were checked against the schema.
    fn prepare<'a>(&'a self, arguments: Map<String, Value>, call: &'a Call) -> Prepared<'a>;
}
