//! Completions of shells and man pages, which a binary prints about itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::file_tree::FileTree;
use crate::platform::Platform;
use crate::project::{NAME, VERSION};

/// The folder and the file of the completions for each shell, under the names that the shells look for.
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "countersign.bash"), ("fish", "countersign.fish"), ("zsh", "_countersign")];

#[derive(Debug)]
pub(crate) struct GeneratedDocs(FileTree);

impl GeneratedDocs {
    /// Runs the binary that is for the machine that makes the packages.
    pub(crate) fn of(binaries: &BTreeMap<Platform, PathBuf>) -> anyhow::Result<Self> {
        let here = binaries.iter().find(|(platform, _)| platform.runs_here());
        let (_, program) = here.context("none of the binaries is for this machine, which runs one for man pages")?;
        // A name without a folder would be looked up in PATH.
        let program = program.canonicalize()?;
        let version = String::from_utf8(output(&program, &["--version"])?)?;
        ensure!(
            version.trim_end() == format!("{NAME} {VERSION}"),
            "{} is {:?}, and the packages are of version {VERSION}",
            program.display(),
            version.trim_end()
        );
        let mut files = FileTree::default();
        for (shell, file) in COMPLETIONS {
            files.add(format!("completions/{file}"), output(&program, &["completions", shell])?);
        }
        let pages = tempfile::tempdir()?;
        let folder = pages.path().to_str().context("the folder for temporary files has a name in UTF-8")?;
        output(&program, &["man", folder])?;
        for page in pages.path().read_dir()? {
            let page = page?;
            let name = page.file_name().into_string().ok().context("a man page has a name in UTF-8")?;
            files.add(format!("man/man1/{name}"), std::fs::read(page.path())?);
        }
        Ok(Self(files))
    }

    pub(crate) fn add_to(&self, files: &mut FileTree) {
        for (path, content) in self.0.iter() {
            files.add(path, content);
        }
    }
}

fn output(program: &Path, arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
    let command = || format!("{} {}", program.display(), arguments.join(" "));
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("{} cannot be run", command()))?;
    ensure!(output.status.success(), "{}: {}", command(), String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}
