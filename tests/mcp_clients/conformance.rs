//! The official conformance suites: every scenario for servers, with the tools that they call by name (`fixtures.toml`).
//!
//! What fails is listed in `tests/clients/expected`, with the reason. The suite itself fails for an entry that passes; that
//! every entry was met is looked up here, since it says nothing of an entry that it does not know.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use testkit::{Database, External, HttpServer, database, exclusive, long_form, node_script, repository, skip_without};

/// The two releases, by the names of `tests/clients/package.json`. The next one allows some answers only 600 ms, which is
/// too little beside other tests.
const RELEASED: &str = "conformance";
const NEXT: &str = "conformance-next";

fn listed(name: &str) -> PathBuf {
    repository().join("tests/clients/expected").join(name)
}

/// A server with the suite's tools, and its database.
async fn server() -> (Database, HttpServer) {
    let db = database().await;
    db.run("create table public.answer (tool text not null, message text)").await;
    let mut command = HttpServer::command(&db);
    command.arg("--manifest").arg(repository().join("tests/clients/fixtures.toml"));
    let server = HttpServer::start(command).await;
    (db, server)
}

/// What a suite makes of the server, as it fails or not.
async fn judged(server: &HttpServer, suite: &str, list: &Path, more: &[&str]) -> Result<String, String> {
    // Whatever it keeps goes here.
    let folder = tempfile::tempdir().unwrap();
    let mut command = node_script(&format!("{suite}/dist/index.js"));
    command.current_dir(&folder).args(["server", "--url", &server.url("/mcp"), "--expected-failures"]);
    let output = command.arg(list).args(more).output().await.unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    let entries = entries(&std::fs::read_to_string(list).unwrap());
    let met: BTreeSet<String> =
        said.lines().filter_map(|line| line.strip_prefix("  ~ ")).map(ToOwned::to_owned).collect();
    let never: Vec<&String> = entries.difference(&met).collect();
    match (output.status.success(), never.as_slice()) {
        (true, []) => Ok(said),
        (true, never) => Err(format!("listed in {}, and not among what failed: {never:?}\n{said}", list.display())),
        (false, _) => Err(said),
    }
}

/// The entries of a list. The first one of a group follows its reason.
fn entries(list: &str) -> BTreeSet<String> {
    let mut has_reason = false;
    let mut entries = BTreeSet::new();
    for line in list.lines().skip_while(|line| *line != "server:").skip(1) {
        match line.strip_prefix("  - ") {
            Some(entry) => {
                assert!(has_reason, "{entry}: an entry says why, in a comment before its group");
                assert!(entries.insert(entry.to_owned()), "{entry} is listed twice");
            }
            None => {
                has_reason = line.starts_with("  # ");
                assert!(has_reason, "{line:?} is neither an entry nor a reason");
            }
        }
    }
    entries
}

async fn passes(suite: &str, list: &str, more: &[&str]) {
    if skip_without(&[External::NodeModules]) {
        return;
    }
    let (_db, server) = server().await;
    let arguments = [&["--suite", "all"], more].concat();
    let verdict = judged(&server, suite, &listed(list), &arguments).await;
    let said = verdict.unwrap_or_else(|said| panic!("{said}\n{}", server.log()));
    assert!(said.contains("\nTotal: "), "it ran something: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_released_suite_passes_except_for_the_listed_tests() {
    passes(RELEASED, "0.1.16.yml", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_suite_passes_in_protocols_with_a_handshake_except_for_the_listed_tests() {
    if long_form::is_left_out() {
        return;
    }
    exclusive().await;
    passes(NEXT, "0.2.0-2025-11-25.yml", &["--spec-version", "2025-11-25"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_suite_passes_in_the_newest_protocol_except_for_the_listed_tests() {
    if long_form::is_left_out() {
        return;
    }
    exclusive().await;
    passes(NEXT, "0.2.0-2026-07-28.yml", &["--spec-version", "2026-07-28"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_with_a_passing_or_an_unknown_entry_fails() {
    if skip_without(&[External::NodeModules]) {
        return;
    }
    let (_db, server) = server().await;
    let folder = tempfile::tempdir().unwrap();
    for suite in &[RELEASED, NEXT][..long_form::choose(1, 2)] {
        for (entry, words) in [("ping", "Stale baseline entries"), ("no-such-scenario", "not among what failed")] {
            let list = folder.path().join("list.yml");
            std::fs::write(&list, format!("server:\n  # Why.\n  - {entry}\n")).unwrap();
            let said = judged(&server, suite, &list, &["--scenario", "ping"]).await.unwrap_err();
            assert!(said.contains(words) && said.contains(entry), "{suite}: {said}");
        }
    }
}
