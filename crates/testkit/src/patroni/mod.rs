//! Three nodes of Patroni over one etcd, with HAProxy before them, on this machine. The configuration is that of
//! `docs/setup/patroni.md`, so the page is what is run; only addresses, folders and the method of authentication are
//! the test's own.

mod node;
mod page;

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::json;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio_postgres::NoTls;

use crate::audit::audit;
use crate::cluster::{Database, cluster, folder_in_memory};
use crate::exclusive;
use crate::external::{self, External};
use crate::poll;

use node::{Account, Node, Reaper};
use page::{Addresses, Page};

/// What a test of [`Patroni`] needs beside PostgreSQL.
const EXTERNALS: [External; 3] = [External::Etcd, External::Patroni, External::HaProxy];

/// The programs of PostgreSQL that Patroni calls, which pinned packages lack.
const PROGRAMS: [&str; 2] = ["pg_basebackup", "pg_rewind"];

/// A failover takes the `ttl` of the page (20 s), and a node that comes back is rewound or copied.
const DEADLINE: Duration = Duration::from_secs(120);

/// The answer of a frozen node never comes.
const ANSWER: Duration = Duration::from_secs(2);

/// The name of the database, as on the page.
const DATABASE: &str = "shop";

/// A cluster of three nodes. Every process ends, and the folder is removed, when this is dropped or the test is killed.
#[derive(Debug)]
pub struct Patroni {
    _haproxy: Child,
    etcd: Option<Child>,
    nodes: Vec<Node>,
    addresses: Addresses,
    page: Page,
    is_synchronous: bool,
    database: Database,
    http: reqwest::Client,
    reaper: Reaper,
    folder: TempDir,
}

/// A node as Patroni's REST API describes it.
#[derive(Debug, Clone, Deserialize)]
pub struct Member {
    pub name: String,
    pub role: Role,
    pub state: String,
    #[serde(default)]
    timeline: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Leader,
    SyncStandby,
    Replica,
}

#[derive(Debug, Deserialize)]
struct View {
    members: Vec<Member>,
}

/// Whether the calling test must return because a program is missing. Prints which one.
#[must_use]
pub fn skip_without_patroni() -> bool {
    if external::skip_without(&EXTERNALS) {
        return true;
    }
    let binaries = cluster().binaries();
    let missing = PROGRAMS.into_iter().find(|program| !binaries.program(program).exists());
    missing.inspect(|program| external::skip_without_program(&format!("PostgreSQL has no {program}"))).is_some()
}

impl Patroni {
    /// How many nodes there are.
    pub const NODES: usize = page::NODES;

    /// Starts the cluster, and waits until both standbys stream. The demo's database has its ledger.
    pub async fn start(is_synchronous: bool) -> Self {
        exclusive::shared().await;
        let account = Account::of_postgresql();
        let folder = folder(&account);
        let addresses = Addresses::free().await;
        let page = Page::read();
        let haproxy_folder = make_folder(folder.path(), "haproxy");
        let config = haproxy_folder.join("haproxy.cfg");
        let socket = haproxy_folder.join(".s.PGSQL.5432");
        std::fs::write(&config, page.haproxy(&addresses, &socket)).expect("haproxy.cfg");
        let mut haproxy = Command::new(External::HaProxy.expected_path());
        haproxy.args(["-db", "-f"]).arg(&config).current_dir(&haproxy_folder).kill_on_drop(true);
        let haproxy = haproxy.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let nodes = (0..Self::NODES).map(|number| {
            let place = folder.path().join(page::name(number));
            let config = page.patroni(number, &addresses, &place, cluster().binaries().bindir(), is_synchronous);
            Node::new(&account, &place, &config)
        });
        let mut this = Self {
            _haproxy: haproxy.expect("HAProxy can be started"),
            etcd: None,
            nodes: nodes.collect(),
            page,
            is_synchronous,
            database: Database::behind_socket(&haproxy_folder, DATABASE),
            http: reqwest::Client::new(),
            reaper: Reaper::start(folder.path()),
            addresses,
            folder,
        };
        make_folder(this.folder.path(), "etcd");
        this.start_etcd();
        for number in 0..Self::NODES {
            this.start_node(number);
        }
        this.until_whole().await;
        this.database.beside("postgres").run(&format!("create database {DATABASE} template template0")).await;
        this.database.load_demo().await;
        audit(&this.database, &["keys", "new", "--signing-key", &this.signing_key().display().to_string()]).await;
        this
    }

