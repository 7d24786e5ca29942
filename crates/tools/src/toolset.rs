//! The tools of one database. Every call of a tool goes through its toolset.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use catalog::{CatalogNames, DatabaseDescriber, ResourceRegistry};
use futures_util::FutureExt;
use ledger::read::ResponsePermit;
use ledger::{DuplicateExecutor, ExecutorRegistry, ReadEntry, ReadLog, WriteExecutor};
use manifest::{BuiltinTool, OutdatedTool, ToolCatalog, ToolSpec};
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::time::Instant;
use types::{Envelope, ErrorCode, Failure, Meta, NumberFields, Principal, RoleName, Rollback};

use crate::activity::Activity;
use crate::arguments::{ArgumentValidator, EmptyValues};
use crate::builtin;
use crate::call_database::CallDatabase;
use crate::instructions;
use crate::manifest_tools::executor::ManifestExecutor;
use crate::manifest_tools::read::ManifestRead;
use crate::manifest_tools::write::ManifestWrite;
use crate::mask_policy::MaskPolicy;
use crate::metrics::{Metrics, ToolMetrics};
use crate::profile::Profile;
use crate::row_masking::{masked, refused_for_masks};
use crate::services::Services;
use crate::tool::{Call, Caller, PageRequest, Question, Tool, ToolError, ToolInfo, ToolLookup, ToolOutput, ToolResult};
use crate::unfit_tool::UnfitTool;

/// The failure that every call returns for now. The task that tries to connect updates it.
pub type Unavailable = watch::Receiver<Failure>;

/// The reason why the tools of a database cannot be built. The server must not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolsetError {
    #[error("two tools have the name \"{0}\": rename one of them in its manifest")]
    Duplicate(String),
    #[error("{0}: each has a name of its own")]
    DuplicateExecutor(#[from] DuplicateExecutor),
    #[error("tool \"{tool}\" needs the executor \"{executor}\", which is not registered in this server")]
    NoExecutor { tool: String, executor: String },
    #[error("the argument schema of tool \"{tool}\" cannot be used: {reason}")]
    Schema { tool: String, reason: String },
}

/// The name under which the log of reads records a read of a resource: the MCP method.
const RESOURCE: &str = "resources/read";

pub(crate) struct RegisteredTool {
    tool: Box<dyn Tool>,
    /// The description of the tool, with the overrides of a manifest.
    pub(crate) info: Arc<ToolInfo>,
    checker: ArgumentValidator,
    metrics: ToolMetrics,
}

impl RegisteredTool {
    /// Checks arguments against the schema. Returns them without those that count as absent, and the reason apart.
    fn check(&self, arguments: Map<String, Value>) -> Result<(Map<String, Value>, Option<String>), Failure> {
        let mut arguments = self.checker.check(&self.info.name, arguments)?;
        let reason = self.info.take_reason(&mut arguments)?;
        Ok((arguments, reason))
    }
}

/// The tools of a database, of all profiles or of one, in the order in which clients list them, built-in ones first.
#[derive(Default)]
pub struct Toolset {
    entries: Vec<Arc<RegisteredTool>>,
    /// The tools that are not served because they do not fit the database.
    outdated: Vec<Arc<UnfitTool>>,
    resources: ResourceRegistry,
    call_deadline: Duration,
    /// The executors of all write tools by tool name, including those of other profiles.
    executors: Arc<ExecutorRegistry>,
    /// Instructions for agents from the manifests.
    instructions: Arc<[String]>,
    /// The name of the profile; empty for all tools.
    profile: Arc<str>,
    /// The role of the profile.
    role: Option<RoleName>,
    masks: MaskPolicy,
    read_log: ReadLog,
    activity: Activity,
    /// The names of the tools of the manifests, whether they fit the database or not.
    declared: BTreeSet<String>,
    /// Why the database cannot be reached; `None` once it was.
    unavailable: Option<Unavailable>,
}

impl std::fmt::Debug for Toolset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.infos().map(|info| &info.name)).finish()
    }
}

