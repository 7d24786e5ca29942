#![allow(
    clippy::all,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_macros,
    clippy::expect_used,
    clippy::indexing_slicing,
    missing_docs
)]
use countersign_pg::*;
use std::time::*;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
async fn run(x: &dyn DbExecutor, p: &Place, q: Query, show: bool) -> Result<Completed, Failed> {
    let (tx, mut rx) = mpsc::channel(2);
    let t = tokio::spawn(async move {
        while let Some(c) = rx.recv().await {
            match c {
                Chunk::Delivered(ok) => {
                    let _ = ok.send(());
                }
                c => {
                    if show {
                        println!("   {}", format!("{c:?}").chars().take(160).collect::<String>())
                    }
                }
            }
        }
    });
    let r = x.query(p, q, tx, CancellationToken::new()).await;
    t.await.unwrap();
    r
}
fn q(sql: &str, ro: bool) -> Query {
    Query {
        sql: sql.into(),
        params: vec![],
        read_only: ro,
        statement_timeout: Duration::from_secs(30),
        lock_timeout: Duration::from_secs(5),
        delivery: Delivery::Inline { max_rows: 1000, max_bytes: 1 << 20 },
    }
}
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let x = Direct::default();
    let p = Place {
        session: "default".into(),
        target: Target::parse("postgresql://postgres@127.0.0.1:5599/postgres").unwrap(),
    };
    for (sql, ro) in [
        ("select 1 as n, 'a'::text as t", true),
        ("select 1 as n, 'a'::text as t", true),
        ("create table if not exists t(a int primary key, b text)", false),
        ("create table if not exists t(a int primary key, b text)", false),
        ("delete from t", false),
        ("insert into t values (1,'x'),(2,'y'),(3,'z')", false),
        ("insert into t values (1,'x')", false),
        ("insert into t values (9,'x') returning a", false),
        ("insert into t values (8,'x')", true),
        ("commit", true),
        ("commit", false),
        ("rollback and chain", false),
        ("savepoint a", false),
        ("listen x", false),
        ("listen x", true),
        ("copy t to stdout", true),
        ("copy t to stdout", false),
        ("copy t from stdin", false),
        ("copy t from stdin", true),
        ("set work_mem='1MB'", true),
        ("show work_mem", true),
        ("select row(1,'a',now()) as r", true),
        ("do $$ begin raise notice 'hi'; end $$", true),
        ("", true),
        ("-- x", false),
        ("select pg_read_file('x')", true),
        ("prepare transaction 'x'", false),
        ("select 1/0", true),
        ("selec", true),
        ("select pg_backend_pid()", true),
        ("select generate_series(1,1001)", true),
        ("select count(*) from t", true),
        ("values (1,2),(3,4);", true),
        ("explain select 1", true),
        ("select", true),
        ("vacuum t", false),
        ("deallocate all", true),
        ("discard all", true),
        ("begin", false),
        ("select pg_backend_pid()", true),
    ] {
        let t = Instant::now();
        println!("{sql} {}", if ro { "" } else { "[write]" });
        let r = run(&x, &p, q(sql, ro), true).await;
        println!("   -> {r:?} {:?}", t.elapsed());
    }
    let t = Instant::now();
    for i in 0..1000 {
        let mut z = q("select $1::int as n", true);
        z.params = vec![i.into()];
        run(&x, &p, z, false).await.unwrap();
    }
    println!("1000 small: {:?}", t.elapsed());
    let (c, conn) =
        tokio_postgres::connect("host=127.0.0.1 port=5599 user=postgres", tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(conn);
    let t = Instant::now();
    let s = c.prepare("select $1::int as n").await.unwrap();
    for i in 0..1000i32 {
        c.query(&s, &[&i]).await.unwrap();
    }
    println!("tokio-postgres: {:?}", t.elapsed());
    let mut z = q("select i as n, 'row ' || i as t from generate_series(1,1000000) i", true);
    z.delivery = Delivery::Batches { rows: 1000, bytes: 262144 };
    let t = Instant::now();
    println!("{:?}", run(&x, &p, z, false).await);
    println!("1M: {:?}", t.elapsed());
    let mut t1 = x.begin(&p, Begin { read_only: false, timeout: Duration::from_secs(10) }).await.unwrap();
    for sql in [
        "insert into t values (10,'tx')",
        "savepoint a",
        "select count(*) from t",
        "commit",
        "insert into t values (10,'tx')",
        "select 1",
    ] {
        let (tx, mut rx) = mpsc::channel(9);
        tokio::spawn(async move {
            while let Some(c) = rx.recv().await {
                if let Chunk::Delivered(ok) = c {
                    let _ = ok.send(());
                }
            }
        });
        println!("{sql} -> {:?}", t1.query(q(sql, false), tx, CancellationToken::new()).await);
    }
    println!("{:?}", t1.commit().await);
    x.drain().await;
}
