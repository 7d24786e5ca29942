//! Every form of connection setting that libpq accepts: each connects, and to the server that it names.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::unistd::{User, geteuid};
use serde_json::json;
use testkit::{ConfigDir, Database, Server, countersign, lone_database, repository};
use tokio::net::{TcpListener, UnixStream};
use tokio::process::Command;

use crate::samples::sample;

/// A port that leads to PostgreSQL's socket, and tells how many have come by.
pub(crate) struct Port {
    address: SocketAddr,
    came: Arc<AtomicUsize>,
}

impl Port {
    /// `None` if the machine has no such address.
    pub(crate) async fn on(address: &str, db: &Database) -> Option<Self> {
        let listener = TcpListener::bind((address, 0)).await.ok()?;
        let address = listener.local_addr().unwrap();
        let came = Arc::new(AtomicUsize::new(0));
        let socket = db.cluster().socket_dir().join(format!(".s.PGSQL.{}", db.cluster().port()));
        let counter = Arc::clone(&came);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::SeqCst);
                let Ok(mut server) = UnixStream::connect(&socket).await else { continue };
                tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut server).await });
            }
        });
        Some(Self { address, came })
    }

    pub(crate) fn take(&self) -> usize {
        self.came.swap(0, Ordering::SeqCst)
    }

    pub(crate) fn number(&self) -> u16 {
        self.address.port()
    }
}

/// `countersign check` with this connection string and these variables, and nothing else that libpq would look at.
fn check(home: &std::path::Path, url: Option<&str>, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(countersign());
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("COUNTERSIGN_") || name.starts_with("PG") || name == "DATABASE_URL" {
            command.env_remove(name);
        }
    }
    command.env("HOME", home).envs(url.map(|url| ("DATABASE_URL", url))).envs(variables.iter().copied());
    command.args(["check", "--manifest"]).arg(repository().join("manifests/social.toml")).kill_on_drop(true);
    command
}

async fn connects(command: &mut Command, what: &str) {
    let output: Output = command.output().await.unwrap();
    assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
}

async fn is_refused(command: &mut Command, said: &[&str]) {
    let output: Output = command.output().await.unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{said:?} should have been refused");
    assert!(output.stdout.is_empty() && !error.contains("hunter2") && !error.contains("panicked"), "{error}");
    for said in said {
        assert!(error.contains(said), "\"{said}\" is missing in: {error}");
    }
}

