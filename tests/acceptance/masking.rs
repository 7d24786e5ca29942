//! Masked columns: their values are replaced in answers, and no query reveals them.

mod corpus;
mod everywhere;
mod random_query;
mod served;

use std::cell::Cell;
use std::sync::Arc;

use ledger::read::{Error, ReadError, ReadLimits, ReadRequest, Reader, ResultSet, RowFormat, SearchPath};
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::{Value, json};
use testkit::{Database, database};
use types::{Mask, MaskKey, MaskedColumn, Masks, Secret};

use corpus::{ALLOWED, REVEALING};
use random_query::random_query;

const FIXTURE: &str = include_str!("masking/fixture.sql");

/// `variant` changes the masked values only.
async fn shop(variant: &str) -> Database {
    let db = database().await;
    db.run(FIXTURE).await;
    db.run(&format!(
        "insert into shop.customers select i, 'name ' || i, '{variant}' || (i * 7919 + length('{variant}')) % 60 || '@x.org', \
             (i * 31 + length('{variant}') * 17) % 90, array['{variant}', i::text], row('{variant}', 'city')::shop.address, '{{}}', \
             i + length('{variant}'), 'note ' || i % 4 from generate_series(1, 40) i; \
         insert into shop.orders select i, i % 40 + 1, i, 'note ' || i % 3, i % 90 from generate_series(1, 80) i; \
         insert into shop.events select i, '{variant}' || (i * 13 + length('{variant}')) % 97, 'k' from generate_series(1, 90) i; \
         insert into shop.party select i, '{variant}' || i % 5 from generate_series(1, 5) i; \
         insert into shop.person select i, '{variant}' || i % 3, '2000-01-01' from generate_series(6, 9) i; \
         refresh materialized view shop.summary; analyze;"
    ))
    .await;
    db
}

fn masked(column: &str, mask: Mask) -> MaskedColumn {
    let [schema, table, column] = <[&str; 3]>::try_from(Vec::from_iter(column.split('.'))).unwrap().map(str::to_owned);
    MaskedColumn { schema, table, column, mask }
}

fn masks(columns: &[(&str, Mask)]) -> Arc<Masks> {
    let columns = columns.iter().map(|(column, mask)| masked(column, *mask)).collect();
    Arc::new(Masks::new(columns, MaskKey::new(Secret::new("key of the test"))))
}

/// What the queries of the corpus go by.
fn all_masks(mask: Mask) -> Arc<Masks> {
    let tables = ["email", "age", "tags", "home"].map(|column| format!("shop.customers.{column}"));
    let others = ["shop.events.secret", "shop.party.secret"].map(str::to_owned);
    let mut columns: Vec<(String, Mask)> = tables.into_iter().chain(others).map(|column| (column, mask)).collect();
    columns.push(("shop.customers.spent".to_owned(), Mask::Refuse));
    let columns: Vec<(&str, Mask)> = columns.iter().map(|(column, mask)| (column.as_str(), *mask)).collect();
    masks(&columns)
}

fn reader(db: &Database, masks: &Arc<Masks>) -> Reader {
    let path = SearchPath { schemas: vec!["public".to_owned()], ..SearchPath::default() };
    Reader::new(db.target(), &path, ReadLimits::default()).with_masks(Arc::clone(masks), false)
}

async fn read(reader: &Reader, sql: &str) -> Result<ResultSet, ReadError> {
    let params = if sql.contains("$1") { vec![json!(1)] } else { Vec::new() };
    let params = if sql.contains("$1::text") { vec![json!("a")] } else { params };
    reader.read(&ReadRequest::new(sql, &params, RowFormat::Array)).await
}

fn rows(result: &ResultSet) -> Vec<Vec<Value>> {
    result.rows.deserialize().unwrap()
}

#[tokio::test]
async fn a_query_that_would_reveal_a_masked_value_is_refused() {
    let db = shop("variant").await;
    let reader = reader(&db, &all_masks(Mask::Null));
    let mut revealed = Vec::new();
    for sql in REVEALING {
        match read(&reader, sql).await {
            Ok(result) => revealed.push(format!("{sql}\n  gave {:?}", rows(&result).first())),
            Err(ReadError::Masked(_) | ReadError::ForbiddenFunction { .. }) => {}
            // Not every version has every function, and not every view is readable.
            Err(ReadError::Database(Error::Server(error))) if ["42883", "42501"].contains(&error.sqlstate.as_str()) => {
            }
            Err(error) => revealed.push(format!("{sql}\n  failed with {error}")),
        }
    }
    assert!(revealed.is_empty(), "{}", revealed.join("\n"));
}

