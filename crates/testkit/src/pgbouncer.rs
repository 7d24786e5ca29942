//! A real PgBouncer (Debian's package) between the server under test and PostgreSQL, in transaction mode.

use std::fmt::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio_postgres::NoTls;

use crate::cluster::Database;
use crate::external::External;
use crate::poll;
use crate::proxy::Proxy;

/// PgBouncer in front of the server of a database, on a separate socket. The process ends when this is dropped, and
/// also if the test is killed.
#[derive(Debug)]
pub struct PgBouncer {
    database: Database,
    folder: TempDir,
    watcher: Child,
}

/// Runs PgBouncer until the pipe from the test is closed for any reason. Restarts it if it dies, as a service manager
/// would: version 1.18 dies if a client that has sent a cancel request is killed before the answer (fixed in 1.19.1).
const WATCHER: &str = r#"
file=$1; shift
(while :; do "$@" & echo $! > "$file"; wait $!; done) &
loop=$!
cat > /dev/null
kill -9 $loop
kill -9 "$(cat "$file")"
"#;

/// The settings of `docs/setup/pgbouncer.md` that affect tests, except passwords.
const SETTINGS: [(&str, &str); 6] = [
    ("pool_mode", "transaction"),
    ("server_reset_query", "DISCARD ALL"),
    ("server_reset_query_always", "1"),
    ("server_login_retry", "1"),
    ("default_pool_size", "5"),
    ("auth_type", "trust"),
];

impl PgBouncer {
    /// Starts PgBouncer in front of the server of this database.
    pub async fn start(database: &Database) -> Self {
        Self::with(database, &[]).await
    }

    /// Starts PgBouncer with these settings instead.
    pub async fn with(database: &Database, settings: &[(&str, &str)]) -> Self {
        Self::to(database, &database.cluster().socket_dir(), settings).await
    }

    /// Starts PgBouncer in front of a proxy, with other settings.
    pub async fn before(proxy: &Proxy, database: &Database, settings: &[(&str, &str)]) -> Self {
        Self::to(database, proxy.folder(), settings).await
    }

    /// Starts PgBouncer with this pgbouncer.ini, except for paths and the password file, which are the test's own.
    pub async fn documented(database: &Database, ini: &str, users: &str) -> Self {
        let folder = folder();
        let (place, port) = (folder.path().display().to_string(), database.cluster().port().to_string());
        let server = format!("host={} port={port}", database.cluster().socket_dir().display());
        let places = [
            ("shop = ", format!("{} = ", database.name())),
            ("host=127.0.0.1 port=5432", server),
            ("listen_addr = 127.0.0.1\n", String::new()),
            ("listen_port = 6432", format!("listen_port = {port}")),
            ("/etc/pgbouncer/userlist.txt", format!("{place}/users")),
            ("unix_socket_dir = /var/run/postgresql", format!("unix_socket_dir = {place}")),
            ("/var/log/postgresql/pgbouncer.log", format!("{place}/log")),
            ("/var/run/postgresql/pgbouncer.pid", format!("{place}/pid")),
        ];
        let ini = places.iter().fold(ini.to_owned(), |ini, (from, to)| {
            assert!(ini.contains(from), "{from} is not in {ini}");
            ini.replace(from, to)
        });
        Self::run(database, folder, &ini, users).await
    }

    async fn to(database: &Database, server: &Path, settings: &[(&str, &str)]) -> Self {
        let folder = folder();
        let (place, port) = (folder.path().display(), database.cluster().port());
        let mut ini = format!(
            "[databases]\n* = host={} port={port}\n[pgbouncer]\nlisten_port = {port}\nunix_socket_dir = {place}\n\
             auth_file = {place}/users\nlogfile = {place}/log\nadmin_users = postgres\n",
            server.display()
        );
        let given = SETTINGS.iter().filter(|(name, _)| settings.iter().all(|(other, _)| other != name)).chain(settings);
        given.for_each(|(name, value)| writeln!(ini, "{name} = {value}").expect("a string takes it"));
        let users = ["postgres", ledger::DEFAULT_WRITER, "countersign_reader", "countersign_caller"]
            .map(|user| format!("\"{user}\" \"\"\n"));
        Self::run(database, folder, &ini, &users.concat()).await
    }

