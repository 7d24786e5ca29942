//! One cluster for each test binary and one database for each test. Tests that kill PostgreSQL get a separate cluster.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use ledger::ConnectOptions;
use nix::sys::signal::{Signal, kill};
use nix::sys::statvfs::statvfs;
use nix::unistd::Pid;
use pg_embedded::{Cluster, Error, Options, PackageManager, Search};
use tokio::sync::OnceCell;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::background::background;
use crate::exclusive;
use crate::external;
use crate::idle_connection::IdleConnection;
use crate::long_form;
use crate::poll;

/// The cluster of this test binary. It ends with the process.
pub fn cluster() -> &'static Arc<Cluster> {
    static CLUSTER: OnceLock<Arc<Cluster>> = OnceLock::new();
    CLUSTER.get_or_init(|| Arc::new(start(options())))
}

fn options() -> Options {
    let options = match folder_in_memory() {
        Some(folder) => Options::ephemeral_below(folder),
        None => Options::ephemeral(),
    };
    options.setting("max_connections", "300")
}

/// The folder in which Linux keeps files in memory, if it has enough space for clusters: each test copies a database
/// of 15 MB, and each test that kills PostgreSQL a whole cluster.
pub(crate) fn folder_in_memory() -> Option<&'static Path> {
    const ROOM_BYTES: u64 = 6 << 30;
    let folder = Path::new("/dev/shm");
    let of_folder = statvfs(folder).ok()?;
    let free_bytes = of_folder.blocks_available() * of_folder.fragment_size();
    let memory = fs::read_to_string("/proc/meminfo").ok()?;
    let available = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let available_kib: u64 = available.trim().strip_suffix(" kB")?.parse().ok()?;
    (free_bytes.min(available_kib << 10) > ROOM_BYTES).then_some(folder)
}

/// Starts a cluster of the version that the tests run on. It blocks. If that version cannot be had, the process ends.
pub fn start(options: Options) -> Cluster {
    let options = match long_form::variable(external::POSTGRESQL_VERSION) {
        Some(major) => options.search(Search {
            major: u32::try_from(major).ok(),
            ..Search::only_packages(&[PackageManager::Npm, PackageManager::Pip], None)
        }),
        None => options,
    };
    match Cluster::start(options, &mut |_| {}) {
        Ok(cluster) => cluster,
        Err(Error::NoPostgres { tried, .. }) => external::end_without_postgresql(&tried.join("; ")),
        Err(error) => panic!("no PostgreSQL cluster for the tests: {error}"),
    }
}

/// The schemas of the demo, with the SQL that creates and fills each.
const SCHEMAS: [(&str, [&str; 2]); 2] = [
    (
        "social",
        [include_str!("../../../manifests/social/schema.sql"), include_str!("../../../manifests/social/seed.sql")],
    ),
    (
        "studio",
        [include_str!("../../../manifests/studio/schema.sql"), include_str!("../../../manifests/studio/seed.sql")],
    ),
];

/// A database with the ledger and the demo's schemas, for one test.
pub async fn database() -> Database {
    exclusive::shared().await;
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    load_template().await;
    create(maintenance(), &format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed)), TEMPLATE).await.for_one_test()
}

const TEMPLATE: &str = "template_demo";

/// Loads the ledger and the demo into the template. The first `init` of a cluster names the reader's login, which
/// tests that use the template expect, so it must be this one.
async fn load_template() {
    static TEMPLATE_LOADED: OnceCell<()> = OnceCell::const_new();
    // PostgreSQL copies only a database without connections, so no handle of the template is kept.
    TEMPLATE_LOADED.get_or_init(async || create(maintenance(), TEMPLATE, EMPTY).await.load_demo().await).await;
}

/// Creates a database on a separate cluster, which the test may kill. The cluster ends with the last of its databases.
pub async fn lone_database() -> Database {
    lone_database_with(&[]).await
}

/// Like [`lone_database`], with these settings of the server.
pub async fn lone_database_with(settings: &[(&str, &str)]) -> Database {
    exclusive::shared().await;
    start_copy(options().settings(settings)).await
}

/// Like [`lone_database`], but on the disk, for which each COMMIT waits.
pub async fn lone_database_on_disk() -> Database {
    let settings = [("fsync", "on"), ("shared_buffers", "256MB"), ("max_wal_size", "8GB")];
    start_copy(Options::ephemeral().settings(&settings)).await
}

async fn start_copy(options: Options) -> Database {
    let options = options.copy_of(stopped_cluster().await.data_dir());
    let cluster = tokio::task::spawn_blocking(|| Arc::new(start(options))).await.expect("a cluster");
    Database::there(&cluster, LONE)
}

/// PostgreSQL's own empty template.
const EMPTY: &str = "template0";

/// The port of a database that is no cluster of the tests'.
const PORT: u16 = 5432;

/// The name of the database of a lone cluster.
const LONE: &str = "lone";