/// A port without a listener.
fn dead_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_form_connects_to_the_place_that_it_names() {
    let db = lone_database().await;
    let home = tempfile::tempdir().unwrap();
    let socket = db.cluster().socket_dir().display().to_string();
    let encoded = socket.replace('/', "%2F");
    let (v4, v6) = (Port::on("127.0.0.1", &db).await.unwrap(), Port::on("::1", &db).await);
    let (p4, dead) = (v4.number(), dead_port());
    let services = home.path().join("services");
    std::fs::write(&services, format!("[shop]\nhost=127.0.0.1\nport={p4}\nuser=postgres\ndbname=lone\n")).unwrap();
    let services = services.to_str().unwrap();

    for (url, variables, is_tcp) in [
        (format!("postgresql://postgres@127.0.0.1:{p4}/lone"), &[] as &[(&str, &str)], true),
        (format!("postgres://postgres@localhost:{p4}/lone?sslmode=prefer"), &[], true),
        (format!("postgresql://postgres@{encoded}:5432/lone"), &[], false),
        (format!("postgresql://postgres@{encoded}/lone"), &[], false),
        (format!("postgresql:///lone?host={socket}&user=postgres"), &[], false),
        (format!("host='{socket}' user = postgres dbname= lone"), &[], false),
        (format!("host=name.invalid hostaddr=127.0.0.1 port={p4} user=postgres dbname=lone"), &[], true),
        (format!("hostaddr=127.0.0.1 port={p4} user=postgres dbname=lone"), &[], true),
        (format!("postgresql://postgres@127.0.0.1:{dead},127.0.0.1:{p4}/lone"), &[], true),
        (format!("postgresql://postgres@%2Fnowhere,127.0.0.1:{p4}/lone"), &[], true),
        (format!("host=no..name,127.0.0.1 port={p4} user=postgres dbname=lone"), &[], true),
        (format!("host=127.0.0.1,{socket} port={dead},5432 user=postgres dbname=lone"), &[], false),
        (
            format!("host=127.0.0.1,127.0.0.1 port={dead},{p4} user=postgres dbname=lone load_balance_hosts=random"),
            &[],
            true,
        ),
        ("user=postgres dbname=lone".to_owned(), &[("PGHOST", &socket)], false),
        ("service=shop".to_owned(), &[("PGSERVICEFILE", services)], true),
        (format!("postgresql:///?service=shop&servicefile={services}&host={encoded}&port=5432"), &[], false),
        (
            format!(
                "postgresql://postgres@127.0.0.1:{p4}/lone?keepalives_idle=30&tcp_user_timeout=9000&connect_timeout=9"
            ),
            &[],
            true,
        ),
    ] {
        v4.take();
        connects(&mut check(home.path(), Some(&url), variables), &url).await;
        assert_eq!(v4.take() > 0, is_tcp, "{url}");
    }
    if let Some(v6) = v6 {
        for url in [
            format!("postgresql://postgres@[::1]:{}/lone", v6.number()),
            format!("host=::1 port={} user=postgres dbname=lone", v6.number()),
        ] {
            connects(&mut check(home.path(), Some(&url), &[]), &url).await;
            assert!(v6.take() > 0, "{url}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_variables_of_libpq_are_enough_and_the_default_user_is_the_os_user() {
    let db = lone_database().await;
    let home = tempfile::tempdir().unwrap();
    let socket = db.cluster().socket_dir().display().to_string();
    let me = User::from_uid(geteuid()).unwrap().expect("a user with a name").name;
    if me != "postgres" {
        db.run(&format!("create role \"{me}\" superuser login")).await;
        db.run(&format!("create database \"{me}\" template lone")).await;
    }
    connects(&mut check(home.path(), None, &[("PGHOST", &socket), ("PGDATABASE", "lone")]), "PGHOST").await;
    if me != "postgres" {
        connects(&mut check(home.path(), None, &[("PGHOST", &socket)]), "the database named like the user").await;
    }
    std::fs::write(home.path().join(".pg_service.conf"), format!("[s]\nhost={socket}\ndbname=lone\n")).unwrap();
    connects(&mut check(home.path(), None, &[("PGSERVICE", "s"), ("PGAPPNAME", "mine")]), "PGSERVICE").await;
    let variables = [("PGHOST", socket.as_str()), ("PGDATABASE", "lone"), ("PGOPTIONS", "-c geqo=hunter2")];
    is_refused(&mut check(home.path(), None, &variables), &["geqo"]).await;
    let variables = [("PGHOST", socket.as_str()), ("PGDATABASE", "lone"), ("PGTARGETSESSIONATTRS", "standby")];
    is_refused(&mut check(home.path(), None, &variables), &["it is a primary", "target_session_attrs"]).await;
    let variables = [("PGHOST", socket.as_str()), ("PGSSLMODE", "hunter2")];
    is_refused(&mut check(home.path(), None, &variables), &["PGSSLMODE", "verify-full"]).await;
    // The owner of the socket is checked, too.
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(db.cluster().data_dir()).unwrap());
    let owner = User::from_uid(owner.into()).unwrap().expect("the server's user").name;
    let url = db.url();
    connects(&mut check(home.path(), Some(&format!("{url} requirepeer={owner}")), &[]), "requirepeer").await;
    is_refused(&mut check(home.path(), Some(&format!("{url} requirepeer=nobody-here")), &[]), &["requirepeer", &owner])
        .await;
}

/// Makes the server ask `guarded` for its password, which is `right`.
async fn guard(db: &Database) {
    db.run("create role guarded superuser login password 'right'").await;
    let hba = "local all guarded scram-sha-256\nlocal all all trust\n";
    std::fs::write(db.cluster().data_dir().join("pg_hba.conf"), hba).unwrap();
    let cluster = Arc::clone(db.cluster());
    tokio::task::spawn_blocking(move || cluster.restart()).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_comes_from_the_file_that_libpq_reads_and_is_never_shown() {
    let db = lone_database().await;
    guard(&db).await;
    let home = tempfile::tempdir().unwrap();
    let url = db.url_as("guarded");
    let write = |name: &str, text: &str, mode: u32| -> PathBuf {
        let path = home.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let socket = db.cluster().socket_dir().display().to_string();
    is_refused(&mut check(home.path(), Some(&url), &[]), &["Authentication failed", "none is given"]).await;
    connects(&mut check(home.path(), Some(&url), &[("PGPASSWORD", "right")]), "PGPASSWORD").await;

    let fitting = format!("# a comment\n*:*:other:guarded:hunter2\n{socket}:5432:lone:guarded:right\n");
    write(".pgpass", &fitting, 0o600);
    connects(&mut check(home.path(), Some(&url), &[]), "~/.pgpass").await;
    let own = write("passwords", "*:*:*:guarded:right\n", 0o600);
    connects(&mut check(home.path(), Some(&format!("{url} passfile={}", own.display())), &[]), "passfile").await;
    let own = own.to_str().unwrap();
    connects(&mut check(home.path(), Some(&url), &[("PGPASSFILE", own)]), "PGPASSFILE").await;

    write("passwords", "*:*:*:guarded:right\n", 0o640);
    is_refused(&mut check(home.path(), Some(&url), &[("PGPASSFILE", own)]), &[own, "others may read it", "0600"]).await;
    write("passwords", "*:*:*:somebody:hunter2\n", 0o600);
    is_refused(&mut check(home.path(), Some(&url), &[("PGPASSFILE", own)]), &[own, "no line of it fits", "guarded"])
        .await;
    write("passwords", "*:*:*:*:hunter2\n", 0o600);
    is_refused(&mut check(home.path(), Some(&url), &[("PGPASSFILE", own)]), &["Authentication failed", own]).await;
    // Of the ways in which a server may ask, only those that are allowed get an answer.
    let right = format!("{url} password=right");
    connects(&mut check(home.path(), Some(&format!("{right} require_auth=scram-sha-256")), &[]), "require_auth").await;
    is_refused(&mut check(home.path(), Some(&format!("{right} require_auth=md5")), &[]), &["asks by scram-sha-256"])
        .await;
    is_refused(&mut check(home.path(), Some(&db.url()), &[("PGREQUIREAUTH", "!none")]), &["without asking"]).await;
    // Without TLS there is nothing that a login could be tied to.
    is_refused(&mut check(home.path(), Some(&format!("{right} channel_binding=require")), &[]), &["not encrypted"])
        .await;
    is_refused(&mut check(home.path(), Some(&format!("{} channel_binding=require", db.url())), &[]), &["SCRAM"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_prints_the_password_and_a_changed_one_needs_no_restart() {
    let db = lone_database().await;
    guard(&db).await;
    db.run("alter role guarded nosuperuser").await;
    db.run("create database bare").await;
    let folder = ConfigDir::new();
    let password = folder.write("password", "right\n");
    let (socket, port) = (db.cluster().socket_dir().display().to_string(), db.cluster().port());
    let url = format!("host={socket} port={port} user=guarded dbname=bare");
    let token = format!(
        "#!/bin/sh\n\
         test \"$*\" = 'rds generate-db-auth-token --hostname {socket} --port {port} --username guarded' || exit 4\n\
         cat {} || {{ echo no token >&2; exit 3; }}\n",
        password.display()
    );
    let aws = folder.write("aws", &token);
    std::fs::set_permissions(&aws, std::fs::Permissions::from_mode(0o755)).unwrap();
    let config = sample("docs/setup/connect.md", "database_url = ");
    let config = config.replace("postgresql://countersign_writer@db.example.com:5432/shop?sslmode=verify-full", &url);
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let command = |name: &str| {
        let mut command = folder.command(&config);
        command.env("PATH", &path).arg(name);
        command
    };
    let server = Server::start(command("serve")).await;
    assert_eq!(server.query("select current_user::text as me").await, [json!({"me": "guarded"})]);
    let end = "select pg_terminate_backend(pid, 10000) from pg_stat_activity where usename = 'guarded'";
    let changed = async |to: &str| {
        db.run(&format!("alter role guarded password '{to}'")).await;
        db.run(end).await;
    };
    // The password is younger than its lifetime, and refused.
    folder.write("password", "another\n");
    changed("another").await;
    assert_eq!(server.query("select current_user::text as me").await, [json!({"me": "guarded"})]);
    // The agent does not see what the program says, and the operator does.
    std::fs::remove_file(&password).unwrap();
    changed("a third").await;
    let error = server.fail("query_database", json!({"query": "select 1"}), "database_unavailable").await;
    assert!(error["message"].as_str().unwrap().contains("printed no password"), "{error}");
    assert!(!error.to_string().contains("no token"), "{error}");
    let said = command("doctor").output().await.unwrap().stderr;
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("the password command aws failed (exit status: 3): ") && said.contains("no token"), "{said}");
    folder.write("password", "a third\n");
    assert_eq!(server.query("select current_user::text as me").await, [json!({"me": "guarded"})]);
    // A connection string with a password needs no program.
    let own = [("COUNTERSIGN_PASSWORD_COMMAND", "/absent program")];
    connects(&mut check(folder.path(), Some(&format!("{} password=any", db.url())), &own), "given").await;
    let said = ["the password command /absent cannot be run", "printed no password"];
    is_refused(&mut check(folder.path(), Some(&db.url()), &own), &said).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unsupported_options_are_named_and_failures_are_listed_per_server() {
    let home = tempfile::tempdir().unwrap();
    let dead = dead_port();
    for (url, said) in [
        ("host=/nowhere nonsense=1", &["DATABASE_URL", "no key \"nonsense\"", "libpq"] as &[&str]),
        ("postgresql://me:hunter2@h/d?gssencmode=require", &["gssencmode", "not supported"]),
        ("postgresql://me:hunter2@hunter2@h/d", &["cannot be read", "%40"]),
        ("host=/nowhere password=a hunter2", &["cannot be read"]),
        ("host=no..name user=me password=hunter2", &["no..name:5432", "looked up"]),
        ("service=nothing-of-this-name", &["no service"]),
        (
            &format!("host=127.0.0.1,/nowhere port={dead} user=me password=hunter2"),
            &[&format!("127.0.0.1:{dead}"), "connection refused", "/nowhere", "no such socket"],
        ),
    ] {
        is_refused(&mut check(home.path(), Some(url), &[]), said).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_costs_only_its_timeout_and_the_next_server_is_tried() {
    let db = lone_database().await;
    let home = tempfile::tempdir().unwrap();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let socket = db.cluster().socket_dir().display().to_string();
    let url = format!("host=127.0.0.1,{socket} port={port},5432 user=postgres dbname=lone connect_timeout=1");
    connects(&mut check(home.path(), Some(&url), &[]), &url).await;
    // libpq would wait for ever; here the bound that is configured stays.
    let url = format!("postgresql://me:hunter2@127.0.0.1:{port}/shop?connect_timeout=0");
    let variables = [("COUNTERSIGN_CONNECT_TIMEOUT_MS", "300")];
    is_refused(&mut check(home.path(), Some(&url), &variables), &["no answer within 300 ms"]).await;
}
