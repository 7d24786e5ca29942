//! What attacks work on, and how it is told what they did.

use std::fmt;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ledger::ConnectOptions;
use ledger::read::Reader;
use pg::{PipelineStatement, Session, SessionSettings};
use serde_json::Value;
use tempfile::TempDir;
use testkit::{Database, lone_database, poll};
use tokio::net::TcpListener;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

/// Secrets of the server's machine, as far as attacks can show them.
const FILE_CONTENTS: [&str; 2] = ["root:x:0:0", "# PostgreSQL configuration file"];

/// One line of `reads.jsonl`.
pub(crate) struct Attack {
    pub(crate) id: String,
    pub(crate) sql: Vec<String>,
}

impl Attack {
    /// It reads a foreign table for which the operator has made a user mapping and granted SELECT: the connection is
    /// what was granted.
    pub(crate) fn may_connect(&self) -> bool {
        self.id == "RD24"
    }

    pub(crate) fn takes_time(&self) -> bool {
        self.id.starts_with("DO")
    }
}

/// What an attack did.
#[derive(Debug, Default)]
pub(crate) struct Harm {
    /// Something in the database or its folder is not as it was.
    pub(crate) changed: bool,
    /// Something is left in the session.
    pub(crate) left: bool,
    /// Another session of the same login was stopped.
    pub(crate) stopped: bool,
    /// A file was read or written.
    pub(crate) file: bool,
    /// A connection was opened.
    pub(crate) network: bool,
}

impl Harm {
    pub(crate) fn any(&self) -> bool {
        self.changed || self.left || self.stopped || self.file || self.network
    }
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            (self.changed, "changed"),
            (self.left, "left in session"),
            (self.stopped, "other session stopped"),
            (self.file, "file"),
            (self.network, "network"),
        ];
        let words: Vec<&str> = words.into_iter().filter_map(|(is, word)| is.then_some(word)).collect();
        f.write_str(&words.join(" + "))
    }
}

/// Everything that is the same before and after a read.
const STATE: &str = "
select md5(concat_ws('|',
    (select string_agg(t::text, ',' order by id) from app.victim t),
    (select string_agg(t::text, ',' order by id) from app.users t),
    (select string_agg(t::text, ',' order by id) from audit.log t),
    (select last_value || ',' || is_called from app.seq),
    (select string_agg(c.oid || relname || relfilenode || coalesce(relacl::text, ''), ',' order by c.oid) from pg_class c
        where relpersistence <> 't'),
    (select count(*) from pg_attribute), (select count(*) from pg_proc), (select count(*) from pg_trigger),
    (select string_agg(a::text, ',' order by oid) from pg_authid a),
    (select string_agg(m::text, ',' order by 1) from pg_auth_members m),
    (select string_agg(s::text, ',' order by 1) from pg_db_role_setting s),
    (select string_agg(oid::text, ',' order by oid) from pg_largeobject_metadata),
    (select string_agg(slot_name, ',') from pg_replication_slots),
    (select string_agg(e::text, ',' order by oid) from pg_extension e),
    (select pg_read_file('postgresql.auto.conf')),
    (select string_agg(f, ',' order by f) from pg_ls_dir('.') f),
    (select stats_reset from pg_stat_database where datname = current_database()),
    (select stats_reset from pg_stat_bgwriter),
    pg_conf_load_time(),
    (select pending_tuples from pgstatginindex('app.gin_idx'))))";

/// A database with everything that attacks are after, and eyes on it.
pub(crate) struct World {
    db: Database,
    /// The superuser's own eyes; a hostile superuser closes them now and then.
    eye: tokio_postgres::Client,
    before: String,
    traps: Traps,
    seen_connections: usize,
    /// Another session of the attacking login, in the middle of a query.
    sibling: i32,
}

/// Where attacks connect to and what they write: each world has its own.
struct Traps {
    port: u16,
    connections: Arc<AtomicUsize>,
    folder: TempDir,
}

impl Traps {
    async fn set() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        let folder = tempfile::tempdir().unwrap();
        // PostgreSQL may run as another user of the operating system.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        Self { port, connections, folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("pwned")
    }

    fn bait(&self, text: &str) -> String {
        text.replace("{PORT}", &self.port.to_string()).replace("{FILE}", self.file().to_str().unwrap())
    }
}

impl World {
    pub(crate) async fn new() -> (Self, Database) {
        let db = lone_database().await;
        let traps = Traps::set().await;
        db.run("alter system set autovacuum = off").await;
        db.run("select pg_reload_conf()").await;
        db.run(&traps.bait(include_str!("../../attacks/fixture.sql"))).await;
        // The reader gets SELECT on what is there now.
        ledger::init(&db.target(), &ledger::InitOptions::default()).await.unwrap();
        let eye = db.connect().await;
        let mut world = Self { db: db.clone(), eye, before: String::new(), traps, seen_connections: 0, sibling: 0 };
        world.before = world.state().await;
        (world, db)
    }

