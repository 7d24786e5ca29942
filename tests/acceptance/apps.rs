//! The view of a proposal for clients that show HTML beside a result (MCP Apps, `io.modelcontextprotocol/ui`).

use serde_json::{Value, json};
use testkit::{RawStdioServer, Server, database};

const URI: &str = "ui://countersign/proposal";

/// What a client of the extension declares.
fn declared() -> Value {
    json!({"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}})
}

/// The URI of the view of each tool that has one.
fn views(listed: &Value) -> Vec<(String, String)> {
    let tools = listed["result"]["tools"].as_array().unwrap();
    let view = |tool: &Value| {
        Some((tool["name"].as_str()?.to_owned(), tool["_meta"]["ui"]["resourceUri"].as_str()?.to_owned()))
    };
    tools.iter().filter_map(view).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_the_extension_get_the_view_for_tools_that_propose() {
    let db = database().await;
    let mut client = RawStdioServer::capable(Server::studio_command(&db), "2025-11-25", declared()).await;
    let listed = client.request(2, "tools/list", json!({})).await;
    let views = views(&listed);
    let names: Vec<&str> = views.iter().map(|(name, _)| name.as_str()).collect();
    for name in ["upsert_package", "delete_package", "get_proposal", "undo_mutation"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    for name in ["query_database", "list_proposals", "confirm_proposal"] {
        assert!(!names.contains(&name), "{name}: {names:?}");
    }
    assert!(views.iter().all(|(_, uri)| uri == URI));
    let read = client.request(3, "resources/read", json!({"uri": URI})).await;
    let contents = &read["result"]["contents"][0];
    assert_eq!(contents["mimeType"], "text/html;profile=mcp-app");
    assert!(contents["text"].as_str().unwrap().starts_with("<!doctype html>"));
    let unknown = client.request(4, "resources/read", json!({"uri": "ui://countersign/else"})).await;
    assert!(unknown["error"]["message"].is_string(), "{unknown}");
    // The result has the whole proposal as text too, for the model and for clients that show no views.
    let proposed = client.call("delete_package", json!({"package_id": 3})).await;
    assert!(proposed.to_string().contains("requires_approval"), "{proposed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_clients_get_no_view() {
    let db = database().await;
    let other_type = json!({"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html"]}}});
    for capabilities in [json!({}), other_type, json!({"extensions": {"io.modelcontextprotocol/ui": {}}})] {
        let mut client = RawStdioServer::capable(Server::studio_command(&db), "2025-11-25", capabilities.clone()).await;
        let listed = client.request(2, "tools/list", json!({})).await;
        assert_eq!(views(&listed), [], "{capabilities}");
    }
}

#[test]
fn the_view_loads_nothing_and_never_makes_markup_of_a_value() {
    let html = std::fs::read_to_string(testkit::repository().join("crates/mcp/src/apps/proposal.html")).unwrap();
    for forbidden in [
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "Function(",
        "http://",
        "https://",
        "src=",
    ] {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
}
