//! The file format as a JSON Schema, for editors.

use serde_json::Value;

use crate::file::ManifestFile;

/// The JSON Schema of a manifest, generated from the types that parse it. It is checked in as
/// `manifests/manifest.schema.json`.
#[must_use]
pub fn manifest_schema() -> Value {
    schemars::schema_for!(ManifestFile).to_value()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECKED_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests/manifest.schema.json");

    /// `UPDATE_GOLDEN=1 cargo test -p countersign-manifest` rewrites the file.
    #[test]
    fn the_checked_in_schema_of_the_format_is_the_generated_one() {
        let generated = format!("{:#}\n", manifest_schema());
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(CHECKED_IN, &generated).unwrap();
        }
        assert_eq!(std::fs::read_to_string(CHECKED_IN).unwrap(), generated, "run it with UPDATE_GOLDEN=1");
    }
}
