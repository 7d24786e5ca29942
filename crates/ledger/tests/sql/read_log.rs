//! The log of reads as SQL: batches, the partitions of days, privileges and pruning.

use testkit::Database;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::{OPERATOR, Refused, connect, ledger, run, server};

const HOUR: i64 = 3_600_000_000;

/// A batch of reads that began at these times, in microseconds before it is sent.
async fn log(session: &Client, (sender, number): (Uuid, u32), ages: &[i64]) -> Result<String, Refused> {
    let sent = 1_000_000 * HOUR;
    let times: Vec<String> = ages.iter().map(|age| (sent - age).to_string()).collect();
    let each = |text: &str| vec![text; ages.len()].join(",");
    let columns = format!(
        "'{{{}}}', null, null, null, null, null, null, '{{{}}}', '{{{}}}'",
        times.join(","),
        each("t"),
        each("ok")
    );
    let oldest = sent - ages.iter().max().unwrap();
    let sql = format!("select countersign.log_reads('{sender}', {number}, {sent}, {oldest}, array[{columns}])");
    Ok(run(session, &sql).await?.remove(0))
}

/// The partitions with their numbers of rows; `0` is today.
async fn days(database: &Database) -> Vec<String> {
    let sql = "select (p.day - (now() at time zone 'UTC')::date) || ':' || \
                   (select count(*) from countersign.read_log a where a.tableoid = p.relation) \
               from countersign.read_partitions() p order by p.day";
    database.rows(sql).await.into_iter().flatten().collect()
}

