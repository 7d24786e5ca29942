//! Every sample of README.md, CONTRIBUTING.md and docs/ is run by a test (F-11, F-12). A sample is a fenced block.

mod clients;
mod commands;
mod shop;

use std::collections::BTreeSet;
use std::fs;

use testkit::repository;

/// The page, how the sample begins, and the test that runs it.
const RUN_BY: &[(&str, &str, &str)] = &[
    ("README.md", "cargo run -- demo", "the_demo_is_what_the_readme_starts"),
    ("README.md", "{\"success\": true,", "the_readme_from_init_to_the_first_write_and_back"),
    ("README.md", "cargo build --release", "the_readme_from_init_to_the_first_write_and_back"),
    ("README.md", "{\n  \"mcpServers\"", "clients_on_the_same_machine"),
    ("README.md", "{\n  \"mcpServers\"", "clients_over_the_network"),
    ("README.md", "countersign query --dbname shop", "the_readme_from_init_to_the_first_write_and_back"),
    ("README.md", "name = \"shop\"", "the_readme_from_init_to_the_first_write_and_back"),
    ("CONTRIBUTING.md", "cargo build", "the_demo_is_what_the_readme_starts"),
    ("docs/agent-cli.md", "$ countersign query", "the_query_of_the_page_on_the_command_line"),
    ("docs/auditors.md", "select m.admitted_at", "statements_for_auditors"),
    ("docs/auditors.md", "countersign audit list", "usage_lines_name_commands_and_options_that_exist"),
    ("docs/auditors.md", "countersign audit seal", "jobs_of_cron"),
    ("docs/auditors.md", "select no, sealed_at", "statements_for_auditors"),
    ("docs/clients.md", "{\n  \"mcpServers\"", "clients_on_the_same_machine"),
    ("docs/clients.md", "{\n  \"servers\"", "clients_on_the_same_machine"),
    ("docs/clients.md", "{\n  \"mcpServers\"", "clients_over_the_network"),
    ("docs/clients.md", "{\n  \"inputs\"", "clients_over_the_network"),
    ("docs/clients.md", "{\n  \"mcpServers\"", "clients_over_the_network"),
    ("docs/clients.md", "{\n  \"mcpServers\"", "clients_over_the_network"),
    ("docs/deploy.md", "# /etc/systemd/system/countersign.service", "the_unit_of_systemd_is_one"),
    (
        "docs/deploy.md",
        "# /etc/systemd/system/countersign-prune.service",
        "the_timer_that_prunes_is_one_and_its_command_prunes",
    ),
    (
        "docs/deploy.md",
        "# /etc/systemd/system/countersign-prune.timer",
        "the_timer_that_prunes_is_one_and_its_command_prunes",
    ),
    ("docs/deploy.md", "apiVersion: v1", "the_pods_of_kubernetes_serve_and_their_probes_are_answered"),
    ("docs/deploy.md", "[http]", "the_sample_of_trusted_proxies_is_read"),
    ("docs/deploy.md", "defaults", "the_configuration_of_haproxy_is_one"),
    ("docs/deploy.md", "; pgbouncer.ini", "documented(\"ini\")"),
    ("docs/deploy.md", "create role pgbouncer", "documented(\"sql\")"),
    ("docs/operators.md", "# countersign.toml", "the_sample_configuration_starts_a_server"),
    (
        "docs/operators.md",
        "name = \"shop\"",
        "a_manifest_titles_describes_and_switches_off_builtin_tools_and_instructs_agents",
    ),
    ("docs/operators.md", "countersign proposals list", "usage_lines_name_commands_and_options_that_exist"),
    ("docs/operators.md", "create role anna", "statements_for_operators"),
    ("docs/operators.md", "*/5 * * * *", "jobs_of_cron"),
    ("docs/operators.md", "- alert:", "the_alerts_of_the_page_are_of_metrics_that_exist"),
    ("docs/operators.md", "5 * * * *", "jobs_of_cron"),
    ("docs/security.md", "revoke execute", "statements_for_operators"),
    ("docs/tracking.md", "countersign track", "usage_lines_name_commands_and_options_that_exist"),
    ("docs/tracking.md", "create role shop_admin", "the_commands_of_tracking_print_what_the_page_shows"),
    ("docs/tracking.md", "$ countersign track", "the_commands_of_tracking_print_what_the_page_shows"),
    ("docs/tracking.md", "countersign freeze", "usage_lines_name_commands_and_options_that_exist"),
    ("docs/undo.md", "create role olga", "the_commands_of_undo_print_what_the_page_shows"),
    ("docs/undo.md", "$ countersign audit list", "the_commands_of_undo_print_what_the_page_shows"),
    ("docs/undo.md", "countersign undo CORRELATION_ID", "usage_lines_name_commands_and_options_that_exist"),
    ("docs/undo.md", "countersign undo plan", "usage_lines_name_commands_and_options_that_exist"),
];

