//! The command line.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Parser;
use flate2::Compression;

use crate::platform::Platform;
use crate::{PackagingOptions, write};

/// Make the packages of a release from built binaries.
#[derive(Debug, Parser)]
#[command(version, name = "packaging")]
pub struct Cli {
    /// A binary with its target, such as x86_64-unknown-linux-musl=FILE. One for each target.
    #[arg(long = "binary", value_name = "TARGET=FILE", required = true)]
    binaries: Vec<String>,
    /// The commit from which the binaries were built: 40 hexadecimal digits.
    #[arg(long, value_name = "SHA")]
    commit: String,
    /// Folder for the packages. It must be empty or absent.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How much time to spend on smaller files.
    #[arg(long, value_name = "LEVEL", default_value_t = 9, value_parser = clap::value_parser!(u32).range(0..=9))]
    compression: u32,
}

impl Cli {
    /// The command line of this process. Help and mistakes end the process.
    pub fn of_process() -> Self {
        Self::parse()
    }

    /// A command line, which begins with the name of the program.
    ///
    /// # Errors
    /// If an option is unknown, wrong or missing.
    pub fn of(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<Self> {
        Ok(Self::try_parse_from(arguments)?)
    }

    /// Makes the packages.
    ///
    /// # Errors
    /// If a target is unknown or has two binaries, and as [`write()`].
    pub fn run(self) -> anyhow::Result<()> {
        let mut binaries = BTreeMap::new();
        for binary in &self.binaries {
            let (platform, path) = binary.split_once('=').with_context(|| format!("{binary:?} is not TARGET=FILE"))?;
            let platform: Platform = platform.parse()?;
            let earlier = binaries.insert(platform, PathBuf::from(path));
            ensure!(earlier.is_none(), "there are two binaries for {}", platform.triple());
        }
        let compression = Compression::new(self.compression);
        write(&PackagingOptions { binaries, commit: self.commit, compression }, &self.out)
    }
}
