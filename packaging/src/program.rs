//! A binary with the two files that every package has beside it: what it is made of, and under which licences.

use crate::executable::Executable;
use crate::file_tree::FileTree;
use crate::license_files::{THIRD_PARTY_LICENSES, third_party_licenses};
use crate::sbom::SBOM;
use crate::used_crates::UsedCrates;

#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) executable: Executable,
    pub(crate) crates: UsedCrates,
    /// The bill of materials.
    pub(crate) sbom: Vec<u8>,
}

impl Program {
    /// Adds both files to a folder: its path with a `/` at the end, or nothing.
    pub(crate) fn add_notices(&self, files: &mut FileTree, folder: &str) -> anyhow::Result<()> {
        files.add(format!("{folder}{SBOM}"), self.sbom.as_slice());
        files.add(format!("{folder}{THIRD_PARTY_LICENSES}"), third_party_licenses([&self.crates])?);
        Ok(())
    }
}