/// A fenced block of a page.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    page: String,
    line: usize,
    pub(crate) text: String,
}

/// Every sample, by page and place.
fn samples() -> Vec<Sample> {
    let root = repository();
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut pages: Vec<String> = docs.map(|name| format!("docs/{name}")).collect();
    pages.extend(["CONTRIBUTING.md", "README.md"].map(str::to_owned));
    pages.sort();
    pages.iter().filter(|page| page.ends_with(".md")).flat_map(|page| samples_of(page)).collect()
}

fn samples_of(page: &str) -> Vec<Sample> {
    let text = fs::read_to_string(repository().join(page)).unwrap();
    let mut samples = Vec::new();
    let mut open: Option<Sample> = None;
    for (number, line) in text.lines().enumerate() {
        match (&mut open, line.starts_with("```")) {
            (None, true) => open = Some(Sample { page: page.to_owned(), line: number + 1, text: String::new() }),
            (Some(_), true) => samples.extend(open.take()),
            (Some(sample), false) => sample.text.push_str(&format!("{line}\n")),
            (None, false) => {}
        }
    }
    assert!(open.is_none(), "{page}: a block does not end");
    samples
}

/// The samples of a page that begin like this.
pub(crate) fn samples_like(page: &str, beginning: &str) -> Vec<Sample> {
    let found: Vec<Sample> = samples_of(page).into_iter().filter(|sample| sample.text.starts_with(beginning)).collect();
    assert!(!found.is_empty(), "{page} has no sample that begins with {beginning}");
    found
}

/// The one sample of a page that begins like this.
pub(crate) fn sample(page: &str, beginning: &str) -> String {
    let found = samples_like(page, beginning);
    assert_eq!(found.len(), 1, "{page} has several samples that begin with {beginning}");
    found.into_iter().next().unwrap().text
}

/// The sources of the black-box tests.
fn sources() -> String {
    let mut folders = vec![repository().join("tests/acceptance")];
    let mut sources = String::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("samples.rs") {
                sources.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    sources
}

#[test]
fn every_sample_is_run_by_a_test() {
    let mut left: Vec<&(&str, &str, &str)> = RUN_BY.iter().collect();
    for sample in samples() {
        let known =
            left.iter().position(|(page, beginning, _)| *page == sample.page && sample.text.starts_with(beginning));
        let place = format!("{}:{}", sample.page, sample.line);
        let known = known.unwrap_or_else(|| panic!("{place}: no test runs this sample:\n{}", sample.text));
        left.remove(known);
    }
    assert!(left.is_empty(), "samples that are not there any more: {left:?}");
    let sources = sources();
    let tests: BTreeSet<&str> = RUN_BY.iter().map(|(_, _, test)| *test).collect();
    for test in tests {
        let is_there = sources.contains(&format!("fn {test}(")) || (test.contains('(') && sources.contains(test));
        assert!(is_there, "the test {test} is not there");
    }
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[test]
fn every_link_leads_to_a_page_and_a_heading_that_are_there() {
    let mut links = 0;
    let mut pages: BTreeSet<String> = samples().into_iter().map(|sample| sample.page).collect();
    pages.extend(["ARCHITECTURE.md", "CHANGELOG.md", "docs/errors.md"].map(str::to_owned));
    for page in pages {
        let path = repository().join(&page);
        let text = fs::read_to_string(&path).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let linked = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let there = fs::read_to_string(&linked).unwrap_or_else(|error| panic!("{page}: {target}: {error}"));
            let mut headings = there.lines().filter(|line| line.starts_with('#'));
            let is_there = heading.is_empty() || headings.any(|line| anchor(line.trim_start_matches('#')) == heading);
            assert!(is_there, "{page}: {target}: no such heading");
            links += 1;
        }
    }
    assert!(links > 20, "{links}");
}