/// A stopped cluster with the demo's database. Every lone cluster begins with a copy of its data folder. It is
/// removed when the process ends.
async fn stopped_cluster() -> &'static Arc<Cluster> {
    static STOPPED: OnceCell<Arc<Cluster>> = OnceCell::const_new();
    let stop = async || {
        let cluster = tokio::task::spawn_blocking(|| Arc::new(start(options()))).await.expect("a cluster");
        create(&Database::there(&cluster, "postgres"), LONE, EMPTY).await.load_demo().await;
        // SIGINT writes a checkpoint, so a copy starts without recovery.
        kill(Pid::from_raw(cluster.pid()), Signal::SIGINT).expect("a server of ours");
        poll::until("the server has stopped", async || !cluster.is_alive()).await;
        cluster
    };
    STOPPED.get_or_init(stop).await
}

/// The database of the shared cluster in which others are created and dropped.
fn maintenance() -> &'static Database {
    static MAINTENANCE: LazyLock<Database> = LazyLock::new(|| Database::existing("postgres"));
    &MAINTENANCE
}

async fn create(maintenance: &Database, name: &str, template: &str) -> Database {
    // CREATE DATABASE locks its template: tests of one binary take turns.
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _turn = TURN.lock().await;
    // By default, version 15 and later write the copy to the WAL, which takes twice the time.
    let strategy = if maintenance.cluster().version().major >= 15 { " strategy file_copy" } else { "" };
    maintenance.run(&format!("create database {name} template {template}{strategy}")).await;
    let made = maintenance.beside(name);
    if maintenance.cluster().version().major < 15 {
        // As from version 15 on: reads do not search a schema in which PUBLIC may create objects.
        made.run("alter schema public owner to pg_database_owner; revoke create on schema public from public").await;
    }
    if template != EMPTY {
        // The copy must have a ledger and a log of its own.
        made.run("select countersign.fork(); select countersign.seal(1000)").await;
    }
    made
}

/// Where a database is.
#[derive(Debug, Clone)]
enum Place {
    Cluster(Arc<Cluster>),
    /// Behind a socket in this folder, by which several nodes are reached.
    Socket(Arc<Path>),
}

/// A database of a test cluster. If it was created for a test, it is dropped with the last clone of its handle.
#[derive(Debug, Clone)]
pub struct Database {
    place: Place,
    name: String,
    idle_connection: Arc<IdleConnection>,
    made: Option<Arc<Made>>,
}

/// A database that was created for a test. Some hundreds of them, ten megabytes each, would fill a small disk.
#[derive(Debug)]
struct Made {
    name: String,
}

impl Drop for Made {
    /// Drops the database in the background, because nothing can be awaited here. A database that is left over ends
    /// with the cluster.
    fn drop(&mut self) {
        let statement = format!("drop database {} with (force)", self.name);
        background().spawn(async move {
            let Database { idle_connection, .. } = maintenance();
            let _cluster_gone = idle_connection.simple_query(&maintenance().url(), &statement).await;
        });
    }
}

impl Database {
    /// An empty database: no ledger, no demo.
    pub async fn empty(name: &str) -> Self {
        exclusive::shared().await;
        load_template().await;
        create(maintenance(), name, EMPTY).await.for_one_test()
    }

    /// An existing database on the cluster of this test binary.
    pub fn existing(name: &str) -> Self {
        Self::there(cluster(), name)
    }

    /// Another existing database on the same cluster.
    pub fn beside(&self, name: &str) -> Self {
        Self::at(self.place.clone(), name)
    }

    /// The database of the same name on another cluster.
    pub(crate) fn on(&self, cluster: &Arc<Cluster>) -> Self {
        Self::there(cluster, &self.name)
    }

    fn for_one_test(mut self) -> Self {
        self.made = Some(Arc::new(Made { name: self.name.clone() }));
        self
    }

    /// A database of a cluster that others have started, behind the socket of port 5432 in this folder.
    pub(crate) fn behind_socket(folder: &Path, name: &str) -> Self {
        Self::at(Place::Socket(folder.into()), name)
    }

    fn there(cluster: &Arc<Cluster>, name: &str) -> Self {
        Self::at(Place::Cluster(Arc::clone(cluster)), name)
    }

    fn at(place: Place, name: &str) -> Self {
        Self { place, name: name.to_owned(), idle_connection: Arc::default(), made: None }
    }

    pub(crate) async fn load_demo(&self) {
        let target = self.target();
        ledger::init(&target, &ledger::InitOptions::default()).await.expect("the ledger's schema");
        for (schema, texts) in SCHEMAS {
            ledger::load_once(&target, schema, &texts).await.expect("the demo's data");
        }
        // The tools of studio.toml declare no undo, so their tables are tracked. Those of social.toml declare one,
        // and are also tested without recorded effects.
        let studio = ledger::TableNames { tables: Vec::new(), schema: Some("studio".to_owned()), changed: false };
        ledger::track(&target, &studio, &ledger::TrackOptions::default(), &|_, _| ()).await.expect("tracked tables");
        // Servers log in as the writer, which needs privileges on the tables that a test creates.
        let writer = ledger::DEFAULT_WRITER;
        self.run(&format!(
            "alter default privileges grant usage on schemas to {writer};
             alter default privileges grant select, insert, update, delete on tables to {writer};
             alter default privileges grant usage on sequences to {writer}"
        ))
        .await;
    }

