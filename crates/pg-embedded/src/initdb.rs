//! Creates a data folder, completely or not at all.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::binaries::Binaries;
use crate::cluster_dir::ClusterDir;
use crate::error::{Error, at, last_lines};

/// Number of lines of the output of `initdb` in an error.
const LINES: usize = 15;

/// Runs `initdb` in a folder with a temporary name, which is renamed at the end: if the process is killed before, the
/// next start ignores the folder. Needs the start lock.
pub(crate) fn initialize(dir: &ClusterDir, binaries: &Binaries) -> Result<(), Error> {
    let data = dir.data();
    // Since version 17, PostgreSQL has a built-in C.UTF-8. Earlier versions use the system's, which may be missing.
    let choices: &[&[&str]] = if binaries.version().major >= 17 {
        &[&["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]]
    } else {
        &[&["--locale=C.UTF-8"], &["--locale=C"]]
    };
    let mut outcome = Ok(());
    for locale in choices {
        outcome = run(dir, binaries, locale);
        // Try the next locale only if the system lacks this one.
        if !matches!(&outcome, Err(Error::Initdb { output, .. }) if output.contains("locale")) {
            break;
        }
    }
    outcome?;
    // The rename must survive a crash of the machine too.
    File::open(dir.home()).and_then(|home| home.sync_all()).map_err(at("sync the folder of", &data))
}

/// Copies a data folder whose server was shut down cleanly, instead of running `initdb`. Needs the start lock.
pub(crate) fn copy(dir: &ClusterDir, from: &Path) -> Result<(), Error> {
    let new = new_folder(dir)?;
    let copied = copy_entries(from, &new, dir);
    if let Err(error) = copied {
        let _leftover = fs::remove_dir_all(&new);
        return Err(error);
    }
    put_in_place(dir, &new)
}

fn copy_entries(from: &Path, to: &Path, dir: &ClusterDir) -> Result<(), Error> {
    let entries = fs::read_dir(from).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    for entry in entries.map_err(at("read", from))? {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            DirBuilder::new().mode(0o700).create(&to).map_err(at("create", &to))?;
            copy_entries(&from, &to, dir)?;
        } else {
            fs::copy(&from, &to).map_err(at("copy", &from))?;
        }
        dir.account().own(&to)?;
    }
    Ok(())
}

/// An empty folder that belongs to the server's user. No start uses it as a data folder.
fn new_folder(dir: &ClusterDir) -> Result<PathBuf, Error> {
    let new = dir.home().join(format!("data.new-{}", std::process::id()));
    let _leftover = fs::remove_dir_all(&new);
    DirBuilder::new().mode(0o700).create(&new).map_err(at("create", &new))?;
    dir.account().own(&new)?;
    Ok(new)
}

/// Renames a complete data folder to its final name.
fn put_in_place(dir: &ClusterDir, new: &Path) -> Result<(), Error> {
    let data = dir.data();
    if data.exists() {
        // An empty folder: `data_major` refuses any other. Not all systems can rename over an existing folder.
        fs::remove_dir(&data).map_err(at("replace", &data))?;
    }
    fs::rename(new, &data).map_err(at("rename", new))
}

fn run(dir: &ClusterDir, binaries: &Binaries, locale: &[&str]) -> Result<(), Error> {
    let new = new_folder(dir)?;
    let program = binaries.program("initdb");
    let mut command = dir.command(&program);
    command.arg("-D").arg(&new).args(["--username=postgres", "--encoding=UTF8", "--lc-messages=C"]).args(locale);
    // The folder of the socket is the authentication: only the server's user and root can enter it.
    command.args(["--auth-local=trust", "--auth-host=reject", "--no-instructions"]);
    if dir.is_temporary() {
        command.arg("--no-sync");
    }
    let output = command
        .stderr(Stdio::piped())
        .output()
        .map_err(|source| Error::Program { program: program.display().to_string(), source })?;
    if !output.status.success() {
        let _leftover = fs::remove_dir_all(&new);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Error::Initdb { program, data: dir.data(), output: last_lines(&said, LINES) });
    }
    put_in_place(dir, &new)
}
