//! Access to the resources. A caller gets only those whose tool it has, within the time limit of a call.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::Value;
use tokio::time::timeout;
use types::{ErrorCode, Failure};

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
    resources: Vec<Arc<dyn Resource>>,
    call_deadline: Duration,
}

impl ResourceRegistry {
    /// All resources; none without a describer. A new resource is one line here.
    #[must_use]
    pub fn new(describer: Option<DatabaseDescriber>, call_deadline: Duration) -> Self {
        let database = describer.map(|describer| Arc::new(Database::new(describer)) as Arc<dyn Resource>);
        Self { resources: database.into_iter().collect(), call_deadline }
    }

    /// The resources whose tool is served.
    #[must_use]
    pub fn of_tools(&self, tools: ServedTools<'_>) -> Self {
        let served = self.resources.iter().filter(|resource| tools(resource.info().tool));
        Self { resources: served.cloned().collect(), call_deadline: self.call_deadline }
    }

    pub fn templates(&self) -> impl Iterator<Item = &UriTemplate> {
        self.resources.iter().flat_map(|resource| resource.info().templates)
    }

    /// The content of each resource that does not come from the database.
    pub fn change_key(&self) -> Vec<(&str, Vec<String>)> {
        self.resources.iter().map(|resource| (resource.info().name, resource.change_key())).collect()
    }

    /// The existing resources, a page at a time. A cursor is the URI of the last resource on the previous page.
    ///
    /// # Errors
    /// `invalid_params` for an invalid cursor, or the failure of the read of the catalog.
    pub async fn list(&self, cursor: Option<&str>) -> Result<ResourcePage, Failure> {
        let after = cursor.map(|cursor| self.after(cursor)).transpose()?;
        let start = after.as_ref().map_or(0, |(index, _)| *index);
        let mut path = after.map(|(_, uri)| uri.path);
        let mut items = Vec::new();
        for resource in self.resources.iter().skip(start) {
            let wanted = PAGE + 1 - items.len();
            items.extend(
                self.within_deadline(resource.list(path.take().as_deref(), wanted)).await?.into_iter().take(wanted),
            );
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
    fn after(&self, cursor: &str) -> Result<(usize, ResourceUri), Failure> {
        let uri = ResourceUri::parse(cursor);
        let found = uri.and_then(|uri| {
            let index = self.resources.iter().position(|resource| resource.info().name == uri.name)?;
            Some((index, uri))
        });
        found.ok_or_else(|| {
            let message = "invalid pagination cursor";
            Failure::new(ErrorCode::InvalidParams, message).hint("List without a cursor to begin at the first page.")
        })
    }

    /// Reads a resource.
    ///
    /// # Errors
    /// `not_found` with the nearest names that exist, or the failure of the read of the catalog.
    pub async fn read(&self, uri: &str, tools: ServedTools<'_>) -> Result<Value, Failure> {
        let found = ResourceUri::parse(uri).and_then(|parsed| Some((self.named(&parsed.name)?, parsed)));
        let Some((resource, parsed)) = found else {
            let mut failure = Failure::new(ErrorCode::NotFound, format!("there is no resource {uri}"));
            if let Some(first) = self.resources.first() {
                let root = ResourceUri::new(first.info().name, &[]);
                failure = failure.hint(format!("Addresses of this server begin with {root}."));
            }
            return Err(failure);
        };
        self.within_deadline(resource.read(&parsed.path, tools)).await
    }

    /// Completions for a variable of a template.
    ///
    /// # Errors
    /// `not_found` for an unknown template, or the failure of the read of the catalog.
    pub async fn complete(&self, template: &str, typed: &CompletionRequest) -> Result<Completions, Failure> {
        let has = |resource: &&Arc<dyn Resource>| resource.info().templates.iter().any(|it| it.uri == template);
        match self.resources.iter().find(has) {
            Some(resource) => self.within_deadline(resource.complete(typed)).await,
            None => {
                let known: Vec<&str> = self.templates().map(|template| template.uri).collect();
                let failure = Failure::new(ErrorCode::NotFound, format!("there is no resource template {template}"));
                Err(if known.is_empty() { failure } else { failure.hint(format!("There is: {}.", known.join(", "))) })
            }
        }
    }

    fn named(&self, name: &str) -> Option<&Arc<dyn Resource>> {
        self.resources.iter().find(|resource| resource.info().name == name)
    }

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
