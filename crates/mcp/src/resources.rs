//! MCP's requests about resources to the registry, and what it answers to MCP's results.

use rmcp::model::{
    CompleteRequestParams, CompleteResult, CompletionInfo, ErrorData, ListResourceTemplatesResult, ListResourcesResult,
    ReadResourceResult, Reference, Resource, ResourceContents, ResourceTemplate,
};
use serde_json::{Value, json};
use tools::{CompletionRequest, Registry, ResourceEntry, UriTemplate};
use types::{ErrorCode, Failure};

const MIME_TYPE: &str = "application/json";

/// `resources/list`.
pub(crate) async fn list(registry: &Registry, cursor: Option<&str>) -> Result<ListResourcesResult, ErrorData> {
    let page = registry.list_resources(cursor).await.map_err(|failure| error(failure, None))?;
    let mut result = ListResourcesResult::with_all_items(page.items.into_iter().map(resource).collect());
    result.next_cursor = page.next;
    Ok(result)
}

/// `resources/templates/list`.
pub(crate) fn templates(registry: &Registry) -> ListResourceTemplatesResult {
    ListResourceTemplatesResult::with_all_items(registry.resource_templates().map(template).collect())
}

/// `resources/read`.
pub(crate) async fn read(registry: &Registry, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let value = registry.read_resource(uri).await.map_err(|failure| error(failure, Some(uri)))?;
    let contents = ResourceContents::text(value.to_string(), uri).with_mime_type(MIME_TYPE);
    Ok(ReadResourceResult::new(vec![contents]))
}

/// `completion/complete`, of the variables of resource templates.
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
    let found = registry.complete_resource(&reference.uri, &typed).await;
    // Only `resources/read` has a code of its own for what is not there.
    let found =
        found.map_err(|failure| ErrorData { code: rmcp::model::ErrorCode::INVALID_PARAMS, ..error(failure, None) })?;
    let completion = CompletionInfo::with_pagination(found.values, None, found.more);
    Ok(CompleteResult::new(completion.map_err(|reason| ErrorData::internal_error(reason, None))?))
}

/// Whatever prompt is asked for.
pub(crate) fn no_prompts() -> ErrorData {
    ErrorData::invalid_params("this server has no prompts", None)
}

fn resource(listed: ResourceEntry) -> Resource {
    Resource::new(listed.uri.to_string(), listed.name).with_description(listed.description).with_mime_type(MIME_TYPE)
}

fn template(template: &UriTemplate) -> ResourceTemplate {
    ResourceTemplate::new(template.uri, template.name)
        .with_title(template.title)
        .with_description(template.description)
        .with_mime_type(MIME_TYPE)
}

/// A failure as MCP's error, in words for people, with the failure itself as its data. rmcp makes -32602 of "resource not
/// found" for clients of protocol 2026-07-28.
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
