//! The entry of each client, and that it starts.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use testkit::{database, long_form, startup_error};

use super::{CLIENTS, Home, command_line, entry, servers_key, succeeds};

#[tokio::test(flavor = "multi_thread")]
async fn every_client_starts_what_was_installed_and_a_second_install_changes_nothing() {
    let (db, home) = (database().await, Home::new());
    for (number, client) in CLIENTS.into_iter().enumerate() {
        // Each client gets the same command, so one of them shows that it starts.
        let is_started = number == 0 || long_form::is_on();
        let mut more = vec!["--name", "shop", "--account", "acme", "--strict-roles=false"];
        more.extend((!is_started).then_some("--no-check"));
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
        let words = json!([
            testkit::countersign().canonicalize().unwrap(),
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
        assert_eq!(json!(command_line(&entry)), words, "{client}");
        assert_eq!(secret.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        if is_started {
            home.serves_the_social_manifest(&entry).await;
        }

        let again = succeeds(home.install(&db, client, &more).env("COUNTERSIGN_ROW_LIMIT", "7")).await.out;
        assert!(again.contains("has this entry \"shop\" already: nothing was changed."), "{again}");
        assert_eq!(home.read(client), text);

        let removed = succeeds(&mut home.command(&["uninstall", "--client", client, "--name", "shop"])).await.out;
        assert!(
            removed.contains("Removed \"shop\" from") && removed.contains("shop.database-url has its"),
            "{removed}"
        );
        let left = match client {
            "codex" => String::new(),
            _ => format!("{{\n  \"{}\": {{}}\n}}\n", servers_key(client)),
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
        ("copilot-cli", ".github/mcp.json"),
        ("codex", ".codex/config.toml"),
        ("gemini", ".gemini/settings.json"),
        ("devin-desktop", ".devin/mcp_config.json"),
        ("zed", ".zed/settings.json"),
        ("opencode", "opencode.jsonc"),
        ("junie", ".junie/mcp/mcp.json"),
    ] {
        let said = succeeds(&mut home.install(&db, client, &["--scope", "project"])).await.out;
        assert!(said.contains("paths of this machine"), "{said}");
        let text = std::fs::read_to_string(home.project().join(path)).unwrap();
        home.serves_the_social_manifest(&entry(client, &text, "countersign")).await;
    }
    for client in ["claude-desktop", "windsurf", "cline", "lm-studio", "antigravity"] {
        let said = startup_error(&mut home.install(&db, client, &["--scope", "project"])).await;
        assert!(said.contains("has no configuration for projects: leave out --scope project"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_files_the_one_that_exists_gets_the_entry() {
    let (db, home) = (database().await, Home::new());
    for (client, path) in
        [("opencode", ".config/opencode/opencode.json"), ("antigravity", ".gemini/antigravity/mcp_config.json")]
    {
        let file = home.path().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "{}").unwrap();
        succeeds(&mut home.install(&db, client, &["--no-check"])).await;
        assert!(std::fs::read_to_string(&file).unwrap().contains("\"countersign\""), "{client}");
        assert!(!home.file(client).exists(), "{client}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_client_gets_the_members_that_it_reads() {
    let (db, home) = (database().await, Home::new());
    let program = home.path().join("countersign-here");
    std::os::unix::fs::symlink(testkit::countersign(), &program).unwrap();
    std::fs::write(home.project().join("url"), db.writer_url()).unwrap();
    std::fs::write(home.project().join("token"), "sesame").unwrap();
    let url = "https://mcp.example.com/mcp";
    let headers = json!({"Authorization": "Bearer sesame"});
    let of = |entry: Value, words: Value| {
        let mut entry = entry;
        entry["command"] = words[0].clone();
        entry["args"] = words.as_array().unwrap()[1..].into();
        entry
    };
    let path = home.project().canonicalize().unwrap().join("url");
    let words = json!([program, "serve", "--log", "error", "--database-url-file", path]);
    let plain = of(json!({}), words.clone());
    let typed = of(json!({"type": "stdio"}), words.clone());
    let by_url = json!({"url": url, "headers": headers});
    let by_type = json!({"type": "http", "url": url, "headers": headers});
    let by_server_url = json!({"serverUrl": url, "headers": headers});
    for (client, local, remote) in [
        ("claude-code", typed.clone(), by_type.clone()),
        ("cursor", typed.clone(), by_url.clone()),
        (
            "copilot-cli",
            of(json!({"type": "local", "tools": ["*"]}), words.clone()),
            json!({"type": "http", "url": url, "headers": headers, "tools": ["*"]}),
        ),
        ("codex", plain.clone(), json!({"url": url, "http_headers": headers})),
        ("gemini", plain.clone(), by_type),
        ("windsurf", plain.clone(), by_server_url.clone()),
        ("devin-desktop", plain.clone(), json!({"url": url, "transport": "http", "headers": headers})),
        ("cline", typed, json!({"type": "streamableHttp", "url": url, "headers": headers})),
        ("zed", plain.clone(), by_url.clone()),
        (
            "opencode",
            json!({"type": "local", "command": words}),
            json!({"type": "remote", "url": url, "headers": headers}),
        ),
        ("junie", plain.clone(), by_url.clone()),
        ("lm-studio", plain.clone(), by_url),
        ("antigravity", plain, by_server_url),
    ] {
        let mut install = home.command(&["install", "--client", client, "--no-check", "--command"]);
        succeeds(install.arg(&program).args(["--database-url-file", "url"])).await;
        assert_eq!(entry(client, &home.read(client), "countersign"), local, "{client}");
        let install = ["install", "--client", client, "--name", "far", "--no-check", "--remote", url];
        succeeds(home.command(&install).args(["--token-file", "token"])).await;
        assert_eq!(entry(client, &home.read(client), "far"), remote, "{client}");
        // Both are known as entries of this command.
        for name in ["countersign", "far"] {
            let said = succeeds(&mut home.command(&["uninstall", "--client", client, "--name", name])).await;
            assert!(said.out.contains("Removed"), "{client}: {}", said.out);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_entry_of_goose_is_printed_and_its_file_stays() {
    let (db, home) = (database().await, Home::new());
    let described = "PostgreSQL, through countersign";
    let printed = succeeds(&mut home.install(&db, "goose", &["--print"])).await;
    let local =
        printed.out.strip_prefix("extensions:\n  \"countersign\": ").unwrap_or_else(|| panic!("{}", printed.out));
    let local: Value = serde_json::from_str(local).unwrap();
    assert_eq!(
        (&local["type"], &local["description"], &local["args"][0]),
        (&json!("stdio"), &json!(described), &json!("serve"))
    );
    assert!(printed.err.contains("goose/config.yaml"), "{}", printed.err);
    for mut command in [home.install(&db, "goose", &["--no-check"]), home.command(&["uninstall", "--client", "goose"])]
    {
        let said = startup_error(&mut command).await;
        assert!(said.contains("YAML is not edited") && said.contains("--print"), "{said}");
    }
    assert!(!home.path().join(".config/goose").exists());
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
        assert_eq!(command_line(&entry(client, &printed.out, "shop"))[1], "serve");
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
