//! Access to the resources. A caller gets only those whose tool it has, within the time limit of a call.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::Value;
use tokio::time::timeout;
use types::{CallerContext, DatabaseName, ErrorCode, Failure};

use super::database::Database;
use super::{CompletionRequest, Completions, Resource, ResourceEntry, ResourceUri, UriTemplate};
use crate::describer::DatabaseDescriber;
use crate::served::ServedTools;

/// Number of resources on a page.
const PAGE: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourcePage {
    pub items: Vec<ResourceEntry>,
    /// Cursor of the next page; `None` at the end.
    pub next: Option<String>,
}

/// The resources of a caller, which are those whose tool it has.
#[derive(Clone, Default)]
pub struct ResourceRegistry {
    resources: Vec<BoundedResource>,
}

/// A resource, and the time limit of reading it.
#[derive(Clone)]
struct BoundedResource {
    resource: Arc<dyn Resource>,
    call_deadline: Duration,
}

impl ResourceRegistry {
    /// All resources of a database; none without a describer. `name` is the database's, where the server has several.
    /// A new resource is one line here.
    #[must_use]
    pub fn new(describer: Option<DatabaseDescriber>, name: Option<&DatabaseName>, call_deadline: Duration) -> Self {
        let database = describer.map(|describer| Arc::new(Database::new(describer, name)) as Arc<dyn Resource>);
        let bounded = |resource| BoundedResource { resource, call_deadline };
        Self { resources: database.into_iter().map(bounded).collect() }
    }

    /// The resources of several databases.
    pub fn of_all<'a>(databases: impl IntoIterator<Item = &'a Self>) -> Self {
        Self { resources: databases.into_iter().flat_map(|database| database.resources.iter().cloned()).collect() }
    }

    /// The resources whose tool is served.
    #[must_use]
    pub fn of_tools(&self, tools: ServedTools<'_>) -> Self {
        let served = self.resources.iter().filter(|bounded| tools(bounded.resource.info().tool));
        Self { resources: served.cloned().collect() }
    }

    pub fn templates(&self) -> impl Iterator<Item = &UriTemplate> {
        self.resources.iter().flat_map(|bounded| &bounded.resource.info().templates)
    }

    /// The content of each resource that does not come from the database.
    pub fn change_key(&self) -> Vec<(String, Vec<String>)> {
        let key = |bounded: &BoundedResource| (bounded.resource.info().root.to_string(), bounded.resource.change_key());
        self.resources.iter().map(key).collect()
    }

    /// Whether one of the resources has this URI, or would have it.
    #[must_use]
    pub fn has(&self, uri: &str) -> bool {
        ResourceUri::parse(uri).is_some_and(|uri| self.find(&uri).is_some())
    }

    /// The existing resources, a page at a time. A cursor is the URI of the last resource on the previous page.
    ///
    /// # Errors
    /// `invalid_params` for an invalid cursor, or the failure of the read of the catalog.
    pub async fn list(&self, cursor: Option<&str>) -> Result<ResourcePage, Failure> {
        let after = cursor.map(|cursor| self.after(cursor)).transpose()?;
        let start = after.as_ref().map_or(0, |(index, _)| *index);
        let mut path = after.map(|(_, path)| path);
        let mut items = Vec::new();
        for bounded in self.resources.iter().skip(start) {
            let wanted = PAGE + 1 - items.len();
            match bounded.within_deadline(bounded.resource.list(path.take().as_deref(), wanted)).await {
                Ok(listed) => items.extend(listed.into_iter().take(wanted)),
                // A database that is away does not hide the resources of the others.
                Err(failure) if self.resources.len() > 1 => {
                    let root = bounded.resource.info().root.to_string();
                    tracing::warn!(root, "resources cannot be listed: {}", failure.message);
                }
                Err(failure) => return Err(failure),
            }
            if items.len() > PAGE {
                break;
            }
        }
        let more = items.len() > PAGE;
        items.truncate(PAGE);
        let next = items.last().filter(|_| more).map(|last| last.uri.to_string());
        Ok(ResourcePage { items, next })
    }

    /// The index of the resource kind to which a cursor belongs, and the position of the cursor in it.
    fn after(&self, cursor: &str) -> Result<(usize, Vec<String>), Failure> {
        let found = ResourceUri::parse(cursor).and_then(|uri| self.find(&uri));
        found.map(|(index, _, path)| (index, path)).ok_or_else(|| {
            let message = "invalid pagination cursor";
            Failure::new(ErrorCode::InvalidParams, message).hint("List without a cursor to begin at the first page.")
        })
    }

    /// The resource of a URI, its index, and the path within it.
    fn find(&self, uri: &ResourceUri) -> Option<(usize, &BoundedResource, Vec<String>)> {
        self.resources
            .iter()
            .enumerate()
            .find_map(|(index, bounded)| Some((index, bounded, uri.within(&bounded.resource.info().root)?.to_vec())))
    }

    /// Reads a resource.
    ///
    /// # Errors
    /// `not_found` with the nearest names that exist, or the failure of the read of the catalog.
    pub async fn read(
        &self,
        uri: &str,
        context: &Arc<CallerContext>,
        tools: ServedTools<'_>,
    ) -> Result<Value, Failure> {
        let parsed = ResourceUri::parse(uri);
        let Some((_, bounded, path)) = parsed.as_ref().and_then(|uri| self.find(uri)) else {
            let mut failure = Failure::new(ErrorCode::NotFound, format!("there is no resource {uri}"));
            let roots: Vec<String> = self.resources.iter().map(|it| it.resource.info().root.to_string()).collect();
            if !roots.is_empty() {
                failure = failure.hint(format!("Addresses of this server begin with {}.", roots.join(", ")));
            }
            return Err(failure);
        };
        bounded.within_deadline(bounded.resource.read(&path, context, tools)).await
    }

    /// Completions for a variable of a template.
    ///
    /// # Errors
    /// `not_found` for an unknown template, or the failure of the read of the catalog.
    pub async fn complete(&self, template: &str, typed: &CompletionRequest) -> Result<Completions, Failure> {
        let has = |it: &&BoundedResource| it.resource.info().templates.iter().any(|own| own.uri == template);
        match self.resources.iter().find(has) {
            Some(bounded) => bounded.within_deadline(bounded.resource.complete(typed)).await,
            None => {
                let known: Vec<&str> = self.templates().map(|template| template.uri.as_str()).collect();
                let failure = Failure::new(ErrorCode::NotFound, format!("there is no resource template {template}"));
                Err(if known.is_empty() { failure } else { failure.hint(format!("There is: {}.", known.join(", "))) })
            }
        }
    }
}

impl BoundedResource {
    /// Applies the time limit of a call, and catches panics, because rmcp sends the client no response after a panic.
    async fn within_deadline<T>(&self, answer: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        match timeout(self.call_deadline, AssertUnwindSafe(answer).catch_unwind()).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => {
                let message = "internal error while reading the resource; see the server log";
                Err(Failure::new(ErrorCode::InternalError, message))
            }
            Err(_) => Err(Failure::new(ErrorCode::Timeout, "the resource could not be read in time")),
        }
    }
}