impl Toolset {
    /// Every tool that can be served. `native` are the Rust executors that manifests can name.
    pub fn new(services: &Services, catalog: &ToolCatalog, native: &ExecutorRegistry) -> Result<Self, ToolsetError> {
        let executors = Arc::new(executors(services, catalog, native)?);
        let describer =
            services.reader.as_ref().map(|reader| DatabaseDescriber::new(CatalogNames::new(reader.clone()), catalog));
        let describer = describer.map(|describer| describer.with_masks(services.masks.strictest().cloned()));
        let resources = ResourceRegistry::new(describer, services.name.as_ref(), services.call_deadline);
        let call_deadline = services.call_deadline;
        let reads_only = (!services.has_ledger).then(|| instructions::sentence(instructions::READS_ONLY));
        let instructions = reads_only.into_iter().chain(catalog.instructions.iter().cloned()).collect();
        let (masks, read_log) = (services.masks.with_results_of(catalog), services.ledger.read_log());
        let mut toolset =
            Self { resources, call_deadline, executors, instructions, masks, read_log, ..Self::default() };
        toolset.activity = services.activity.clone();
        toolset.declared = declared(catalog);
        let unfit = |tool: &OutdatedTool| Arc::new(UnfitTool::new(tool, &services.metrics));
        toolset.outdated = catalog.outdated.iter().map(unfit).collect();
        for tool in builtin::all(services, catalog, &toolset.executors) {
            toolset.add_builtin(tool, catalog, &services.metrics)?;
        }
        for spec in &catalog.tools {
            let tool: Box<dyn Tool> = if spec.access.writes() {
                match toolset.executors.get(&spec.name) {
                    Some(executor) => Box::new(ManifestWrite::new(Arc::clone(spec), Arc::clone(executor), services)),
                    None => continue,
                }
            } else {
                match &services.reader {
                    Some(reader) => {
                        Box::new(ManifestRead::new(Arc::clone(spec), reader.clone(), services.masks.clone()))
                    }
                    None => continue,
                }
            };
            toolset.add(tool, &BuiltinTool::default(), &services.metrics)?;
        }
        Ok(toolset)
    }

    /// A toolset without tools, for an unreachable database. `catalog` has the instructions of the manifests.
    pub(crate) fn unreached(call_deadline: Duration, catalog: &ToolCatalog, unavailable: Unavailable) -> Self {
        let unreached = std::iter::once(instructions::UNREACHED.to_owned());
        let instructions = unreached.chain(catalog.instructions.iter().cloned()).collect();
        let (declared, unavailable) = (declared(catalog), Some(unavailable));
        Self { call_deadline, instructions, declared, unavailable, ..Self::default() }
    }

    /// Adds a built-in tool with the overrides of a manifest, unless a manifest has disabled it.
    pub(crate) fn add_builtin(
        &mut self,
        tool: Box<dyn Tool>,
        catalog: &ToolCatalog,
        metrics: &Metrics,
    ) -> Result<(), ToolsetError> {
        match catalog.builtin.get(&tool.info().name) {
            Some(overrides) if overrides.disabled => Ok(()),
            Some(overrides) => self.add(tool, overrides, metrics),
            None => self.add(tool, &BuiltinTool::default(), metrics),
        }
    }

    fn add(&mut self, tool: Box<dyn Tool>, overrides: &BuiltinTool, metrics: &Metrics) -> Result<(), ToolsetError> {
        let mut info = tool.info().clone();
        info.title = overrides.title.clone().or(info.title);
        info.description = overrides.description.clone().unwrap_or(info.description);
        info.input_schema = info.schema_with_reason();
        if self.get(&info.name).is_some() {
            return Err(ToolsetError::Duplicate(info.name.clone()));
        }
        let is_builtin = builtin::is_builtin(&info.name);
        let empty = if is_builtin { EmptyValues::Absent } else { EmptyValues::AbsentIfRefused };
        let checker = ArgumentValidator::new(&info.input_schema, &info.sensitive, empty)
            .map_err(|reason| ToolsetError::Schema { tool: info.name.clone(), reason })?;
        let metrics = metrics.of_tool(&info.name);
        self.entries.push(Arc::new(RegisteredTool { tool, info: Arc::new(info), checker, metrics }));
        Ok(())
    }

