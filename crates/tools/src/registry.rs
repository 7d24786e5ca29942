//! The tools of a caller, in all databases that it reaches.
//!
//! ```text
//! Registry ── tool name, argument `database` ──> Toolset of that database ──> Tool
//! ```
//! A server with one database without a name has no such argument, and its tools are those of the database.

use std::collections::BTreeSet;
use std::sync::Arc;

use catalog::ResourceRegistry;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use types::{DatabaseLabel, Envelope, ErrorCode, Failure, Principal};

use crate::builtin;
use crate::call_database::{CallDatabase, DATABASE};
use crate::instructions;
use crate::tool::{Caller, ToolInfo};
use crate::toolset::{CallResult, RegisteredTool, Toolset};

/// The tools of a database, and its name if the server has several.
#[derive(Debug, Clone)]
pub(crate) struct NamedToolset {
    pub(crate) database: Option<Arc<CallDatabase>>,
    pub(crate) tools: Arc<Toolset>,
}

impl NamedToolset {
    fn name(&self) -> Option<&str> {
        self.database.as_ref().map(|database| database.label.name.as_str())
    }
}

/// A tool as clients see it, and where it is.
struct RegistryEntry {
    info: Arc<ToolInfo>,
    /// Whether a call names the database.
    takes_database: bool,
    /// The databases that have the tool, by their index, with the tool. Never empty.
    tools: Vec<(usize, Arc<RegisteredTool>)>,
}

/// The tools of a caller, in the order in which clients list them, built-in ones first.
#[derive(Default)]
pub struct Registry {
    databases: Vec<NamedToolset>,
    entries: Vec<RegistryEntry>,
    resources: ResourceRegistry,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.infos().map(|info| &info.name)).finish()
    }
}

impl Registry {
    /// The tools of one database without a name.
    #[must_use]
    pub fn of_one(tools: Arc<Toolset>) -> Self {
        Self::new(vec![NamedToolset { database: None, tools }])
    }

    pub(crate) fn new(databases: Vec<NamedToolset>) -> Self {
        let resources = ResourceRegistry::of_all(databases.iter().map(|database| database.tools.resources()));
        let mut entries: Vec<RegistryEntry> = Vec::new();
        for (index, NamedToolset { database, tools }) in databases.iter().enumerate() {
            for tool in tools.entries() {
                let name = tool.info.name.as_str();
                if let Some(entry) = entries.iter_mut().find(|entry| entry.info.name == name) {
                    entry.tools.push((index, Arc::clone(tool)));
                    continue;
                }
                let takes_database = database.as_ref().is_some_and(|database| database.is_argument_of(name));
                entries.push(RegistryEntry {
                    info: Arc::clone(&tool.info),
                    takes_database,
                    tools: vec![(index, Arc::clone(tool))],
                });
            }
        }
        let place = |entry: &RegistryEntry| builtin::NAMES.iter().position(|name| *name == entry.info.name);
        entries.sort_by_key(|entry| place(entry).unwrap_or(usize::MAX));
        for entry in entries.iter_mut().filter(|entry| entry.takes_database) {
            let having = entry.tools.iter().filter_map(|(index, _)| databases.get(*index)?.database.as_deref());
            entry.info = Arc::new(with_database(&entry.info, &having.collect::<Vec<_>>()));
        }
        Self { databases, entries, resources }
    }

    /// The description of each tool for clients.
    pub fn infos(&self) -> impl Iterator<Item = &ToolInfo> {
        self.entries.iter().map(|entry| entry.info.as_ref())
    }

    /// The description of this tool for clients; `None` if it is not served here.
    #[must_use]
    pub fn info(&self, name: &str) -> Option<&ToolInfo> {
        self.entry(name).map(|entry| entry.info.as_ref())
    }

    fn entry(&self, name: &str) -> Option<&RegistryEntry> {
        self.entries.iter().find(|entry| entry.info.name == name)
    }

