//! What can be read by its address, beside the tools: the same data for clients that attach it rather than call for it.
//!
//! To add a resource: a file here with its [`Resource`] implementation, and one line in [`ResourceRegistry::new`]. Lists, addresses,
//! profiles and protocols follow from there. No protocol is known here.

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

/// What clients are told about a kind of resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceInfo {
    /// The first part of its addresses.
    pub(crate) name: &'static str,
    /// The tool that answers the same: who has it, and nobody else, can read the resource.
    pub(crate) tool: &'static str,
    /// How addresses of it are made.
    pub(crate) templates: &'static [UriTemplate],
}

/// How the addresses of one form are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UriTemplate {
    /// A URI template (RFC 6570), such as `countersign://database/{schema}`.
    pub uri: &'static str,
    /// A short name.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// For the agent.
    pub description: &'static str,
}

/// One that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceEntry {
    /// How to read it.
    pub uri: ResourceUri,
    /// A short name.
    pub name: String,
    /// What it is.
    pub description: String,
}

/// What begins like a value that is being typed, or has it in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Completions {
    /// At most as many as were asked for, best first.
    pub values: Vec<String>,
    /// Whether there are more.
    pub more: bool,
}

/// What is being typed into a template.
#[derive(Debug, Clone)]
pub struct CompletionRequest {
    /// The variable of the template.
    pub variable: String,
    /// Its value so far.
    pub value: String,
    /// Variables that have their values already.
    pub known: HashMap<String, String>,
    /// How many values are wanted.
    pub max: usize,
}

type ResourceFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// A kind of resource. Dropping a future ends what it does in the database.
pub(crate) trait Resource: Send + Sync + 'static {
    /// What clients are told about it.
    fn info(&self) -> &ResourceInfo;

    /// What it says by itself, beyond the database. When it changes, clients are told that resources have changed.
    fn words(&self) -> Vec<String>;

    /// At most `max` that exist, in a fixed order, behind the one with this path; from the first on if `None`.
    fn list<'a>(&'a self, behind: Option<&'a [String]>, max: usize) -> ResourceFuture<'a, Vec<ResourceEntry>>;

    /// The one with this path, as JSON, for a caller who has these tools.
    fn read<'a>(&'a self, path: &'a [String], tools: ServedTools<'a>) -> ResourceFuture<'a, Value>;

    /// Values for a variable of its templates; none for any other.
    fn complete<'a>(&'a self, typed: &'a CompletionRequest) -> ResourceFuture<'a, Completions>;
}
