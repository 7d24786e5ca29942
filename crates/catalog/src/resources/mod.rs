//! Resources, which clients read by URI. They offer the data of tools to clients that attach data instead of calling
//! tools.
//!
//! To add a resource, add a file here with its [`Resource`] implementation, and one line to
//! [`ResourceRegistry::new`]. Lists, URIs, profiles and protocols follow. This module does not depend on a protocol.

mod database;
mod registry;
mod uri;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value;
use types::{CallerContext, Failure};

pub use registry::{ResourcePage, ResourceRegistry};
pub use uri::ResourceUri;

use crate::served::ServedTools;

/// The description of a kind of resource for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceInfo {
    /// The URI with which all of its URIs begin.
    pub(crate) root: ResourceUri,
    /// The tool with the same content. A caller can read the resource only if it has this tool.
    pub(crate) tool: &'static str,
    pub(crate) templates: Vec<UriTemplate>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UriTemplate {
    /// A URI template (RFC 6570), such as `countersign://database/{schema}`.
    pub uri: String,
    pub name: &'static str,
    pub title: &'static str,
    pub description: &'static str,
}

/// A resource that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceEntry {
    pub uri: ResourceUri,
    pub name: String,
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
    pub variable: String,
    /// The text that the user has typed so far.
    pub value: String,
    /// Variables that already have a value.
    pub known: HashMap<String, String>,
    /// Maximum number of values.
    pub max: usize,
}

type ResourceFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// A kind of resource. Dropping a future cancels its work in the database.
pub(crate) trait Resource: Send + Sync + 'static {
    fn info(&self) -> &ResourceInfo;

    /// The content that does not come from the database. If it changes, clients are notified that the resources have
    /// changed.
    fn change_key(&self) -> Vec<String>;

    /// At most `max` existing resources in a fixed order, after the one with this path; the first ones if it is
    /// `None`.
    fn list<'a>(&'a self, after: Option<&'a [String]>, max: usize) -> ResourceFuture<'a, Vec<ResourceEntry>>;

    /// The resource with this path as JSON, for a caller with this context and these tools.
    fn read<'a>(
        &'a self,
        path: &'a [String],
        context: &'a Arc<CallerContext>,
        tools: ServedTools<'a>,
    ) -> ResourceFuture<'a, Value>;

    /// Completions of a variable in a template; empty for an unknown variable.
    fn complete<'a>(&'a self, typed: &'a CompletionRequest) -> ResourceFuture<'a, Completions>;
}
