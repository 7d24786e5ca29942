//! The texts of licences: those in the sources of a crate, and the file with those of all crates of a program.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use cargo_metadata::Package;

use crate::dependency_rules::PermittedLicense;
use crate::project::{LICENSE_TEXT, NAME, VERSION};
use crate::used_crates::{CrateId, UsedCrate, UsedCrates};

/// The name of the file in packages.
pub(crate) const THIRD_PARTY_LICENSES: &str = "THIRD-PARTY-LICENSES.txt";

/// How the names of files with licences begin.
const BEGINNINGS: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// The texts of the licence of a crate.
#[derive(Debug, Clone)]
pub(crate) struct LicenseTexts {
    texts: Vec<String>,
    /// Where they are from, if not from the crate.
    note: String,
}

impl LicenseTexts {
    /// The text of this workspace.
    pub(crate) fn of_workspace() -> Self {
        Self { texts: vec![LICENSE_TEXT.to_owned()], note: String::new() }
    }

    /// The texts in the folder of a crate, also those of code that it has from others, or the texts of SPDX if it has none.
    pub(crate) fn of(package: &Package, license: &PermittedLicense) -> anyhow::Result<Self> {
        let texts = texts_in_folder(package)?;
        if !texts.is_empty() {
            return Ok(Self { texts, note: String::new() });
        }
        let authors = package.authors.join(", ");
        let by = if authors.is_empty() { String::new() } else { format!("; its authors: {authors}") };
        Ok(Self { texts: license.texts.clone(), note: format!(" (it has no text; below is that of SPDX{by})") })
    }
}

fn texts_in_folder(package: &Package) -> anyhow::Result<Vec<String>> {
    let folder = package.manifest_path.parent().context("a manifest is in a folder")?;
    let mut paths = Vec::new();
    find(folder.as_std_path(), &mut paths).with_context(|| format!("{folder} cannot be read"))?;
    paths.extend(package.license_file().map(PathBuf::from));
    paths.sort();
    paths.dedup();
    let texts = paths.iter().map(|path| {
        let bytes = std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
        Ok(String::from_utf8_lossy(&bytes).replace("\r\n", "\n"))
    });
    texts.collect()
}

fn find(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in folder.read_dir()? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().to_ascii_uppercase());
        if entry.file_type()?.is_dir() {
            // Hidden folders are of other programs.
            if !name.starts_with('.') {
                find(&path, found)?;
            }
        } else if !name.ends_with(".RS")
            && (BEGINNINGS.iter().any(|beginning| name.starts_with(beginning)) || folder.ends_with("LICENSES"))
        {
            found.push(path);
        }
    }
    Ok(())
}

/// The file for a program, or for several in one package: each text once, after the crates that have it.
pub(crate) fn third_party_licenses<'a>(programs: impl IntoIterator<Item = &'a UsedCrates>) -> anyhow::Result<String> {
    let crates: BTreeMap<&CrateId, &UsedCrate> = programs.into_iter().flat_map(|program| &program.0).collect();
    let mut file = format!(
        "{NAME} {VERSION} consists of code of the following crates, or was built with them. The list has their licences;\n\
         the texts come after it, each below the crates that have it.\n\n"
    );
    // The same words are the same text. Their order is that of the first crate that has them.
    let mut texts: Vec<(&str, Vec<&CrateId>)> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (id, used) in crates.iter().filter(|(_, used)| used.checksum.is_some()) {
        let LicenseTexts { texts: of_crate, note } = &used.license_texts;
        writeln!(file, "{id}: {}{note}", used.license)?;
        for text in of_crate {
            let words: Vec<&str> = text.split(char::is_whitespace).filter(|word| !word.is_empty()).collect();
            let place = *places.entry(words.join(" ")).or_insert(texts.len());
            match texts.get_mut(place) {
                Some((_, having)) if !having.contains(id) => having.push(id),
                Some(_) => {}
                None => texts.push((text, vec![id])),
            }
        }
    }
    let line = "-".repeat(80);
    for (text, having) in texts {
        let having: Vec<String> = having.iter().map(ToString::to_string).collect();
        write!(file, "\n{line}\n{}\n{line}\n\n{}\n", having.join(", "), text.trim_matches('\n'))?;
    }
    Ok(file)
}