async fn microseconds_since_midnight(database: &Database) -> i64 {
    let sql = "select (extract(epoch from now() - date_trunc('day', now(), 'UTC')) * 1000000)::bigint";
    database.value(sql).await.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_write_at_once_across_midnight_make_each_day_once() {
    let database = ledger("read_days").await;
    let today = microseconds_since_midnight(&database).await;
    // Some just before midnight, some just after it, and some on an earlier day.
    let ages = [today + HOUR, today + 60_000_000, (today - 60_000_000).max(0), 0, today + 50 * HOUR];
    let servers = (0..8).map(|_| async {
        let session = server(&database).await;
        let sender = Uuid::new_v4();
        for number in 1..=3 {
            assert_eq!(log(&session, (sender, number), &ages).await.unwrap(), "t");
        }
    });
    futures_util::future::join_all(servers).await;
    assert_eq!(days(&database).await, ["-3:24", "-2:0", "-1:48", "0:48", "1:0"], "tomorrow is there already");
    let outside = "select count(*) from countersign.read_log a join countersign.read_partitions() p on p.relation = a.tableoid \
                   where (a.read_at at time zone 'UTC')::date <> p.day or a.read_at > clock_timestamp()";
    assert_eq!(database.value(outside).await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_day_is_attached_while_the_log_is_read_and_written() {
    let database = ledger("read_attach").await;
    let session = server(&database).await;
    assert_eq!(log(&session, (Uuid::new_v4(), 1), &[0]).await.unwrap(), "t");
    let reader = database.connect().await;
    reader.batch_execute("begin; select count(*) from countersign.read_log").await.unwrap();
    let writer = database.connect().await;
    writer
        .batch_execute("begin; insert into countersign.read_log (read_at, login, outcome) values (now(), 'x', 'ok')")
        .await
        .unwrap();
    // Another day: its partition is made although both transactions are open.
    assert_eq!(log(&session, (Uuid::new_v4(), 1), &[72 * HOUR]).await.unwrap(), "t");
    for session in [reader, writer] {
        session.batch_execute("commit").await.unwrap();
    }
    assert_eq!(database.value("select count(*) from countersign.read_log").await, "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_batch_counts_once_and_an_old_one_is_refused() {
    let database = ledger("read_batches").await;
    let session = server(&database).await;
    let sender = Uuid::new_v4();
    for (number, written) in [(1, "t"), (1, "f"), (2, "t"), (1, "f")] {
        assert_eq!(log(&session, (sender, number), &[0]).await.unwrap(), written, "{number}");
    }
    assert_eq!(log(&session, (Uuid::new_v4(), 1), &[0]).await.unwrap(), "t", "another server");
    assert_eq!(database.value("select count(*) from countersign.read_log").await, "3");
    assert_eq!(log(&session, (sender, 3), &[8 * 24 * HOUR]).await.unwrap_err().code, "22023");
    // The refused batch left nothing, so the same number is free.
    assert_eq!(log(&session, (sender, 3), &[6 * 24 * HOUR]).await.unwrap(), "t");
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_only_add_to_the_log_and_nobody_changes_it() {
    let database = ledger("read_rights").await;
    let session = server(&database).await;
    log(&session, (Uuid::new_v4(), 1), &[0]).await.unwrap();
    let day = database.value("select p.relation::regclass from countersign.read_partitions() p limit 1").await;
    for table in ["countersign.read_log", &day] {
        for statement in [
            format!("select count(*) from {table}"),
            format!("insert into {table} (read_at, login, outcome) values (now(), 'x', 'ok')"),
            format!("update {table} set outcome = 'x'"),
            format!("delete from {table}"),
            format!("truncate {table}"),
            format!("drop table {table}"),
        ] {
            assert_eq!(run(&session, &statement).await.unwrap_err().code, "42501", "{statement}");
        }
    }
    let today = "select countersign.drop_reads((now() - interval '5 days')::date, 'x')";
    assert_eq!(run(&session, today).await.unwrap_err().code, "42501");
    // An agent with execute_sql runs its statement in the transaction of a write.
    let forged = format!(
        "begin; insert into countersign.admission (slot, correlation_id, account_id, tool_name, fingerprint, params, params_summary) \
             values ('x', gen_random_uuid(), 'a', 't', 'f', '{{}}', '{{}}'); \
         select countersign.log_reads('{}', 1, 0, 0, '{{}}')",
        Uuid::new_v4()
    );
    assert_eq!(run(&session, &forged).await.unwrap_err().code, "42501");
    let operator = connect(&database, OPERATOR).await;
    assert_eq!(run(&operator, "select count(*) from countersign.read_log").await.unwrap(), ["1"]);
    let owner = database.connect().await;
    for table in ["countersign.read_log", &day] {
        for statement in [format!("update {table} set outcome = 'x'"), format!("delete from {table}")] {
            let refused = run(&owner, &statement).await.map(drop);
            let is_empty_day = table != "countersign.read_log" && refused.is_ok();
            assert!(is_empty_day || refused.unwrap_err().message.contains("append-only"), "{statement}");
        }
    }
    assert_eq!(database.value("select count(*) from countersign.read_log where outcome = 'ok'").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn pruning_drops_whole_days_says_so_and_gives_way_to_readers() {
    let database = ledger("read_prune").await;
    let session = server(&database).await;
    let day = 24 * HOUR;
    log(&session, (Uuid::new_v4(), 1), &[6 * day, 6 * day, 5 * day, 0]).await.unwrap();
    let drop = |days: u32| format!("select countersign.drop_reads((now() at time zone 'UTC')::date - {days}, 'anna')");
    let owner = database.connect().await;
    for recent in [0, 1] {
        let refused = run(&owner, &drop(recent)).await.unwrap_err();
        assert_eq!(refused.code, "22023", "a day of the last 24 hours");
    }
    let reader = database.connect().await;
    reader.batch_execute("begin; select count(*) from countersign.read_log").await.unwrap();
    assert_eq!(run(&owner, &drop(6)).await.unwrap_err().code, "55P03");
    reader.batch_execute("commit").await.unwrap();
    assert_eq!(run(&owner, &drop(6)).await.unwrap(), ["2"]);
    assert_eq!(days(&database).await, ["-5:1", "-4:0", "-3:0", "-2:0", "-1:0", "0:2", "1:0"]);
    let told = "select outcome, entries, actor, last_at - first_at, \
                    (first_at at time zone 'UTC')::date = (now() at time zone 'UTC')::date - 6 \
                from countersign.read_log where tool_name is null";
    assert_eq!(database.rows(told).await, [["pruned", "2", "anna", "1 day", "t"]]);
}
