//! The entry of each client, and that it starts.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use testkit::{database, startup_error};

use super::{CLIENTS, Home, entry, succeeds};

#[tokio::test(flavor = "multi_thread")]
async fn every_client_starts_what_was_installed_and_a_second_install_changes_nothing() {
    let (db, home) = (database().await, Home::new());
    for client in CLIENTS {
        let more = ["--name", "shop", "--account", "acme", "--strict-roles=false"];
        let said = succeeds(home.install(&db, client, &more).env("COUNTERSIGN_ROW_LIMIT", "7")).await.out;
        let file = home.file(client);
        assert!(said.contains(&format!("Made {} with the entry \"shop\".", file.display())), "{said}");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let text = home.read(client);
        assert!(!text.contains("postgresql://"), "{text}");
        let entry = entry(client, &text, "shop");
        let project = home.project().canonicalize().unwrap();
        let manifest = project.join("social.toml");
        let secret = home.path().join(".config/countersign/clients/shop.database-url");
        assert_eq!(entry["command"], json!(testkit::countersign().canonicalize().unwrap()));
        let arguments = json!([
            "serve",
            "--log",
            "error",
            "--manifest",
            manifest,
            "--account",
            "acme",
            "--strict-roles=false",
            "--row-limit",
            "7",
            "--database-url-file",
            secret
        ]);
        assert_eq!(entry["args"], arguments);
        assert_eq!(secret.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        home.serves_the_social_manifest(&entry).await;

        let again = succeeds(home.install(&db, client, &more).env("COUNTERSIGN_ROW_LIMIT", "7")).await.out;
        assert!(again.contains("has this entry \"shop\" already: nothing was changed."), "{again}");
        assert_eq!(home.read(client), text);

        let removed = succeeds(&mut home.command(&["uninstall", "--client", client, "--name", "shop"])).await.out;
        assert!(
            removed.contains("Removed \"shop\" from") && removed.contains("shop.database-url has its"),
            "{removed}"
        );
        let left = if client == "codex" {
            ""
        } else if client == "vscode" {
            "{\n  \"servers\": {}\n}\n"
        } else {
            "{\n  \"mcpServers\": {}\n}\n"
        };
        assert_eq!(home.read(client), left);
        let gone = succeeds(&mut home.command(&["uninstall", "--client", client, "--name", "shop"])).await.out;
        assert!(gone.contains("has no entry \"shop\": nothing was changed."), "{gone}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_of_a_project_are_in_the_current_folder() {
    let (db, home) = (database().await, Home::new());
    for (client, path) in [
        ("claude-code", ".mcp.json"),
        ("cursor", ".cursor/mcp.json"),
        ("vscode", ".vscode/mcp.json"),
        ("codex", ".codex/config.toml"),
        ("gemini", ".gemini/settings.json"),
    ] {
        let said = succeeds(&mut home.install(&db, client, &["--scope", "project"])).await.out;
        assert!(said.contains("paths of this machine"), "{said}");
        let text = std::fs::read_to_string(home.project().join(path)).unwrap();
        home.serves_the_social_manifest(&entry(client, &text, "countersign")).await;
    }
    let said = startup_error(&mut home.install(&db, "claude-desktop", &["--scope", "project"])).await;
    assert!(said.contains("Claude Desktop has no configuration for projects"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_variables_of_a_client_name_its_file() {
    let (db, home) = (database().await, Home::new());
    for (client, variable, path) in [
        ("claude-code", "CLAUDE_CONFIG_DIR", ".claude.json"),
        ("codex", "CODEX_HOME", "config.toml"),
        ("gemini", "GEMINI_CLI_HOME", ".gemini/settings.json"),
        ("vscode", "VSCODE_PORTABLE", "user-data/User/mcp.json"),
    ] {
        let folder = home.path().join(variable);
        succeeds(home.install(&db, client, &["--no-check"]).env(variable, &folder)).await;
        assert!(folder.join(path).is_file() && !home.file(client).exists(), "{variable}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_with_a_configuration_file_names_it_and_another_program_can_be_started() {
    let (db, home) = (database().await, Home::new());
    let config = format!("database_url = {:?}\nmanifests = [\"social.toml\"]\n", db.writer_url());
    std::fs::write(home.project().join("c.toml"), config).unwrap();
    let bin = home.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(testkit::countersign(), bin.join("countersign-of-path")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let arguments = ["--config", "c.toml", "install", "--client", "cursor", "--command", "countersign-of-path"];
    succeeds(home.command(&arguments).env("PATH", path)).await;
    let entry = entry("cursor", &home.read("cursor"), "countersign");
    assert_eq!(entry["command"], json!(bin.join("countersign-of-path")));
    let config = home.project().canonicalize().unwrap().join("c.toml");
    assert_eq!(entry["args"], json!(["serve", "--config", config, "--log", "error"]));
    home.serves_the_social_manifest(&entry).await;
    let said =
        startup_error(&mut home.command(&["install", "--client", "cursor", "--command", "no-such-program"])).await;
    assert!(said.contains("there is no such program in a folder of PATH"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_is_printed_and_nothing_is_written() {
    let (db, home) = (database().await, Home::new());
    for client in CLIENTS {
        let printed = succeeds(&mut home.install(&db, client, &["--print", "--name", "shop"])).await;
        let place = format!("This entry belongs in {}.", home.file(client).display());
        assert!(printed.err.contains(&place), "{}", printed.err);
        assert!(printed.err.contains("shop.database-url is written with the value of DATABASE_URL"), "{}", printed.err);
        assert_eq!(entry(client, &printed.out, "shop")["args"][0], "serve");
    }
    let left: Vec<_> = std::fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["project"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_would_not_start_is_not_installed() {
    let (db, home) = (database().await, Home::new());
    let broken = home.project().join("broken.toml");
    std::fs::write(&broken, "name = \"x\"\nversion = \"1\"\n[[tool]]\nname = \"t\"\naccess = \"read\"\ndescription = \"D.\"\nsql = \"select nothing from nowhere\"\n").unwrap();
    let mut command = home.command(&["install", "--client", "cursor", "--manifest", "broken.toml"]);
    let said = startup_error(command.env("DATABASE_URL", db.writer_url())).await;
    assert!(said.contains("broken.toml:7:") && said.contains("nowhere"), "{said}");
    let nowhere = "postgresql://me@127.0.0.1:1/none";
    let install = |more: &[&str]| {
        let mut command = home.install(&db, "cursor", more);
        command.env("DATABASE_URL", nowhere);
        command
    };
    let said = startup_error(&mut install(&[])).await;
    assert!(
        said.contains("--no-check") && said.contains("nothing was changed") && said.contains("127.0.0.1"),
        "{said}"
    );
    assert!(!home.file("cursor").exists() && !home.path().join(".config").exists());
    succeeds(&mut install(&["--no-check"])).await;
    assert!(home.file("cursor").exists());

    let said = startup_error(&mut install(&["--http", "127.0.0.1:0"])).await;
    assert!(said.contains("this configuration serves HTTP") && said.contains("--remote URL"), "{said}");
    let mut command = home.command(&["install", "--client", "cursor"]);
    let said = startup_error(command.env("PGHOST", "/nowhere")).await;
    assert!(said.contains("no connection string is configured") && said.contains("--database-url-file"), "{said}");
    let dollar = home.project().join("a$b.toml");
    std::fs::copy(home.project().join("social.toml"), dollar).unwrap();
    let mut command = home.command(&["install", "--client", "gemini", "--manifest", "a$b.toml"]);
    let said = startup_error(command.env("DATABASE_URL", db.writer_url())).await;
    assert!(said.contains("Gemini CLI replaces what follows a $"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_that_the_client_will_not_have_are_named() {
    let (db, home) = (database().await, Home::new());
    let output = succeeds(home.install(&db, "cursor", &[]).env("PGAPPNAME", "x").env("PGSSLMODE", "prefer")).await;
    assert!(output.err.contains("warning: PGSSLMODE is set in this shell"), "{}", output.err);
    assert!(!output.err.contains("PGAPPNAME"), "{}", output.err);
}
