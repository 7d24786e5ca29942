//! All tools by name, and the one way to call them.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use contract::{Envelope, ErrorCode, Failure, Meta};
use futures_util::FutureExt;
use ledger::read::Room;
use ledger::{DuplicateExecutor, Executor, Executors};
use manifest::{Catalog, Location, ToolSpec};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::arguments::Checker;
use crate::builtin::{self, Backends};
use crate::manifest_executor::ManifestExecutor;
use crate::manifest_read::ManifestRead;
use crate::manifest_write::ManifestWrite;
use crate::metrics::{Metrics, Series};
use crate::profile::Profile;
use crate::proposing::Question;
use crate::resources::{self, Resource};
use crate::tool::{Answer, Call, Caller, Outcome, Refused, Tool, ToolInfo};

/// Why the registry cannot be made: the server must not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistryError {
    /// Two tools of one name.
    Duplicate(String),
    /// Two executors of one name.
    DuplicateExecutor(DuplicateExecutor),
    /// Tools whose executors are not registered.
    NoExecutor(Vec<MissingExecutor>),
    /// A schema that is none.
    Schema {
        /// The tool.
        tool: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// A tool that nothing would carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingExecutor {
    /// The tool.
    pub tool: String,
    /// The name of the executor that its manifest gives.
    pub executor: String,
    /// Where.
    pub declared_at: Location,
    /// Those that are registered.
    pub registered: Vec<String>,
}

impl std::fmt::Display for MissingExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { tool, executor, registered, .. } = self;
        let known =
            if registered.is_empty() { "none is".to_owned() } else { format!("registered: {}", registered.join(", ")) };
        write!(f, "tool \"{tool}\" needs the executor \"{executor}\", which is not registered in this server ({known})")
    }
}

impl std::error::Error for RegistryError {}

impl From<DuplicateExecutor> for RegistryError {
    fn from(error: DuplicateExecutor) -> Self {
        Self::DuplicateExecutor(error)
    }
}

impl std::fmt::Display for RegistryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Duplicate(tool) => {
                write!(f, "two tools have the name \"{tool}\": rename one of them in its manifest")
            }
            Self::DuplicateExecutor(error) => write!(f, "{error}: each has a name of its own"),
            Self::NoExecutor(missing) => {
                let lines: Vec<String> = missing.iter().map(ToString::to_string).collect();
                write!(f, "{}", lines.join("; "))
            }
            Self::Schema { tool, reason } => {
                write!(f, "the argument schema of tool \"{tool}\" cannot be used: {reason}")
            }
        }
    }
}

struct Entry {
    tool: Box<dyn Tool>,
    checker: Checker,
    series: Series,
}

/// Tools, in the order in which clients see them: built-in ones first. All that there are, or those of one profile.
#[derive(Default)]
pub struct Registry {
    entries: Vec<Arc<Entry>>,
    /// See `resources/serve.rs`.
    pub(crate) resources: Vec<Arc<dyn Resource>>,
    pub(crate) call_deadline: Duration,
    /// What carries the write tools out, by their names: of all tools, whatever the profile.
    executors: Arc<Executors>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.infos().map(|info| &info.name)).finish()
    }
}

impl Registry {
    /// Every tool that can be served. `native` are the executors in Rust that manifests can name.
    ///
    /// # Errors
    /// [`RegistryError`] if two of them have one name, an executor is missing, or a schema cannot be used.
    pub fn new(backends: &Backends, catalog: &Catalog, native: &Executors) -> Result<Self, RegistryError> {
        let executors = Arc::new(executors(backends, catalog, native)?);
        let resources = resources::all(backends, catalog);
        let call_deadline = backends.call_deadline;
        let mut registry = Self { resources, call_deadline, executors, ..Self::default() };
        let builtin = builtin::all(backends, catalog, &registry.executors);
        for tool in builtin.map_err(|(tool, reason)| RegistryError::Schema { tool, reason })? {
            registry.add(tool, &backends.metrics)?;
        }
        for spec in &catalog.tools {
            let tool: Box<dyn Tool> = if spec.access.writes() {
                match registry.executors.get(&spec.name) {
                    Some(executor) => Box::new(ManifestWrite::new(Arc::clone(spec), Arc::clone(executor), backends)),
                    None => continue,
                }
            } else {
                match &backends.reader {
                    Some(reader) => Box::new(ManifestRead::new(Arc::clone(spec), reader.clone())),
                    None => continue,
                }
            };
            registry.add(tool, &backends.metrics)?;
        }
        Ok(registry)
    }