    /// The names of the databases that the caller reaches; empty if the server has one without a name.
    pub fn databases(&self) -> impl Iterator<Item = &DatabaseLabel> {
        self.databases.iter().filter_map(|database| Some(&database.database.as_ref()?.label))
    }

    /// The name of the database that a call is about; `None` if the server has one without a name, or the call names
    /// none that the caller reaches.
    #[must_use]
    pub fn database_of_call(&self, name: &str, arguments: &Map<String, Value>) -> Option<&str> {
        match self.entry(name) {
            Some(entry) if !entry.takes_database => {
                let (index, _) = entry.tools.first()?;
                self.databases.get(*index)?.name()
            }
            _ => self.named_database(arguments),
        }
    }

    fn named_database(&self, arguments: &Map<String, Value>) -> Option<&str> {
        let named = arguments.get(DATABASE)?.as_str()?;
        self.databases.iter().filter_map(NamedToolset::name).find(|name| *name == named)
    }

    /// The name of the database of a resource; `None` as for a call.
    #[must_use]
    pub fn database_of_resource(&self, uri: &str) -> Option<&str> {
        self.databases.iter().find(|database| database.tools.resources().has(uri))?.name()
    }

    /// The instructions for an agent: how these tools work together, and the operator's instructions.
    #[must_use]
    pub fn instructions(&self) -> String {
        let labels: Vec<&DatabaseLabel> = self.databases().collect();
        let mut parts = vec![instructions::of_tools(&self.infos().collect::<Vec<_>>(), &labels)];
        for part in self.databases.iter().flat_map(|database| database.tools.instructions()) {
            if !parts.contains(part) {
                parts.push(part.clone());
            }
        }
        parts.join("\n\n")
    }

    /// The resources that the caller can read.
    #[must_use]
    pub const fn resources(&self) -> &ResourceRegistry {
        &self.resources
    }

    /// Reads a resource.
    ///
    /// # Errors
    /// `not_found` with the nearest names that exist, or the failure of the read of the catalog.
    pub async fn read_resource(&self, uri: &str, principal: &Principal) -> Result<Value, Failure> {
        let having = match self.databases.as_slice() {
            [only] => Some(only),
            several => several.iter().find(|database| database.tools.resources().has(uri)),
        };
        match having {
            Some(database) => database.tools.read_resource(uri, principal).await,
            None => self.resources.read(uri, &principal.context, &|_| false).await,
        }
    }

    /// Calls a tool; `None` if the caller has no tool of this name, not even one that does not fit its database.
    pub async fn call(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        caller: impl Into<Caller>,
    ) -> Option<CallResult> {
        let Some(entry) = self.entry(name) else { return self.call_outdated(name, &arguments) };
        let (index, tool, arguments) = match self.route(entry, arguments) {
            Ok(routed) => routed,
            Err(failure) => return entry.tools.first().map(|(_, tool)| tool.refuse(failure, Instant::now())),
        };
        let NamedToolset { database, tools } = self.databases.get(index)?;
        let result = tools.call(tool, arguments, caller.into(), database.as_ref()).await;
        Some(named(database.as_deref(), result))
    }

    /// Answers a call that was not made, of the database that it names; `None` if the caller has no such tool.
    #[must_use]
    pub fn refuse(&self, name: &str, database: Option<&str>, failure: Failure, began: Instant) -> Option<CallResult> {
        let (_, tool) = self.entry(name)?.tools.first()?;
        let database = self.databases.iter().find(|own| own.name() == database);
        Some(named(database.and_then(|own| own.database.as_deref()), tool.refuse(failure, began)))
    }

    /// Answers a call of a tool that does not fit its database; `None` if the caller has no such tool.
    #[must_use]
    pub fn call_outdated(&self, name: &str, arguments: &Map<String, Value>) -> Option<CallResult> {
        let wanted = self.named_database(arguments);
        let mut databases = self.databases.iter().filter(|database| wanted.is_none() || wanted == database.name());
        databases.find_map(|NamedToolset { database, tools }| {
            let result = tools.call_outdated(name)?;
            Some(named(database.as_deref(), result))
        })
    }

