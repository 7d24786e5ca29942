//! The context of the container image: the binaries for Linux, and a Containerfile that only copies them.

use anyhow::ensure;

use crate::executable::SystemRequirement;
use crate::file_tree::FileTree;
use crate::program::Program;
use crate::project::{LICENSE, LICENSE_TEXT, MCP_NAME, NAME, REPOSITORY, SUMMARY, TITLE, VERSION};

const CONTAINERFILE: &str = include_str!("../container/Containerfile");

/// The minor version of glibc 2 in the base image, which is of Debian 12.
const IMAGE_GLIBC: u32 = 36;

/// Adds the folder `container`, if there are binaries for glibc.
pub(crate) fn add_context(packages: &mut FileTree, programs: &[Program], commit: &str) -> anyhow::Result<()> {
    let mut has_binary = false;
    for program in programs {
        let executable = &program.executable;
        let SystemRequirement::Glibc(minor) = executable.requirement else { continue };
        ensure!(
            minor <= IMAGE_GLIBC,
            "the binary for {} needs glibc 2.{minor}, and the image has 2.{IMAGE_GLIBC}: build it on an older system",
            executable.platform
        );
        let cpu = executable.platform.cpu.container_name();
        packages.add_program(format!("container/{cpu}/{NAME}"), executable.bytes.as_slice());
        program.add_notices(packages, &format!("container/{cpu}/"))?;
        has_binary = true;
    }
    if has_binary {
        packages.add("container/LICENSE", LICENSE_TEXT);
        packages.add("container/Containerfile", CONTAINERFILE.replace("@LABELS@", &labels(commit)));
    }
    Ok(())
}

/// The labels of the Open Container Initiative, and the one by which the MCP registry verifies who owns the image.
fn labels(commit: &str) -> String {
    let labels = [
        ("io.modelcontextprotocol.server.name", MCP_NAME),
        ("org.opencontainers.image.title", TITLE),
        ("org.opencontainers.image.description", SUMMARY),
        ("org.opencontainers.image.licenses", LICENSE),
        ("org.opencontainers.image.source", REPOSITORY),
        ("org.opencontainers.image.version", VERSION),
        ("org.opencontainers.image.revision", commit),
    ];
    let lines: Vec<String> = labels.iter().map(|(key, value)| format!("LABEL {key}=\"{value}\"")).collect();
    lines.join("\n")
}