    pub(crate) fn attacks(&self) -> Vec<Attack> {
        let lines = self.traps.bait(include_str!("../../attacks/reads.jsonl"));
        let attack = |line| {
            let attack: Value = serde_json::from_str(line).unwrap();
            let sql = attack["sql"].as_array().unwrap().iter().map(|sql| sql.as_str().unwrap().to_owned());
            Attack { id: attack["id"].as_str().unwrap().to_owned(), sql: sql.collect() }
        };
        lines.lines().map(attack).collect()
    }

    async fn state(&mut self) -> String {
        let row = self.look(STATE, &[]).await.remove(0);
        row.get(0)
    }

    /// Asks until there is an answer: an attack may have stopped the question, or closed the connection.
    async fn look(&mut self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Vec<Row> {
        loop {
            match self.eye.query(sql, params).await {
                Ok(rows) => return rows,
                Err(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => {}
                Err(error) if error.is_closed() || error.code() == Some(&SqlState::ADMIN_SHUTDOWN) => {
                    self.eye = self.db.connect().await;
                }
                Err(error) => panic!("{sql}: {error:?}"),
            }
        }
    }

    /// Starts a session of this login that an attack may try to stop.
    pub(crate) async fn watch(&mut self, login: &ConnectOptions) {
        if self.sibling_runs().await {
            let sibling = self.sibling;
            self.look("select pg_terminate_backend($1)", &[&sibling]).await;
        }
        let mut session = Session::connect(login, &SessionSettings::default()).await.unwrap();
        self.sibling = session.backend_pid();
        tokio::spawn(async move { session.run(&[PipelineStatement::without_params("select pg_sleep(3600)")]).await });
        poll::until("the sibling runs", async || self.sibling_runs().await).await;
    }

    pub(crate) async fn sibling_runs(&mut self) -> bool {
        let sibling = self.sibling;
        !self.look("select 1 from pg_stat_activity where pid = $1 and state = 'active'", &[&sibling]).await.is_empty()
    }

    /// What has happened to files and on the network since the last time.
    pub(crate) fn harm_outside(&mut self, seen: &[String]) -> Harm {
        let now = self.traps.connections.load(Ordering::SeqCst);
        let network = now != self.seen_connections;
        self.seen_connections = now;
        let shown = seen.concat();
        let written = std::fs::remove_file(self.traps.file()).is_ok();
        let file = written || FILE_CONTENTS.iter().any(|content| shown.contains(content));
        Harm { file, network, ..Harm::default() }
    }

    /// What has happened to the database and to the session beside since it was last made as it was.
    pub(crate) async fn harm_inside(&mut self) -> Harm {
        let changed = self.state().await != self.before;
        Harm { changed, stopped: !self.sibling_runs().await, ..Harm::default() }
    }

    /// Makes it all as it was, so that the next attack finds what it looks for.
    pub(crate) async fn restore(&mut self, login: &ConnectOptions) {
        let _ = std::fs::remove_file(self.db.cluster().data_dir().join("pwned.txt"));
        for sql in [
            "alter system reset work_mem",
            "truncate app.victim; insert into app.victim values (1, 'intact')",
            "select lo_unlink(oid) from pg_largeobject_metadata",
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots",
            "drop table if exists app.t2; alter table app.victim drop column if exists z; select setval('app.seq', 1, false)",
        ] {
            self.db.run(sql).await;
        }
        if !self.sibling_runs().await {
            self.watch(login).await;
        }
        self.before = self.state().await;
    }
}

/// State of a session.
pub(crate) const SESSION_STATE: &str = "
        select concat_ws('|', current_user, session_user, current_setting('search_path'), current_setting('application_name'),
            current_setting('statement_timeout'), current_setting('default_transaction_read_only'),
            current_setting('work_mem'), current_setting('client_min_messages'), current_setting('row_security'),
            current_setting('max_parallel_workers_per_gather'), coalesce(current_setting('app.tenant', true), ''),
            (select count(*) from pg_cursors), (select count(*) from pg_prepared_statements where from_sql),
            (select count(*) from pg_listening_channels()), pg_my_temp_schema()::text,
            (select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory')) as state";

/// State of an idle session of this pool.
pub(crate) async fn session_state(reader: &Reader) -> Vec<Option<String>> {
    // A session that is being cleaned comes back to the pool before it is lent again.
    let mut lease = tokio::time::timeout(Duration::from_secs(10), reader.acquire()).await.unwrap().unwrap();
    let outcomes = lease.session().run(&[PipelineStatement::without_params(SESSION_STATE)]).await.unwrap();
    outcomes.into_iter().flat_map(|outcome| outcome.rows).flatten().collect()
}
