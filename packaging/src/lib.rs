//! Makes the packages of a release from binaries that are built already: archives, npm packages, wheels, bundles for
//! Claude Desktop (MCPB), the context of the container image, and the entries for the MCP registry and Docker's
//! catalog. `packaging/README.md` says what each file is for and how it is published.
//!
//! The same binaries, commit and workspace make the same bytes. The crate publishes nothing, and depends on no other crate
//! of the workspace. cargo, which it runs, downloads the sources of crates that are missing.
//!
//! ```text
//! options   `cli`, from `main`; `project`: names and texts of the workspace; `platform`: those with packages
//! input     `executable`: a binary and what it needs; `generated_docs`: what it prints about itself
//! contents  `used_crates`: the crates in a binary; `sbom` and `license_files`: what packages say of them;
//!           `dependency_rules`: those of deny.toml; `program`: a binary with all this
//! files     `file_tree` makes archives whose bytes are the same for the same files
//! channels  `archive`, `npm`, `wheel` (PyPI), `mcpb` (Claude Desktop), `container`, `docker_catalog`, `mcp_registry`
//! lists     `tools` of a server without manifests, for those channels that name them
//! ```
//!
//! To add a channel: a module that makes a `FileTree` or the bytes of a file, its place in [`write()`], and a
//! test in `tests/acceptance/packaging` that installs what it made and uses it.
//!
//! Deflate is miniz_oxide, whose output does not depend on the processor. A bill of materials has the crates that
//! `cargo tree` names, since `cargo metadata` also names those that only features of tests need. Crates are not
//! published: they have no stable interface. A bundle names no processor, so a script starts the binary.

mod archive;
mod cli;
mod container;
mod dependency_rules;
mod docker_catalog;
mod executable;
mod file_tree;
mod generated_docs;
mod license_files;
mod mcp_registry;
mod mcpb;
mod npm;
mod platform;
mod program;
pub mod project;
mod sbom;
mod tools;
mod used_crates;
mod wheel;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

pub use cargo_metadata::Metadata;
pub use cli::Cli;
pub use dependency_rules::DependencyRules;
pub use executable::{Executable, SystemRequirement};
pub use flate2::Compression;
pub use platform::{Cpu, Libc, Os, Platform};
pub use used_crates::metadata;

use crate::file_tree::FileTree;
use crate::generated_docs::GeneratedDocs;
use crate::program::Program;
use crate::used_crates::KnownCrates;

/// What packages are made from.
#[derive(Debug, Clone)]
pub struct PackagingOptions {
    /// The binary for each platform.
    pub binaries: BTreeMap<Platform, PathBuf>,
    /// The commit from which the binaries were built: 40 hexadecimal digits.
    pub commit: String,
    /// How much time to spend on smaller files.
    pub compression: Compression,
}

/// Writes the packages into a folder, which must be empty or absent.
///
/// # Errors
/// If a binary is missing or made for another platform, if none of them runs on this machine, if one needs a newer C
/// library than the container image has or a crate whose licence is not permitted, or if a file cannot be written.
pub fn write(options: &PackagingOptions, folder: &Path) -> anyhow::Result<()> {
    let is_commit = options.commit.len() == 40 && options.commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    ensure!(is_commit, "{:?} is not a commit: 40 hexadecimal digits", options.commit);
    ensure!(is_empty(folder)?, "{} is not empty: name a new folder", folder.display());
    let executables = options.binaries.iter().map(|(platform, path)| Executable::read(*platform, path));
    let executables = executables.collect::<anyhow::Result<Vec<Executable>>>()?;
    let known = KnownCrates::read(options.binaries.keys().copied())?;
    let rules = DependencyRules::of_workspace()?;
    let programs = executables.into_iter().map(|executable| {
        let crates = known.used_for(executable.platform, &rules)?;
        let sbom = sbom::sbom(&executable, &crates, &options.commit)?;
        Ok(Program { executable, crates, sbom })
    });
    packages(&programs.collect::<anyhow::Result<Vec<Program>>>()?, options)?.write_to(folder)
}

fn is_empty(folder: &Path) -> anyhow::Result<bool> {
    if !folder.exists() {
        return Ok(true);
    }
    let mut entries = folder.read_dir().with_context(|| format!("{} cannot be read", folder.display()))?;
    Ok(entries.next().is_none())
}

/// All files, by their path in the folder of the packages.
fn packages(programs: &[Program], options: &PackagingOptions) -> anyhow::Result<FileTree> {
    let level = options.compression;
    let tools = tools::served()?;
    let docs = GeneratedDocs::of(&options.binaries)?;
    let mut release = FileTree::default();
    for program in programs {
        release.add(archive::file_name(program.executable.platform), archive::archive(program, &docs, level)?);
    }
    for bundle in mcpb::bundles(programs, &tools)? {
        release.add(bundle.file_name(), bundle.files.to_zip(level)?);
    }
    let server = mcp_registry::server_json(programs, &release);
    release.add("SHA256SUMS", checksums(&release));

    let mut packages = FileTree::default();
    for (path, content) in release.iter() {
        packages.add(format!("release/{path}"), content);
    }
    for package in npm::packages(programs)? {
        packages.add(format!("npm/{}", package.file_name()), package.files.to_tar_gz("package", level)?);
    }
    for program in programs {
        let wheel = wheel::files(program)?.to_zip(level)?;
        packages.add(format!("pypi/{}", wheel::file_name(&program.executable)), wheel);
    }
    container::add_context(&mut packages, programs, &options.commit)?;
    packages.add("mcp-registry/server.json", json(&server)?);
    packages.add("docker-catalog/countersign/server.yaml", docker_catalog::server_yaml(&options.commit));
    packages.add("docker-catalog/countersign/tools.json", json(&docker_catalog::tools_json(&tools)?)?);
    Ok(packages)
}

/// Lines for `sha256sum --check`.
fn checksums(files: &FileTree) -> String {
    files.iter().map(|(path, content)| format!("{}  {path}\n", sha256_hex(content))).collect()
}

fn sha256_hex(content: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, content);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn json(value: &impl serde::Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}