    /// The tools in a profile. They call no other tools, and a resource is there only if its tool is.
    #[must_use]
    pub fn narrowed(&self, profile: &Profile) -> Self {
        let included = |entry: &&Arc<RegisteredTool>| {
            let info = &entry.info;
            profile.includes(&info.name, info.access)
        };
        let entries: Vec<Arc<RegisteredTool>> = self.entries.iter().filter(included).cloned().collect();
        let outdated = self.outdated.iter().filter(|tool| profile.includes(&tool.name, tool.access)).cloned().collect();
        let (executors, instructions) = (Arc::clone(&self.executors), Arc::clone(&self.instructions));
        let call_deadline = self.call_deadline;
        let mut narrowed = Self {
            entries,
            outdated,
            resources: ResourceRegistry::default(),
            call_deadline,
            executors,
            instructions,
            profile: profile.name.as_str().into(),
            role: profile.role.clone(),
            masks: self.masks.clone(),
            read_log: self.read_log.clone(),
            activity: self.activity.clone(),
            declared: BTreeSet::new(),
            unavailable: self.unavailable.clone(),
        };
        narrowed.resources = self.resources.of_tools(&|name| narrowed.info(name).is_some());
        narrowed
    }

    /// The instructions for agents from the manifests, and what they must know of the database.
    pub(crate) fn instructions(&self) -> &[String] {
        &self.instructions
    }

    /// The resources that this profile can read.
    pub(crate) const fn resources(&self) -> &ResourceRegistry {
        &self.resources
    }

    /// The caller with the role of the profile, unless it has one.
    fn in_profile(&self, mut principal: Principal) -> Principal {
        if let Some(role) = self.role.as_ref().filter(|_| principal.context.role.is_none()) {
            Arc::make_mut(&mut principal.context).role = Some(role.clone());
        }
        principal
    }

    pub(crate) async fn read_resource(&self, uri: &str, principal: &Principal) -> Result<Value, Failure> {
        self.activity.note();
        let context = self.in_profile(principal.clone()).context;
        let read = self.read_log.begin(principal, RESOURCE);
        if let Some(read) = &read {
            read.trace().set_text(uri);
        }
        let outcome = self.resources.read(uri, &context, &|name| self.info(name).is_some()).await;
        end_read(read, outcome.as_ref().err());
        outcome
    }

    /// Whether there are no tools, not even tools that do not fit the database.
    #[must_use]
    pub fn has_nothing(&self) -> bool {
        self.entries.is_empty() && self.outdated.is_empty()
    }

    /// The tools that are not served because they do not fit the database.
    pub fn outdated(&self) -> impl Iterator<Item = &UnfitTool> {
        self.outdated.iter().map(Arc::as_ref)
    }

    /// Answers a call of a tool that does not fit the database; `None` if no such tool has this name.
    pub(crate) fn call_outdated(&self, name: &str) -> Option<CallResult> {
        self.unfit(name).map(UnfitTool::call).map(|(outcome, meta)| reply(outcome, meta, None))
    }

    pub(crate) const fn declared(&self) -> &BTreeSet<String> {
        &self.declared
    }

    pub(crate) const fn unavailable_because(&self) -> Option<&Unavailable> {
        self.unavailable.as_ref()
    }

    /// The failure of a call of a tool that other databases have: this one is unavailable, or the tool does not fit
    /// it.
    pub(crate) fn missing(&self, name: &str) -> Option<Failure> {
        let unavailable = self.unavailable.as_ref().map(|failure| failure.borrow().clone());
        unavailable.or_else(|| self.unfit(name).map(|tool| tool.failure.clone()))
    }

    pub(crate) const fn executors(&self) -> &Arc<ExecutorRegistry> {
        &self.executors
    }

    /// The tools, in the order in which clients list them.
    pub(crate) fn entries(&self) -> &[Arc<RegisteredTool>] {
        &self.entries
    }

