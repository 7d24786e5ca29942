//! The registry of executors: a tool without an executor stops the start before any request is answered.

use std::process::Stdio;

use serde_json::json;
use testkit::{Database, Server, database};
use tokio::io::AsyncWriteExt;

/// Two tools with unregistered executors, and one that needs no executor.
const MANIFEST: &str = r#"
name = "orphans"
version = "1.0"

[[tool]]
name = "first_orphan"
access = "write"
tier = "confirm"
description = "Nothing carries it out."
before = "select package_id from studio.package where package_id = $1 for update"
executor = "burn_package"
undo = { irreversible = "It burns." }
[[tool.param]]
name = "package_id"
description = "Which."

[[tool]]
name = "second_orphan"
access = "write"
tier = "approve"
description = "Nothing carries it out either."
before = "select package_id from studio.package where package_id = $1 for update"
executor = "drown_package"
undo = { irreversible = "It drowns." }
[[tool.param]]
name = "package_id"
description = "Which."

[[tool]]
name = "read_packages"
access = "read"
description = "Needs nobody."
sql = "select package_id from studio.package"
"#;

fn orphans(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

async fn check(db: &Database, manifest: &std::path::Path) -> (bool, String) {
    let mut command = tokio::process::Command::new(testkit::countersign());
    command.env("DATABASE_URL", db.writer_url()).args(["check", "--manifest"]).arg(manifest);
    let output = command.output().await.unwrap();
    (output.status.success(), String::from_utf8(output.stderr).unwrap() + &String::from_utf8(output.stdout).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_names_every_tool_without_an_executor_and_does_not_start() {
    let db = database().await;
    let file = orphans(MANIFEST);
    let mut command = Server::bare_command(&db);
    command.arg("--manifest").arg(file.path());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
        "capabilities": {}, "clientInfo": {"name": "x", "version": "0"}}});
    // It may be gone before it reads.
    let _ = child.stdin.take().unwrap().write_all(format!("{hello}\n").as_bytes()).await;
    let output = child.wait_with_output().await.unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{errors}");
    let (checked, told) = check(&db, file.path()).await;
    assert!(!checked, "{told}");
    for words in [&errors, &told] {
        for (tool, executor, line) in
            [("first_orphan", "burn_package", ":11:"), ("second_orphan", "drown_package", ":23:")]
        {
            let line = words.lines().find(|found| found.contains(tool) && found.contains(line));
            let line = line.unwrap_or_else(|| panic!("{tool}: {words}"));
            assert!(line.contains(executor) && line.contains("delete_package_photo"), "what there is: {line}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_without_native_tools_needs_no_executor_and_the_shipped_executor_is_registered() {
    let db = database().await;
    let reads = MANIFEST.split("[[tool]]").last().unwrap();
    let file = orphans(&format!("name = \"reads\"\nversion = \"1.0\"\n[[tool]]{reads}"));
    let (checked, told) = check(&db, file.path()).await;
    assert!(checked, "{told}");
    let mut with_reads = Server::studio_command(&db);
    with_reads.arg("--manifest").arg(file.path());
    let server = Server::start(with_reads).await;
    // The first request finds everything registered.
    let proposed = server.succeed("delete_package_photo", json!({"package_id": 1, "photo_id": 2})).await;
    assert_eq!(proposed["data"]["requires_approval"], true);
    server.close().await;
    let (checked, told) = check(&db, &testkit::repository().join("manifests/studio.toml")).await;
    assert!(checked && told.contains('5'), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_native_executor_checks_the_owner_and_answers_foreign_rows_like_missing_rows() {
    let db = database().await;
    let server = Server::studio(&db).await;
    let mut said = Vec::new();
    for (package_id, photo_id) in [(6, 7), (999, 7), (999, 999)] {
        let arguments = json!({"package_id": package_id, "photo_id": photo_id});
        said.push(server.fail("delete_package_photo", arguments, "not_found").await);
    }
    said.dedup();
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(said[0]["message"], "Package not found or access denied");
    // A photo of another package, and none.
    for photo_id in [4, 999] {
        server.fail("delete_package_photo", json!({"package_id": 1, "photo_id": photo_id}), "not_found").await;
    }
    for wrong in
        [json!({"package_id": "x", "photo_id": 1}), json!({"package_id": 1}), json!({"package_id": 0, "photo_id": 1})]
    {
        server.fail("delete_package_photo", wrong, "invalid_params").await;
    }
    // The cover goes, and the next photo takes its place.
    let proposal = server.propose("delete_package_photo", json!({"package_id": 1, "photo_id": 1})).await;
    let done = server.succeed("confirm_proposal", super::agreement(&proposal)).await;
    assert_eq!(done["data"]["result"]["photos_left"], 2, "{done}");
    let photos =
        db.rows("select photo_id, position from studio.package_photo where package_id = 1 order by position").await;
    assert_eq!(photos, [["2", "1"], ["3", "2"]]);
    assert_eq!(db.value("select count(*) from studio.package_photo where package_id <> 1").await, "4");
    for tool in ["upsert_package", "delete_package", "create_booking"] {
        let arguments = match tool {
            "upsert_package" => {
                json!({"package_id": 6, "title": "x", "description": "", "price": 1, "duration_minutes": 60})
            }
            "delete_package" => json!({"package_id": 6}),
            _ => json!({"package_id": 6, "customer": "x", "starts_at": "2099-06-02T12:00:00+01:00"}),
        };
        let foreign = server.fail(tool, arguments.clone(), "not_found").await;
        let mut missing = arguments;
        missing["package_id"] = json!(999);
        assert_eq!(server.fail(tool, missing, "not_found").await, foreign, "{tool}");
    }
    server.close().await;
}
