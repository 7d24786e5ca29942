//! The crates of which the program for a target consists, and those that take part in its build. `cargo tree` names them, since
//! it selects features as a build does; `cargo metadata` selects those of all crates of the workspace together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use cargo_metadata::{Metadata, MetadataCommand, Package};
use serde::Deserialize;

use crate::dependency_rules::DependencyRules;
use crate::license_files::LicenseTexts;
use crate::platform::Platform;
use crate::project::NAME;

/// The folder of the workspace from which this program was built.
const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Name and version, which distinguish the crates of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CrateId {
    pub(crate) name: String,
    pub(crate) version: String,
}

impl CrateId {
    fn of(package: &Package) -> Self {
        Self { name: package.name.to_string(), version: package.version.to_string() }
    }
}

impl fmt::Display for CrateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct UsedCrate {
    /// Its licence as an SPDX expression.
    pub(crate) license: String,
    /// SHA-256 of its file in the registry. A crate of this workspace has none.
    pub(crate) checksum: Option<String>,
    pub(crate) license_texts: LicenseTexts,
    /// Whether its code is in the program.
    pub(crate) is_linked: bool,
    pub(crate) dependencies: BTreeSet<CrateId>,
}

/// The crates of a program, with the program's own among them.
#[derive(Debug, Clone)]
pub(crate) struct UsedCrates(pub(crate) BTreeMap<CrateId, UsedCrate>);

/// What cargo knows about the crates of the workspace.
pub(crate) struct KnownCrates {
    packages: BTreeMap<CrateId, Package>,
    checksums: BTreeMap<CrateId, String>,
}

#[derive(Deserialize)]
struct Lockfile {
    package: Vec<LockedPackage>,
}

#[derive(Deserialize)]
struct LockedPackage {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// The crates of the workspace and all that they depend on for these platforms, also in tests. Cargo downloads the sources that
/// are missing.
///
/// # Errors
/// If Cargo.lock does not fit, or a source cannot be downloaded.
pub fn metadata(platforms: impl IntoIterator<Item = Platform>) -> anyhow::Result<Metadata> {
    let targets = platforms.into_iter().flat_map(|it| ["--filter-platform".to_owned(), it.triple().to_owned()]);
    let options: Vec<String> = std::iter::once("--locked".to_owned()).chain(targets).collect();
    Ok(MetadataCommand::new().current_dir(WORKSPACE).other_options(options).exec()?)
}

impl KnownCrates {
    pub(crate) fn read(platforms: impl IntoIterator<Item = Platform>) -> anyhow::Result<Self> {
        let metadata = metadata(platforms)?;
        let lockfile = std::fs::read_to_string(Path::new(WORKSPACE).join("Cargo.lock"))?;
        let lockfile: Lockfile = toml::from_str(&lockfile)?;
        let checksums = lockfile
            .package
            .into_iter()
            .filter_map(|package| Some((CrateId { name: package.name, version: package.version }, package.checksum?)));
        let packages = metadata.packages.into_iter().map(|package| (CrateId::of(&package), package));
        Ok(Self { packages: packages.collect(), checksums: checksums.collect() })
    }

    /// The crates of the program for a platform.
    pub(crate) fn used_for(&self, platform: Platform, rules: &DependencyRules) -> anyhow::Result<UsedCrates> {
        let dependencies = dependencies_of_kinds(platform, "normal,build")?;
        let linked = dependencies_of_kinds(platform, "normal,no-proc-macro")?;
        let crates = dependencies.into_iter().map(|(id, dependencies)| {
            let package = self.packages.get(&id).with_context(|| format!("cargo metadata lacks {id}"))?;
            let is_linked = linked.contains_key(&id);
            let checksum = self.checksums.get(&id).cloned();
            let license = rules.permitted_license(package)?;
            let license_texts = match package.source {
                Some(_) => LicenseTexts::of(package, &license)?,
                None => LicenseTexts::of_workspace(),
            };
            Ok((id, UsedCrate { license: license.expression, checksum, license_texts, is_linked, dependencies }))
        });
        Ok(UsedCrates(crates.collect::<anyhow::Result<_>>()?))
    }
}

/// The crates of the program for a platform, each with those on which it depends by edges of these kinds.
fn dependencies_of_kinds(platform: Platform, kinds: &str) -> anyhow::Result<BTreeMap<CrateId, BTreeSet<CrateId>>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--locked", "--package", NAME, "--edges", kinds, "--target", platform.triple()])
        // A line is the depth in the tree, the name, the version after a v, and notes. What a crate that came before
        // depends on is not repeated.
        .args(["--prefix", "depth", "--format", " {p}", "--charset", "ascii"])
        .current_dir(WORKSPACE)
        .output()
        .context("cargo cannot be run")?;
    ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let mut crates: BTreeMap<CrateId, BTreeSet<CrateId>> = BTreeMap::new();
    let mut path: Vec<CrateId> = Vec::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        let mut fields = line.split(' ');
        let (depth, name, version) = (fields.next(), fields.next(), fields.next().and_then(|it| it.strip_prefix('v')));
        let (Some(depth), Some(name), Some(version)) = (depth.and_then(|it| it.parse().ok()), name, version) else {
            anyhow::bail!("cargo tree has a line that names no crate: {line:?}");
        };
        let id = CrateId { name: name.to_owned(), version: version.to_owned() };
        path.truncate(depth);
        if let Some(dependent) = path.last() {
            crates.entry(dependent.clone()).or_default().insert(id.clone());
        }
        crates.entry(id.clone()).or_default();
        path.push(id);
    }
    Ok(crates)
}