    /// The tool that a call goes to, the index of its database, and the arguments without the database.
    ///
    /// # Errors
    /// [`ErrorCode::InvalidParams`]: the call names no database that the caller reaches, or one without this tool.
    fn route<'a>(
        &self,
        entry: &'a RegistryEntry,
        mut arguments: Map<String, Value>,
    ) -> Result<(usize, &'a RegisteredTool, Map<String, Value>), Failure> {
        if !entry.takes_database {
            let (index, tool) = entry.tools.first().ok_or_else(|| refused(entry, "is not served", ""))?;
            return Ok((*index, tool, arguments));
        }
        let known = || {
            let having = entry.tools.iter().filter_map(|(index, _)| self.databases.get(*index)?.database.as_ref());
            let names: Vec<String> = having.map(|database| database.label.to_string()).collect();
            format!("database is one of: {}.", names.join(", "))
        };
        let named = match arguments.remove(DATABASE) {
            Some(Value::String(named)) => named,
            Some(_) => return Err(refused(entry, "argument \"database\" must be of type string", known())),
            None => return Err(refused(entry, "argument \"database\" is missing", known())),
        };
        let Some(index) = self.databases.iter().position(|database| database.name() == Some(named.as_str())) else {
            return Err(refused(entry, &format!("there is no database {}", types::quoted(&named)), known()));
        };
        if let Some((_, tool)) = entry.tools.iter().find(|(having, _)| *having == index) {
            return Ok((index, tool, arguments));
        }
        let tools = self.databases.get(index).map(|database| &database.tools);
        Err(match tools.and_then(|tools| tools.missing(&entry.info.name)) {
            Some(failure) => failure,
            None => refused(entry, &format!("the database {named} does not have this tool"), known()),
        })
    }
}

fn refused(entry: &RegistryEntry, why: &str, hint: impl Into<String>) -> Failure {
    Failure::new(ErrorCode::InvalidParams, format!("{}: {why}", entry.info.name)).hint(hint)
}

/// The result, with the names of its database for agents and users.
fn named(database: Option<&CallDatabase>, mut result: CallResult) -> CallResult {
    let Some(database) = database else { return result };
    let label = &database.label;
    let (Envelope::Success { meta, .. } | Envelope::Failure { meta, .. }) = &mut result.envelope;
    meta.database = Some(label.name.clone());
    meta.environment.clone_from(&label.environment);
    meta.rollback = meta.rollback.take().map(|rollback| database.rollback(rollback));
    let question = result.question.as_mut().map(|question| &mut question.text);
    let page = result.page.as_mut().map(|page| &mut page.text);
    for text in question.into_iter().chain(page) {
        *text = format!("Database: {label}\n{text}");
    }
    result
}

/// The description of a tool that takes the name of a database: one of these.
fn with_database(info: &ToolInfo, databases: &[&CallDatabase]) -> ToolInfo {
    let names: Vec<&str> = databases.iter().map(|database| database.label.name.as_str()).collect();
    let labels: Vec<String> = databases.iter().map(|database| database.label.to_string()).collect();
    let mut schema = Map::clone(&info.input_schema);
    let property = json!({
        "type": "string",
        "enum": names,
        "description": format!("The database: {}.", labels.join(", ")),
    });
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.shift_insert(0, DATABASE.to_owned(), property);
    }
    if let Some(required) = schema.entry("required").or_insert_with(|| json!([])).as_array_mut() {
        required.insert(0, DATABASE.into());
    }
    ToolInfo { input_schema: Arc::new(schema), ..info.clone() }
}

/// The tools that take the name of a database: the built-in ones, and those that the manifests of more than one
/// database declare.
pub(crate) fn taking_a_database<'a>(declared: impl IntoIterator<Item = &'a BTreeSet<String>>) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut taking: BTreeSet<String> = builtin::NAMES.into_iter().map(str::to_owned).collect();
    for name in declared.into_iter().flatten() {
        if !seen.insert(name) {
            taking.insert(name.clone());
        }
    }
    taking
}
