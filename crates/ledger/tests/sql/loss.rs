//! What a database lacks is noted once, however many sessions find it at the same moment.

use testkit::Database;

use crate::support::{ledger, ledger_without};

/// Notes that this database lacks a write, as a server does that has acknowledged it.
const NOTE: &str = "
select countersign.note_loss(row(i.no, array[w.id], null, null, null, null)::countersign.known_history, array[w.id], array[now()])
from (values ('00000000-0000-4000-8000-000000000001'::uuid)) w (id), (select max(no) as no from countersign.identity) i";

const IDENTITY: &str = "
insert into countersign.identity (system_identifier, database_oid)
select 1, 1 where not exists (select from countersign.identity)";

const NOTED: &str = "
select concat(sum(cardinality(l.records)), ' ', (select count(*) from countersign.event e where e.kind = 'loss')) from countersign.loss l";

/// The number of writes that four sessions have noted at once, and the number of events.
async fn noted(database: &Database) -> String {
    database.run(IDENTITY).await;
    let first = database.connect().await;
    first.batch_execute(&format!("begin; {NOTE}")).await.unwrap();
    let others: Vec<_> = (0..3)
        .map(|_| {
            let database = database.clone();
            tokio::spawn(async move { database.connect().await.batch_execute(NOTE).await.unwrap() })
        })
        .collect();
    let waiting =
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    database.until_value(waiting, "3").await;
    first.batch_execute("commit").await.unwrap();
    for other in others {
        other.await.unwrap();
    }
    database.value(NOTED).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_write_that_four_sessions_miss_is_one() {
    assert_eq!(noted(&ledger("loss_at_once").await).await, "1 1");
    let unlocked = [("    lock table countersign.loss in share row exclusive mode;\n", "")];
    assert_eq!(noted(&ledger_without("loss_unlocked", &unlocked).await).await, "4 4", "without the lock");
}
