//! The archives of a release: the binary with its licences, a manifest, completions and man pages. Their names and layout are those of
//! `package.metadata.binstall` in `crates/countersign/Cargo.toml`.

use flate2::Compression;

use crate::file_tree::FileTree;
use crate::generated_docs::GeneratedDocs;
use crate::platform::Platform;
use crate::program::Program;
use crate::project::{DBA_MANIFEST, LICENSE_TEXT, NAME, README, SKILLS, VERSION};

/// The folder in the archive, and the name of the archive without its extension.
fn stem(platform: Platform) -> String {
    format!("{NAME}-{VERSION}-{}", platform.triple())
}

pub(crate) fn file_name(platform: Platform) -> String {
    format!("{}.tar.gz", stem(platform))
}

pub(crate) fn archive(program: &Program, docs: &GeneratedDocs, level: Compression) -> anyhow::Result<Vec<u8>> {
    let mut files = FileTree::default();
    files.add_program(NAME, program.executable.bytes.as_slice());
    program.add_notices(&mut files, "")?;
    files.add("LICENSE", LICENSE_TEXT);
    files.add("README.md", README);
    files.add("manifests/dba.toml", DBA_MANIFEST);
    for (path, text) in SKILLS {
        files.add(path, text);
    }
    docs.add_to(&mut files);
    files.to_tar_gz(&stem(program.executable.platform), level)
}
