//! Read only with every single layer taken away in turn.
//!
//! Every hostile statement of `tests/attacks/reads.jsonl` runs through the read path as the login that `init` makes, as a
//! login of an operator's own, and as a superuser, with all layers and with each one missing. What it did is looked up
//! afterwards: in the database, in its session, to another session of the same login, in files, on the network.
//! `COUNTERSIGN_TEST_LONG=1 cargo test --workspace layers -- --nocapture` prints who stopped what.

mod weakened;
pub(crate) mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use ledger::read::{ReadError, ReadLimits, ReadRequest, Reader, RowFormat, SearchPath};
use ledger::{Ledger, LedgerOptions};
use pg::ConnectOptions;
use serde_json::json;
use testkit::{Server, long_form};

use weakened::{Layer, Weakened};
use world::{Attack, Harm, World};

/// Attacks on time end here; the others must get to where they do harm, however busy the machine is.
const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(10);

fn reader(target: &ConnectOptions, deadline: Duration) -> Reader {
    let limits = ReadLimits { deadline, sessions: 1, ..ReadLimits::default() };
    let path = SearchPath { schemas: vec!["public".to_owned()], ..SearchPath::default() };
    Reader::new(target.clone(), &path, limits)
}

/// The layer that refused an attack, if any.
fn stopped_by(outcome: &Result<(), ReadError>) -> &'static str {
    let Err(error) = outcome else { return "-" };
    match error {
        ReadError::NoResultColumns => "result columns",
        ReadError::WouldWrite(_) => "read only transaction",
        ReadError::ForbiddenFunction { .. } => "functions",
        ReadError::TooLarge(_) => "bytes",
        ReadError::Database(pg::Error::Deadline) => "deadline",
        ReadError::Database(pg::Error::Server(error)) => match error.sqlstate.as_str() {
            "42601" if error.message.contains("multiple commands") => "extended protocol",
            "42501" | "2F003" => "login",
            "57014" => "timeouts",
            "25001" => "fixed mode",
            "25006" => "read only transaction",
            _ => "PostgreSQL",
        },
        _ => "PostgreSQL",
    }
}

/// Runs the statements of an attack, one after the other on one pool. Returns the last error, and the rows that were read.
async fn carry_out(reader: &Reader, attack: &Attack) -> (Result<(), ReadError>, Vec<String>) {
    let mut seen = Vec::new();
    let mut outcome = Ok(());
    for sql in &attack.sql {
        match reader.read(&ReadRequest::new(sql, &[], RowFormat::Array)).await {
            Ok(result) => seen.extend(result.rows.iter().map(str::to_owned)),
            Err(error) => outcome = Err(error),
        }
    }
    (outcome, seen)
}

struct Login {
    name: &'static str,
    target: ConnectOptions,
}

/// For one login: who stopped which attacks with all layers, and what they did with one missing.
#[derive(Default)]
struct Findings {
    stopped_by: BTreeMap<&'static str, Vec<String>>,
    harm_without: Vec<(Layer, Vec<(String, Harm)>)>,
}

struct Matrix<'a> {
    world: World,
    attacks: &'a [Attack],
}

impl Matrix<'_> {
    /// Runs every attack with this layer missing and returns the harm that was done, by attack. What attacks did to the
    /// database and its sessions is looked up once, after the last one, and in the long form after each.
    async fn run(&mut self, login: &Login, missing: Option<Layer>, findings: &mut Findings) -> Vec<(String, Harm)> {
        let weakened = missing.map(|layer| Weakened::before(&login.target, layer));
        let target = weakened.as_ref().map_or_else(|| login.target.clone(), |way| way.reroute(&login.target));
        let patient = reader(&target, LONG);
        let hasty = reader(&target, SHORT);
        let mut harms = Vec::new();
        self.world.watch(&login.target).await;
        let clean = world::session_state(&patient).await;
        let attacks: Vec<&Attack> =
            self.attacks.iter().filter(|attack| missing.is_none() || !attack.takes_time()).collect();
        for group in attacks.chunks(long_form::choose(attacks.len(), 1)) {
            for attack in group {
                let reader = if attack.takes_time() { &hasty } else { &patient };
                let (outcome, seen) = carry_out(reader, attack).await;
                if missing.is_none() {
                    findings.stopped_by.entry(stopped_by(&outcome)).or_default().push(attack.id.clone());
                }
                let mut harm = self.world.harm_outside(&seen);
                harm.network &= !attack.may_connect();
                if harm.any() {
                    harms.push((attack.id.clone(), harm));
                }
            }
            let mut harm = self.world.harm_inside().await;
            harm.left = world::session_state(&patient).await != clean;
            if harm.any() {
                self.world.restore(&login.target).await;
                harms.push((name_of(group), harm));
            }
        }
        // A signal may arrive after the answer: the last word on it.
        if !self.world.sibling_runs().await {
            harms.push((name_of(&attacks), Harm { stopped: true, ..Harm::default() }));
        }
        harms
    }
}

/// Names an attack, or the first and the last one of several that were not told apart.
fn name_of(attacks: &[&Attack]) -> String {
    match attacks {
        [only] => only.id.clone(),
        [first, .., last] => format!("one of {} to {} (COUNTERSIGN_TEST_LONG=1 says which)", first.id, last.id),
        [] => String::new(),
    }
}

