//! The bundle for Claude Desktop, with the official tool of MCPB.

use std::path::Path;

use serde_json::{Value, json};
use testkit::{Database, External, database, node_script, repository, skip_without};
use tokio::process::Command;

use super::{clean_command, module_command, packages, serves_on, succeed};

const TOOL: &str = "@anthropic-ai/mcpb/dist/cli/cli.js";
const SCHEMA: &str = "packaging/schemas/mcpb-manifest-v0.3.schema.json";

/// What Claude Desktop starts for a bundle in a folder, by the official library, with what its user has entered.
async fn configured(bundle: &Path, user_config: &Value) -> Value {
    let config = External::NodeModules.expected_path().join("@anthropic-ai/mcpb/dist/shared/config.js");
    let script = format!(
        "import {{ getMcpConfigForManifest }} from {config:?};
         import {{ readFileSync }} from 'node:fs';
         const [extensionPath, userConfig] = process.argv.slice(1);
         const manifest = JSON.parse(readFileSync(`${{extensionPath}}/manifest.json`));
         const options = {{ manifest, extensionPath, systemDirs: {{}}, userConfig: JSON.parse(userConfig), pathSeparator: '/' }};
         console.log(JSON.stringify(await getMcpConfigForManifest(options) ?? null));"
    );
    let mut command = module_command();
    command.args(["--eval", &script]).arg(bundle).arg(user_config.to_string());
    serde_json::from_str(&succeed(&mut command).await).unwrap()
}

/// The command of a configuration.
fn command_of(config: &Value, home: &Path) -> Command {
    let mut command = clean_command(config["command"].as_str().unwrap(), home);
    command.args(config["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap()));
    for (name, value) in config["env"].as_object().unwrap() {
        command.env(name, value.as_str().unwrap());
    }
    command
}

async fn mcpb(arguments: &[&Path]) -> String {
    let mut command = node_script(TOOL);
    succeed(command.args(arguments)).await
}

/// A bundle that the official tool has unpacked is started as Claude Desktop does, without a manifest and with one.
async fn is_served(bundle: &Path, db: &Database) {
    let home = tempfile::tempdir().unwrap();
    assert_eq!(configured(bundle, &json!({})).await, Value::Null, "the connection string is required");
    let config = configured(bundle, &json!({"database_url": db.writer_url()})).await;
    serves_on(command_of(&config, home.path()), db).await;

    let manifest = repository().join("manifests/social.toml");
    let config = configured(bundle, &json!({"database_url": db.writer_url(), "manifest": manifest})).await;
    let server = testkit::Server::start(command_of(&config, home.path())).await;
    assert!(server.tool_names().await.iter().any(|name| name == "like_tweet"));
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn the_official_tool_accepts_unpacks_and_packs_the_bundle_and_a_client_is_served() {
    if skip_without(&[External::NodeModules]) {
        return;
    }
    let packages = packages();
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let (unpacked, again, packed) =
        (folder.path().join("unpacked"), folder.path().join("again"), folder.path().join("packed.mcpb"));
    let bundle = packages.file("release", "countersign-", ".mcpb");
    mcpb(&[Path::new("unpack"), &bundle, &unpacked]).await;
    let said = mcpb(&[Path::new("validate"), &unpacked.join("manifest.json")]).await;
    assert!(said.contains("Manifest schema validation passes!"), "{said}");
    is_served(&unpacked, &db).await;
    mcpb(&[Path::new("pack"), &unpacked, &packed]).await;
    mcpb(&[Path::new("unpack"), &packed, &again]).await;
    is_served(&again, &db).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn the_manifest_of_the_bundle_fits_its_schema_and_hides_the_connection_string() {
    if skip_without(&[External::NodeModules]) {
        return;
    }
    let packages = packages();
    let folder = tempfile::tempdir().unwrap();
    mcpb(&[Path::new("unpack"), &packages.file("release", "countersign-", ".mcpb"), folder.path()]).await;
    let manifest = std::fs::read_to_string(folder.path().join("manifest.json")).unwrap();
    let mut manifest: Value = serde_json::from_str(&manifest).unwrap();
    assert_eq!(super::catalogs::mistakes(SCHEMA, &manifest), Vec::<String>::new());
    assert_eq!(manifest["user_config"]["database_url"]["sensitive"], true, "{manifest}");
    // The schema is the one of the official tool.
    let theirs =
        External::NodeModules.expected_path().join("@anthropic-ai/mcpb/schemas/mcpb-manifest-v0.3.schema.json");
    let [ours, theirs] = [repository().join(SCHEMA), theirs].map(|path| std::fs::read_to_string(path).unwrap());
    let [ours, theirs]: [Value; 2] = [ours, theirs].map(|text| serde_json::from_str(&text).unwrap());
    assert_eq!(ours, theirs);

    manifest["user_config"]["database_url"]["sensitive"] = json!("yes");
    assert_eq!(super::catalogs::mistakes(SCHEMA, &manifest).len(), 1);
}
