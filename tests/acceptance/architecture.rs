//! The layout of ARCHITECTURE.md holds: dependencies point one way.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

/// What each crate may depend on, of ours.
const ALLOWED: [(&str, &[&str]); 28] = [
    ("countersign-types", &[]),
    ("countersign-os", &[]),
    ("countersign-pg-embedded", &[]),
    ("countersign-malloc-tuning", &[]),
    ("countersign-pg", &["countersign-types", "countersign-os"]),
    ("countersign-agent-cli", &["countersign-types", "countersign-pg"]),
    ("countersign-manifest", &["countersign-types"]),
    ("countersign-tlog", &["countersign-os"]),
    ("countersign-schema-change", &["countersign-types"]),
    ("countersign-http-client", &[]),
    ("countersign-http-server", &[]),
    ("countersign-telemetry", &["countersign-types", "countersign-http-client"]),
    ("countersign-read", &["countersign-pg"]),
    (
        "countersign-ledger",
        &[
            "countersign-types",
            "countersign-os",
            "countersign-pg",
            "countersign-read",
            "countersign-tlog",
            "countersign-http-client",
            "countersign-schema-change",
        ],
    ),
    ("countersign-catalog", &["countersign-types", "countersign-manifest", "countersign-read"]),
    ("countersign-scaffold", &["countersign-types", "countersign-read", "countersign-catalog"]),
    ("countersign-review", &["countersign-types", "countersign-ledger"]),
    (
        "countersign-tools",
        &[
            "countersign-types",
            "countersign-manifest",
            "countersign-ledger",
            "countersign-catalog",
            "countersign-review",
            "countersign-schema-change",
            "countersign-telemetry",
        ],
    ),
    ("countersign-auth", &["countersign-types", "countersign-http-client"]),
    ("countersign-mcp", &["countersign-types", "countersign-catalog", "countersign-telemetry", "countersign-tools"]),
    (
        "countersign-mcp-http",
        &["countersign-types", "countersign-tools", "countersign-auth", "countersign-http-server", "countersign-mcp"],
    ),
    (
        "countersign",
        &[
            "countersign-agent-cli",
            "countersign-types",
            "countersign-os",
            "countersign-pg-embedded",
            "countersign-malloc-tuning",
            "countersign-manifest",
            "countersign-ledger",
            "countersign-catalog",
            "countersign-review",
            "countersign-scaffold",
            "countersign-schema-change",
            "countersign-telemetry",
            "countersign-tlog",
            "countersign-tools",
            "countersign-auth",
            "countersign-http-client",
            "countersign-http-server",
            "countersign-mcp",
            "countersign-mcp-http",
            "countersign-console",
        ],
    ),
    (
        "countersign-console",
        &[
            "countersign-types",
            "countersign-ledger",
            "countersign-review",
            "countersign-schema-change",
            "countersign-auth",
            "countersign-http-server",
        ],
    ),
    ("countersign-testkit", &["countersign-pg-embedded", "countersign-ledger", "countersign-mcp", "countersign-tlog"]),
    ("packaging", &[]),
    // A judge of its own: no crate of the program.
    ("chaos-checker", &[]),
    ("acceptance", &[]),
    ("benches", &[]),
];

fn dependencies() -> BTreeMap<String, Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(testkit::repository())
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata");
    metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap();
            let normal = dependencies.iter().filter(|dependency| dependency["kind"].is_null());
            let names = normal.map(|dependency| dependency["name"].as_str().unwrap().to_owned()).collect();
            (package["name"].as_str().unwrap().to_owned(), names)
        })
        .collect()
}

#[test]
fn crates_depend_on_each_other_in_one_direction_only() {
    // The crates mcp and countersign route calls, ledger::proposals decides, and tools::native executes.
    let crates = dependencies();
    let known: Vec<&str> = ALLOWED.iter().map(|(name, _)| *name).collect();
    for (name, dependencies) in &crates {
        let allowed =
            ALLOWED.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("{name} is not in the layout")).1;
        let ours: Vec<&String> =
            dependencies.iter().filter(|dependency| known.contains(&dependency.as_str())).collect();
        for dependency in ours {
            assert!(allowed.contains(&dependency.as_str()), "{name} must not depend on {dependency}");
        }
    }
}

