//! Resources, which clients read by URI: the data of tools, for clients that attach data instead of calling a tool.
//!
//! To add a resource: a file here with its [`Resource`] implementation, and one line in [`ResourceRegistry::new`].
//! Lists, addresses, profiles and protocols follow from there. This module does not depend on a protocol.

mod database;
mod registry;
mod uri;

use std::collections::HashMap;
use std::pin::Pin;

use serde_json::Value;
use types::Failure;

pub use registry::{ResourcePage, ResourceRegistry};
pub use uri::ResourceUri;

use crate::served::ServedTools;

/// Info that clients get about a kind of resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceInfo {
    /// First part of its URIs.
    pub(crate) name: &'static str,
    /// Tool with the same content: a caller can read the resource only if it has this tool.
    pub(crate) tool: &'static str,
    /// Forms of its URIs.
    pub(crate) templates: &'static [UriTemplate],
}

/// A form of URI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UriTemplate {
    /// A URI template (RFC 6570), such as `countersign://database/{schema}`.
    pub uri: &'static str,
    /// Short name.
    pub name: &'static str,
    /// Title for users.
    pub title: &'static str,
    /// Description for the agent.
    pub description: &'static str,
}

/// A resource that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceEntry {
    /// URI of the resource.
    pub uri: ResourceUri,
    /// Short name.
    pub name: String,
    /// Description of the resource.
    pub description: String,
}

/// Completions: values that begin with the typed text or contain it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Completions {
    /// The values, best first, at most the requested number.
    pub values: Vec<String>,
    /// Whether there are more values.
    pub more: bool,
}

/// Request to complete a variable of a template.
#[derive(Debug, Clone)]
pub struct CompletionRequest {
    /// Variable of the template.
    pub variable: String,
    /// Its value so far.
    pub value: String,
    /// Variables that already have a value.
    pub known: HashMap<String, String>,
    /// Maximum number of values.
    pub max: usize,
}

type ResourceFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// A kind of resource. Dropping a future cancels its work in the database.
pub(crate) trait Resource: Send + Sync + 'static {
    /// Info that clients get about it.
    fn info(&self) -> &ResourceInfo;

    /// Content that does not come from the database. When it changes, clients are notified that resources have changed.
    fn words(&self) -> Vec<String>;

    /// At most `max` existing resources in a fixed order, after the one with this path; from the first on if `None`.
    fn list<'a>(&'a self, behind: Option<&'a [String]>, max: usize) -> ResourceFuture<'a, Vec<ResourceEntry>>;

    /// The resource with this path, as JSON, for a caller who has these tools.
    fn read<'a>(&'a self, path: &'a [String], tools: ServedTools<'a>) -> ResourceFuture<'a, Value>;

    /// Values for a variable of its templates; empty for an unknown variable.
    fn complete<'a>(&'a self, typed: &'a CompletionRequest) -> ResourceFuture<'a, Completions>;
}
