//! Other MCP servers for PostgreSQL, from npm, over stdio (`tests/peers`). They run with `COUNTERSIGN_BENCH_PEERS=1`, which
//! installs them into `target/peers`; a missing one is skipped, in a line that says so.
//!
//! Each has its own defaults: the pool, and what a call runs around the text. None refuses a write by a plan.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use testkit::{Database, external, repository};
use tokio::process::Command;

use crate::call::Call;
use crate::stdio::StdioServer;

/// The variable that asks for the peers.
const VARIABLE: &str = "COUNTERSIGN_BENCH_PEERS";

/// A program or a script of a package, and the name of its tool that runs SQL.
struct Peer {
    name: &'static str,
    program: &'static str,
    tool: &'static str,
    writes: bool,
    configure: fn(&mut Command, &Database, &Path),
}

const PEERS: [Peer; 3] = [
    Peer {
        name: "toolbox",
        // The program that the script of @toolbox-sdk/server starts.
        program: "@toolbox-sdk/server-linux-x64/bin/toolbox",
        tool: "execute_sql",
        writes: true,
        configure: |command, db, folder| {
            let config = folder.join("toolbox.json");
            fs::write(&config, toolbox_config(db)).expect("a file for the toolbox");
            command.arg("--config").arg(config).args(["--stdio", "--disable-version-check", "--disable-reload"]);
        },
    },
    Peer {
        name: "dbhub",
        program: "@bytebase/dbhub/dist/index.js",
        tool: "execute_sql",
        writes: true,
        configure: |command, db, _| {
            // Its connection strings have no place for the folder of a socket; libpq's variables have.
            command.env("PGHOST", db.cluster().socket_dir());
            command.args(["--transport", "stdio", "--dsn"]);
            command.arg(format!("postgres://postgres@:{}/{}", db.cluster().port(), db.name()));
        },
    },
    Peer {
        name: "server-postgres",
        program: "@modelcontextprotocol/server-postgres/dist/index.js",
        tool: "query",
        writes: false,
        configure: |command, db, _| {
            let (port, socket) = (db.cluster().port(), db.cluster().socket_dir());
            command.arg(format!("postgres://postgres@localhost:{port}/{}?host={}", db.name(), socket.display()));
        },
    },
];

/// The toolbox reads YAML, of which JSON is a part.
fn toolbox_config(db: &Database) -> String {
    let source = json!({
        "kind": "postgres",
        "host": "localhost",
        "port": db.cluster().port(),
        "database": db.name(),
        "user": "postgres",
        "password": "unused",
        "queryParams": {"host": db.cluster().socket_dir()},
    });
    let tool = json!({"kind": "postgres-execute-sql", "source": "bench", "description": "Runs SQL."});
    json!({"sources": {"bench": source}, "tools": {"execute_sql": tool}}).to_string()
}

/// Starts the peers that there are, if the variable asks for them.
pub(crate) async fn start(db: &Database) -> Vec<(&'static str, StdioServer)> {
    let mut started = Vec::new();
    if env::var_os(VARIABLE).is_none_or(|value| value == "0") {
        println!("without peers: {VARIABLE}=1 installs them by npm and compares with them");
        return started;
    }
    let folder = match install().await {
        Ok(folder) => folder,
        Err(reason) => {
            println!("SKIPPED all peers: {reason}");
            return started;
        }
    };
    for peer in PEERS {
        match peer.start(db, &folder).await {
            Ok(server) => started.push((peer.name, server)),
            Err(reason) => println!("SKIPPED {}: {reason}", peer.name),
        }
    }
    started
}

impl Peer {
    async fn start(&self, db: &Database, folder: &Path) -> Result<StdioServer, String> {
        let mut command = self.command(&folder.join("node_modules"))?;
        (self.configure)(&mut command, db, folder);
        let log = fs::File::create(folder.join(format!("{}.log", self.name))).map_err(|error| error.to_string())?;
        command.stderr(log);
        let mut server = StdioServer::start(command, Some(self.tool)).await?;
        server.writes = self.writes;
        server.run(&Call::Large).await;
        Ok(server)
    }

    fn command(&self, modules: &Path) -> Result<Command, String> {
        let program = modules.join(self.program);
        if !program.exists() {
            return Err(format!("{} is missing", program.display()));
        }
        if program.extension().is_some_and(|extension| extension == "js") {
            let mut command = Command::new(external::node(modules).ok_or("there is no Node.js")?);
            command.arg(program);
            return Ok(command);
        }
        // The package has it without the permission.
        fs::set_permissions(&program, Permissions::from_mode(0o755)).map_err(|error| error.to_string())?;
        Ok(Command::new(program))
    }
}

/// Installs the packages of `tests/peers` as its lock file has them. Returns their folder. No script of theirs runs.
async fn install() -> Result<PathBuf, String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    // target/release/deps/calls-...
    let target = program.ancestors().nth(3).ok_or("there is no target folder")?;
    let (folder, listed) = (target.join("peers"), repository().join("tests/peers"));
    let copy = |name: &str| fs::copy(listed.join(name), folder.join(name));
    let lock = fs::read(listed.join("package-lock.json")).map_err(|error| error.to_string())?;
    let installed = folder.join("node_modules/.installed");
    if fs::read(&installed).is_ok_and(|installed| installed == lock) {
        return Ok(folder);
    }
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    [".npmrc", "package.json", "package-lock.json"]
        .into_iter()
        .try_for_each(|name| copy(name).map(|_| ()))
        .map_err(|error| error.to_string())?;
    let mut npm = Command::new("npm");
    npm.current_dir(&folder).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
    let output = npm.output().await.map_err(|error| format!("npm: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("npm: {}", said.lines().take(5).collect::<Vec<_>>().join(" ")));
    }
    fs::write(&installed, &lock).map_err(|error| error.to_string())?;
    Ok(folder)
}
