//! The wheels for PyPI: the binary as a script, so that `uvx` and `pipx` run it. A wheel is a zip archive whose file RECORD
//! lists the hashes of the others (<https://packaging.python.org/en/latest/specifications/binary-distribution-format/>).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::executable::{Executable, SystemRequirement};
use crate::file_tree::FileTree;
use crate::license_files::{THIRD_PARTY_LICENSES, third_party_licenses};
use crate::platform::{Cpu, Os};
use crate::program::Program;
use crate::project::{DESCRIPTION, KEYWORDS, LICENSE, LICENSE_TEXT, NAME, PYPI_NAME, REPOSITORY, SUMMARY, VERSION};
use crate::sbom::SBOM;

/// `uvx` runs the script that has the name of the package.
const LAUNCHER: &str = include_str!("../pypi/countersign-mcp");

/// The platform tag: the oldest system on which the binary runs.
fn platform_tag(executable: &Executable) -> String {
    let cpu = match (executable.platform.os, executable.platform.cpu) {
        (_, Cpu::X64) => "x86_64",
        (Os::Linux, Cpu::Arm64) => "aarch64",
        (Os::Darwin, Cpu::Arm64) => "arm64",
    };
    match executable.requirement {
        SystemRequirement::Glibc(minor) => format!("manylinux_2_{minor}_{cpu}"),
        SystemRequirement::AnyLinux => format!("musllinux_1_1_{cpu}"),
        SystemRequirement::MacOs(major, minor) => format!("macosx_{major}_{minor}_{cpu}"),
    }
}

fn tag(executable: &Executable) -> String {
    format!("py3-none-{}", platform_tag(executable))
}

/// The name of the project and its version, as in the names of files.
fn stem() -> String {
    format!("{}-{VERSION}", PYPI_NAME.replace('-', "_"))
}

pub(crate) fn file_name(executable: &Executable) -> String {
    format!("{}-{}.whl", stem(), tag(executable))
}

/// The bill of materials is where PEP 770 has it.
pub(crate) fn files(program: &Program) -> anyhow::Result<FileTree> {
    let executable = &program.executable;
    let (scripts, info) = (format!("{}.data/scripts", stem()), format!("{}.dist-info", stem()));
    let mut files = FileTree::default();
    files.add_program(format!("{scripts}/{NAME}"), executable.bytes.as_slice());
    files.add_program(format!("{scripts}/{PYPI_NAME}"), LAUNCHER);
    files.add(format!("{info}/METADATA"), metadata());
    files.add(format!("{info}/WHEEL"), wheel(executable));
    files.add(format!("{info}/licenses/LICENSE"), LICENSE_TEXT);
    files.add(format!("{info}/licenses/{THIRD_PARTY_LICENSES}"), third_party_licenses([&program.crates])?);
    files.add(format!("{info}/sboms/{SBOM}"), program.sbom.as_slice());
    let record = format!("{info}/RECORD");
    let mut lines: Vec<String> = files.iter().map(|(path, content)| record_line(path, content)).collect();
    lines.push(format!("{record},,\n"));
    files.add(record, lines.concat());
    Ok(files)
}

fn record_line(path: &str, content: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, content);
    format!("{path},sha256={},{}\n", URL_SAFE_NO_PAD.encode(digest), content.len())
}

fn metadata() -> String {
    let keywords = KEYWORDS.join(",");
    format!(
        "Metadata-Version: 2.4\n\
         Name: {PYPI_NAME}\n\
         Version: {VERSION}\n\
         Summary: {SUMMARY}\n\
         Keywords: {keywords}\n\
         License-Expression: {LICENSE}\n\
         License-File: LICENSE\n\
         License-File: {THIRD_PARTY_LICENSES}\n\
         Requires-Python: >=3.8\n\
         Project-URL: Repository, {REPOSITORY}\n\
         Description-Content-Type: text/markdown; charset=UTF-8\n\
         \n\
         {DESCRIPTION}"
    )
}

fn wheel(executable: &Executable) -> String {
    let tag = tag(executable);
    format!("Wheel-Version: 1.0\nGenerator: {NAME}-packaging ({VERSION})\nRoot-Is-Purelib: false\nTag: {tag}\n")
}