    pub(crate) fn empty(call_deadline: Duration) -> Self {
        Self { call_deadline, ..Self::default() }
    }

    pub(crate) fn add(&mut self, tool: Box<dyn Tool>, metrics: &Metrics) -> Result<(), RegistryError> {
        let info = tool.info();
        if self.get(&info.name).is_some() {
            return Err(RegistryError::Duplicate(info.name.clone()));
        }
        let checker = Checker::new(&info.input_schema, &info.sensitive)
            .map_err(|reason| RegistryError::Schema { tool: info.name.clone(), reason })?;
        let series = metrics.of_tool(&info.name);
        self.entries.push(Arc::new(Entry { tool, checker, series }));
        Ok(())
    }

    /// Those that a profile includes: no other can be called through what this returns, and no resource read whose tool
    /// is not among them.
    #[must_use]
    pub fn narrowed(&self, profile: &Profile) -> Self {
        let included = |entry: &&Arc<Entry>| {
            let info = entry.tool.info();
            profile.includes(&info.name, info.access)
        };
        let entries: Vec<Arc<Entry>> = self.entries.iter().filter(included).cloned().collect();
        let executors = Arc::clone(&self.executors);
        let mut narrowed = Self { entries, resources: Vec::new(), call_deadline: self.call_deadline, executors };
        let readable = self.resources.iter().filter(|resource| narrowed.info(resource.info().tool).is_some());
        narrowed.resources = readable.cloned().collect();
        narrowed
    }

    /// What carries out the write tools of this server, also those that this profile does not have.
    #[must_use]
    pub const fn executors(&self) -> &Arc<Executors> {
        &self.executors
    }

    /// Whether there is no tool.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What clients are told about each tool.
    pub fn infos(&self) -> impl Iterator<Item = &ToolInfo> {
        self.entries.iter().map(|entry| entry.tool.info())
    }

    /// What clients are told about the tool of this name; `None` if it is not served here. A tool that reaches another
    /// one must ask this of [`Call::tools`].
    #[must_use]
    pub fn info(&self, name: &str) -> Option<&ToolInfo> {
        self.get(name).map(|entry| entry.tool.info())
    }

    fn get(&self, name: &str) -> Option<&Arc<Entry>> {
        self.entries.iter().find(|entry| entry.tool.info().name == name)
    }

    /// Calls a tool; `None` if there is none of this name. Never panics: a tool that does is an `internal_error`.
    pub async fn call(
        self: &Arc<Self>,
        name: &str,
        arguments: Map<String, Value>,
        caller: impl Into<Caller>,
    ) -> Option<Reply> {
        let Caller { principal, asks_user, said } = caller.into();
        let started = Instant::now();
        let entry = self.get(name)?;
        // Counts the call when it is dropped, so also one that its caller gives up.
        let running = entry.series.begin(started);
        let outcome = match entry.checker.check(name, &arguments) {
            Ok(()) => {
                let deadline = started + self.call_deadline;
                let call = Call { principal, asks_user, said, arguments, deadline, tools: Arc::clone(self) };
                caught(entry.tool.call(call)).await
            }
            Err(failure) => Err(failure.into()),
        };
        running.ended(&outcome);
        let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Some(reply(outcome, Meta::new(entry.tool.info().version.clone(), elapsed_ms)))
    }
}

/// What carries out each write tool, registered by the tool's name. Made of what the tools themselves say, so that none can be
/// forgotten: a tool whose manifest names an executor that is not there stops the start.
fn executors(backends: &Backends, catalog: &Catalog, native: &Executors) -> Result<Executors, RegistryError> {
    let mut executors = Executors::default();
    builtin::register(backends, &mut executors)?;
    let missing = missing_executors(catalog, native);
    if !missing.is_empty() {
        return Err(RegistryError::NoExecutor(missing));
    }
    for spec in catalog.tools.iter().filter(|spec| spec.access.writes()) {
        let native = native_executor(spec, native).unwrap_or_default();
        let executor = ManifestExecutor::new(Arc::clone(spec), catalog, native);
        executors.register(spec.name.clone(), Arc::new(executor))?;
    }
    Ok(executors)
}