    /// The key of the log.
    pub fn signing_key(&self) -> PathBuf {
        self.folder.path().join("log.key")
    }

    /// The database through HAProxy's address of the primary.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// countersign.toml of the page: the addresses of all nodes for writes, HAProxy's for reads.
    pub fn settings(&self) -> String {
        self.page.countersign(&self.addresses, &self.signing_key())
    }

    /// The same with HAProxy's address for writes, too.
    pub fn settings_through_haproxy(&self) -> String {
        self.page.countersign_through_haproxy(&self.addresses, &self.signing_key())
    }

    /// The connection string for all nodes, of another login than the page's.
    pub fn url_as(&self, login: &str) -> String {
        let hosts = self.addresses.nodes.iter().map(|node| node.postgresql.as_str()).collect::<Vec<_>>().join(",");
        format!("postgresql://{login}@{hosts}/{DATABASE}?target_session_attrs=read-write&connect_timeout=2")
    }

    /// The nodes, as the first one says that answers.
    pub async fn members(&self) -> Vec<Member> {
        for node in &self.addresses.nodes {
            let url = format!("http://{}/cluster", node.rest);
            let Ok(answer) = self.http.get(url).timeout(ANSWER).send().await else { continue };
            let Ok(view) = answer.json::<View>().await else { continue };
            return view.members;
        }
        Vec::new()
    }

    /// Waits until nobody is the primary, and every other node knows it.
    pub async fn until_without_primary(&self) {
        let is_met = async || {
            let members = self.members().await;
            members.len() + 1 == Self::NODES
                && members.iter().all(|it| it.role == Role::Replica && it.state == "running")
        };
        poll::until_within(DEADLINE, "there is no primary", is_met).await;
    }

    /// The number of a node with this role, once there is one.
    pub async fn node_with(&self, role: Role) -> usize {
        let find = async || self.members().await.into_iter().find(|member| member.role == role);
        let Member { name, .. } = poll::some_within(DEADLINE, &format!("a node is {role:?}"), find).await;
        (0..Self::NODES).find(|number| page::name(*number) == name).expect("a node of ours")
    }

    /// Waits until there is a primary, both standbys follow it, and HAProxy knows.
    pub async fn until_whole(&self) {
        let deadline = tokio::time::Instant::now() + DEADLINE;
        while !self.is_whole().await {
            assert!(tokio::time::Instant::now() < deadline, "{:?}\n{}", self.members().await, self.logs());
            tokio::time::sleep(poll::INTERVAL).await;
        }
    }

    async fn is_whole(&self) -> bool {
        let members = self.members().await;
        let leaders = members.iter().filter(|member| member.role == Role::Leader && member.state == "running");
        let [leader] = leaders.collect::<Vec<_>>()[..] else { return false };
        let follows = |member: &&Member| member.state == "streaming" && member.timeline == leader.timeline;
        let has_synchronous = members.iter().any(|member| member.role == Role::SyncStandby);
        members.iter().filter(follows).count() + 1 == Self::NODES
            && (has_synchronous || !self.is_synchronous)
            && self.all_run().await
            && self.takes_writes().await
    }

