//! The folder of a cluster.
//!
//! | path | content | owner |
//! |---|---|---|
//! | `lock` | the start lock: held while a process starts or stops the server | us |
//! | `in-use` | locked, and shared, by each process that uses the cluster | us |
//! | `data/` | the data folder; it gets this name when it is complete | the server |
//! | `data.new-*`, `trash-*` | data being made or removed; the next start removes leftovers | the server |
//! | `s/` | the socket, if the path is short enough; otherwise in a folder below `/tmp` with a short name | the server |
//! | `server.conf` | the server's configuration, written at each start | us |
//! | `log`, `log.old` | the server's log | us |
//!
//! If this process is root, the server's processes run as another user: they can enter the folder, but not write to it.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::environment;
use crate::error::{Error, at};
use crate::file_lock::FileLock;
use crate::options::{ClusterHome, Options};
use crate::os_account::OsAccount;
use crate::process::wait_until;

/// The port, the same for all clusters: each has its own socket folder.
pub(crate) const PORT: u16 = 5432;

/// The system limits the path of a socket to 108 bytes (104 on macOS), including a zero byte. Stay well below.
const SOCKET_PATH_LIMIT: usize = 100;

/// How long to wait for the start lock: longer than it takes to create a data folder, start and recover.
const LOCK_LIMIT: Duration = Duration::from_secs(120);

/// The folder of a cluster, created and checked.
#[derive(Debug)]
pub(crate) struct ClusterDir {
    home: PathBuf,
    socket_dir: PathBuf,
    temporary: bool,
    cluster_name: String,
    account: OsAccount,
}

impl ClusterDir {
    /// Opens the folder, and creates it if it does not exist.
    pub(crate) fn open(options: &Options) -> Result<Self, Error> {
        let account = OsAccount::choose()?;
        let temporary = matches!(options.home, ClusterHome::Temporary(_));
        let home = match &options.home {
            ClusterHome::Named(name) => make_home(&named_home(name, &account)?, &account)?,
            ClusterHome::At(folder) => make_home(folder, &account)?,
            ClusterHome::Temporary(below) => make_temporary_home(below.as_deref(), &account)?,
        };
        let opened = Self::prepare(home.clone(), temporary, account);
        if opened.is_err() && temporary {
            let _gone = fs::remove_dir_all(home);
        }
        opened
    }

    fn prepare(home: PathBuf, temporary: bool, account: OsAccount) -> Result<Self, Error> {
        let account = account.of_owner(&home.join("data"));
        account.check_reaches(&home)?;
        let digest = Sha256::digest(home.as_os_str().as_bytes());
        let short: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        let socket_dir = make_socket_dir(&home, &short, &account)?;
        Ok(Self { home, socket_dir, temporary, cluster_name: format!("countersign-{short}"), account })
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// The path of the data folder, which need not exist.
    pub(crate) fn data(&self) -> PathBuf {
        self.home.join("data")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.home.join("log")
    }

    pub(crate) fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }

    /// Whether the folder is removed when the cluster is stopped.
    pub(crate) fn is_temporary(&self) -> bool {
        self.temporary
    }

    /// The server's `cluster_name`, which distinguishes its processes from those of other servers.
    pub(crate) fn cluster_name(&self) -> &str {
        &self.cluster_name
    }

    pub(crate) fn account(&self) -> &OsAccount {
        &self.account
    }

