//! Writes the history of a run while it happens: every line is in the file before what it tells goes on.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use chaos_checker::{
    Answer, Call, End, FORMAT, Fault, Header, History, Line, Machine, Outcome, Promise, Request, Verdict, judge, report,
};
use serde::de::DeserializeOwned;
use testkit::{Database, countersign, repository};

use super::load;

pub(super) struct HistoryFile {
    path: PathBuf,
    state: Mutex<State>,
    began: Instant,
    /// The same moment by the wall clock, in milliseconds since 1970.
    began_ms: i64,
}

struct State {
    file: File,
    operations: u64,
    surprises: Vec<String>,
}

/// What a run has come to.
pub(super) struct Judgement {
    pub(super) report: String,
    verdicts: Vec<(Promise, Verdict)>,
    /// What the harness itself did not expect: an agent that gave up.
    surprises: Vec<String>,
}

impl Judgement {
    pub(super) fn breaks(&self, wanted: Promise) -> bool {
        self.verdicts.iter().any(|(promise, verdict)| *promise == wanted && matches!(verdict, Verdict::Broken { .. }))
    }

    /// Whether every promise was checked, and is held.
    #[track_caller]
    pub(super) fn is_whole(&self) {
        let is_held = self.verdicts.iter().all(|(_, verdict)| matches!(verdict, Verdict::Held { .. }));
        assert!(is_held && self.surprises.is_empty(), "{}\n{}", self.report, self.surprises.join("\n"));
    }
}

impl HistoryFile {
    pub(super) async fn start(run: &str, seed: u64, db: &Database, servers: usize, at_least: Duration) -> Self {
        let folder = repository().join("target/chaos");
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join(format!("{}-{seed}.jsonl", run.replace(' ', "-")));
        let file = File::create(&path).expect("a file");
        let state = Mutex::new(State { file, operations: 0, surprises: Vec::new() });
        let history = Self { path, state, began: Instant::now(), began_ms: wall_ms() };
        history.write(&[Line::Header(Header {
            format: FORMAT,
            countersign: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit(),
            profile: profile(),
            run: run.to_owned(),
            seed,
            machine: machine(),
            postgresql: db.value("show server_version").await,
            settings: db.value(SETTINGS).await,
            servers,
            agents: load::AGENTS,
            think_ms: load::think_ms(),
            seconds: at_least.as_secs(),
            began: history.began_ms.try_into().expect("a time after 1970"),
        })]);
        history
    }

    /// The number of an operation that begins now.
    pub(super) fn call(&self, client: &str, server: Option<usize>, request: &Request) -> u64 {
        let mut state = self.state.lock().unwrap();
        state.operations += 1;
        let op = state.operations;
        let (t, wall) = self.now();
        state.write(&Line::Call(Call { op, t, wall, client: client.to_owned(), server, request: request.clone() }));
        op
    }

    pub(super) fn answer(&self, op: u64, outcome: &Outcome) {
        let mut state = self.state.lock().unwrap();
        let (t, wall) = self.now();
        state.write(&Line::Answer(Answer { op, t, wall, outcome: outcome.clone() }));
    }

    pub(super) fn fault(&self, name: &str, over: bool) {
        let (t, wall) = self.now();
        self.write(&[Line::Fault(Fault { t, wall, name: name.to_owned(), over })]);
    }

    pub(super) fn surprise(&self, what: String) {
        self.state.lock().unwrap().surprises.push(what);
    }

    /// Writes the final state, and judges the whole file.
    pub(super) async fn finish(&self, db: &Database) -> Judgement {
        let records = read(db, &RECORDS.replace("{began}", &self.began_ms.to_string())).await;
        let (strays, leaves, rows) = (read(db, STRAYS).await, read(db, LEAVES).await, read(db, ROWS).await);
        let end = End { records: records.len(), strays: strays.len(), leaves: leaves.len(), rows: rows.len() };
        self.write(&records.into_iter().map(Line::Record).collect::<Vec<_>>());
        self.write(&strays.into_iter().map(Line::Stray).collect::<Vec<_>>());
        self.write(&leaves.into_iter().map(Line::Leaf).collect::<Vec<_>>());
        self.write(&rows.into_iter().map(Line::Row).collect::<Vec<_>>());
        self.write(&[Line::End(end)]);
        let history = History::read(File::open(&self.path).expect("the file")).expect("a history");
        let verdicts = judge(&history);
        let report = report(&history, &verdicts);
        let report = format!("{report}history: {}", self.path.display());
        Judgement { report, verdicts, surprises: std::mem::take(&mut self.state.lock().unwrap().surprises) }
    }

    fn write(&self, lines: &[Line]) {
        let mut state = self.state.lock().unwrap();
        lines.iter().for_each(|line| state.write(line));
    }

    /// Milliseconds since the header by the monotonic clock, and by the wall clock if that differs.
    fn now(&self) -> (i64, Option<i64>) {
        let t = self.began.elapsed().as_millis().try_into().expect("a short run");
        let wall = wall_ms() - self.began_ms;
        (t, (t.abs_diff(wall) > CLOCKS_DIFFER_MS).then_some(wall))
    }
}

fn wall_ms() -> i64 {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970");
    wall.as_millis().try_into().expect("a time")
}