#[test]
fn only_the_mcp_crates_know_rmcp_and_only_pg_opens_connections() {
    // docs/adr/0001-own-postgresql-client.md: one client, over postgres-protocol, with deadpool's pools.
    for (name, dependencies) in dependencies() {
        let has = |dependency: &str| dependencies.iter().any(|name| name == dependency);
        let is_mcp = ["countersign-mcp", "countersign-mcp-http"].contains(&name.as_str());
        assert!(!has("rmcp") || is_mcp, "{name} depends on rmcp");
        let serves_http = ["countersign-console", "countersign-http-server", "countersign-mcp-http"];
        let serves_http = serves_http.contains(&name.as_str());
        assert!(!has("axum") || serves_http, "{name} is an HTTP server");
        let may_connect = ["countersign-pg", "countersign-testkit"].contains(&name.as_str());
        assert!(!(has("tokio-postgres") || has("postgres-protocol")) || may_connect, "{name} opens connections");
        let is_adapter = name == "countersign-pg";
        assert_eq!(has("deadpool"), is_adapter, "{name}: whose pool");
        assert!(!is_adapter || has("postgres-protocol"), "{name} is the adapter");
    }
}

/// The Rust files below a folder of the repository with their text, but for tests.
fn sources(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(testkit::repository().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        if ["/tests", "/tests.rs", "/testkit"].iter().any(|end| path.ends_with(end)) {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            found.extend(sources(&path));
        } else if path.ends_with(".rs") {
            let text = std::fs::read_to_string(entry.path()).unwrap();
            found.push((path, text.split("#[cfg(test)]\nmod tests").next().unwrap().to_owned()));
        }
    }
    found
}

/// What a text names of a module: `module::word` and `module::{word, word}`.
fn words_of<'t>(module: &str, text: &'t str) -> Vec<&'t str> {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    let mut words = Vec::new();
    for (at, path) in text.match_indices(&format!("{module}::")) {
        if text[..at].ends_with(is_word) {
            continue;
        }
        let rest = &text[at + path.len()..];
        let list = match rest.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap(),
            None => rest.split(|character| !is_word(character)).next().unwrap(),
        };
        words.extend(list.split(',').map(str::trim).filter(|word| !word.is_empty()));
    }
    words
}

/// What the front ends may name of `pg`: the boundary, what passes it, and where to connect.
const BOUNDARY: [&str; 18] = [
    "BoxFuture",
    "ConnectEnvironment",
    "ConnectError",
    "ConnectOptions",
    "ConnectOptionsError",
    "Conninfo",
    "ExecuteError",
    "IsolationLevel",
    "NamedSession",
    "Query",
    "QueryDescription",
    "QueryEvent",
    "QuerySummary",
    "RowDelivery",
    "ServerError",
    "SqlExecutor",
    "Transaction",
    "TransactionOptions",
];

#[test]
fn the_front_ends_reach_the_database_through_their_executor_alone() {
    let mut boundary = 0;
    for (path, text) in sources("crates/agent-cli/src") {
        // Re-exported for programs that register an executor.
        let handed_on: &[&str] = if path.ends_with("/executor.rs") { &["DirectExecutor", "RowSink"] } else { &[] };
        for word in words_of("pg", &text) {
            assert!(BOUNDARY.contains(&word) || handed_on.contains(&word), "{path} names pg::{word}");
            boundary += usize::from(word == "SqlExecutor");
        }
        for own in ["std::net", "tokio::net", "std::env", "tokio_postgres", "postgres_types", "postgres_protocol"] {
            assert!(!text.contains(own), "{path} names {own}");
        }
    }
    assert!(boundary > 3, "the source was not read");
}