    async fn run(database: &Database, folder: TempDir, ini: &str, users: &str) -> Self {
        std::fs::write(folder.path().join("ini"), ini).expect("its settings");
        std::fs::write(folder.path().join("users"), users).expect("its users");
        // PgBouncer and PostgreSQL both refuse to run as root, so it runs as the owner of the data.
        let owner = std::fs::metadata(database.cluster().data_dir()).expect("PostgreSQL's data");
        chown(folder.path(), Some(owner.uid()), Some(owner.gid())).expect("its own folder");
        let watcher = run(database, &folder);
        let started = Self { database: database.clone(), folder, watcher };
        started.until_it_listens().await;
        started
    }

    pub fn database(&self) -> &Database {
        &self.database
    }

    /// The folder of the pooler's socket.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The connection string through the pooler, for the login that `init` creates for servers.
    pub fn url(&self) -> String {
        self.url_of(ledger::DEFAULT_WRITER)
    }

    /// Connection string through the pooler for this user.
    pub fn url_of(&self, user: &str) -> String {
        let (folder, port) = (self.folder.path().display(), self.database.cluster().port());
        format!("host={folder} port={port} user={user} dbname={}", self.database.name())
    }

    /// Opens a connection for the test itself, as this user.
    pub async fn connect(&self, user: &str) -> tokio_postgres::Client {
        let (client, connection) =
            tokio_postgres::connect(&self.url_of(user), NoTls).await.expect("a connection for the test");
        tokio::spawn(connection);
        client
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("its log")
    }

    /// Kills PgBouncer at an arbitrary moment, and waits until its successor listens.
    pub async fn crash(&self) {
        let pid = std::fs::read_to_string(self.folder.path().join("running")).expect("its process id");
        let pid = pid.trim().parse().unwrap_or_else(|_| panic!("a process id, not {pid:?}"));
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("a process of ours");
        self.until_it_listens().await;
    }

    /// Waits until PgBouncer connects to PostgreSQL again. After a failed connection it tries no other for a second
    /// (`server_login_retry`), and refuses new clients meanwhile.
    pub async fn until_ready(&self) {
        for login in [ledger::DEFAULT_WRITER, "countersign_reader", "countersign_caller"] {
            let serves = poll::within_deadline(async || self.serves(login).await.then_some(())).await;
            serves.unwrap_or_else(|| panic!("PgBouncer does not reach PostgreSQL: {}", self.log()));
        }
    }

    async fn serves(&self, login: &str) -> bool {
        let Ok((client, connection)) = tokio_postgres::connect(&self.url_of(login), NoTls).await else { return false };
        tokio::spawn(connection);
        client.simple_query("select 1").await.is_ok()
    }

    fn end(&mut self) {
        drop(self.watcher.stdin.take());
        self.watcher.wait().expect("its watcher ends");
    }

    async fn until_it_listens(&self) {
        let socket = self.folder.path().join(format!(".s.PGSQL.{}", self.database.cluster().port()));
        let listens = poll::within_deadline(async || UnixStream::connect(&socket).await.ok()).await;
        listens.unwrap_or_else(|| panic!("PgBouncer does not start: {}", self.log()));
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        self.end();
    }
}

fn folder() -> TempDir {
    tempfile::Builder::new()
        .prefix("cs-pooler-")
        .permissions(PermissionsExt::from_mode(0o755))
        .tempdir_in("/tmp")
        .expect("a short folder")
}

fn run(database: &Database, folder: &TempDir) -> Child {
    let owner = std::fs::metadata(database.cluster().data_dir()).expect("PostgreSQL's data");
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", WATCHER, "watcher"])
        .arg(folder.path().join("running"))
        .arg(External::PgBouncer.expected_path())
        .arg("-q")
        .arg(folder.path().join("ini"));
    command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    if nix::unistd::geteuid().is_root() {
        command.uid(owner.uid()).gid(owner.gid());
    }
    // Ctrl-C goes only to the test, which ends PgBouncer through the pipe.
    command.process_group(0).spawn().expect("a shell")
}