    /// The cluster of the database, which must be one of the tests'.
    pub fn cluster(&self) -> &Arc<Cluster> {
        match &self.place {
            Place::Cluster(cluster) => cluster,
            Place::Socket(folder) => panic!("what is behind {} is no cluster of the tests", folder.display()),
        }
    }

    /// The folder of the server's socket.
    pub fn socket_dir(&self) -> PathBuf {
        match &self.place {
            Place::Cluster(cluster) => cluster.socket_dir(),
            Place::Socket(folder) => folder.to_path_buf(),
        }
    }

    /// The port, which is part of the socket's name.
    pub fn port(&self) -> u16 {
        match &self.place {
            Place::Cluster(cluster) => cluster.port(),
            Place::Socket(_) => PORT,
        }
    }

    /// The connection string for the login that `init` creates for servers.
    pub fn writer_url(&self) -> String {
        self.url_as(ledger::DEFAULT_WRITER)
    }

    /// The connection string for another login.
    pub fn url_as(&self, login: &str) -> String {
        self.url().replace("user=postgres", &format!("user={login}"))
    }

    /// Creates a login of this database that is a member of `group`. Returns its connection string.
    pub async fn login(&self, name: &str, group: &str) -> String {
        let login = format!("{name}_{}", self.name);
        self.run(&format!("create role {login} login in role {group}")).await;
        self.url_as(&login)
    }

    /// The connection string for the superuser.
    pub fn url(&self) -> String {
        match &self.place {
            Place::Cluster(cluster) => cluster.connection_string(&self.name),
            Place::Socket(folder) => {
                format!("host={} port={PORT} user=postgres dbname={}", folder.display(), self.name)
            }
        }
    }

    /// Parsed form of [`Database::url`].
    pub fn target(&self) -> ConnectOptions {
        ConnectOptions::parse(&self.url()).expect("our own connection string")
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Opens a connection for the test itself.
    pub async fn connect(&self) -> tokio_postgres::Client {
        connect(&self.url()).await
    }

    /// Locks a table, so that nobody else can use it until the lock is released or dropped.
    pub async fn lock(&self, table: &str) -> TableLock {
        let client = self.connect().await;
        let sql = format!("begin; lock table {table} in access exclusive mode");
        client.batch_execute(&sql).await.expect("a lock for the test");
        TableLock(client)
    }

    /// Runs statements as the superuser, in a session without state of an earlier one.
    pub async fn run(&self, sql: &str) {
        self.simple_query(sql).await;
    }

    /// The rows of a query, as text. NULL is the text `NULL`.
    pub async fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        let messages = self.simple_query(sql).await;
        messages
            .iter()
            .filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => {
                    Some((0..row.len()).map(|index| row.get(index).unwrap_or("NULL").to_owned()).collect())
                }
                _ => None,
            })
            .collect()
    }

    async fn simple_query(&self, sql: &str) -> Vec<SimpleQueryMessage> {
        let result = self.idle_connection.simple_query(&self.url(), sql).await;
        result.unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    }

    /// Polls a query until it returns a row. Returns the first value of that row.
    pub async fn first_value(&self, sql: &str) -> String {
        let first = async || Some(self.rows(sql).await.into_iter().next()?.into_iter().next()?);
        poll::until_some(sql, first).await
    }

    /// Polls a query until it returns this value.
    pub async fn until_value(&self, sql: &str, wanted: &str) {
        poll::until(&format!("{wanted} from {sql}"), async || self.value(sql).await == wanted).await;
    }

    /// Starts a server, and waits until it has done what every server does each minute: for tests that count the work of a
    /// call. It notes its key last.
    pub async fn settled<S>(&self, starting: impl Future<Output = S>) -> S {
        self.run("delete from countersign.fingerprint_key").await;
        let server = starting.await;
        self.first_value("select 1 from countersign.fingerprint_key").await;
        server
    }

    pub async fn value(&self, sql: &str) -> String {
        self.rows(sql).await.remove(0).remove(0)
    }

    /// Every row of every table of the demo's social network, to compare before and after.
    pub async fn social(&self) -> Vec<Vec<String>> {
        self.contents("social").await
    }

    /// Every row of every table of a schema, to compare before and after.
    pub async fn contents(&self, schema: &str) -> Vec<Vec<String>> {
        let tables = format!("select tablename from pg_tables where schemaname = '{schema}' order by 1");
        let mut all = Vec::new();
        for table in self.rows(&tables).await {
            let name = &table[0];
            let sql = format!("select '{name}', t::text from {schema}.\"{name}\" t order by t::text");
            all.extend(self.rows(&sql).await);
        }
        all
    }
}

/// A table that a session of the test has locked.
pub struct TableLock(tokio_postgres::Client);

impl TableLock {
    pub async fn release(self) {
        self.0.batch_execute("rollback").await.expect("the end of the lock");
    }
}

/// A connection for a test, without TLS.
pub async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection for the test");
    tokio::spawn(connection);
    client
}
