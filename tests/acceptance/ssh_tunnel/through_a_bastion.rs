//! With a real sshd.

use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::json;
use testkit::{
    Database, External, FrontEndOutput, RawStdioServer, Server, Sshd, bare_front_end, command_line, countersign,
    database, descendants, poll, repository, run, send_signal, skip_without,
};
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use crate::connection_strings::Port;

const PROTOCOL: &str = "2025-06-18";

/// A database that only the bastion's users know: a port that leads to it.
struct Behind {
    database: Database,
    port: Port,
    bastion: Sshd,
}

impl Behind {
    async fn start() -> Option<Self> {
        if skip_without(&[External::Sshd]) {
            return None;
        }
        let database = database().await;
        let port = Port::on("127.0.0.1", &database).await.unwrap();
        Some(Self { database, port, bastion: Sshd::start().await })
    }

    fn url(&self, user: &str) -> String {
        format!("postgresql://{user}:s3cret@localhost:{}/{}", self.port.number(), self.database.name())
    }

    fn command(&self) -> Command {
        let mut command = Server::command(&self.database);
        command.env("DATABASE_URL", self.url("countersign_writer"));
        self.bastion.apply(&mut command);
        command
    }

    /// A command of the superuser.
    fn own(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(countersign());
        command.env("DATABASE_URL", self.url("postgres")).args(arguments);
        self.bastion.apply(&mut command);
        command
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_writes_cancels_and_commands_use_one_tunnel() {
    let Some(behind) = Behind::start().await else { return };
    let mut command = behind.command();
    command.env("COUNTERSIGN_READ_URL", behind.url("countersign_reader"));
    let mut server = RawStdioServer::start(command, PROTOCOL).await;
    let read = server
        .call(
            "query_database",
            json!({"query": "select usename from pg_stat_activity \
        where pid = pg_backend_pid()"}),
        )
        .await;
    assert_eq!(read["data"]["rows"][0]["usename"], "countersign_reader", "{read}");
    let written = server.call("post_tweet", json!({"text": "from far away"})).await;
    assert_eq!(written["success"], true, "{written}");
    assert!(behind.port.take() >= 2, "the bastion connects");

    let slow = json!({"name": "query_database", "arguments": {"query": "select pg_sleep(600), 'cancel me'"}});
    server.send(&json!({"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": slow}).to_string()).await;
    let running = "select count(*) from pg_stat_activity where query like '%cancel me%' and state = 'active' \
                   and datname = current_database() and pid <> pg_backend_pid()";
    let client = behind.database.connect().await;
    let count = async || client.query_one(running, &[]).await.unwrap().get::<_, i64>(0);
    poll::until("the query runs", async || count().await == 1).await;
    let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}});
    server.send(&cancelled.to_string()).await;
    poll::until("the query is cancelled", async || count().await == 0).await;

    let children = descendants(server.pid());
    let lines: Vec<String> = children.iter().filter_map(|pid| command_line(*pid)).collect();
    assert_eq!(lines.len(), 2, "the guard and one ssh: {lines:?}");
    assert!(lines.iter().all(|line| line.contains("-o BatchMode=yes") && !line.contains("s3cret")), "{lines:?}");
    for pid in children {
        let environment = String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/environ")).unwrap()).into_owned();
        assert!(!environment.contains("s3cret") && !environment.contains("COUNTERSIGN_"), "{environment}");
    }
    assert!(server.close().await);

    run(&mut behind.own(&["doctor"])).await.succeeded();
    let manifest = repository().join("manifests/social.toml");
    run(behind.own(&["check", "--manifest"]).arg(manifest)).await.succeeded();
    let mut query = bare_front_end("query");
    query.args(["--sql", "select 1 as n"]).env("DATABASE_URL", behind.url("postgres"));
    behind.bastion.apply(&mut query);
    behind.port.take();
    let output = FrontEndOutput::of(&mut query).await;
    assert_eq!((output.status, behind.port.take() > 0), (0, true), "{:?}", output.events);
    // The tunnel is that of the configured database.
    let other = query.args(["--host", "/nowhere"]);
    let event = FrontEndOutput::of(other).await.single_event();
    assert!(event.to_string().contains("/nowhere (unix socket"), "{event}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_recovers_when_its_bastion_returns() {
    let Some(mut behind) = Behind::start().await else { return };
    let (mut server, mut log) = RawStdioServer::start_logged(behind.command(), PROTOCOL).await;
    let query = json!({"query": "select 1 as n"});
    assert_eq!(server.call("query_database", query.clone()).await["success"], true);
    let first = descendants(server.pid());
    behind.bastion.kill().await;
    let failed = server.call("query_database", query.clone()).await;
    assert_eq!(failed["error"]["code"], "database_unavailable", "{failed}");
    // The reason is for the operator.
    let text = failed.to_string();
    assert!(text.contains("the SSH tunnel is not open") && !text.contains("refused"), "{text}");
    behind.bastion.restart().await;
    let mut last = failed;
    for _ in 0..200 {
        last = server.call("query_database", query.clone()).await;
        if last["success"] == true {
            break;
        }
    }
    assert_eq!(last["success"], true, "{last}");
    let second = descendants(server.pid());
    assert!(second.len() == 2 && second.iter().all(|pid| !first.contains(pid)), "{first:?} {second:?}");
    assert!(server.close().await);
    let mut said = String::new();
    log.read_to_string(&mut said).await.unwrap();
    assert!(said.contains("there is no SSH tunnel") && said.contains("Connection refused"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bastion_with_another_host_key_is_refused_with_the_reason_of_ssh() {
    let Some(behind) = Behind::start().await else { return };
    behind.bastion.distrust().await;
    let output = run(&mut behind.own(&["init"])).await;
    assert_eq!(output.code, 1);
    assert!(output.err.contains("Host key verification failed"), "{}", output.err);
    assert_eq!(behind.port.take(), 0);
    let mut server = RawStdioServer::logging(behind.command(), Stdio::null(), PROTOCOL).await;
    let failed = server.call("query_database", json!({"query": "select 1"})).await;
    let text = failed.to_string();
    assert!(text.contains("the SSH tunnel is not open") && !text.contains("Host key"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_the_bastion_cannot_reach_is_named_in_the_log() {
    let Some(behind) = Behind::start().await else { return };
    let mut command = behind.own(&["init"]);
    let output = run(command.env("DATABASE_URL", "postgresql://postgres@127.0.0.1:1/shop")).await;
    assert!(output.code == 1 && output.err.contains("Connection refused"), "{}", output.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn ssh_and_its_socket_are_gone_after_the_server_however_it_ends() {
    let Some(behind) = Behind::start().await else { return };
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let server = Server::start(behind.command()).await;
        server.query("select 1 as n").await;
        let pid = server.client().pid().unwrap();
        let children = descendants(pid);
        let guard = children.iter().find_map(|pid| command_line(*pid).filter(|line| line.contains("ssh-guard")));
        let folder = guard.unwrap().split(' ').nth(2).unwrap().to_owned();
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&folder).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o700);
        send_signal(pid, signal);
        poll::until("ssh has ended", async || children.iter().all(|pid| command_line(*pid).is_none())).await;
        poll::until("its folder is gone", async || !std::path::Path::new(&folder).exists()).await;
    }
}
