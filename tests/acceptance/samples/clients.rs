//! The configuration blocks for clients, each used by a real client.

use serde_json::{Value, json};
use testkit::{ConfigDir, External, HttpServer, node_script, skip_without};
use tokio::process::Command;

use super::shop::Shop;
use super::{Sample, sample, samples_like};

const INSPECTOR: &str = "@modelcontextprotocol/inspector/clients/launcher/build/index.js";
const BRIDGE: &str = "mcp-remote/dist/proxy.js";

/// The blocks of docs/setup/clients.md that have a server of this kind.
fn blocks(is_wanted: fn(&Value) -> bool) -> Vec<(Sample, Value)> {
    let found: Vec<(Sample, Value)> = samples_like("docs/setup/clients.md", "{\n")
        .into_iter()
        .map(|sample| {
            let block: Value = serde_json::from_str(&sample.text).unwrap();
            let mut server =
                ["mcpServers", "servers", "mcp"].iter().find_map(|key| block.get(key)).unwrap()["shop"].clone();
            if let Some(words) = server["command"].as_array().cloned() {
                // opencode's, as the inspector takes it.
                (server["command"], server["args"]) = (words[0].clone(), words[1..].into());
                server["type"] = json!("stdio");
            }
            (sample, server)
        })
        .filter(|(_, server)| is_wanted(server))
        .collect();
    assert!(found.len() > 1, "{found:?}");
    found
}

/// The names of the tools that the inspector sees with this configuration.
async fn tools(sample: &Sample, server: &Value) -> Vec<String> {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("mcp.json");
    std::fs::write(&config, json!({"mcpServers": {"shop": server}}).to_string()).unwrap();
    let mut command: Command = node_script(INSPECTOR);
    command.env("HOME", home.path()).args(["--cli", "--config"]).arg(&config).args(["--server", "shop"]);
    command.args(["--stored-auth-only", "--format", "json", "--quiet", "--method", "tools/list"]);
    let output = command.output().await.unwrap();
    let answer: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{sample:?}: {error}: {output:?}"));
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{sample:?}: {answer}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn clients_on_the_same_machine() {
    if skip_without(&[External::NodeModules]) {
        return;
    }
    let shop = Shop::ready().await;
    std::fs::write(shop.folder().join("url"), shop.url("countersign_writer")).unwrap();
    for (sample, server) in blocks(|server| server["command"] == "/path/to/countersign") {
        let server: Value = serde_json::from_str(&shop.filled_in(&server.to_string())).unwrap();
        let tools = tools(&sample, &server).await;
        assert!(tools.contains(&"set_order_status".to_owned()), "{sample:?}: {tools:?}");
    }
}

/// The one entry of a client's file, in the home of the shop.
fn installed(shop: &Shop, file: &str) -> Value {
    let text = std::fs::read_to_string(shop.folder().join(file)).unwrap();
    let text: Value = serde_json::from_str(&text).unwrap();
    text["mcpServers"]["shop"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_page_install_and_uninstall() {
    let shop = Shop::ready().await;
    let commands = sample("docs/setup/clients.md", "countersign install --client cursor");
    let (install, uninstall) = commands.split_once('\n').unwrap();
    shop.shell(&format!("DATABASE_URL='{}' {install}", shop.url("countersign_writer")), "").await;
    let entry = installed(&shop, ".cursor/mcp.json");
    assert!(std::path::Path::new(entry["command"].as_str().unwrap()).is_absolute(), "{entry}");
    shop.shell(uninstall, "").await;
    assert_eq!(installed(&shop, ".cursor/mcp.json"), Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_page_add_a_running_server() {
    let shop = Shop::ready().await;
    let (token, table) = HttpServer::token("default", &[]).await;
    let folder = ConfigDir::new();
    let database = format!("database_url = {:?}\n", shop.url("countersign_writer"));
    let mut command = folder.command(&format!("{database}{table}\n[http]\nlisten = \"127.0.0.1:0\"\n"));
    command.arg("serve");
    let listening = HttpServer::listening(command).await;
    listening.logged(" ready ").await;
    std::fs::write(shop.folder().join("token"), &token).unwrap();
    let commands = sample("docs/setup/clients.md", "countersign install --client claude-code");
    shop.shell(&commands.replace("https://mcp.example.com", &listening.url("")), "").await;
    let entry = installed(&shop, ".claude.json");
    assert_eq!(entry["headers"]["Authorization"], format!("Bearer {token}"));
    let entry = installed(&shop, ".cursor/mcp.json");
    assert_eq!(entry["url"], listening.url("/sse"));
    assert_eq!(entry["headers"]["Authorization"], "Bearer ${env:SHOP_TOKEN}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "outer: .ci/run runs it"]
async fn clients_over_the_network() {
    if skip_without(&[External::NodeModules]) {
        return;
    }
    let shop = Shop::ready().await;
    let made = Command::new(testkit::countersign()).args(["token", "new", "--account", "default", "--json"]).output();
    let made: Value = serde_json::from_slice(&made.await.unwrap().stdout).unwrap();
    let (token, entry) = (made["token"].as_str().unwrap(), made["toml"].as_str().unwrap());
    let folder = ConfigDir::new();
    let config = format!(
        "database_url = {:?}\nmanifests = [{:?}]\n{entry}\n[http]\nlisten = \"127.0.0.1:0\"\n",
        shop.url("countersign_writer"),
        shop.manifest()
    );
    let mut command = folder.command(&config);
    command.arg("serve");
    let listening = HttpServer::listening(command).await;
    listening.logged(" ready ").await;
    for (sample, server) in blocks(|server| server["command"] != "/path/to/countersign") {
        let server = server.to_string().replace("THE_TOKEN", token).replace("${input:token}", token);
        let server = server.replace("https://mcp.example.com", &listening.url(""));
        let mut server: Value = serde_json::from_str(&server).unwrap();
        if server["command"] == "npx" {
            // The package as installed here, without a request to the registry.
            let arguments = server["args"].as_array().unwrap();
            assert_eq!((&arguments[0], &arguments[1]), (&json!("-y"), &json!("mcp-remote@0.15.1")));
            let node = node_script(BRIDGE);
            let program = node.as_std().get_program().to_str().unwrap();
            let script = node.as_std().get_args().map(|argument| json!(argument.to_str().unwrap()));
            let arguments: Vec<Value> = script.chain(arguments[2..].iter().cloned()).collect();
            server["args"] = arguments.into();
            server["command"] = program.into();
            server["env"]["HOME"] = json!(shop.folder());
        }
        let tools = tools(&sample, &server).await;
        assert!(tools.contains(&"set_order_status".to_owned()), "{sample:?}: {tools:?}");
    }
}
