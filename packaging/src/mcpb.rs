//! The bundles for Claude Desktop and other hosts of MCPB: one for each operating system, with its binaries and
//! `manifest.json`, version 0.3.

use serde_json::{Value, json};

use crate::file_tree::FileTree;
use crate::license_files::{THIRD_PARTY_LICENSES, third_party_licenses};
use crate::platform::{Cpu, Libc, Os};
use crate::program::Program;
use crate::project::{
    AUTHOR, DATABASE_URL, DATABASE_URL_HELP, KEYWORDS, LICENSE, LICENSE_TEXT, MANIFEST, MANIFEST_HELP, NAME,
    REPOSITORY, SUMMARY, TITLE, VERSION,
};
use crate::tools::Tool;

/// Starts the binary for the processor: a bundle can distinguish operating systems only.
const LAUNCHER: &str = include_str!("../mcpb/launch.sh");

pub(crate) struct Bundle {
    os: Os,
    pub(crate) files: FileTree,
}

impl Bundle {
    pub(crate) fn file_name(&self) -> String {
        file_name(self.os)
    }
}

pub(crate) fn file_name(os: Os) -> String {
    format!("{NAME}-{VERSION}-{}.mcpb", os.name())
}

/// The operating systems for which there are binaries.
pub(crate) fn systems(programs: &[Program]) -> impl Iterator<Item = Os> {
    [Os::Darwin, Os::Linux].into_iter().filter(|os| programs.iter().any(|it| it.executable.platform.os == *os))
}

pub(crate) fn bundles(programs: &[Program], tools: &[Tool]) -> anyhow::Result<Vec<Bundle>> {
    systems(programs).map(|os| bundle(os, programs, tools)).collect()
}

fn bundle(os: Os, programs: &[Program], tools: &[Tool]) -> anyhow::Result<Bundle> {
    let mut files = FileTree::default();
    files.add("manifest.json", crate::json(&manifest(os, tools))?);
    files.add("LICENSE", LICENSE_TEXT);
    files.add_program(format!("server/{NAME}"), LAUNCHER);
    let mut bundled = Vec::new();
    for cpu in [Cpu::X64, Cpu::Arm64] {
        let fits = |it: &&Program| it.executable.platform.os == os && it.executable.platform.cpu == cpu;
        // The static binary runs on more machines.
        let best = |it: &&Program| it.executable.platform.libc == Some(Libc::Musl);
        if let Some(program) = programs.iter().filter(fits).max_by_key(best) {
            files.add_program(format!("server/{NAME}-{}", cpu.name()), program.executable.bytes.as_slice());
            files.add(format!("server/{NAME}-{}.cdx.json", cpu.name()), program.sbom.as_slice());
            bundled.push(&program.crates);
        }
    }
    files.add(THIRD_PARTY_LICENSES, third_party_licenses(bundled)?);
    Ok(Bundle { os, files })
}

fn manifest(os: Os, tools: &[Tool]) -> Value {
    let program = format!("server/{NAME}");
    let tools: Vec<Value> =
        tools.iter().map(|tool| json!({"name": tool.name, "description": tool.description})).collect();
    json!({
        "manifest_version": "0.3",
        "name": NAME,
        "display_name": TITLE,
        "version": VERSION,
        "description": SUMMARY,
        "author": {"name": AUTHOR, "url": REPOSITORY},
        "repository": {"type": "git", "url": format!("{REPOSITORY}.git")},
        "homepage": REPOSITORY,
        "support": format!("{REPOSITORY}/issues"),
        "license": LICENSE,
        "keywords": KEYWORDS,
        "server": {
            "type": "binary",
            "entry_point": program,
            "mcp_config": {
                "command": format!("${{__dirname}}/{program}"),
                "args": ["serve"],
                "env": {
                    DATABASE_URL: "${user_config.database_url}",
                    MANIFEST: "${user_config.manifest}",
                },
            },
        },
        "user_config": {
            "database_url": {
                "type": "string",
                "title": "Connection string",
                "description": DATABASE_URL_HELP,
                "sensitive": true,
                "required": true,
            },
            "manifest": {
                "type": "file",
                "title": "Manifest",
                "description": MANIFEST_HELP,
                "required": false,
                "default": "",
            },
        },
        "tools": tools,
        // Manifests add tools.
        "tools_generated": true,
        "compatibility": {"platforms": [os.name()]},
    })
}