#[tokio::test]
async fn a_result_column_is_masked_however_it_is_named() {
    let db = shop("variant").await;
    let reader = reader(&db, &all_masks(Mask::Null));
    let mut wrong = Vec::new();
    for (sql, positions) in ALLOWED {
        match read(&reader, sql).await {
            Ok(result) => {
                let text = result.rows.iter().collect::<String>();
                let shown: Vec<usize> =
                    (0..result.columns.len()).filter(|it| result.masks.get(*it).copied().flatten().is_some()).collect();
                let is_null = |row: &Vec<Value>| positions.iter().all(|it| row[*it].is_null());
                if text.contains("variant") || shown != *positions || !rows(&result).iter().all(is_null) {
                    wrong.push(format!("{sql}\n  masked {shown:?} of {text:.200}"));
                }
            }
            Err(error) => wrong.push(format!("{sql}\n  failed with {error}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A plan shows the names that a view gives to the columns of a table, so no query is trusted while there is such a view.
#[tokio::test]
async fn a_view_that_gives_other_names_to_columns_closes_all_reads() {
    let db = shop("variant").await;
    let masks = all_masks(Mask::Null);
    let reader = reader(&db, &masks);
    reader.check_masks(&masks).await.unwrap();
    let harmless =
        "create view shop.fine as select s.a from (select id from shop.customers c) s (a), generate_series(1, 2) g (i)";
    db.run(harmless).await;
    read(&reader, "select id from shop.customers").await.unwrap();
    db.run("create view shop.renamed as select id, x as address from shop.customers as \"c c\" (id, name, x)").await;
    for sql in ["select upper(address) from shop.renamed", "select id from shop.customers"] {
        let error = read(&reader, sql).await.unwrap_err().to_string();
        assert!(error.starts_with("the view shop.renamed gives other names to the columns"), "{error}");
    }
    reader.check_masks(&masks).await.unwrap_err();
    db.run("drop view shop.renamed").await;
    read(&reader, "select id from shop.customers").await.unwrap();
}

/// Takes about ten seconds.
const RANDOM_QUERIES: u32 = 800;

/// Two shops that differ in masked values only, and how many queries were answered, answered with masked columns, and
/// refused.
struct TwoShops {
    _dbs: [Database; 2],
    readers: [Reader; 2],
    counts: [Cell<u32>; 3],
}

impl TwoShops {
    async fn new(is_declared: bool) -> Self {
        let dbs = [shop("alpha").await, shop("omegas").await];
        let masks = all_masks(Mask::Null);
        let readers = dbs.each_ref().map(|db| reader(db, &masks).with_masks(Arc::clone(&masks), is_declared));
        Self { _dbs: dbs, readers, counts: [const { Cell::new(0) }; 3] }
    }

    /// # Errors
    /// The query and its two outcomes, if they differ.
    async fn compare(&self, sql: &str) -> Result<(), String> {
        let [answered, masked, refused] = &self.counts;
        let [first, second] = [read(&self.readers[0], sql).await, read(&self.readers[1], sql).await];
        match (first, second) {
            (Ok(first), Ok(second)) => {
                answered.update(|count| count + 1);
                masked.update(|count| count + u32::from(first.masks.iter().any(Option::is_some)));
                let [first, second] = [first, second].map(|result| {
                    let mut rows: Vec<String> = result.rows.iter().map(str::to_owned).collect();
                    rows.sort();
                    rows
                });
                if first == second { Ok(()) } else { Err(format!("{sql}\n{first:?}\n{second:?}")) }
            }
            (Err(ReadError::Masked(_)), Err(ReadError::Masked(_))) => {
                refused.update(|count| count + 1);
                Ok(())
            }
            (Err(_), Err(_)) => Ok(()),
            (first, second) => Err(format!("{sql}\n{:?}\n{:?}", first.err(), second.err())),
        }
    }
}

/// Runs random queries on two shops, up to the first one that tells them apart.
fn random_queries(is_declared: bool) -> (Result<(), String>, [u32; 3], u32) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let shops = runtime.block_on(TwoShops::new(is_declared));
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { Config::default().cases } else { RANDOM_QUERIES };
    let max_shrink_time = if is_declared { 1 } else { 20_000 };
    let config = Config { cases, failure_persistence: None, max_shrink_time, ..Config::default() };
    let outcome = TestRunner::new(config).run(&vec(any::<u8>(), 0..80), |choices| {
        runtime.block_on(shops.compare(&random_query(&choices))).map_err(TestCaseError::fail)
    });
    (outcome.map_err(|error| error.to_string()), shops.counts.each_ref().map(Cell::get), cases)
}

/// A caller who sees a difference between the shops has learned something of the masked values.
#[test]
fn no_query_tells_two_databases_apart_that_differ_in_masked_values() {
    let (outcome, [answered, masked, refused], cases) = random_queries(false);
    if let Err(difference) = outcome {
        panic!("{difference}");
    }
    println!(
        "of {cases} queries {answered} were answered, {masked} of these with masked columns, and {refused} refused"
    );
    assert!(masked * 40 > cases && refused * 20 > cases, "{masked} and {refused} of {cases}");
}

/// The control: the queries find a difference where only result columns are masked.
#[test]
fn random_queries_tell_two_databases_apart_if_only_result_columns_are_masked() {
    let (outcome, _, _) = random_queries(true);
    outcome.expect_err("a difference");
}
