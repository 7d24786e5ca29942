//! What a question costs does not depend on the length of the history: rows and buffers of the ledger's tables that each
//! question of an agent, an operator or a page reads, with few records and with many. Times are for the benchmarks.
//!
//! `COUNTERSIGN_TEST_RECORDS` sets the length of the long history.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use testkit::audit::insert_failed_records;
use testkit::{Database, Server, TestManifest, lone_database_with, long_form, run_countersign};

/// What autovacuum would add.
const SETTINGS: [(&str, &str); 1] = [("autovacuum", "off")];

const TABLES: &str = "
create schema s;
create table s.t (id int primary key, v int);
insert into s.t select g, 0 from generate_series(1, 3000) g;
grant usage on schema s to countersign_writer, countersign_reader;
grant select, update on s.t to countersign_writer;
grant select on s.t to countersign_reader;
select countersign.track('s.t')";

const TOOL: &str = r#"
[[tool]]
name = "set_v"
access = "write"
description = "Set it."
rows = "one"
sql = "update s.t set v = $2 where id = $1 returning id"
param = [{ name = "id", description = "Which." }, { name = "v", description = "What." }]
"#;

/// The rows and the buffers that sessions have read of the ledger and of the table.
const READ: &str = "
select coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0), coalesce(sum(blocks), 0)
from pg_stat_all_tables t join (
    select relid, heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit + idx_blks_read, 0) + coalesce(toast_blks_hit + toast_blks_read, 0) as blocks
    from pg_statio_all_tables) b using (relid)
where schemaname in ('countersign', 's')";

const OTHERS: &str = "
select count(*) from pg_stat_activity where backend_type = 'client backend' and application_name like 'countersign%'";

/// Some rows and pages are read once for each level of an index, or because a page is not full.
const SLACK: f64 = 150.0;

#[derive(Debug, Clone, Copy, PartialEq)]
struct Read {
    rows: f64,
    buffers: f64,
}

impl Read {
    fn is_at_most_twice(self, few: Self) -> bool {
        self.rows <= 2.0 * few.rows + SLACK && self.buffers <= 2.0 * few.buffers + SLACK
    }
}

type Questions = BTreeMap<&'static str, Read>;

struct History {
    db: Database,
    manifest: TestManifest,
    records: u64,
    next: u64,
}

impl History {
    async fn new() -> Self {
        let db = lone_database_with(&SETTINGS).await;
        db.run(TABLES).await;
        let history = Self { db, manifest: TestManifest::new(TOOL), records: 0, next: 0 };
        history.asked(&[("set_v", json!({"id": 1, "v": 1}))]).await;
        history
    }

    /// Adds copies of the first write until there are so many, at even intervals of `step_s` from a month ago. One row
    /// has half of the changes of the first `busy` records.
    async fn grow(&mut self, records: u64, busy: u64, step_s: f64) {
        let columns = async |table: &str, own: &str| {
            let sql = format!(
                "select string_agg(quote_ident(column_name), ', ') from information_schema.columns \
                 where table_schema = 'countersign' and table_name = '{table}' and column_name not in ({own})"
            );
            self.db.value(&sql).await
        };
        let record = columns("record", "'id', 'correlation_id', 'slot', 'admitted_at', 'completed_at'").await;
        let effect = columns("effect", "'correlation_id', 'position', 'key'").await;
        let from = self.records + 1;
        let at = format!("now() - interval '30 days' + g * interval '{step_s} seconds'");
        self.db
            .run(&format!(
                "set session_replication_role = replica;
                 create temp table r as select * from countersign.record where status = 'success' order by id limit 1;
                 create temp table e as select * from countersign.effect where correlation_id = (select correlation_id from r);
                 create temp table ids as select gen_random_uuid() i, g from generate_series({from}, {records}) g;
                 insert into countersign.record (correlation_id, admitted_at, completed_at, {record})
                 select i, {at}, {at}, {record} from r, ids order by g;
                 insert into countersign.effect (correlation_id, position, key, {effect})
                 select i, nextval('countersign.effect_position'),
                     format('{{\"id\": %s}}', case when g % 2 = 0 and g < {busy} then 2 else 10 + g % 2000 end), {effect}
                 from e, ids order by g;
                 drop table r, e, ids;
                 set session_replication_role = origin"
            ))
            .await;
        self.db.run(&format!("select countersign.seal({records})")).await;
        self.db.run("vacuum analyze").await;
        self.records = records;
    }

    /// What was read since, once every session has reported.
    async fn read(&self) -> [f64; 2] {
        self.db.until_value(OTHERS, "0").await;
        self.db.run("select pg_stat_force_next_flush()").await;
        let row = &self.db.rows(READ).await[0];
        [row[0].parse().unwrap(), row[1].parse().unwrap()]
    }

