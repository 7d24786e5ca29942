//! The entries for the MCP registry and for Docker's catalog, and the list of tools in them.

use serde_json::{Value, json};
use testkit::{External, RawStdioServer, Server, assert_golden, database, repository, skip_without};

use super::{COMMIT, clean_command, packages, succeed};

const SCHEMA: &str = "packaging/schemas/server-2025-12-11.schema.json";

/// What a vendored schema has against a document.
pub(super) fn mistakes(schema: &str, document: &Value) -> Vec<String> {
    let schema = std::fs::read_to_string(repository().join(schema)).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    validator.iter_errors(document).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[test]
#[ignore = "outer: .ci/run runs it"]
fn the_entry_of_the_mcp_registry_fits_its_schema_and_names_files_of_the_release() {
    let packages = packages();
    let server = packages.json("mcp-registry/server.json");
    assert_eq!(mistakes(SCHEMA, &server), Vec::<String>::new());
    let mut long = server.clone();
    long["description"] = json!("x".repeat(101));
    assert_eq!(mistakes(SCHEMA, &long).len(), 1);

    assert_eq!(server["name"], packaging::project::MCP_NAME);
    let checksums = packages.text("release/SHA256SUMS");
    let listed = server["packages"].as_array().unwrap();
    let types: Vec<&str> = listed.iter().map(|package| package["registryType"].as_str().unwrap()).collect();
    assert_eq!(types, ["npm", "pypi", "oci", "mcpb"]);
    for package in listed {
        if let Some(hash) = package["fileSha256"].as_str() {
            let file = package["identifier"].as_str().unwrap().rsplit_once('/').unwrap().1;
            assert!(checksums.contains(&format!("{hash}  {file}\n")), "{package}");
        } else {
            let url = &package["environmentVariables"][0];
            assert_eq!((&url["name"], &url["isSecret"]), (&json!("DATABASE_URL"), &json!(true)), "{package}");
        }
    }
}

#[test]
fn every_package_proves_the_name_in_the_mcp_registry() {
    let line = format!("mcp-name: {}", packaging::project::MCP_NAME);
    for page in ["README.md", "packaging/description.md"] {
        let text = std::fs::read_to_string(repository().join(page)).unwrap();
        assert!(text.lines().any(|it| it == line), "{page}: {line}");
    }
    // The namespace belongs to the owner of the repository and of the image.
    let owner = packaging::project::REPOSITORY.strip_prefix("https://github.com/").unwrap().split('/').next().unwrap();
    assert!(packaging::project::MCP_NAME.starts_with(&format!("io.github.{owner}/")));
    assert!(packaging::project::IMAGE.contains(&format!("/{owner}/")));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn the_listed_tools_are_those_of_a_server_without_manifests() {
    let db = database().await;
    let mut server = RawStdioServer::connected(|| Server::bare_command(&db), "2025-11-25").await;
    let answer = server.request(2, "tools/list", json!({})).await;
    assert!(server.close().await);
    let served = &answer["result"]["tools"];
    assert_golden("packaging/tools", served);
    let listed = packages().json("docker-catalog/countersign/tools.json");
    let names =
        |tools: &Value| -> Vec<Value> { tools.as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect() };
    assert_eq!(names(&listed), names(served));
}

/// The rules of the catalog's own `task validate`, as far as they need no network.
#[tokio::test]
#[ignore = "outer: .ci/run runs it"]
async fn the_entry_of_dockers_catalog_keeps_its_rules() {
    if skip_without(&[External::Python]) {
        return;
    }
    let packages = packages();
    let path = packages.path("out/docker-catalog/countersign/server.yaml");
    let home = tempfile::tempdir().unwrap();
    let script = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))";
    let mut python = clean_command(External::Python.expected_path(), home.path());
    let server = succeed(python.args(["-c", script]).arg(path)).await;
    let server: Value = serde_json::from_str(&server).unwrap();
    // The folder of the entry has its name.
    assert_eq!(server["name"], "countersign");
    let title = server["about"]["title"].as_str().unwrap();
    assert!(!title.contains("MCP") && !title.contains("Server") && title.starts_with(char::is_uppercase), "{title}");
    assert_eq!(server["source"]["commit"], COMMIT);
    assert_eq!(server["source"]["project"], packaging::project::REPOSITORY);
    assert!(repository().join(server["source"]["dockerfile"].as_str().unwrap()).exists());
    let secret = &server["config"]["secrets"][0];
    assert!(secret["name"].as_str().unwrap().starts_with("countersign."), "{secret}");
    assert_eq!(secret["env"], "DATABASE_URL");
    for tool in packages.json("docker-catalog/countersign/tools.json").as_array().unwrap() {
        for argument in tool["arguments"].as_array().unwrap() {
            assert!(argument["desc"].as_str().is_some_and(|text| !text.is_empty()), "{tool}");
        }
    }
}