    fn unfit(&self, name: &str) -> Option<&UnfitTool> {
        self.outdated().find(|tool| tool.name == name)
    }

    /// The description of each tool for clients.
    pub fn infos(&self) -> impl Iterator<Item = &ToolInfo> {
        self.entries.iter().map(|entry| entry.info.as_ref())
    }

    /// The description of this tool for clients; `None` if it is not served here.
    #[must_use]
    pub fn info(&self, name: &str) -> Option<&ToolInfo> {
        self.get(name).map(|entry| entry.info.as_ref())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<RegisteredTool>> {
        self.entries.iter().find(|entry| entry.info.name == name)
    }

    /// Calls a tool of this toolset. A panic of the tool becomes an `internal_error`. `database`: see
    /// [`Call::database`].
    pub(crate) async fn call(
        self: &Arc<Self>,
        entry: &RegisteredTool,
        arguments: Map<String, Value>,
        caller: Caller,
        database: Option<&Arc<CallDatabase>>,
    ) -> CallResult {
        let Caller { principal, asks_user, decision } = caller;
        let principal = self.in_profile(principal);
        let started = Instant::now();
        self.activity.note();
        let (name, known) = (entry.info.name.as_str(), entry.tool.number_fields());
        // The guard records the call when it is dropped, so that cancelled calls are recorded, too.
        let running = entry.metrics.begin(started);
        let masks = self.masks.of(&self.profile, &principal.account_id).filter(|_| entry.info.access.writes());
        let read = builtin::reads_rows(&entry.info).then(|| self.read_log.begin(&principal, name)).flatten();
        let outcome = match entry.check(arguments) {
            Ok(_) if masks.is_some() && name == builtin::execute_sql::NAME => Err(refused_for_masks(name).into()),
            Ok((arguments, reason)) => {
                let deadline = started + self.call_deadline;
                let call = Call {
                    principal,
                    profile: Arc::clone(&self.profile),
                    asks_user,
                    masks: masks.cloned(),
                    decision,
                    reason,
                    arguments,
                    deadline,
                    tools: Arc::clone(self) as Arc<dyn ToolLookup>,
                    trace: read.as_ref().map(ReadEntry::trace),
                    database: database.cloned(),
                };
                caught(async { entry.tool.call(call).await }).await
            }
            Err(failure) => Err(failure.into()),
        };
        let outcome = masked(outcome, masks.map(Arc::as_ref), (!builtin::is_builtin(name)).then_some(name));
        let outcome = outcome.map(|output| self.with_own_undo(output));
        running.ended(&outcome);
        end_read(read, outcome.as_ref().err().map(|error| error.failure.as_ref()));
        let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        reply(outcome, Meta::new(entry.info.version.clone(), elapsed_ms), known)
    }

    /// The answer, whose receipt names only tools that the caller has.
    fn with_own_undo(&self, mut output: ToolOutput) -> ToolOutput {
        if let (Some(rollback), Some(correlation_id)) = (&mut output.rollback, &output.correlation_id) {
            let mut calls = rollback.undo_tool.iter().chain(rollback.undo_calls.iter().map(|call| &call.tool));
            if let Some(missing) = calls.find(|tool| self.info(tool).is_none()).cloned() {
                *rollback = rollback.clone().without_calls(&missing, correlation_id);
            }
        }
        output
    }
}

impl RegisteredTool {
    /// Answers a call that is refused before it reaches a database.
    pub(crate) fn refuse(&self, failure: Failure, began: Instant) -> CallResult {
        let running = self.metrics.begin(began);
        let outcome = Err(failure.into());
        running.ended(&outcome);
        let elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        reply(outcome, Meta::new(self.info.version.clone(), elapsed_ms), self.tool.number_fields())
    }
}

impl ToolLookup for Toolset {
    fn info(&self, name: &str) -> Option<&ToolInfo> {
        Self::info(self, name)
    }

    fn unfit(&self, name: &str) -> Option<Failure> {
        Self::unfit(self, name).map(|tool| tool.failure.clone())
    }

