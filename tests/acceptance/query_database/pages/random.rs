//! Pages of any size put together are the whole result.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::json;
use testkit::{Server, database};

use super::assert_pages;

/// One table: its columns are sometimes NULL, often equal, and `id` is unique.
const SETUP: &str = "
    create schema paged;
    create table paged.any (id int primary key, n int, t text, w timestamptz, f float8);
    insert into paged.any select i, nullif(i % 4, 0), nullif(chr(97 + i % 5), 'c'),
        case when i % 6 > 0 then timestamptz '2026-01-01' + i % 3 * interval '1 us' end,
        nullif((array['NaN', 'Infinity', '-0', '0', '0.1'])[1 + i % 5]::float8, 0.1)
    from generate_series(1, 60) i;
    grant usage on schema paged to public; grant select on paged.any to public";

fn sort_key(column: &'static str) -> impl Strategy<Value = String> {
    let direction = prop::sample::select(vec!["", " desc", " nulls first", " desc nulls last"]);
    direction.prop_map(move |direction| format!("{column}{direction}"))
}

fn order() -> impl Strategy<Value = String> {
    let others = prop::sample::subsequence(vec!["n", "t", "w", "f"], 0..=3).prop_shuffle();
    let keys = others.prop_flat_map(|columns| columns.into_iter().chain(["id"]).map(sort_key).collect::<Vec<_>>());
    keys.prop_map(|keys| keys.join(", "))
}

#[test]
fn pages_of_any_size_in_any_order_are_the_whole_result() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (_db, server) = runtime.block_on(async {
        let db = database().await;
        db.run(SETUP).await;
        let server = Server::on(&db).await;
        (db, server)
    });
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { Config::default().cases } else { 16 };
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let sizes = prop::collection::vec(1_u32..25, 1..4);
    let outcome = runner.run(&(order(), sizes), |(order, sizes)| {
        let query = format!("select t, id, n, w, f from paged.any order by {order}");
        runtime.block_on(assert_pages(&server, &query, json!([]), &sizes));
        Ok::<(), TestCaseError>(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}
