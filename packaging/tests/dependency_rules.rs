//! deny.toml holds for every crate on which the workspace depends, also in tests, on all platforms with packages.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::LazyLock;

use packaging::{DependencyRules, Metadata, Platform};

static METADATA: LazyLock<Metadata> =
    LazyLock::new(|| packaging::metadata(Platform::ALL).expect("cargo metadata, which may have to download sources"));

const DENY_TOML: &str = include_str!("../../deny.toml");

/// What the crates have against deny.toml with one text in place of another.
fn violations(from: &str, to: &str) -> String {
    assert!(DENY_TOML.contains(from), "{from}");
    let rules = DependencyRules::parse(&DENY_TOML.replacen(from, to, 1)).unwrap();
    rules.violations(&METADATA).into_iter().collect::<Vec<_>>().join("\n")
}

#[test]
fn the_crates_keep_the_rules() {
    let rules = DependencyRules::of_workspace().unwrap();
    assert!(METADATA.packages.len() > 400, "{}", METADATA.packages.len());
    assert_eq!(rules.violations(&METADATA), std::collections::BTreeSet::new());
}

#[test]
fn a_crate_that_breaks_a_rule_is_named() {
    let said = violations("\"MIT-0\"", "\"MIT\"");
    assert!(
        said.contains("borrow-or-share 0.2.") && said.contains("\"MIT-0\", which deny.toml does not allow"),
        "{said}"
    );
    let said = violations("\"openssl-sys\"", "\"ring\"");
    assert!(said.starts_with("ring 0.17.") && said.contains(" is banned: needs a system library"), "{said}");
    let said = violations("allow-wildcard-paths = true", "allow-wildcard-paths = false");
    assert!(said.contains("countersign-ledger 0.1.0 depends on any version of countersign-types"), "{said}");
    // Every crate is from crates.io, or from this folder.
    let mut elsewhere = METADATA.clone();
    for (name, source) in [("ring", "git+https://example.org/ring#1"), ("spdx", "registry+https://example.org/index")] {
        let package = elsewhere.packages.iter_mut().find(|package| package.name == name).unwrap();
        package.source = serde_json::from_value(source.into()).unwrap();
    }
    let said = DependencyRules::of_workspace().unwrap().violations(&elsewhere);
    let said: Vec<&str> = said.iter().map(String::as_str).collect();
    assert!(
        matches!(said.as_slice(), [ring, spdx]
        if ring.contains("is from git+https://example.org") && spdx.contains("is from registry+https://example.org")),
        "{said:?}"
    );
}

#[test]
fn a_rule_that_nobody_holds_is_an_error() {
    for (from, to) in [
        ("[licenses]\n", "[licenses]\nconfidence-threshold = 1.0\n"),
        ("[sources]\n", "[sources]\nallow-git = [\"https://example.org\"]\n"),
        ("multiple-versions = \"warn\"", "multiple-versions = \"deny\""),
        ("\"openssl-sys\"", "\"openssl-sys@0.9\""),
        ("\"Zlib\"", "\"zlib licence\""),
    ] {
        let error = DependencyRules::parse(&DENY_TOML.replacen(from, to, 1)).unwrap_err();
        assert!(format!("{error:#}").starts_with("deny.toml"), "{to}: {error:#}");
    }
}