    fn check(&self, name: &str, arguments: Map<String, Value>) -> Result<Map<String, Value>, Failure> {
        match self.get(name) {
            Some(entry) => entry.check(arguments).map(|(arguments, _)| arguments),
            None => Err(ToolLookup::unfit(self, name).unwrap_or_else(|| {
                Failure::new(ErrorCode::InvalidParams, format!("\"{name}\" is not a tool of this server"))
            })),
        }
    }

    fn executors(&self) -> &Arc<ExecutorRegistry> {
        &self.executors
    }
}

fn declared(catalog: &ToolCatalog) -> BTreeSet<String> {
    catalog.declared.iter().map(|tool| tool.name.clone()).collect()
}

/// The executors of all write tools, by the name of the tool. A tool whose manifest names an unknown executor
/// prevents the start of the server.
fn executors(
    services: &Services,
    catalog: &ToolCatalog,
    native: &ExecutorRegistry,
) -> Result<ExecutorRegistry, ToolsetError> {
    let mut executors = ExecutorRegistry::default();
    builtin::register(services, catalog, &mut executors)?;
    for spec in catalog.tools.iter().filter(|spec| spec.access.writes()) {
        let native = native_executor(spec, native)?;
        let executor = ManifestExecutor::new(Arc::clone(spec), native, catalog.self_contained.contains(&spec.name));
        executors.register(spec.name.clone(), Arc::new(executor))?;
    }
    Ok(executors)
}

fn native_executor(spec: &ToolSpec, native: &ExecutorRegistry) -> Result<Option<Arc<dyn WriteExecutor>>, ToolsetError> {
    let Some(name) = &spec.executor else { return Ok(None) };
    let missing = || ToolsetError::NoExecutor { tool: spec.name.clone(), executor: name.clone() };
    native.get(name).cloned().map(Some).ok_or_else(missing)
}

fn end_read(read: Option<ReadEntry>, failure: Option<&Failure>) {
    if let Some(read) = read {
        read.ended(failure.map(|failure| failure.code.as_str()));
    }
}

/// The outcome of a call, as clients get it.
#[derive(Debug)]
pub struct CallResult {
    pub envelope: Envelope,
    /// The memory permit of the envelope, to be dropped once the client has received it.
    pub permit: Option<ResponsePermit>,
    /// A question to the user, if the caller can ask. The call is then repeated with the answer, and that call has
    /// the final result.
    pub question: Option<Question>,
    pub page: Option<PageRequest>,
    /// The fields of the answer whose numbers are of type `numeric`, or inside JSON documents.
    pub number_fields: Arc<NumberFields>,
}

/// `known`: the number fields of every answer of the tool.
fn reply(outcome: ToolResult, meta: Meta, known: Option<&Arc<NumberFields>>) -> CallResult {
    let known = || known.cloned().unwrap_or_default();
    match outcome {
        Ok(ToolOutput {
            data,
            permit,
            standby,
            correlation_id,
            rows_affected,
            rollback,
            question,
            page,
            success: _,
            is_masked: _,
            number_fields,
        }) => {
            let rollback = rollback.map(Rollback::for_clients);
            CallResult {
                envelope: Envelope::Success {
                    data,
                    meta: Meta { standby, correlation_id, rows_affected, rollback, ..meta },
                },
                permit,
                question,
                page,
                number_fields: number_fields.unwrap_or_else(known),
            }
        }
        Err(ToolError { correlation_id, failure }) => CallResult {
            envelope: Envelope::Failure { error: *failure, meta: Meta { correlation_id, ..meta } },
            permit: None,
            question: None,
            page: None,
            number_fields: known(),
        },
    }
}

/// Catches panics, because rmcp sends the client no response if a tool panics.
async fn caught(outcome: impl Future<Output = ToolResult>) -> ToolResult {
    AssertUnwindSafe(outcome).catch_unwind().await.unwrap_or_else(|_| {
        let message = "internal error in the tool; see the server log";
        Err(Failure::new(ErrorCode::InternalError, message).into())
    })
}

#[cfg(test)]
mod tests;