    /// Whether every node says itself that PostgreSQL runs. Patroni shows the last state of a node that has ended.
    async fn all_run(&self) -> bool {
        for node in &self.addresses.nodes {
            let asked = self.http.get(format!("http://{}/health", node.rest)).timeout(ANSWER).send().await;
            if !asked.is_ok_and(|answer| answer.status() == StatusCode::OK) {
                return false;
            }
        }
        true
    }

    /// Whether a transaction is committed through HAProxy.
    pub async fn takes_writes(&self) -> bool {
        let writes = async {
            let url = self.database.beside("postgres").url();
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await.ok()?;
            tokio::spawn(connection);
            client.batch_execute("select pg_current_xact_id()").await.ok()
        };
        matches!(tokio::time::timeout(ANSWER, writes).await, Ok(Some(())))
    }

    /// Makes a standby the primary, in good order.
    pub async fn switchover(&self) {
        let leader = page::name(self.node_with(Role::Leader).await);
        let to = if self.is_synchronous { Role::SyncStandby } else { Role::Replica };
        let candidate = page::name(self.node_with(to).await);
        let url = format!("http://{}/switchover", self.addresses.nodes[0].rest);
        let request = self.http.post(url).json(&json!({"leader": leader, "candidate": candidate}));
        let answer = request.timeout(DEADLINE).send().await.expect("Patroni answers");
        let (status, body) = (answer.status(), answer.text().await.expect("its body"));
        assert_eq!(status, StatusCode::OK, "{body}");
    }

    /// Sends a signal to the postmaster of a node, and leaves Patroni alone.
    pub fn signal_postmaster(&self, number: usize, signal: Signal) {
        self.nodes[number].signal_postmaster(signal);
    }

    /// Sends a signal to every process of a node.
    pub fn signal_node(&self, number: usize, signal: Signal) {
        self.nodes[number].signal(signal);
    }

    /// Kills every process of a node, as a loss of power does.
    pub async fn kill_node(&mut self, number: usize) {
        self.nodes[number].kill().await;
    }

    pub fn start_node(&mut self, number: usize) {
        self.nodes[number].start();
    }

    /// Starts every node that was killed.
    pub fn start_ended_nodes(&mut self) {
        self.nodes.iter_mut().filter(|node| !node.runs()).for_each(Node::start);
    }

    pub async fn kill_etcd(&mut self) {
        self.etcd.take().expect("etcd runs").kill().await.expect("etcd can be killed");
    }

    pub fn start_etcd(&mut self) {
        let (client, peer) = (&self.addresses.etcd, &self.addresses.etcd_peer);
        let mut etcd = Command::new(External::Etcd.expected_path());
        etcd.args(["--data-dir", "data", "--listen-client-urls", &format!("http://{client}")]);
        etcd.args(["--advertise-client-urls", &format!("http://{client}")]);
        etcd.args(["--listen-peer-urls", &format!("http://{peer}")]);
        etcd.args(["--initial-advertise-peer-urls", &format!("http://{peer}")]);
        etcd.args(["--initial-cluster", &format!("default=http://{peer}")]);
        etcd.current_dir(self.folder.path().join("etcd")).kill_on_drop(true);
        etcd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.etcd = Some(etcd.spawn().expect("etcd can be started"));
    }

    /// The last lines of every node's log.
    fn logs(&self) -> String {
        self.nodes.iter().map(Node::log).collect()
    }
}

impl Drop for Patroni {
    fn drop(&mut self) {
        self.reaper.end();
    }
}

/// A folder that the account of PostgreSQL can enter.
fn folder(account: &Account) -> TempDir {
    let parent = folder_in_memory().unwrap_or_else(|| Path::new("/tmp"));
    let folder = tempfile::Builder::new().prefix("cs-patroni-").tempdir_in(parent).expect("a folder");
    set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("its mode");
    account.own(folder.path());
    folder
}

fn make_folder(parent: &Path, name: &str) -> PathBuf {
    let folder = parent.join(name);
    std::fs::create_dir(&folder).expect("a folder");
    folder
}
