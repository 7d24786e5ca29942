//! The pages of `audits/` name tests, modules and commits that exist, and the index has every page with its findings.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use testkit::{repository, say};

/// One row of a page: what was wrong.
struct Finding {
    page: String,
    what: String,
    failed_on: String,
    tests: Vec<String>,
}

fn read(page: &str) -> String {
    fs::read_to_string(repository().join("audits").join(page)).unwrap()
}

/// The page of each campaign.
fn campaigns() -> BTreeSet<String> {
    let entries = fs::read_dir(repository().join("audits")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).filter(|name| name != "README.md").collect()
}

/// The words of a text that stand between backticks.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn findings_of(page: &str) -> Vec<Finding> {
    let text = read(page);
    let (_, rows) = text.split_once("|---|---|---|\n").unwrap_or_else(|| panic!("{page} has no table of findings"));
    let rows = rows.lines().map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let ["", what, failed_on, tests, ""] = cells[..] else { panic!("{page}: {row}: a finding has three cells") };
        let [failed_on] = <[String; 1]>::try_from(quoted(failed_on)).expect("one commit");
        Finding { page: page.to_owned(), what: what.to_owned(), failed_on, tests: quoted(tests) }
    });
    rows.collect()
}

fn findings() -> Vec<Finding> {
    campaigns().iter().flat_map(|page| findings_of(page)).collect()
}

/// The file of a module, of the black-box tests unless its name begins otherwise (audits/README.md).
fn source(module: &str) -> PathBuf {
    let (folder, module) = match module.split_once("::") {
        Some(("sql", rest)) => ("crates/ledger/tests/sql", rest),
        Some(("chaos", rest)) => ("tests/chaos", rest),
        _ => ("tests/acceptance", module),
    };
    repository().join(folder).join(module.replace("::", "/")).with_extension("rs")
}

/// Whether this is the path of a test: a module, and a function with the attribute of a test.
fn is_test(path: &str) -> bool {
    let Some((module, function)) = path.rsplit_once("::") else { return false };
    let Ok(text) = fs::read_to_string(source(module)) else { return false };
    let begins = [format!("fn {function}("), format!("async fn {function}(")];
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| begins.iter().any(|begin| line.starts_with(begin)));
    let attributes = at.map(|at| lines[..at].iter().rev().take_while(|line| line.starts_with("#[")));
    attributes.is_some_and(|mut all| all.any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test")))
}

#[test]
fn each_finding_is_held_by_tests_that_exist() {
    let findings = findings();
    for Finding { page, what, tests, .. } in &findings {
        assert!(!tests.is_empty(), "{page}: {what}: no test");
        for test in tests {
            assert!(is_test(test), "{page}: {what}: there is no test {test}");
        }
    }
    assert!(findings.len() > 50, "{}", findings.len());
    assert!(!is_test("layers::no_such_test") && !is_test("layers::world::session_state"));
}

#[test]
fn the_command_of_each_page_runs_modules_that_exist() {
    for page in campaigns() {
        let text = read(&page).replace('\n', " ");
        let (_, filters) = text.split_once("--test acceptance -- ").unwrap_or_else(|| panic!("{page} has no command"));
        let filters: Vec<&str> =
            filters.split('`').next().unwrap().split(' ').filter(|word| !word.starts_with("--")).collect();
        for filter in &filters {
            assert!(source(filter.trim_end_matches("::")).exists(), "{page}: there is no module {filter}");
        }
        // Every test of the page that a build can be run against is one of its command.
        for test in findings_of(&page).into_iter().flat_map(|finding| finding.tests) {
            let is_run = filters.iter().any(|filter| test.starts_with(filter));
            assert!(is_run || source(&test).starts_with(repository().join("crates")), "{page}: {test} is not run");
        }
    }
}

#[test]
fn the_index_has_each_page_with_the_number_of_its_findings() {
    let index = read("README.md");
    for page in campaigns() {
        let count = findings_of(&page).len();
        let row = index.lines().find(|line| line.contains(&format!("]({page})")));
        let row = row.unwrap_or_else(|| panic!("{page} is not in the index"));
        assert!(row.ends_with(&format!("| {count} |")), "{page} has {count} findings: {row}");
    }
}

/// Runs git in the repository. `None`: there is no git here.
fn git(arguments: &[&str]) -> Option<Output> {
    Command::new("git").arg("-C").arg(repository()).args(arguments).output().ok()
}

#[test]
fn each_version_that_failed_is_a_commit() {
    let whole = git(&["rev-parse", "--is-shallow-repository"]);
    if whole.is_none_or(|answer| answer.stdout != b"false\n") {
        say("SKIPPED audits::each_version_that_failed_is_a_commit: the history of git is not here");
        return;
    }
    for Finding { page, what, failed_on, .. } in findings() {
        let is_short = failed_on.len() == 8 && failed_on.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(is_short, "{page}: {what}: {failed_on} is no short commit");
        let commit = git(&["merge-base", "--is-ancestor", &failed_on, "HEAD"]).expect("git");
        assert!(commit.status.success(), "{page}: {what}: {failed_on} is not in the history");
    }
}