/// The tools of the manifests whose executors are not among these.
#[must_use]
pub fn missing_executors(catalog: &Catalog, native: &Executors) -> Vec<MissingExecutor> {
    catalog.tools.iter().filter_map(|spec| native_executor(spec, native).err()).collect()
}

/// The executor in Rust that the tool names, if it names one.
fn native_executor(spec: &ToolSpec, native: &Executors) -> Result<Option<Arc<dyn Executor>>, MissingExecutor> {
    let Some(name) = &spec.executor else { return Ok(None) };
    native.get(name).cloned().map(Some).ok_or_else(|| MissingExecutor {
        tool: spec.name.clone(),
        executor: name.clone(),
        declared_at: spec.executor_at.clone().unwrap_or_else(|| spec.declared_at.clone()),
        registered: native.names().map(str::to_owned).collect(),
    })
}

/// What a call is answered with.
#[derive(Debug)]
pub struct Reply {
    /// The answer itself.
    pub envelope: Envelope,
    /// The room that it takes: to be dropped once the client has taken it.
    pub room: Option<Room>,
    /// What the user is to be asked, if the caller can ask: the same call with what they said has the last word.
    pub question: Option<Question>,
}

fn reply(outcome: Outcome, meta: Meta) -> Reply {
    match outcome {
        Ok(Answer { data, room, correlation_id, rows_affected, rollback, question, success: _ }) => Reply {
            envelope: Envelope::Success { data, meta: Meta { correlation_id, rows_affected, rollback, ..meta } },
            room,
            question,
        },
        Err(Refused { correlation_id, failure }) => Reply {
            envelope: Envelope::Failure { error: *failure, meta: Meta { correlation_id, ..meta } },
            room: None,
            question: None,
        },
    }
}

/// rmcp leaves a client without an answer when a tool panics.
async fn caught(outcome: impl Future<Output = Outcome>) -> Outcome {
    AssertUnwindSafe(outcome).catch_unwind().await.unwrap_or_else(|_| {
        let message = "the tool failed inside; the server's log has the rest";
        Err(Failure::new(ErrorCode::InternalError, message).into())
    })
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use manifest::Access;

    use contract::Principal;

    use super::*;
    use crate::tool::Hints;

    struct Broken(ToolInfo);

    impl Tool for Broken {
        fn info(&self) -> &ToolInfo {
            &self.0
        }

        fn call(&self, _: Call) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
            Box::pin(async { panic!("with a secret in it") })
        }
    }

    fn broken() -> Box<dyn Tool> {
        Box::new(Broken(ToolInfo {
            name: "broken".into(),
            title: None,
            description: String::new(),
            version: "1.0".into(),
            access: Access::Read,
            input_schema: Map::new(),
            output_schema: Map::new(),
            hints: Hints { read_only: true, destructive: false, idempotent: true },
            sensitive: Vec::new(),
            meta: Map::new(),
        }))
    }

    #[tokio::test]
    async fn a_tool_that_panics_answers_internal_error_without_its_words() {
        let mut registry = Registry { call_deadline: Duration::from_secs(1), ..Registry::default() };
        let metrics = Metrics::new();
        registry.add(broken(), &metrics).unwrap();
        let registry = Arc::new(registry);
        let reply = registry.call("broken", Map::new(), Principal::default()).await.unwrap();
        let Envelope::Failure { error, .. } = reply.envelope else { panic!("{reply:?}") };
        assert_eq!(error.code, ErrorCode::InternalError);
        assert!(!error.message.contains("secret"), "{}", error.message);
        assert!(registry.call("unknown", Map::new(), Principal::default()).await.is_none());
        let counted = metrics.counted();
        assert!(counted.contains(r#"calls_total{tool="broken",outcome="internal_error"} 1"#), "{counted}");
        assert!(!counted.contains("\"unknown\"") && counted.contains("calls_in_flight 0\n"), "{counted}");
    }

    #[test]
    fn two_tools_of_one_name_are_refused() {
        let mut registry = Registry { call_deadline: Duration::from_secs(1), ..Registry::default() };
        registry.add(broken(), &Metrics::new()).unwrap();
        assert_eq!(registry.add(broken(), &Metrics::new()), Err(RegistryError::Duplicate("broken".into())));
    }
}
