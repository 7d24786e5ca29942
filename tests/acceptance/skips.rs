//! The tests pass on a machine with only a Rust toolchain: missing programs are reported.

use testkit::{repository, run_without_externals};

/// Every test of this binary that needs one of `External::ALL`, and none that does not.
const FILTERS: [&str; 19] = [
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
    "patroni::",
    "pgbouncer::",
    "ssh_tunnel::through_a_bastion::",
    "tls::through_a_bastion",
    "transparency::go::",
];

#[tokio::test]
async fn a_test_whose_program_is_missing_passes_and_says_how_to_get_it() {
    let run = run_without_externals(&FILTERS, false).await;
    assert!(run.success && run.passed > 30, "{run:?}");
    assert_eq!(run.passed, run.skipped.len(), "one line for each: {run:?}");
    for advice in [
        "apt-get install haproxy",
        "apt-get install pgbouncer",
        "etcd-server",
        "openssh-server",
        "golang-go",
        "pip install",
        "npm ci",
    ] {
        assert!(run.skipped.iter().any(|line| line.contains(advice)), "{run:?}");
    }
}

#[tokio::test]
async fn ci_skips_nothing() {
    let script = std::fs::read_to_string(repository().join(".ci/run")).unwrap();
    for step in [
        "\nexport COUNTERSIGN_TEST_REQUIRE_ALL=1\n",
        "\nstep timed --test acceptance -- --ignored --skip pgbouncer::cost\n",
        "\nstep timed --test chaos --\n",
        "\nstep long timed --test mcp_clients --\n",
    ] {
        assert!(script.contains(step), "{step}");
    }
    let run = run_without_externals(&["http::fleet::"], true).await;
    assert!(!run.success, "{run:?}");
    assert!(run.stdout.contains("COUNTERSIGN_TEST_REQUIRE_ALL is set, and HAProxy is not installed"), "{run:?}");
    assert!(run.stdout.contains(" 0 passed; 3 failed;"), "{run:?}");
}
