//! The tests pass on a machine with only a Rust toolchain: missing programs are reported (F-01).

use std::process::Output;

use testkit::external::REQUIRE_ALL;
use testkit::{External, long_form};
use tokio::process::Command;

/// Every test that needs one of [`External::ALL`], and none that does not.
const FILTERS: [&str; 21] = [
    "chaos::the_same_holds_behind_a_pooler",
    "clients::conformance::",
    "clients::frameworks::",
    "clients::inspector::",
    "clients::python::",
    "console_browser::",
    "deploy::the_configuration_of_haproxy",
    "deploy::the_pods_of_kubernetes",
    "deploy::the_unit_of_systemd",
    "front_ends::one_shot::yaml_is_yaml",
    "http::encrypted::",
    "http::fleet::",
    "install::loaded::",
    "metrics::documented::the_parser",
    "packaging::bundle::",
    "packaging::catalogs::the_entry_of_dockers_catalog",
    "packaging::npm::",
    "packaging::wheel::pip",
    "packaging::workflows::actionlint",
    "pgbouncer::",
    "transparency::go::",
];

/// Runs tests of this binary, those with only a long form as well, as on a machine that has nothing they need.
async fn run(filters: &[&str], require_all: bool) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(filters).env_remove(REQUIRE_ALL).env(long_form::VARIABLE, "1");
    for external in External::ALL {
        command.env(external.variable(), "/nowhere");
    }
    if require_all {
        command.env(REQUIRE_ALL, "1");
    }
    command.output().await.unwrap()
}

#[tokio::test]
async fn a_test_whose_program_is_missing_passes_and_says_how_to_get_it() {
    let output = run(&FILTERS, false).await;
    let (printed, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{printed}{said}");
    let passed = printed.lines().filter(|line| line.ends_with(" ... ok")).count();
    let skipped: Vec<&str> = said.lines().filter(|line| line.starts_with("SKIPPED ")).collect();
    assert!(passed > 30, "{printed}");
    assert_eq!(passed, skipped.len(), "one line for each:\n{printed}{said}");
    for advice in ["apt-get install haproxy", "apt-get install pgbouncer", "golang-go", "pip install", "npm ci"] {
        assert!(skipped.iter().any(|line| line.contains(advice)), "{said}");
    }
}

#[tokio::test]
async fn ci_skips_nothing() {
    let output = run(&["http::fleet::"], true).await;
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success(), "{printed}");
    assert!(printed.contains("COUNTERSIGN_TEST_REQUIRE_ALL is set, and HAProxy is not installed"), "{printed}");
    assert!(printed.contains(" 0 passed; 3 failed;"), "{printed}");
}
