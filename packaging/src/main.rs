//! Makes the packages of a release: `cargo run -p packaging -- --help`.

use packaging::Cli;

fn main() -> anyhow::Result<()> {
    Cli::of_process().run()
}