/// Runs everything as this login; harm that was done with one layer missing goes to `judge`.
async fn survey(matrix: &mut Matrix<'_>, login: &Login, judge: fn(Layer, &[(String, Harm)])) {
    let mut findings = Findings::default();
    let with_all = matrix.run(login, None, &mut findings).await;
    assert!(with_all.is_empty(), "{} with all layers: {with_all:?}", login.name);
    for layer in Layer::ALL {
        let harms = matrix.run(login, Some(layer), &mut findings).await;
        judge(layer, &harms);
        findings.harm_without.push((layer, harms));
    }
    print(login.name, &findings);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_attack_changes_anything_with_any_single_layer_missing() {
    let (world, db) = World::new().await;
    let attacks = world.attacks();
    let mut matrix = Matrix { world, attacks: &attacks };
    let made_by_init = Login {
        name: "countersign_reader",
        target: Ledger::new(db.target(), LedgerOptions::default()).reader_login().await.unwrap(),
    };
    survey(&mut matrix, &made_by_init, |layer, harms| {
        assert!(!harms.iter().any(|(_, harm)| harm.changed), "without {layer:?}: {harms:?}");
    })
    .await;
    let own = Login { name: "agent_ro", target: db.target().as_role("agent_ro", None) };
    let with_all = matrix.run(&own, None, &mut Findings::default()).await;
    assert!(with_all.is_empty(), "{} with all layers: {with_all:?}", own.name);
}

#[tokio::test(flavor = "multi_thread")]
async fn even_a_superuser_does_no_harm_with_all_layers() {
    let (world, db) = World::new().await;
    let attacks = world.attacks();
    let mut matrix = Matrix { world, attacks: &attacks };
    // A superuser is the layer of the login missing already. That harm shows when the next one is missing is what tells
    // that this test can see it.
    survey(&mut matrix, &Login { name: "superuser", target: db.target() }, |layer, harms| {
        let did = |attack: &str, harm: fn(&Harm) -> bool| {
            let is_its = |id: &str| id == attack || !long_form::is_on() && id.starts_with("one of");
            assert!(harms.iter().any(|(id, did)| is_its(id) && harm(did)), "{attack} without {layer:?}: {harms:?}");
        };
        match layer {
            Layer::Functions => {
                did("SE12", |harm| harm.changed);
                did("SE14", |harm| harm.network);
                // A signal may arrive only after the next attack.
                assert!(harms.iter().any(|(_, harm)| harm.stopped), "without {layer:?}: {harms:?}");
                did("RD02", |harm| harm.file);
            }
            Layer::ResultColumns => did("SE10", |harm| harm.file),
            Layer::ReadOnlyTransaction => did("WR17", |harm| harm.changed),
            Layer::Cleaning => did("SE16", |harm| harm.left),
            _ => {}
        }
    })
    .await;
}

/// The login of a server on a database without a ledger is the operator's: one that may only read, and the owner of the
/// tables. Attacks on time are left out: they show the deadline, which is the same.
#[tokio::test(flavor = "multi_thread")]
async fn no_attack_does_harm_through_a_server_without_a_ledger() {
    let (mut world, db) = World::new().await;
    db.run("drop schema countersign cascade; alter role app_owner login").await;
    let attacks = world.attacks();
    for login in ["agent_ro", "app_owner"] {
        let target = db.target().as_role(login, None);
        world.watch(&target).await;
        world.restore(&target).await;
        let mut command = Server::bare_command(&db);
        command.env("DATABASE_URL", db.url_as(login));
        command.args(["--read-sessions", "1", "--query-timeout-ms", "10000"]);
        let server = Server::start(command).await;
        let clean = server.query(world::SESSION_STATE).await;
        let mut harms = Vec::new();
        let mut answered = 0;
        for attack in attacks.iter().filter(|attack| !attack.takes_time()) {
            let mut seen = Vec::new();
            for sql in &attack.sql {
                let answer = server.call("query_database", json!({"query": sql})).await;
                answered += usize::from(answer["success"] == true);
                seen.push(answer["data"].to_string());
            }
            let mut harm = world.harm_outside(&seen);
            harm.network &= !attack.may_connect();
            if harm.any() {
                harms.push((attack.id.clone(), harm));
            }
        }
        let mut harm = world.harm_inside().await;
        harm.left = server.query(world::SESSION_STATE).await != clean;
        if harm.any() {
            harms.push((name_of(&attacks.iter().collect::<Vec<_>>()), harm));
        }
        assert!(harms.is_empty(), "{login}: {harms:?}");
        assert!(answered > 20, "{login}: {answered} harmless statements were answered");
        server.close().await;
    }
}

fn print(login: &str, findings: &Findings) {
    println!("\n{login}: no harm with all layers. Who stopped what:");
    for (by, attacks) in &findings.stopped_by {
        let by = if *by == "-" { "ran, and left nothing" } else { by };
        println!("  {by:<22} {:>3}  {}", attacks.len(), attacks.join(" "));
    }
    for (layer, harms) in &findings.harm_without {
        let harms: Vec<String> = harms.iter().map(|(attack, harm)| format!("{attack} ({harm})")).collect();
        let harms = if harms.is_empty() { "no harm".to_owned() } else { harms.join(", ") };
        println!("  without {:<20} {harms}", format!("{layer:?}:"));
    }
}