#[test]
fn an_executor_is_found_in_the_registry_and_nowhere_else() {
    let all = sources("crates");
    let text_of = |wanted: &str| &all.iter().find(|(path, _)| path == wanted).unwrap_or_else(|| panic!("{wanted}")).1;
    let registry = text_of("crates/ledger/src/write/executor_registry.rs");
    assert_eq!(words_of("write", registry), ["executor"], "the registry knows what an executor is, and none by name");
    let native = text_of("crates/tools/src/native/mod.rs");
    assert!(!native.contains("pub mod") && !native.contains("pub use"), "{native}");
    let types: Vec<&str> = all
        .iter()
        .filter(|(path, _)| path.starts_with("crates/tools/src/native/"))
        .flat_map(|(_, text)| text.split("impl WriteExecutor for ").skip(1))
        .map(|rest| rest.split(' ').next().unwrap())
        .collect();
    assert!(types.contains(&"DeletePackagePhoto"), "{types:?}");
    let mut fill = Vec::new();
    for (path, text) in all.iter().filter(|(path, _)| !path.starts_with("crates/tools/src/native/")) {
        assert!(types.iter().all(|ty| !text.contains(ty)), "{path} names an executor itself");
        assert!(!path.starts_with("crates/mcp") || !text.contains("Executor"), "{path}");
        if !words_of("native", text).is_empty() {
            fill.push(path.as_str());
        }
    }
    fill.sort_unstable();
    let wiring = ["crates/countersign/src/commands/bootstrap.rs", "crates/countersign/src/tool_catalog.rs"];
    assert_eq!(fill, wiring, "who fills the registry");
}

#[test]
fn neither_the_source_nor_the_program_contains_fault_injection() {
    // The dependencies do not contain it either.
    let found = |words: &str| {
        let mut grep = Command::new("grep");
        grep.args(["-rliaE", words, "crates", "Cargo.lock", "--exclude-dir=testkit", "--exclude-dir=tests"]);
        let output = grep.arg(testkit::countersign()).current_dir(testkit::repository()).output().unwrap();
        assert!(output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(found("fail_?points?|fault[_-]?inject|^name = \"fail\"$"), "");
    let seen = found("tokio");
    for part in ["crates/", "Cargo.lock", "/countersign\n"] {
        assert!(seen.contains(part), "{part} was not looked at: {seen}");
    }
}

#[test]
fn only_the_ledger_reads_a_value_that_passed_no_mask() {
    // S-1. The value of a `Cell` is private (crates/types/src/cell.rs has examples that do not compile). What is left are its
    // two doors: the one of the ledger, which stores what it found, and the masks of one who may see every column.
    let doors = [
        (".stored()", &["crates/ledger/src/"][..]),
        ("::stored)", &["crates/ledger/src/"]),
        ("CellMasks::new(None)", &["crates/countersign/src/commands/undo/"]),
        ("shown_conflicts(None", &["crates/countersign/src/commands/undo/"]),
        ("RowMasks::new(None)", &[]),
    ];
    let mut used = 0;
    for (path, text) in sources("crates").iter().filter(|(path, _)| !path.starts_with("crates/types/")) {
        for (door, allowed) in doors {
            let is_used = text.contains(door);
            assert!(!is_used || allowed.iter().any(|folder| path.starts_with(folder)), "{path} has {door}");
            used += usize::from(is_used);
        }
    }
    assert!(used > 5, "the source was not read");
}

/// H-4: `Cargo.toml` sends its readers to this page.
#[test]
fn the_page_of_dependencies_has_every_third_party() {
    let read = |path: &str| std::fs::read_to_string(testkit::repository().join(path)).unwrap();
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let page = read("docs/internals/dependencies.md");
    let words: std::collections::BTreeSet<&str> =
        page.split(|c: char| !c.is_ascii_alphanumeric() && !['-', '_'].contains(&c)).collect();
    let missing: Vec<&String> = manifest["workspace"]["dependencies"]
        .as_table()
        .unwrap()
        .iter()
        .filter(|(name, given)| given.get("path").is_none() && !words.contains(name.as_str()))
        .map(|(name, _)| name)
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