    /// A command that runs a program as the server's user, in its own process group, so that a Ctrl-C in the terminal
    /// does not reach it. The program does not get the connection strings, keys and libpq variables of this process's
    /// environment, nor a locale that this machine may lack. Its output is discarded.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = environment::plain(program);
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        command.env("LC_ALL", "C").env("HOME", "/");
        self.account.apply_to(&mut command);
        command
    }

    /// Registers this process as a user of the cluster until the returned lock is dropped or the process ends. `None`
    /// if `exclusive` is set and another process uses the cluster. Needs the start lock.
    pub(crate) fn register_use(&self, exclusive: bool) -> Result<Option<FileLock>, Error> {
        let path = self.home.join("in-use");
        let file = File::create(&path).map_err(at("create", &path))?;
        let locked = if exclusive { file.try_lock() } else { file.try_lock_shared() };
        match locked {
            Ok(()) => Ok(Some(FileLock::held_by(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(at("lock", &path)(error)),
        }
    }

    pub(crate) fn lock(&self) -> Result<FileLock, Error> {
        let path = self.home.join("lock");
        let file = File::create(&path).map_err(at("create", &path))?;
        let mut outcome = Ok(());
        let taken = wait_until(LOCK_LIMIT, || match file.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => {
                outcome = Err(error);
                true
            }
        });
        outcome.map_err(at("lock", &path))?;
        if taken {
            Ok(FileLock::held_by(file))
        } else {
            Err(Error::Locked { folder: self.home.clone(), waited: LOCK_LIMIT })
        }
    }

    /// The major version that created the data; `None` if there is no data yet. An error if the folder has other
    /// content.
    pub(crate) fn data_major(&self) -> Result<Option<u32>, Error> {
        let data = self.data();
        let version = data.join("PG_VERSION");
        match fs::read_to_string(&version) {
            // initdb writes PG_VERSION early and the control file late.
            Ok(text) if data.join("global/pg_control").exists() => {
                text.trim().parse().map(Some).map_err(|_| Error::NotACluster { data })
            }
            Ok(_) => Err(Error::NotACluster { data }),
            Err(_) if fs::read_dir(&data).is_ok_and(|mut entries| entries.next().is_some()) => {
                Err(Error::NotACluster { data })
            }
            Err(_) => Ok(None),
        }
    }

    /// Removes the data of a stopped server. Needs the start lock. The folder is renamed first, so that a kill during
    /// the removal leaves no partial data folder.
    pub(crate) fn remove_data(&self) -> Result<(), Error> {
        let data = self.data();
        if data.exists() {
            let trash = self.home.join(format!("trash-{}", std::process::id()));
            fs::rename(&data, &trash).map_err(at("move away", &data))?;
            fs::remove_dir_all(&trash).map_err(at("remove", &trash))?;
        }
        Ok(())
    }

    /// Removes unfinished folders of killed processes. Needs the start lock.
    pub(crate) fn remove_partial_data(&self) {
        for entry in fs::read_dir(&self.home).into_iter().flatten().flatten() {
            let left = entry
                .file_name()
                .to_str()
                .is_some_and(|name| name.starts_with("data.new-") || name.starts_with("trash-"));
            if left {
                let _next_time = fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Removes the whole folder, at the end of a temporary cluster.
    pub(crate) fn remove(&self) {
        // Children of the stopped server may still write, so this is repeated until the folder is gone.
        wait_until(Duration::from_secs(5), || {
            let _again = fs::remove_dir_all(&self.home);
            !self.home.exists()
        });
        let _inside_or_gone = fs::remove_dir_all(&self.socket_dir);
    }
}

fn named_home(name: &str, account: &OsAccount) -> Result<PathBuf, Error> {
    let proper = !name.is_empty() && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'));
    if !proper {
        let what = format!("{name:?} cannot name a cluster: use a-z, 0-9, - and _, such as demo");
        return Err(Error::Invalid { what });
    }
    let absolute = |variable| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = data_folder(account, absolute("XDG_DATA_HOME"), absolute("HOME"));
    base.map(|base| base.join("countersign").join(name)).ok_or_else(|| Error::Invalid {
        what: "there is no place for the data: set HOME or XDG_DATA_HOME to a folder".to_owned(),
    })
}

/// The user's folder for application data. Root's home is used only if the server's user can enter it.
fn data_folder(account: &OsAccount, xdg: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let below = if cfg!(target_os = "macos") { "Library/Application Support" } else { ".local/share" };
    let in_home = home.filter(|home| account.check_reaches(home).is_ok()).map(|home| home.join(below));
    xdg.or(in_home).or_else(|| account.is_other().then(|| PathBuf::from("/var/lib")))
}

/// The mode of the folder: if this process is root, the server's user must be able to enter it; otherwise only its
/// owner may.
fn home_mode(account: &OsAccount) -> u32 {
    if account.is_other() { 0o711 } else { 0o700 }
}

fn make_home(home: &Path, account: &OsAccount) -> Result<PathBuf, Error> {
    if !home.is_dir() {
        let mode = if account.is_other() { 0o755 } else { 0o700 };
        DirBuilder::new().recursive(true).mode(mode).create(home).map_err(at("create", home))?;
        set_mode(home, home_mode(account))?;
    }
    home.canonicalize().map_err(at("find", home))
}

fn make_temporary_home(below: Option<&Path>, account: &OsAccount) -> Result<PathBuf, Error> {
    // For root, TMPDIR may be a folder that only root can enter.
    let bases = below.map(Path::to_owned).into_iter().chain([env::temp_dir()]);
    let base = bases.flat_map(|base| base.canonicalize()).find(|base| account.check_reaches(base).is_ok());
    let base = base.unwrap_or_else(|| PathBuf::from("/tmp"));
    let permissions = fs::Permissions::from_mode(home_mode(account));
    let folder = tempfile::Builder::new()
        .prefix("countersign-")
        .permissions(permissions)
        .tempdir_in(&base)
        .map_err(at("create a folder in", &base))?
        .keep();
    folder.canonicalize().map_err(at("find", &folder))
}

fn make_folder(path: &Path, mode: u32) -> Result<(), Error> {
    match DirBuilder::new().mode(mode).create(path) {
        Err(_) if path.is_dir() => Ok(()),
        result => result.map_err(at("create", path)),
    }
}

fn set_mode(path: &Path, mode: u32) -> Result<(), Error> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(at("change", path))
}

/// Creates the folder of the socket. Every user who can enter it can become superuser of the server, so only the
/// server's user and root may.
fn make_socket_dir(home: &Path, short: &str, account: &OsAccount) -> Result<PathBuf, Error> {
    let inside = home.join("s");
    if is_plain(&inside) && socket_path(&inside).as_os_str().len() < SOCKET_PATH_LIMIT {
        make_folder(&inside, 0o700)?;
        set_mode(&inside, 0o700)?;
        account.own(&inside)?;
        return Ok(inside);
    }
    // Below /tmp an earlier run or another user may have taken the name. Only a folder of the server's user is
    // reused.
    let known = PathBuf::from(format!("/tmp/countersign-{}-{short}", account.uid()));
    match DirBuilder::new().mode(0o700).create(&known) {
        Ok(()) => {
            account.own(&known)?;
            return Ok(known);
        }
        Err(_) if is_private_to(&known, account) => return Ok(known),
        Err(_) => {}
    }
    let other = tempfile::Builder::new().prefix("countersign-").tempdir_in("/tmp");
    let other = other.map_err(at("create a folder in", Path::new("/tmp")))?.keep();
    account.own(&other)?;
    Ok(other)
}

/// Whether this is a folder (not a link) that belongs to the server's user and that no other user can enter.
pub(crate) fn is_private_to(folder: &Path, account: &OsAccount) -> bool {
    fs::symlink_metadata(folder)
        .is_ok_and(|found| found.is_dir() && found.uid() == account.uid() && found.mode() & 0o077 == 0)
}

/// The path of the socket in its folder.
pub(crate) fn socket_path(folder: &Path) -> PathBuf {
    folder.join(format!(".s.PGSQL.{PORT}"))
}

/// Whether the path needs no quoting in configuration files, connection strings or shells.
fn is_plain(path: &Path) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+".contains(byte);
    OsStr::as_bytes(path.as_os_str()).iter().all(plain)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// N-37
    #[test]
    fn the_environment_says_where_the_data_of_a_demo_is_also_for_root() {
        let account = OsAccount::choose().unwrap();
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
        let in_home = |folder: Option<PathBuf>| folder.is_some_and(|folder| folder.starts_with(home.path()));
        assert!(in_home(data_folder(&account, None, Some(home.path().to_owned()))));
        let xdg = home.path().join("data");
        assert_eq!(data_folder(&account, Some(xdg.clone()), Some(PathBuf::from("/"))), Some(xdg));
        if account.is_other() {
            // The server's user cannot enter this folder.
            fs::set_permissions(home.path(), Permissions::from_mode(0o700)).unwrap();
            let fallback = data_folder(&account, None, Some(home.path().to_owned()));
            assert_eq!(fallback.as_deref(), Some(Path::new("/var/lib")));
        }
    }
}
