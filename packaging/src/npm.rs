//! The npm packages: `countersign`, which has the command, and one package with the binary for each platform. npm installs
//! the one whose `os`, `cpu` and `libc` fit; no package runs a script when it is installed.

use serde_json::{Map, Value, json};

use crate::file_tree::FileTree;
use crate::platform::{Libc, Platform};
use crate::program::Program;
use crate::project::{DESCRIPTION, KEYWORDS, LICENSE, LICENSE_TEXT, MCP_NAME, NAME, REPOSITORY, SUMMARY, VERSION};

const RUN_JS: &str = include_str!("../npm/run.js");

pub(crate) struct NpmPackage {
    name: String,
    pub(crate) files: FileTree,
}

impl NpmPackage {
    /// The name that `npm pack` gives it.
    pub(crate) fn file_name(&self) -> String {
        format!("{}-{VERSION}.tgz", self.name)
    }
}

pub(crate) fn packages(programs: &[Program]) -> anyhow::Result<Vec<NpmPackage>> {
    let platforms = programs.iter().map(platform_package);
    std::iter::once(main_package(programs)).chain(platforms).collect()
}

/// `bin/run.js` looks for this name.
fn platform_name(platform: Platform) -> String {
    format!("{NAME}-{platform}")
}

fn main_package(programs: &[Program]) -> anyhow::Result<NpmPackage> {
    let binaries: Map<String, Value> =
        programs.iter().map(|it| (platform_name(it.executable.platform), json!(VERSION))).collect();
    let mut files = FileTree::default();
    files.add(
        "package.json",
        crate::json(&json!({
            "name": NAME,
            "version": VERSION,
            "description": SUMMARY,
            "mcpName": MCP_NAME,
            "license": LICENSE,
            "repository": repository(),
            "homepage": REPOSITORY,
            "bugs": format!("{REPOSITORY}/issues"),
            "keywords": KEYWORDS,
            "bin": {NAME: "bin/run.js"},
            "engines": {"node": ">=18"},
            "optionalDependencies": binaries,
        }))?,
    );
    files.add("README.md", DESCRIPTION);
    files.add("LICENSE", LICENSE_TEXT);
    files.add_program("bin/run.js", RUN_JS);
    Ok(NpmPackage { name: NAME.to_owned(), files })
}

fn platform_package(program: &Program) -> anyhow::Result<NpmPackage> {
    let platform = program.executable.platform;
    let name = platform_name(platform);
    let mut package = json!({
        "name": name,
        "version": VERSION,
        "description": format!("The binary of {NAME} for {platform}. Install {NAME} instead."),
        "license": LICENSE,
        "repository": repository(),
        "homepage": REPOSITORY,
        "os": [platform.os.name()],
        "cpu": [platform.cpu.name()],
    });
    // A static binary runs with any C library, but a machine with glibc gets its own package.
    let libc = platform.libc.map(|libc| if libc == Libc::Gnu { "glibc" } else { "musl" });
    if let (Some(libc), Some(fields)) = (libc, package.as_object_mut()) {
        fields.insert("libc".to_owned(), json!([libc]));
    }
    let mut files = FileTree::default();
    files.add("package.json", crate::json(&package)?);
    files.add("README.md", format!("The binary of `{NAME}` for {platform}. Install `{NAME}` instead.\n"));
    files.add("LICENSE", LICENSE_TEXT);
    program.add_notices(&mut files, "")?;
    files.add_program(format!("bin/{NAME}"), program.executable.bytes.as_slice());
    Ok(NpmPackage { name, files })
}

fn repository() -> Value {
    json!({"type": "git", "url": format!("git+{REPOSITORY}.git")})
}
