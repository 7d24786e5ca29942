//! For every type and value, the read path returns what `to_jsonb` returns, and accepts what it has returned.
//!
//! A batch of expressions of generated types is read in one query, and in another one, over tokio-postgres, `to_jsonb` is
//! asked for the same expressions. `PROPTEST_CASES` sets how many batches.

mod ranges;
mod types;
mod values;

use std::time::Duration;

use ledger::read::{ReadLimits, ReadRequest, Reader, RowFormat, SearchPath};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::{Number, Value};
use testkit::database;

use types::{SETUP, Sample, samples};

use crate::values::canonical;

/// Takes about three seconds.
const BATCHES: u32 = 12;

/// The search path of an ordinary login.
fn public() -> SearchPath {
    SearchPath { schemas: vec!["public".to_owned()], ..SearchPath::default() }
}

#[test]
fn every_value_of_every_type_reads_as_to_jsonb_has_it_and_goes_back_as_it_was_read() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (_db, reader, client) = runtime.block_on(async {
        let db = database().await;
        db.run(SETUP).await;
        let limits = ReadLimits { max_bytes: 16 << 20, deadline: Duration::from_secs(60), ..ReadLimits::default() };
        let (reader, client) = (Reader::new(db.target(), &public(), limits), db.connect().await);
        (db, reader, client)
    });
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { Config::default().cases } else { BATCHES };
    let config = Config { cases, failure_persistence: None, max_shrink_time: 10_000, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let outcome =
        runner.run(&samples(), |batch| runtime.block_on(check(&reader, &client, &batch)).map_err(TestCaseError::fail));
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

async fn check(reader: &Reader, client: &tokio_postgres::Client, batch: &[Sample]) -> Result<(), String> {
    let list = |of: &dyn Fn(usize, &Sample) -> String| {
        batch.iter().enumerate().map(|(index, sample)| of(index, sample)).collect::<Vec<_>>().join(", ")
    };
    let expected = list(&|_, sample| format!("to_jsonb({})::text", sample.expression));
    let expected = client.query_one(&format!("select {expected}"), &[]).await.map_err(|error| format!("{error:?}"))?;
    let sql = format!("select {}", list(&|_, sample| sample.expression.clone()));
    let row = read(reader, &sql, &[]).await?;
    for (index, (sample, value)) in batch.iter().zip(&row).enumerate() {
        let expected: Option<String> = expected.get(index);
        let expected = expected.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap());
        if canonical(value, canonical_number) != canonical(&expected, canonical_number) {
            return Err(format!("{}: {value}, and to_jsonb says {expected}", sample.expression));
        }
    }
    // And back: what can be a parameter of its type, and is not read from more than its text.
    let (batch, params): (Vec<&Sample>, Vec<Value>) =
        batch.iter().zip(row).filter(|(sample, _)| sample.goes_back).unzip();
    if batch.is_empty() {
        return Ok(());
    }
    let types: Vec<String> =
        batch.iter().enumerate().map(|(index, sample)| format!("${}::{}", index + 1, sample.type_name)).collect();
    let sent: Vec<Value> = batch.iter().zip(&params).map(|(sample, param)| digits_as_text(sample, param)).collect();
    let row = read(reader, &format!("select {}", types.join(", ")), &sent).await?;
    for ((sample, param), value) in batch.iter().zip(&params).zip(&row) {
        // In order and to the digit.
        let (sent, came_back) = (param.to_string(), value.to_string());
        if sent != came_back {
            return Err(format!(
                "{}: {sent} was sent as {} and came back as {came_back}",
                sample.expression, sample.type_name
            ));
        }
    }
    Ok(())
}

/// I-2: a number that JavaScript changes is sent as the text of its digits, but not in a document.
fn digits_as_text(sample: &Sample, value: &Value) -> Value {
    let inner = |value| digits_as_text(sample, value);
    match value {
        _ if sample.type_name.starts_with("json") => value.clone(),
        Value::Number(number) => {
            let digits = number.to_string();
            let is_safe = ::types::is_safe_decimal(&digits) && ::types::is_safe_integer(&digits);
            if is_safe { value.clone() } else { Value::String(digits) }
        }
        Value::Array(items) => items.iter().map(inner).collect(),
        Value::Object(fields) => fields.iter().map(|(name, field)| (name.clone(), inner(field))).collect(),
        _ => value.clone(),
    }
}

async fn read(reader: &Reader, sql: &str, params: &[Value]) -> Result<Vec<Value>, String> {
    let result = reader.read(&ReadRequest::new(sql, params, RowFormat::Array)).await;
    let result = result.map_err(|error| format!("{error:?} for {sql} with {params:?}"))?;
    let row = result.rows.first().ok_or("no row")?;
    Ok(serde_json::from_str(row).expect("a row is JSON"))
}

/// Without an exponent, and without the minus of a zero. The scale stays: `1.10` is not `1.1`.
fn canonical_number(number: &Number) -> String {
    let text = number.to_string().to_ascii_lowercase();
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i64 = exponent.parse().unwrap();
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |mantissa| ("-", mantissa));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let point = i64::try_from(whole.len()).unwrap() + exponent;
    let scale = (i64::try_from(digits.len()).unwrap() - point).max(0);
    let digits = format!("{}{digits}", "0".repeat(usize::try_from((1 - point).max(0)).unwrap()));
    let missing = point.max(1) - i64::try_from(digits.len()).unwrap() + scale;
    let digits = format!("{digits}{}", "0".repeat(usize::try_from(missing.max(0)).unwrap()));
    let (whole, fraction) = digits.split_at(digits.len() - usize::try_from(scale).unwrap());
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let is_zero = digits.bytes().all(|digit| digit == b'0');
    let sign = if is_zero { "" } else { sign };
    if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

#[test]
fn numbers_are_compared_digit_by_digit_for_any_exponent() {
    for (number, expected) in [
        ("1.10", "1.10"),
        ("1e3", "1000"),
        ("1.50e3", "1500"),
        ("1.5e-3", "0.0015"),
        ("-0", "0"),
        ("-0.00", "0.00"),
        ("12.345e1", "123.45"),
        ("0e5", "0"),
        ("1e+20", "100000000000000000000"),
    ] {
        assert_eq!(canonical_number(&number.parse().unwrap()), expected, "{number}");
    }
}
