//! Checked-in answers and generated pages.

use std::path::PathBuf;

use serde_json::Value;

use crate::repository::repository;

/// Compares with `tests/golden/<name>.json`; `UPDATE_GOLDEN=1` writes it instead.
pub fn assert_golden(name: &str, actual: &Value) {
    let path: PathBuf = repository().join("tests/golden").join(format!("{name}.json"));
    let text = format!("{}\n", serde_json::to_string_pretty(actual).expect("JSON"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder of golden files");
        std::fs::write(&path, text).expect("a golden file");
        return;
    }
    let expected = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; UPDATE_GOLDEN=1 writes it", path.display()));
    assert_eq!(text, expected, "{name} has changed; if that is meant, UPDATE_GOLDEN=1 writes it");
}

/// Compares a generated page with `docs/reference/<name>.md`; `UPDATE_GOLDEN=1` writes it instead.
pub fn assert_page(name: &str, page: &str) {
    let path = repository().join("docs/reference").join(format!("{name}.md"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, page).expect("a page");
        return;
    }
    let expected = std::fs::read_to_string(&path).expect("the page");
    assert_eq!(page, expected, "{name} has changed; UPDATE_GOLDEN=1 writes it");
}

/// Wraps the words of a text in lines of at most 98 characters. Lines after the first begin with `indent`.
pub fn wrapped(text: &str, indent: &str) -> String {
    let (mut page, mut width) = (String::new(), 0);
    for word in text.split([' ', '\n', '\t']).filter(|word| !word.is_empty()) {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > 98 {
            page.push('\n');
            page.push_str(indent);
            width = indent.len();
        } else if width > 0 {
            page.push(' ');
            width += 1;
        }
        page.push_str(word);
        width += length;
    }
    page
}
