//! The links of Cursor, LM Studio and VS Code: decoded as these clients decode them, and what they say is started.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use testkit::{database, startup_error};

use super::{CLIENTS, Home, succeeds};

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8().unwrap().into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_of_a_link_starts() {
    let (db, home) = (database().await, Home::new());
    std::fs::write(home.project().join("url"), db.writer_url()).unwrap();
    // A percent sign would be decoded twice by VS Code, and a plus sign is a space in a query.
    let manifest = "social +50%41 ä&=?#.toml";
    std::fs::copy(home.project().join("social.toml"), home.project().join(manifest)).unwrap();
    let link = async |client: &str| {
        let arguments = ["install", "--client", client, "--link", "--name", "shop", "--manifest", manifest];
        let output = succeeds(home.command(&arguments).args(["--database-url-file", "url"])).await;
        assert!(!home.file(client).exists());
        output.out.trim_end().to_owned()
    };

    for (client, address) in
        [("cursor", "cursor://anysphere.cursor-deeplink/mcp/install?"), ("lm-studio", "lmstudio://add_mcp?")]
    {
        let link = link(client).await;
        let query = link.strip_prefix(address).unwrap();
        let (name, config) = query.split_once('&').unwrap();
        assert_eq!(name, "name=shop");
        let config = STANDARD.decode(decoded(config.strip_prefix("config=").unwrap())).unwrap();
        home.serves_the_social_manifest(&serde_json::from_slice(&config).unwrap()).await;
    }

    let vscode = link("vscode").await;
    let query = vscode.strip_prefix("vscode:mcp/install?").unwrap();
    for text in [decoded(query), decoded(&decoded(query))] {
        let server: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&server["name"], &server["type"]), (&json!("shop"), &json!("stdio")));
        home.serves_the_social_manifest(&server).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_contains_no_secret_and_other_clients_have_none() {
    let (db, home) = (database().await, Home::new());
    let with_links = ["cursor", "lm-studio", "vscode"];
    for client in with_links {
        let said = startup_error(&mut home.install(&db, client, &["--link"])).await;
        assert!(said.contains("a link would contain the value of DATABASE_URL"), "{said}");
        assert!(said.contains("--database-url-file FILE"), "{said}");
    }
    std::fs::write(home.project().join("url"), db.writer_url()).unwrap();
    for client in CLIENTS.into_iter().filter(|client| !with_links.contains(client)) {
        let said = startup_error(&mut home.install(&db, client, &["--link", "--database-url-file", "url"])).await;
        assert!(said.contains("has no links that add a server"), "{said}");
    }
    std::fs::write(home.project().join("token"), "hunter2hunter2").unwrap();
    let remote = ["--link", "--remote", "https://mcp.example.com/mcp"];
    let install = |client: &str, more: &[&str]| {
        let mut command = home.command(&["install", "--client", client]);
        command.args(remote).args(more);
        command
    };
    let said = startup_error(&mut install("cursor", &["--token-file", "token"])).await;
    assert!(said.contains("--token-env NAME"), "{said}");
    let link = succeeds(&mut install("vscode", &["--token-file", "token"])).await.out;
    let server: Value =
        serde_json::from_str(&decoded(link.trim_end().strip_prefix("vscode:mcp/install?").unwrap())).unwrap();
    assert_eq!(server["headers"], json!({"Authorization": "Bearer ${input:countersign-token}"}));
    assert_eq!(server["inputs"][0]["password"], true);
    let link = succeeds(&mut install("cursor", &["--token-env", "SHOP_TOKEN"])).await.out;
    let config = link.trim_end().split_once("config=").unwrap().1;
    let config: Value = serde_json::from_slice(&STANDARD.decode(decoded(config)).unwrap()).unwrap();
    assert_eq!(config["headers"], json!({"Authorization": "Bearer ${env:SHOP_TOKEN}"}));
}
