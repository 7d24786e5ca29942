//! Makes a data folder: whole, or not at all.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::binaries::Binaries;
use crate::error::{Error, at};
use crate::launch::child_command;
use crate::place::Place;

/// How many lines of a failed `initdb` an error shows.
const LINES: usize = 15;

/// Runs `initdb` in a folder of another name and renames it at the end: a kill in the middle leaves nothing that the next
/// start would trust. Under the start lock.
pub(crate) fn initialize(place: &Place, binaries: &Binaries) -> Result<(), Error> {
    let data = place.data();
    // From version 17 on the server brings C.UTF-8 with it. Before, it is the system's, which may not have it.
    let choices: &[&[&str]] = if binaries.version().major >= 17 {
        &[&["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]]
    } else {
        &[&["--locale=C.UTF-8"], &["--locale=C"]]
    };
    let mut outcome = Ok(());
    for locale in choices {
        outcome = run(place, binaries, locale);
        // Only a locale that the system lacks is worth another try.
        if !matches!(&outcome, Err(Error::Initdb { output, .. }) if output.contains("locale")) {
            break;
        }
    }
    outcome?;
    // The rename itself must survive a crash of the machine, too.
    File::open(place.home()).and_then(|home| home.sync_all()).map_err(at("sync the folder of", &data))
}

/// Copies another data folder, whose server was stopped in order, to where `initdb` would make one. Under the start lock.
pub(crate) fn copy(place: &Place, from: &Path) -> Result<(), Error> {
    let new = new_folder(place)?;
    let copied = copy_entries(from, &new, place);
    if let Err(error) = copied {
        let _leftover = fs::remove_dir_all(&new);
        return Err(error);
    }
    put_in_place(place, &new)
}

fn copy_entries(from: &Path, to: &Path, place: &Place) -> Result<(), Error> {
    let entries = fs::read_dir(from).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    for entry in entries.map_err(at("read", from))? {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            DirBuilder::new().mode(0o700).create(&to).map_err(at("create", &to))?;
            copy_entries(&from, &to, place)?;
        } else {
            fs::copy(&from, &to).map_err(at("copy", &from))?;
        }
        place.account().own(&to)?;
    }
    Ok(())
}

/// An empty folder that the server owns and no start trusts.
fn new_folder(place: &Place) -> Result<PathBuf, Error> {
    let new = place.home().join(format!("data.new-{}", std::process::id()));
    let _leftover = fs::remove_dir_all(&new);
    DirBuilder::new().mode(0o700).create(&new).map_err(at("create", &new))?;
    place.account().own(&new)?;
    Ok(new)
}

/// Gives a whole data folder its name.
fn put_in_place(place: &Place, new: &Path) -> Result<(), Error> {
    let data = place.data();
    if data.exists() {
        // Empty, or it would not have come to this; a rename over it would fail only on some systems.
        fs::remove_dir(&data).map_err(at("replace", &data))?;
    }
    fs::rename(new, &data).map_err(at("rename", new))
}

fn run(place: &Place, binaries: &Binaries, locale: &[&str]) -> Result<(), Error> {
    let new = new_folder(place)?;
    let program = binaries.program("initdb");
    let mut command = child_command(place, &program)?;
    command.arg("-D").arg(&new).args(["--username=postgres", "--encoding=UTF8", "--lc-messages=C"]).args(locale);
    // The folder of the socket lets in nobody but the server's user and root: that is the authentication.
    command.args(["--auth-local=trust", "--auth-host=reject", "--no-instructions"]);
    if place.is_temporary() {
        command.arg("--no-sync");
    }
    let output = command
        .stderr(Stdio::piped())
        .output()
        .map_err(|source| Error::Program { program: program.display().to_string(), source })?;
    if !output.status.success() {
        let _leftover = fs::remove_dir_all(&new);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Error::Initdb { program, data: place.data(), output: last_lines(&said, LINES) });
    }
    put_in_place(place, &new)
}

/// The end of a text.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(count)..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_a_short_text_are_all_of_it() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a", 2), "a");
        assert_eq!(last_lines("", 2), "");
    }
}
