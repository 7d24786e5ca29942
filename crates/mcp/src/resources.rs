//! Resource requests of MCP, answered from the registry.

use catalog::{CompletionRequest, ResourceEntry, UriTemplate};
use rmcp::model::{
    CompleteRequestParams, CompleteResult, CompletionInfo, ErrorData, ListResourceTemplatesResult, ListResourcesResult,
    ReadResourceResult, Reference, Resource, ResourceContents, ResourceTemplate,
};
use serde_json::{Value, json};
use tools::Registry;
use types::{ErrorCode, Failure, Principal};

use crate::skills;

const MIME_TYPE: &str = "application/json";

pub(crate) async fn list(registry: &Registry, cursor: Option<&str>) -> Result<ListResourcesResult, ErrorData> {
    let page = registry.resources().list(cursor).await.map_err(|failure| error(failure, None))?;
    let mut listed: Vec<Resource> = page.items.into_iter().map(resource).collect();
    if page.next.is_none() {
        listed.extend(skills::resources(registry));
    }
    let mut result = ListResourcesResult::with_all_items(listed);
    result.next_cursor = page.next;
    Ok(result)
}

pub(crate) fn templates(registry: &Registry) -> ListResourceTemplatesResult {
    ListResourceTemplatesResult::with_all_items(registry.resources().templates().map(template).collect())
}

pub(crate) async fn read(
    registry: &Registry,
    uri: &str,
    principal: &Principal,
) -> Result<ReadResourceResult, ErrorData> {
    let value = registry.read_resource(uri, principal).await.map_err(|failure| error(failure, Some(uri)))?;
    let contents = ResourceContents::text(value.to_string(), uri).with_mime_type(MIME_TYPE);
    Ok(ReadResourceResult::new(vec![contents]))
}

/// `completion/complete`, for the variables of resource templates.
pub(crate) async fn complete(registry: &Registry, params: CompleteRequestParams) -> Result<CompleteResult, ErrorData> {
    let Reference::Resource(reference) = params.r#ref else {
        return Err(no_prompts());
    };
    let typed = CompletionRequest {
        variable: params.argument.name,
        value: params.argument.value,
        known: params.context.and_then(|context| context.arguments).unwrap_or_default(),
        max: CompletionInfo::MAX_VALUES,
    };
    let found = registry.resources().complete(&reference.uri, &typed).await;
    // Only `resources/read` has a separate error code for missing resources.
    let found =
        found.map_err(|failure| ErrorData { code: rmcp::model::ErrorCode::INVALID_PARAMS, ..error(failure, None) })?;
    let completion = CompletionInfo::with_pagination(found.values, None, found.more);
    Ok(CompleteResult::new(completion.map_err(|reason| ErrorData::internal_error(reason, None))?))
}

pub(crate) fn no_prompts() -> ErrorData {
    ErrorData::invalid_params("this server has no prompts", None)
}

fn resource(listed: ResourceEntry) -> Resource {
    Resource::new(listed.uri.to_string(), listed.name).with_description(listed.description).with_mime_type(MIME_TYPE)
}

fn template(template: &UriTemplate) -> ResourceTemplate {
    ResourceTemplate::new(template.uri.clone(), template.name)
        .with_title(template.title)
        .with_description(template.description)
        .with_mime_type(MIME_TYPE)
}

/// A failure as an MCP error, with a readable message and the failure as its data. For clients of protocol
/// 2026-07-28, rmcp replaces the code of "resource not found" by -32602.
fn error(failure: Failure, uri: Option<&str>) -> ErrorData {
    let message = match &failure.hint {
        Some(hint) => format!("{}. {hint}", failure.message),
        None => failure.message.clone(),
    };
    let mut data = json!({"error": failure});
    if let (Some(uri), Value::Object(data)) = (uri, &mut data) {
        data.insert("uri".to_owned(), uri.into());
    }
    match failure.code {
        ErrorCode::NotFound => ErrorData::resource_not_found(message, Some(data)),
        ErrorCode::InvalidParams => ErrorData::invalid_params(message, Some(data)),
        _ => ErrorData::internal_error(message, Some(data)),
    }
}
