//! The layout of ARCHITECTURE.md holds: dependencies point one way.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

/// What each crate may depend on, of ours.
const ALLOWED: [(&str, &[&str]); 13] = [
    ("countersign-contract", &[]),
    ("countersign-embedded", &[]),
    ("countersign-heap", &[]),
    ("countersign-pg", &["countersign-contract"]),
    ("countersign-agent-cli", &["countersign-contract", "countersign-pg"]),
    ("countersign-manifest", &["countersign-contract"]),
    ("countersign-ledger", &["countersign-contract", "countersign-pg", "countersign-manifest"]),
    ("countersign-tools", &["countersign-contract", "countersign-manifest", "countersign-ledger"]),
    ("countersign-mcp", &["countersign-contract", "countersign-tools"]),
    (
        "countersign",
        &[
            "countersign-agent-cli",
            "countersign-contract",
            "countersign-embedded",
            "countersign-heap",
            "countersign-manifest",
            "countersign-ledger",
            "countersign-tools",
            "countersign-mcp",
        ],
    ),
    ("countersign-testkit", &["countersign-embedded", "countersign-ledger", "countersign-mcp"]),
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
fn only_mcp_knows_rmcp_and_only_pg_opens_connections() {
    for (name, dependencies) in dependencies() {
        let has = |dependency: &str| dependencies.iter().any(|name| name == dependency);
        assert!(!has("rmcp") || name == "countersign-mcp", "{name} depends on rmcp");
        let may_connect = ["countersign-pg", "countersign-testkit"].contains(&name.as_str());
        assert!(!(has("tokio-postgres") || has("postgres-protocol")) || may_connect, "{name} opens connections");
    }
}

#[test]
fn no_layer_of_the_read_path_is_switched_off_but_in_tests() {
    let mut grep = Command::new("grep");
    grep.args(["-rlE", "(Reader|Layers)::without", "crates"]).current_dir(testkit::repository());
    let found = String::from_utf8(grep.output().unwrap().stdout).unwrap();
    assert_eq!(found.trim(), "crates/pg/src/read/mod.rs");
}

/// B8-04 to B8-07, B1-21: what clippy.toml and the workspace's lints ban does not compile under clippy.
#[test]
fn the_bans_of_clippy_bite() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    std::fs::create_dir(folder.path().join("src")).unwrap();
    let workspace = std::fs::read_to_string(testkit::repository().join("Cargo.toml")).unwrap();
    let lints: Vec<&str> = workspace
        .lines()
        .skip_while(|line| *line != "[workspace.lints.clippy]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .collect();
    let lints = lints.join("\n");
    write(
        "Cargo.toml",
        &format!("[package]\nname = \"banned\"\nedition = \"2024\"\n[workspace]\n[lints.clippy]\n{lints}\n"),
    );
    std::fs::copy(testkit::repository().join("clippy.toml"), folder.path().join("clippy.toml")).unwrap();
    let cases = [
        ("let _ = \"a b\".split_whitespace();", "str::split_whitespace"),
        ("let _ = \"a\".to_uppercase();", "str::to_uppercase"),
        ("std::eprintln!(\"x\");", "std::eprintln"),
        ("std::eprint!(\"x\");", "std::eprint"),
        ("std::println!(\"x\");", "std::println"),
        ("std::print!(\"x\");", "std::print"),
        ("std::dbg!(1);", "std::dbg"),
    ];
    let body: Vec<&str> = cases.iter().map(|(line, _)| *line).collect();
    write("src/main.rs", &format!("fn main() {{\n{}\n}}\n", body.join("\n")));
    let mut clippy = Command::new(env!("CARGO"));
    let output = clippy.args(["clippy", "--offline", "--quiet"]).current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{said}");
    for (line, banned) in cases {
        assert!(said.contains(&format!("`{banned}`")), "{line} is let through: {said}");
    }
}