impl State {
    fn write(&mut self, line: &Line) {
        let text = serde_json::to_string(line).expect("JSON");
        self.file.write_all(format!("{text}\n").as_bytes()).expect("a file that can be written");
    }
}

async fn read<T: DeserializeOwned>(db: &Database, sql: &str) -> Vec<T> {
    let rows = db.rows(sql).await.concat();
    rows.iter().map(|row| serde_json::from_str(row).unwrap_or_else(|error| panic!("{error}: {row}"))).collect()
}

fn machine() -> Machine {
    let text = |path: &str| std::fs::read_to_string(Path::new("/proc").join(path)).unwrap_or_default();
    let memory = text("meminfo");
    let memory = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or_default();
    let kilobytes: u64 = memory.trim().trim_end_matches(" kB").parse().unwrap_or_default();
    Machine {
        cores: std::thread::available_parallelism().map_or(0, Into::into),
        memory_mb: kilobytes / 1024,
        kernel: text("sys/kernel/osrelease").trim().to_owned(),
    }
}

/// The profile of the program under test, after which its folder is named.
fn profile() -> String {
    let folder = countersign().parent().and_then(Path::file_name).expect("target/<profile>").to_owned();
    folder.into_string().expect("UTF-8")
}

/// The commit of the repository, if this is one.
fn commit() -> String {
    let mut git = std::process::Command::new("git");
    let output = git.args(["describe", "--always", "--dirty", "--abbrev=12"]).current_dir(repository()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    if text.is_empty() { "unknown".to_owned() } else { text }
}

/// The wall clock is written where it differs by more: each is rounded.
const CLOCKS_DIFFER_MS: u64 = 1;

const SETTINGS: &str = "select string_agg(name || '=' || setting, ' ' order by name) from pg_settings
    where name in ('fsync', 'full_page_writes', 'max_connections', 'synchronous_commit', 'synchronous_standby_names',
                   'wal_level')";

/// Every record, and every write in flight, with the rows that it changed.
const RECORDS: &str = "
select json_build_object(
    'id', m.id, 'receipt', m.correlation_id, 'at', floor(extract(epoch from m.completed_at) * 1000)::bigint - {began},
    'tool', m.tool_name, 'key', case when m.undo_of is null then m.idempotency_key end,
    'arguments', json_build_object('text', m.params->>'text', 'amount', (m.params->>'amount')::bigint,
                                   'id', coalesce(m.params->>'tweet_id', m.params->>'id')::bigint),
    'status', m.status, 'error', m.error_code, 'duplicate_of', m.duplicate_of,
    'undo_of', coalesce(m.undo_of, '{}'), 'plan', m.params->>'plan_id', 'proposal', m.approval->>'proposal_id',
    'reversed_by', v.reversed_by, 'data', m.result,
    'effects', coalesce((
        select json_agg(json_build_object(
            'position', e.position, 'table', e.relation::regclass,
            'key', coalesce(e.key::json->>'id', e.key::json->>'tweet_id'),
            'before', left(md5(e.before), 6), 'after', left(md5(e.after), 6)) order by e.position)
        from countersign.effect e where e.correlation_id = m.correlation_id and e.op <> 'N'), '[]'))
from countersign.mutation m left join countersign.reversal v using (correlation_id) order by m.id";

const STRAYS: &str = "
select json_build_object(
    'position', e.position, 'table', e.relation::regclass, 'key', e.key,
    'before', left(md5(e.before), 6), 'after', left(md5(e.after), 6))
from countersign.effect e
where not exists (select from countersign.mutation m where m.correlation_id = e.correlation_id) order by e.position";

/// The entries of the log as they were sealed.
const LEAVES: &str = r"
select json_build_object(
    'index', l.leaf_index, 'kind', substring(l.entry from '\nkind (\w+)'),
    'record', case when l.entry like E'%\nkind record\n%' then substring(l.entry from '\nid (\d+)')::bigint end,
    'receipt', substring(l.entry from '\ncorrelation_id (\S+)'), 'status', substring(l.entry from '\nstatus (\w+)'))
from countersign.leaf l where l.log_no = countersign.current_log() order by l.leaf_index";

/// The rows that agents have written.
const ROWS: &str = "
select json_build_object('table', 'social.tweet', 'key', t.id::text, 'text', t.text, 'image', left(md5(t::text), 6))
from social.tweet t where t.text like 'chaos-%' or t.text like 'read-%'
union all
select json_build_object('table', 'social.tweet_like', 'key', l.tweet_id::text, 'image', left(md5(l::text), 6))
from social.tweet_like l join social.tweet t on t.id = l.tweet_id
where l.account_id = 'default' and t.text like 'chaos-%'
union all
select json_build_object('table', 'chaos.entry', 'key', t.id::text, 'text', t.text, 'image', left(md5(t::text), 6))
from chaos.entry t
union all
select json_build_object('table', 'chaos.approved', 'key', t.id::text, 'text', t.text, 'image', left(md5(t::text), 6))
from chaos.approved t
union all
select json_build_object('table', 'chaos.total', 'key', t.id::text, 'amount', t.amount, 'image', left(md5(t::text), 6))
from chaos.total t";
