//! Secrets: given directly, or in a separate file.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use types::Secret;

/// A connection string or a key, and its source, for messages.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SecretSource {
    pub(crate) text: Secret,
    pub(crate) origin: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SecretLocation {
    Given(SecretSource),
    /// A file, and the key that names it.
    File(PathBuf, String),
}

/// A file with a secret that every user of this machine may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenSecretFile {
    pub(crate) path: PathBuf,
    /// The key that names it.
    pub(crate) key: &'static str,
}

/// Those of these files that every user of this machine may read, with their keys.
pub(super) fn open_secret_files<const N: usize>(files: [(&'static str, &Option<PathBuf>); N]) -> Vec<OpenSecretFile> {
    let is_open = |path: &Path| std::fs::metadata(path).is_ok_and(|file| os::mode(&file) & 0o007 != 0);
    let of_keys = files.into_iter().filter_map(|(key, path)| Some((key, path.clone()?)));
    of_keys.filter(|(_, path)| is_open(path)).map(|(key, path)| OpenSecretFile { path, key }).collect()
}

/// The names of a secret in messages.
pub(super) struct SecretNames<'a> {
    pub(super) flag: &'a str,
    pub(super) variable: &'a str,
    /// The key of the file, without its table.
    pub(super) key: &'a str,
}

impl SecretLocation {
    pub(crate) fn read(self) -> anyhow::Result<SecretSource> {
        let (path, key) = match self {
            Self::Given(source) => return Ok(source),
            Self::File(path, key) => (path, key),
        };
        let origin = format!("the file {} ({key})", path.display());
        let text = std::fs::read_to_string(path).with_context(|| format!("{origin} cannot be read"))?;
        let text = text.trim_end_matches(['\r', '\n']);
        if text.is_empty() {
            bail!("{origin} is empty");
        }
        Ok(SecretSource { text: Secret::new(text), origin })
    }
}

/// One layer of configuration, and what it says of a secret.
pub(super) struct SecretLayer<'a> {
    /// Where it stands; `None` for flags and variables.
    place: Option<String>,
    text: &'a Option<Secret>,
    file: &'a Option<PathBuf>,
}

impl<'a> SecretLayer<'a> {
    pub(super) const fn new(place: Option<String>, (text, file): (&'a Option<Secret>, &'a Option<PathBuf>)) -> Self {
        Self { place, text, file }
    }
}

/// The secret of the first layer that has one.
pub(super) fn secret<'a>(
    flag: &str,
    layers: impl IntoIterator<Item = SecretLayer<'a>>,
) -> anyhow::Result<Option<SecretSource>> {
    let key = flag.replace('-', "_");
    let variable = format!("COUNTERSIGN_{}", key.to_ascii_uppercase());
    let names = SecretNames { flag, variable: &variable, key: &key };
    locate(&names, layers)?.map(SecretLocation::read).transpose()
}

/// The location of the secret in the first layer that has one: the secret itself, or a file. A layer with both is
/// refused, since one of them would be ignored.
pub(super) fn locate<'a>(
    names: &SecretNames<'_>,
    layers: impl IntoIterator<Item = SecretLayer<'a>>,
) -> anyhow::Result<Option<SecretLocation>> {
    let SecretNames { flag, variable, key } = names;
    for SecretLayer { place, text, file } in layers {
        let origin = match place {
            Some(place) => format!("{key} in {place}"),
            None => format!("--{flag} ({variable})"),
        };
        return Ok(Some(match (text, file) {
            (None, None) => continue,
            (Some(_), Some(_)) => bail!("{origin} and {key}_file are both given: keep one of them"),
            (Some(text), None) => SecretLocation::Given(SecretSource { text: text.clone(), origin }),
            (None, Some(path)) => SecretLocation::File(path.clone(), format!("{key}_file")),
        }));
    }
    Ok(None)
}

/// Parses a secret from the command line or a variable, for clap.
pub(super) fn parse_secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}
