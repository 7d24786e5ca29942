//! Makes the packages of a release: `cargo run -p packaging -- --help`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Parser;
use packaging::{Compression, PackagingOptions, Platform};

/// Make the packages of a release from built binaries.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// A binary with its platform, such as linux-x64-musl=target/release/countersign. One for each platform.
    #[arg(long = "binary", value_name = "PLATFORM=FILE", required = true)]
    binaries: Vec<String>,
    /// The commit from which the binaries were built.
    #[arg(long, value_name = "SHA")]
    commit: String,
    /// Folder for the packages. It must be empty or absent.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let mut binaries = BTreeMap::new();
    for binary in &cli.binaries {
        let (platform, path) = binary.split_once('=').with_context(|| format!("{binary:?} is not PLATFORM=FILE"))?;
        let platform: Platform = platform.parse()?;
        ensure!(binaries.insert(platform, path.into()).is_none(), "there are two binaries for {platform}");
    }
    let options = PackagingOptions { binaries, commit: cli.commit, compression: Compression::best() };
    packaging::write(&options, &cli.out)
}
