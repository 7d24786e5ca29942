//! The files of a package, and the two kinds of archives. The same files make the same bytes: names are sorted, and times,
//! owners and modes are fixed.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use flate2::write::DeflateEncoder;
use flate2::{Compression, GzBuilder};
use rawzip::time::UtcDateTime;
use rawzip::{CompressionMethod, ZipArchiveWriter};
use tar::{EntryType, Header};

/// The time of every file: 1980-01-01 00:00 UTC, the first that a zip archive can have.
const TIME_S: u32 = 315_532_800;

/// The type of a file in the mode of Unix.
const REGULAR_FILE: u32 = 0o100_000;

#[derive(Debug, Clone)]
struct PackagedFile {
    content: Vec<u8>,
    is_executable: bool,
}

impl PackagedFile {
    fn mode(&self) -> u32 {
        if self.is_executable { 0o755 } else { 0o644 }
    }
}

/// Files by their path, with `/` between its parts.
#[derive(Debug, Clone, Default)]
pub(crate) struct FileTree(BTreeMap<String, PackagedFile>);

impl FileTree {
    pub(crate) fn add(&mut self, path: impl Into<String>, content: impl Into<Vec<u8>>) {
        self.0.insert(path.into(), PackagedFile { content: content.into(), is_executable: false });
    }

    pub(crate) fn add_program(&mut self, path: impl Into<String>, content: impl Into<Vec<u8>>) {
        self.0.insert(path.into(), PackagedFile { content: content.into(), is_executable: true });
    }

    /// Paths and contents, sorted by path.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(path, file)| (path.as_str(), file.content.as_slice()))
    }

    /// A compressed tar archive, in which every path begins with this folder.
    pub(crate) fn to_tar_gz(&self, folder: &str, level: Compression) -> anyhow::Result<Vec<u8>> {
        let mut archive = tar::Builder::new(GzBuilder::new().mtime(0).write(Vec::new(), level));
        for (path, file) in &self.0 {
            let mut header = Header::new_ustar();
            header.set_entry_type(EntryType::Regular);
            header
                .set_path(format!("{folder}/{path}"))
                .with_context(|| format!("{path} is too long for a tar archive"))?;
            header.set_size(u64::try_from(file.content.len())?);
            header.set_mode(file.mode());
            header.set_mtime(TIME_S.into());
            header.set_uid(0);
            header.set_gid(0);
            header.set_cksum();
            archive.append(&header, file.content.as_slice())?;
        }
        Ok(archive.into_inner()?.finish()?)
    }

    pub(crate) fn to_zip(&self, level: Compression) -> anyhow::Result<Vec<u8>> {
        let mut archive = ZipArchiveWriter::new(Vec::new());
        for (path, file) in &self.0 {
            let (mut entry, config) = archive
                .new_file(path.as_str())
                .compression_method(CompressionMethod::DEFLATE)
                .last_modified(UtcDateTime::from_unix(TIME_S.into()))
                .unix_permissions(REGULAR_FILE | file.mode())
                .start()?;
            let mut writer = config.wrap(DeflateEncoder::new(&mut entry, level));
            writer.write_all(&file.content)?;
            let (encoder, descriptor) = writer.finish()?;
            encoder.finish()?;
            entry.finish(descriptor)?;
        }
        Ok(archive.finish()?)
    }

    /// Writes the files into a folder of this machine.
    pub(crate) fn write_to(&self, folder: &Path) -> anyhow::Result<()> {
        for (path, file) in &self.0 {
            let path = folder.join(path);
            let parent = path.parent().context("a file is in a folder")?;
            std::fs::create_dir_all(parent).with_context(|| format!("{} cannot be made", parent.display()))?;
            std::fs::write(&path, &file.content).with_context(|| format!("{} cannot be written", path.display()))?;
            set_mode(&path, file.mode())?;
        }
        Ok(())
    }
}

fn set_mode(path: &Path, mode: u32) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?)
}
