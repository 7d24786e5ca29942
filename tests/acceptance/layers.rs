//! Read only with every single layer taken away in turn.
//!
//! Every hostile statement of `tests/attacks/reads.jsonl` runs through the read path as the login that `init` makes, as a
//! login of an operator's own, and as a superuser, with all layers and with each one missing. What it did is looked up
//! afterwards: in the database, in its session, to another session of the same login, in files, on the network.
//! `program` sends the same statements to a server.
//! `COUNTERSIGN_TEST_LONG=1 cargo test --workspace layers -- --nocapture` prints who stopped what.

mod hidden_calls;
mod program;
mod weakened;
pub(crate) mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use ledger::read::{ReadError, ReadLimits, ReadRequest, Reader, RowFormat, SearchPath};
use ledger::{Ledger, LedgerOptions};
use pg::ConnectOptions;
use testkit::long_form;

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

/// What statements are sent to.
trait Face {
    /// Runs the statements of an attack, one after the other. Returns what was answered.
    async fn carry_out(&mut self, attack: &Attack) -> Vec<String>;

    /// State of the session that the next statement gets.
    async fn session_state(&mut self) -> String;
}

/// The library's reader: who stopped what is in its errors.
struct Readers {
    patient: Reader,
    hasty: Reader,
    stopped_by: BTreeMap<&'static str, Vec<String>>,
}

impl Readers {
    fn on(target: &ConnectOptions) -> Self {
        Self { patient: reader(target, LONG), hasty: reader(target, SHORT), stopped_by: BTreeMap::new() }
    }
}

impl Face for Readers {
    async fn carry_out(&mut self, attack: &Attack) -> Vec<String> {
        let reader = if attack.takes_time() { &self.hasty } else { &self.patient };
        let mut seen = Vec::new();
        let mut outcome = Ok(());
        for sql in &attack.sql {
            match reader.read(&ReadRequest::new(sql, &[], RowFormat::Array)).await {
                Ok(result) => seen.extend(result.rows.iter().map(str::to_owned)),
                Err(error) => outcome = Err(error),
            }
        }
        self.stopped_by.entry(stopped_by(&outcome)).or_default().push(attack.id.clone());
        seen
    }

    async fn session_state(&mut self) -> String {
        format!("{:?}", world::session_state(&self.patient).await)
    }
}

/// Runs attacks and returns the harm that was done, by attack. What attacks did to the database and its sessions is looked
/// up once, after the last one, and in the long form after each.
async fn harm_of(
    world: &mut World,
    login: &ConnectOptions,
    attacks: &[&Attack],
    face: &mut impl Face,
) -> Vec<(String, Harm)> {
    world.watch(login).await;
    let clean = face.session_state().await;
    let mut harms = Vec::new();
    for group in attacks.chunks(long_form::choose(attacks.len(), 1)) {
        for attack in group {
            let seen = face.carry_out(attack).await;
            let mut harm = world.harm_outside(&seen);
            harm.network &= !attack.may_connect();
            if harm.any() {
                harms.push((attack.id.clone(), harm));
            }
        }
        let mut harm = world.harm_inside().await;
        harm.left = face.session_state().await != clean;
        if harm.any() {
            world.restore(login).await;
            harms.push((name_of(group), harm));
        }
    }
    // A signal may arrive after the answer: the last word on it.
    if !world.sibling_runs().await {
        harms.push((name_of(attacks), Harm { stopped: true, ..Harm::default() }));
    }
    harms
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
    /// Runs every attack with this layer missing and returns the harm that was done, by attack.
    async fn run(&mut self, login: &Login, missing: Option<Layer>, findings: &mut Findings) -> Vec<(String, Harm)> {
        let weakened = missing.map(|layer| Weakened::before(&login.target, layer));
        let target = weakened.as_ref().map_or_else(|| login.target.clone(), |way| way.reroute(&login.target));
        let attacks: Vec<&Attack> =
            self.attacks.iter().filter(|attack| missing.is_none() || !attack.takes_time()).collect();
        let mut readers = Readers::on(&target);
        let harms = harm_of(&mut self.world, &login.target, &attacks, &mut readers).await;
        if missing.is_none() {
            findings.stopped_by = readers.stopped_by;
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
