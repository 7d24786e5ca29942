//! Checked-in answers.

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
