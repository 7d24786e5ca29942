//! The pages of the documentation: links, the width of lines, and what the code refers to.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use testkit::repository;

/// README.md and its like, those of packages and of the checker, and all of docs/ and audits/, from the repository's root.
pub(crate) fn pages() -> Vec<String> {
    let mut pages = [files_in("docs", &["md"]), files_in("audits", &["md"])].concat();
    let root = ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md"];
    pages.extend(root.map(str::to_owned));
    pages.extend(["packaging/README.md", "tests/chaos-checker/README.md"].map(str::to_owned));
    pages.sort();
    pages
}

/// The files of a folder and of those in it, from the root of the repository.
fn files_in(folder: &str, extensions: &[&str]) -> Vec<String> {
    let mut folders = vec![repository().join(folder)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("node_modules") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extensions.iter().any(|one| extension == *one)) {
                files.push(path.strip_prefix(repository()).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    files.sort();
    files
}

/// The files with code or comments: sources, SQL, settings, scripts.
fn sources() -> Vec<String> {
    let extensions = ["rs", "sql", "toml", "py", "json"];
    let folders = ["crates", "packaging", "tests", "migrations", "manifests", "fuzz/fuzz_targets"];
    folders.iter().flat_map(|folder| files_in(folder, &extensions)).collect()
}

fn read(file: &str) -> String {
    fs::read_to_string(repository().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// Whether a page has a heading with this anchor.
fn has_heading(page: &Path, wanted: &str) -> bool {
    let text = fs::read_to_string(page).unwrap();
    text.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line.trim_start_matches('#')) == wanted)
}

/// The targets of the links of a page that lead into the repository.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter(|target| !target.contains("://"))
}

fn linked(page: &str, target: &str) -> PathBuf {
    let path = repository().join(page);
    let file = target.split('#').next().unwrap_or_default();
    if file.is_empty() { path } else { path.parent().unwrap().join(file) }
}

#[test]
fn every_link_leads_to_a_page_and_a_heading_that_exist() {
    let mut count = 0;
    for page in pages() {
        let text = read(&page);
        for target in links(&text) {
            let there = linked(&page, target);
            assert!(there.exists(), "{page}: {target}: there is no such file");
            if let Some((_, heading)) = target.split_once('#') {
                assert!(has_heading(&there, heading), "{page}: {target}: no such heading");
            }
            count += 1;
        }
    }
    assert!(count > 100, "{count}");
}

#[test]
fn pictures_are_described_shown_somewhere_and_small() {
    let mut shown = BTreeSet::new();
    for page in pages() {
        let text = read(&page);
        for picture in text.split("![").skip(1) {
            let (description, target) = picture.split_once("](").unwrap();
            let target = target.split(')').next().unwrap();
            let words = description.split([' ', '\n']).count();
            assert!(words > 3 && !description.contains(']'), "{page}: {target}: {description:?} describes nothing");
            let picture =
                linked(&page, target).canonicalize().unwrap_or_else(|error| panic!("{page}: {target}: {error}"));
            shown.insert(picture);
        }
    }
    for file in files_in("docs/images", &["png"]) {
        let path = repository().join(&file);
        assert!(shown.contains(&path.canonicalize().unwrap()), "{file}: no page shows it");
        assert!(fs::metadata(&path).unwrap().len() < 150_000, "{file}: too large");
    }
    assert!(!shown.is_empty());
}

#[test]
fn every_page_is_in_the_summary() {
    let summary = read("docs/SUMMARY.md");
    let there: BTreeSet<PathBuf> =
        links(&summary).map(|target| linked("docs/SUMMARY.md", target).canonicalize().unwrap()).collect();
    let index = read("docs/adr/README.md");
    let records: BTreeSet<PathBuf> =
        links(&index).map(|target| linked("docs/adr/README.md", target).canonicalize().unwrap()).collect();
    for page in files_in("docs", &["md"]).into_iter().filter(|page| page != "docs/SUMMARY.md") {
        let path = repository().join(&page).canonicalize().unwrap();
        assert!(there.contains(&path) || records.contains(&path), "{page} is in no list");
    }
}

#[test]
fn lines_have_at_most_100_characters() {
    // Tables, and samples of what a program prints or reads, cannot be wrapped.
    let mut long = Vec::new();
    for page in pages() {
        let mut is_sample = false;
        for (number, line) in read(&page).lines().enumerate() {
            is_sample ^= line.trim_start().starts_with("```");
            if !is_sample && !line.starts_with('|') && line.chars().count() > 100 {
                long.push(format!("{page}:{}", number + 1));
            }
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn every_page_that_the_code_names_exists() {
    let is_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.');
    let mut named = 0;
    for file in sources() {
        let text = read(&file);
        for (at, _) in text.match_indices("docs/") {
            let rest = text.get(at..).unwrap();
            let path = rest.split(|c| !is_path(c)).next().unwrap().trim_end_matches('.');
            if path.ends_with(".md") {
                assert!(repository().join(path).exists(), "{file}: {path}");
                named += 1;
            }
        }
    }
    assert!(named > 20, "{named}");
}

#[test]
fn every_source_that_a_page_names_exists() {
    // As a path of the repository, or as `tools/registry.rs`, which is crates/tools/src/registry.rs.
    let mut named = 0;
    for page in pages() {
        let text = read(&page);
        for path in text.split('`').skip(1).step_by(2).filter(|word| word.contains('/') && !word.contains([' ', '*'])) {
            if path.ends_with(".rs") || path.ends_with(".sql") || path.starts_with("crates/") {
                let (first, rest) = path.split_once('/').unwrap();
                let is_there = repository().join(path).exists()
                    || repository().join("crates").join(first).join("src").join(rest).exists();
                assert!(is_there, "{page}: {path}: there is no such file");
                named += 1;
            }
        }
    }
    assert!(named > 30, "{named}");
}