    async fn asked(&self, calls: &[(&str, Value)]) -> Option<Value> {
        let mut command = self.manifest.command(&self.db);
        command.args(["--profile", "admin"]);
        let server = self.db.settled(Server::start(command)).await;
        let mut answer = None;
        for (tool, arguments) in calls {
            answer = Some(server.succeed(tool, arguments.clone()).await);
        }
        server.close().await;
        answer
    }

    async fn costs(&self, question: impl Future) -> Read {
        let before = self.read().await;
        question.await;
        let after = self.read().await;
        Read { rows: after[0] - before[0], buffers: after[1] - before[1] }
    }

    async fn of_agents(&mut self) -> Questions {
        let mut found = Questions::new();
        self.next += 1;
        let written = self.asked(&[("set_v", json!({"id": 5, "v": self.next}))]).await.unwrap();
        let id = written["meta"]["correlation_id"].clone();
        found.insert("start", self.costs(self.asked(&[])).await);
        for (name, tool, arguments) in [
            ("recent", "get_recent_mutations", json!({})),
            ("recent failures", "get_recent_mutations", json!({"status": "failure"})),
            ("running writes", "get_recent_mutations", json!({"status": "pending"})),
            ("recent of a rare tool", "get_recent_mutations", json!({"tool_name": "rare"})),
            ("detail", "get_mutation_detail", json!({"correlation_id": id})),
            ("history of a row", "row_history", json!({"table": "s.t", "key": {"id": 5}})),
            ("history of a busy row", "row_history", json!({"table": "s.t", "key": {"id": 2}})),
            ("plan of an undo", "undo_plan", json!({"from": "1h", "tool": "set_v"})),
            ("undo", "undo_mutation", json!({"correlation_id": id, "reason": "It was a test."})),
            ("write", "set_v", json!({"id": 6, "v": self.next})),
        ] {
            found.insert(name, self.costs(self.asked(&[(tool, arguments)])).await);
        }
        found
    }

    /// `now` is when the history ended.
    async fn of_people(&self, now: &str) -> Questions {
        let mut found = Questions::new();
        for (name, arguments) in [
            ("audit list", &["audit", "list"][..]),
            ("audit list of failures", &["audit", "list", "--status", "failure"]),
            ("audit list of a rare account", &["audit", "list", "--account", "rare"]),
            ("audit list of a rare actor in the last minutes", &["audit", "list", "--since", now, "--actor", "rare"]),
            ("audit list of a table", &["audit", "list", "--table", "s.t"]),
            ("audit list of a row", &["audit", "list", "--table", "s.t", "--key", "5"]),
            ("audit list of the last minutes", &["audit", "list", "--since", now]),
            ("audit list of a rare tool in the last minutes", &["audit", "list", "--since", now, "--tool", "rare"]),
            ("audit list of long ago", &["audit", "list", "--until", "29d"]),
            ("audit counts of the last minutes", &["audit", "counts", "--since", now]),
            ("audit row", &["audit", "row", "s.t", "5"]),
            ("doctor", &["doctor"]),
        ] {
            found.insert(
                name,
                self.costs(async {
                    let output = run_countersign(&self.db.url(), arguments).await;
                    assert_eq!(output.code, 0, "{arguments:?}: {output:?}");
                })
                .await,
            );
        }
        found
    }

    async fn all(&mut self) -> Questions {
        let now = self.db.value("select to_char(now() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')").await;
        let mut found = self.of_agents().await;
        found.extend(self.of_people(&now).await);
        found
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_reads_as_much_of_a_long_history_as_of_a_short_one() {
    let long = long_form::variable_or("COUNTERSIGN_TEST_RECORDS", 30_000, 1_000_000);
    let mut history = History::new().await;
    // Twenty days in all.
    let step_s = 1_728_000.0 / long as f64;
    insert_failed_records(&history.db, 1, 31).await;
    history.grow(1000, 1000, step_s).await;
    let few = history.all().await;
    history.grow(long, 20_000, step_s).await;
    let many = history.all().await;
    let mut table = vec![format!("{:<40}{:>16}{:>16}", "rows, buffers", 1000, long)];
    for (name, read) in &many {
        let [few, many] = [few[name], *read].map(|Read { rows, buffers }| format!("{rows}, {buffers}"));
        table.push(format!("{name:<40}{few:>16}{many:>16}"));
    }
    let table = table.join("\n");
    if long_form::is_on() {
        long_form::say(&table);
    }
    for (name, read) in &many {
        assert!(read.is_at_most_twice(few[name]), "{name}\n{table}");
    }
    // The control: without the index over them, failures are looked for among all records.
    history.db.run("drop index countersign.record_unsuccessful_of, countersign.record_unsuccessful").await;
    let failures = history.costs(history.asked(&[("get_recent_mutations", json!({"status": "failure"}))])).await;
    assert!(!failures.is_at_most_twice(few["recent failures"]), "{failures:?}");
}
