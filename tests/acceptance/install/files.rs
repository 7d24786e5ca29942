//! What a client's file keeps: everything else in it, its mode, its owner, its link; and what is refused.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use serde_json::json;
use testkit::{database, startup_error};

use super::{Home, contents, entry, run, succeeds};

/// A file with everything that editors let people write.
const JSONC: &str = "\u{feff}{\r\n\t// My servers.\r\n\t\"mcpServers\": {\r\n\t\t\"b\": {\"command\" : \"b\", \"args\":[ ]}, // of b\r\n\
    \t\t/* \"old\": {}, */\r\n\t\t\"a\": {\"url\": \"https://example.com/{x}//\"}, // last\r\n\t\t// \"c\": {}\r\n\t},\r\n\
    \t\"theme\": 1.50,\r\n}\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn comments_order_and_form_stay_and_the_previous_file_is_kept() {
    let (db, home) = (database().await, Home::new());
    for client in ["cursor", "gemini", "claude-code"] {
        let file = home.write(client, JSONC);
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        let before = file.metadata().unwrap();
        let output = succeeds(&mut home.install(&db, client, &["--name", "shop"])).await;
        let backup = format!("{}.backup", file.display());
        assert!(output.out.contains(&format!("The previous file is {backup}.")), "{}", output.out);
        assert_eq!(output.err.contains("comments or trailing commas"), client == "claude-code", "{}", output.err);
        let text = home.read(client);
        let (head, rest) = text.split_once(" // last\r\n\t\t\"shop\": {\r\n\t\t\t").unwrap();
        let tail = rest.split_once("\r\n\t\t},\r\n").unwrap().1;
        assert_eq!(format!("{head} // last\r\n{tail}"), JSONC);
        let after = file.metadata().unwrap();
        for found in [&after, &Path::new(&backup).metadata().unwrap()] {
            assert_eq!((found.mode(), found.uid(), found.gid()), (before.mode(), before.uid(), before.gid()));
        }
        assert_eq!(std::fs::read_to_string(&backup).unwrap(), JSONC);
        succeeds(&mut home.command(&["uninstall", "--client", client, "--name", "shop"])).await;
        assert_eq!(home.read(client), JSONC);
        // A backup that differs stays, and no other file is left.
        assert_eq!(std::fs::read_to_string(&backup).unwrap(), JSONC);
        let names: Vec<String> = contents(file.parent().unwrap()).into_iter().map(|(name, _)| name).collect();
        let name = file.file_name().unwrap().to_str().unwrap();
        assert_eq!(names, [name.to_owned(), format!("{name}.backup"), format!("{name}.backup-2")]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tables_of_codex_stay_as_they_are() {
    let (db, home) = (database().await, Home::new());
    let text = "# mine\nmodel = 'x' # best\n\n[mcp_servers.b]\ncommand = \"b\"   # of b\nargs = [\n  \"x\", # y\n]\n\n[z]\n# end\n";
    home.write("codex", text);
    succeeds(&mut home.install(&db, "codex", &[])).await;
    let with = home.read("codex");
    assert!(with.starts_with(&format!("{text}\n[mcp_servers.countersign]\ncommand = ")), "{with}");
    home.serves_the_social_manifest(&entry("codex", &with, "countersign")).await;
    succeeds(&mut home.command(&["uninstall", "--client", "codex"])).await;
    assert_eq!(home.read("codex"), text);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_differs_is_shown_and_replaced_only_on_demand() {
    let (db, home) = (database().await, Home::new());
    let text = "{\"mcpServers\": {\"countersign\": {\"command\": \"npx\", \"args\": [\"--api-key\", \"hunter2\"], \"env\": \
                {\"TOKEN\": \"hunter2\"}}, \"a\": {}}}";
    let file = home.write("cursor", text);
    let said = startup_error(&mut home.install(&db, "cursor", &[])).await;
    for part in [
        "has another entry \"countersign\":",
        "- command: \"npx\"",
        "+ command: \"/",
        "- env: {\"TOKEN\":\"***\"}",
        "--replace",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("hunter2"), "{said}");
    assert_eq!(contents(file.parent().unwrap()).len(), 1);
    // It is not one of ours, so that it is not removed by mistake either.
    let said = startup_error(&mut home.command(&["uninstall", "--client", "cursor"])).await;
    assert!(said.contains("is not one that `countersign install` writes") && said.contains("--force"), "{said}");
    assert_eq!(home.read("cursor"), text);

    succeeds(&mut home.install(&db, "cursor", &["--replace"])).await;
    let text = home.read("cursor");
    home.serves_the_social_manifest(&entry("cursor", &text, "countersign")).await;
    assert_eq!(entry("cursor", &text, "a"), json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_edited_is_named_with_the_place_and_stays() {
    let (db, home) = (database().await, Home::new());
    for (client, content, said) in [
        (
            "cursor",
            "{\n  \"mcpServers\": {\n    \"é\" 1\n  }\n}" as &str,
            "mcp.json:3:9: this is not JSON: Expected colon",
        ),
        ("cursor", "{\"a\": 1} x", "mcp.json:1:10: this is not JSON"),
        ("cursor", "[]", "mcp.json:1:1: the file is an array and not an object"),
        ("cursor", "// nothing\n", "mcp.json:2:1: the file has no JSON value"),
        ("vscode", "{\n \"servers\": []}", "mcp.json:2:13: \"servers\" is an array and not an object"),
        ("gemini", "{\"mcpServers\": null}", "settings.json:1:16: \"mcpServers\" is null and not an object"),
        ("gemini", "{\"mcpServers\": {}, \"mcpServers\": {}}", "settings.json:1:20: \"mcpServers\" is there twice"),
        ("codex", "model = \"x\"\n[mcp_servers\n", "config.toml:2:13: this is not TOML"),
        ("codex", "mcp_servers = 1", "config.toml:1:15: mcp_servers is of type integer and not a table"),
    ] {
        let file = home.write(client, content);
        for arguments in [&["--no-check"] as &[&str], &["--replace"]] {
            let error = startup_error(&mut home.install(&db, client, arguments)).await;
            assert!(error.contains(said) && error.contains("nothing was changed"), "{content}: {error}");
        }
        assert_eq!(home.read(client), content);
        assert_eq!(contents(file.parent().unwrap()).len(), 1);
    }
    let file = home.write("cursor", "");
    std::fs::write(&file, b"{\"a\": \"\xff\"}").unwrap();
    let error = startup_error(&mut home.install(&db, "cursor", &[])).await;
    assert!(error.contains("mcp.json is not UTF-8 (byte 7)") && error.contains("nothing was changed"), "{error}");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let error = startup_error(&mut home.install(&db, "cursor", &[])).await;
    assert!(error.contains("mcp.json is not a file"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_file_gets_the_entry() {
    let (db, home) = (database().await, Home::new());
    for content in ["", "\n", "\u{feff}", "{}"] {
        home.write("cursor", content);
        succeeds(&mut home.install(&db, "cursor", &["--no-check"])).await;
        let text = home.read("cursor");
        assert_eq!(text.starts_with('\u{feff}'), content == "\u{feff}");
        let entry = entry("cursor", text.trim_start_matches('\u{feff}'), "countersign");
        assert_eq!(entry["args"][0], "serve", "{content:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_symbolic_link_stays_and_its_target_gets_the_entry() {
    let (db, home) = (database().await, Home::new());
    let dotfiles = home.path().join("dotfiles");
    std::fs::create_dir(&dotfiles).unwrap();
    std::fs::write(dotfiles.join("mcp.json"), "{}").unwrap();
    let file = home.file("cursor");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    symlink("../dotfiles/mcp.json", &file).unwrap();
    succeeds(&mut home.install(&db, "cursor", &[])).await;
    assert_eq!(std::fs::read_link(&file).unwrap(), Path::new("../dotfiles/mcp.json"));
    let text = std::fs::read_to_string(dotfiles.join("mcp.json")).unwrap();
    home.serves_the_social_manifest(&entry("cursor", &text, "countersign")).await;
    assert_eq!(std::fs::read_to_string(dotfiles.join("mcp.json.backup")).unwrap(), "{}");

    std::fs::remove_file(dotfiles.join("mcp.json")).unwrap();
    let error = startup_error(&mut home.install(&db, "cursor", &[])).await;
    assert!(error.contains("is a symbolic link to ../dotfiles/mcp.json, which cannot be found"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_must_not_be_written_is_an_error() {
    let (db, home) = (database().await, Home::new());
    let file = home.write("cursor", "{}");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o444)).unwrap();
    let error = startup_error(&mut home.install(&db, "cursor", &[])).await;
    assert!(error.contains("mcp.json is read-only: nothing was changed"), "{error}");
    assert_eq!(home.read("cursor"), "{}");
    if nix::unistd::geteuid().is_root() {
        // Modes do not bind root.
        return;
    }
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o000)).unwrap();
    let error = startup_error(&mut home.install(&db, "cursor", &[])).await;
    assert!(error.contains("mcp.json cannot be read"), "{error}");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let folder = file.parent().unwrap();
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o500)).unwrap();
    let error = startup_error(&mut home.install(&db, "cursor", &[])).await;
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o700)).unwrap();
    assert!(error.contains("cannot be written"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn installs_at_once_are_all_there() {
    let (db, home) = (database().await, Home::new());
    std::fs::write(home.project().join("url"), db.writer_url()).unwrap();
    for client in ["cursor", "codex"] {
        let installs = (0..12).map(|number| {
            let name = format!("shop-{number}");
            let more = ["--no-check", "--database-url-file", "url", "--name", &name];
            let mut command = home.install(&db, client, &more);
            async move { run(&mut command).await }
        });
        for output in futures_util::future::join_all(installs).await {
            assert_eq!(output.code, 0, "{}", output.err);
        }
        let text = home.read(client);
        for number in 0..12 {
            assert_eq!(entry(client, &text, &format!("shop-{number}"))["args"][0], "serve");
        }
        // Every state that was replaced is in a backup.
        let backups = contents(home.file(client).parent().unwrap());
        assert_eq!(backups.iter().filter(|(name, _)| name.contains(".backup")).count(), 11);
    }
}
