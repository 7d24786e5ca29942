//! Every hostile statement through the program, over standard input and output: as the login that `init` makes, as an
//! operator's own, as the owner of the tables, and as a superuser. `COUNTERSIGN_TEST_PROGRAM` names the build. With a layer
//! missing the same attacks do harm, and this suite sees it.

use pg::ConnectOptions;
use serde_json::json;
use testkit::{Database, Server};

use super::weakened::{Layer, Weakened};
use super::world::{Attack, Harm, SESSION_STATE, World};
use super::{Face, harm_of};

/// Two servers, as attacks on time have to end soon, and the others have to get to where they do harm.
struct Servers {
    patient: Server,
    hasty: Server,
    /// How many statements were answered with rows.
    answered: usize,
}

impl Servers {
    async fn start(db: &Database, url: &str, arguments: &[&str]) -> Self {
        let start = async |timeout_ms: &str| {
            let mut command = Server::bare_command(db);
            command.env("DATABASE_URL", url).args(["--read-sessions", "1", "--query-timeout-ms", timeout_ms]);
            command.args(arguments);
            Server::start(command).await
        };
        Self { patient: start("10000").await, hasty: start("100").await, answered: 0 }
    }

    async fn close(self) {
        self.patient.close().await;
        self.hasty.close().await;
    }
}

impl Face for Servers {
    async fn carry_out(&mut self, attack: &Attack) -> Vec<String> {
        let server = if attack.takes_time() { &self.hasty } else { &self.patient };
        let mut seen = Vec::new();
        for sql in &attack.sql {
            let answer = server.call("query_database", json!({"query": sql})).await;
            self.answered += usize::from(answer["success"] == true);
            seen.push(answer.to_string());
        }
        seen
    }

    async fn session_state(&mut self) -> String {
        format!("{:?}", self.patient.query(SESSION_STATE).await)
    }
}

/// Sends every attack to servers with these arguments, which read as this login. Returns the harm that was done.
async fn attack(
    world: &mut World,
    db: &Database,
    login: &ConnectOptions,
    url: &str,
    arguments: &[&str],
) -> Vec<(String, Harm)> {
    let attacks = world.attacks();
    world.restore(login).await;
    let mut servers = Servers::start(db, url, arguments).await;
    let harms = harm_of(world, login, &attacks.iter().collect::<Vec<_>>(), &mut servers).await;
    assert!(servers.answered > 20, "{url} {arguments:?}: {} harmless statements were answered", servers.answered);
    servers.close().await;
    harms
}

#[tokio::test(flavor = "multi_thread")]
async fn no_attack_does_harm_through_a_server_with_a_ledger() {
    let (mut world, db) = World::new().await;
    let options = ledger::LedgerOptions::default();
    let reader = ledger::Ledger::new(db.target(), options).reader_login().await.unwrap();
    let harms = attack(&mut world, &db, &reader, &db.writer_url(), &[]).await;
    assert!(harms.is_empty(), "the login of init: {harms:?}");
    let (target, url) = (db.target(), db.url());
    let superuser = ["--read-url", &url, "--allow-privileged-reader"];
    let harms = attack(&mut world, &db, &target, &db.writer_url(), &superuser).await;
    assert!(harms.is_empty(), "a superuser: {harms:?}");

    let weakened = Weakened::before(&target, Layer::Functions);
    let rerouted = weakened.reroute(&target);
    let pg::Address::Unix(folder, port) = &rerouted.addresses[0] else { panic!("a unix socket") };
    let url = format!("host={} port={port} user=postgres dbname={}", folder.display(), db.name());
    let superuser = ["--read-url", &url, "--allow-privileged-reader"];
    let harms = attack(&mut world, &db, &target, &db.writer_url(), &superuser).await;
    let did = |harm: fn(&Harm) -> bool| harms.iter().any(|(_, did)| harm(did));
    let all = did(|harm| harm.changed) && did(|harm| harm.network) && did(|harm| harm.file);
    assert!(all, "a superuser without the layer of functions: {harms:?}");
}

/// Without a ledger the login for reads is the operator's.
#[tokio::test(flavor = "multi_thread")]
async fn no_attack_does_harm_through_a_server_without_a_ledger() {
    let (mut world, db) = World::new().await;
    db.run("drop schema countersign cascade; alter role app_owner login").await;
    for login in ["agent_ro", "app_owner"] {
        let harms = attack(&mut world, &db, &db.target().as_role(login, None), &db.url_as(login), &[]).await;
        assert!(harms.is_empty(), "{login}: {harms:?}");
    }
    let harms = attack(&mut world, &db, &db.target(), &db.url(), &["--allow-privileged-reader"]).await;
    assert!(harms.is_empty(), "a superuser: {harms:?}");
}
