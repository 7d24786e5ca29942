//! What does the log cost as it grows? Sealing, signing, proofs, exports and their verification, on logs of 10,000, 100,000 and
//! 1,000,000 records, with `fsync` on. docs/internals/log.md has the figures.
//!
//! Run: `cargo bench -p acceptance --bench log`; `COUNTERSIGN_BENCH_RECORDS` ends with another number of records.

use std::path::Path;
use std::time::{Duration, Instant};

use ledger::audit::{Audit, Parts, Signed, Signing, write_key};
use ledger::{ConnectOptions, Ledger, LedgerOptions};
use pg_embedded::{Cluster, Options};
use tlog::{KeyKind, SigningKey, Trust, verify_bundle};
use tokio_postgres::Client;
use types::CorrelationId;

const SIZES: [u64; 3] = [10_000, 100_000, 1_000_000];
/// Exports with parts have four files for each record, so larger logs are exported without.
const MAX_WITH_PARTS: u64 = 10_000;
const PROOFS: usize = 100;

/// The largest log.
fn records() -> u64 {
    std::env::var("COUNTERSIGN_BENCH_RECORDS").map_or(SIZES[2], |number| number.parse().expect("a number"))
}

#[tokio::main]
async fn main() {
    let settings =
        [("fsync", "on"), ("shared_buffers", "256MB"), ("max_wal_size", "8GB"), ("checkpoint_timeout", "30min")];
    let cluster = Cluster::start(Options::ephemeral().settings(&settings), &mut |_| {}).expect("a cluster");
    let url = cluster.connection_string("postgres");
    let target = ConnectOptions::parse(&url).unwrap();
    ledger::init(&target, &ledger::InitOptions::default()).await.expect("the ledger");
    let owner = testkit::connect(&url).await;

    let folder = tempfile::tempdir().unwrap();
    let key = SigningKey::generate("countersign/bench", KeyKind::Log).unwrap();
    write_key(&folder.path().join("log.key"), &key).unwrap();
    let signing = Signing { key_files: vec![folder.path().join("log.key")], ..Signing::default() };
    let audit = Ledger::new(target, LedgerOptions { signing: signing.clone(), ..LedgerOptions::default() }).audit();
    audit.add_key(key.verifier_key(), "bench").await.unwrap();

    let trust = Trust { keys: vec![key.verifier_key().clone()], policy: None };
    let mut made = 0;
    let mut sizes: Vec<u64> = SIZES.into_iter().filter(|size| *size < records()).collect();
    sizes.push(records());
    for size in sizes {
        insert(&owner, made, size).await;
        let sealed = size - made;
        made = size;
        measure(&audit, &signing, &owner, (size, sealed), (folder.path(), &trust)).await;
    }
}

/// Inserts the records behind `from`, up to `to`, as writes of an hour ago.
async fn insert(owner: &Client, from: u64, to: u64) {
    owner
        .batch_execute(&format!(
            "insert into countersign.record (correlation_id, account_id, tool_name, fingerprint, params, params_summary,
                 status, result, result_summary, rows_affected, rollback, login, slot, holds_until, xid, admitted_at, completed_at)
             select gen_random_uuid(), 'default', 'insert_item', encode(sha256(n::text::bytea), 'hex'), '{{\"n\": 1}}', '{{\"n\": 1}}',
                 'success', '{{\"id\": 1}}', '{{\"id\": 1}}', 1, '{{}}', 'countersign_writer', sha256(n::text::bytea), at,
                 pg_current_xact_id(), at, at
             from generate_series({from} + 1, {to}) n, lateral (select now() - interval '1 hour' as at) t;"
        ))
        .await
        .unwrap();
    owner.batch_execute("vacuum analyze countersign.record").await.unwrap();
}

async fn measure(
    audit: &Audit,
    signing: &Signing,
    owner: &Client,
    (size, sealed): (u64, u64),
    (folder, trust): (&Path, &Trust),
) {
    println!("{size} records");
    let started = Instant::now();
    audit.seal().await.expect("to be sealed");
    let took = started.elapsed();
    println!(
        "  seal {sealed}: {:.1} s, {:.0} us a record",
        took.as_secs_f64(),
        took.as_secs_f64() * 1e6 / sealed as f64
    );
    owner.batch_execute("vacuum analyze countersign.leaf").await.unwrap();
    let started = Instant::now();
    let Signed::Note(note) = audit.sign(signing).await.expect("to be signed") else { panic!("the key is here") };
    println!("  sign: {:.1} ms, a checkpoint of {} bytes", milliseconds(started.elapsed()), note.to_string().len());
    prove(audit, owner).await;

    let entry = "select avg(octet_length(entry))::float8, pg_total_relation_size('countersign.leaf')::float8 from countersign.leaf";
    let row = owner.query_one(entry, &[]).await.unwrap();
    let (entry, table): (f64, f64) = (row.get(0), row.get(1));
    println!("  an entry has {entry:.0} bytes; the table of leaves {:.0} MB", table / 1e6);
    for parts in [Parts::Withheld, Parts::Included] {
        if parts == Parts::Included && size > MAX_WITH_PARTS {
            continue;
        }
        let dir = folder.join(format!("{size} {parts:?}"));
        let started = Instant::now();
        audit.export(&dir, parts, &[], "bench").await.expect("to be exported");
        let exported = started.elapsed();
        let started = Instant::now();
        let report = verify_bundle(&dir, trust, &[]).expect("to be readable");
        assert!(report.is_valid(), "{:?}", report.findings);
        let verified = started.elapsed();
        let (files, bytes) = disk_usage(&dir);
        println!(
            "  parts {parts:?}: export {:.1} s, {files} files of {:.1} MB, verification {:.2} s",
            exported.as_secs_f64(),
            bytes as f64 / 1e6,
            verified.as_secs_f64()
        );
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

async fn prove(audit: &Audit, owner: &Client) {
    let sample = format!("select correlation_id::text from countersign.record order by random() limit {PROOFS}");
    let rows = owner.query(&sample, &[]).await.unwrap();
    let ids: Vec<CorrelationId> = rows.iter().map(|row| CorrelationId::parse(row.get(0)).unwrap()).collect();
    let mut times = Vec::new();
    let (mut hashes, mut bytes) = (0, 0);
    for id in ids {
        let started = Instant::now();
        let proof = audit.prove(id).await.expect("a proof");
        times.push(started.elapsed());
        hashes = hashes.max(proof.hashes.len());
        bytes = bytes.max(proof.to_string().len());
    }
    times.sort_unstable();
    let median = milliseconds(times[times.len() / 2]);
    println!("  one proof: {median:.1} ms (median of {}), at most {hashes} hashes, {bytes} bytes", times.len());
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The number of files below a folder, and their bytes.
fn disk_usage(folder: &Path) -> (u64, u64) {
    let (mut files, mut bytes) = (0, 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let (more_files, more_bytes) = if entry.file_type().unwrap().is_dir() {
            disk_usage(&entry.path())
        } else {
            (1, entry.metadata().unwrap().len())
        };
        files += more_files;
        bytes += more_bytes;
    }
    (files, bytes)
}
