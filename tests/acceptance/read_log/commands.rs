//! `countersign audit reads`: list, counts and prune.

use serde_json::{Value, json};
use testkit::audit::{audit, run_audit};
use testkit::{Database, Server, run_countersign};

use super::{logging, shop};

/// Reads of two accounts, in this order.
async fn some_reads(db: &Database) {
    for (account, queries) in [
        ("default", &["select id from shop.customers", "select id from shop.customers where 1 / (id - 1) > 0"][..]),
        ("mei", &["select c.id from shop.customers c, shop.visits v", "select 1"]),
    ] {
        let mut command = logging(db, "text");
        command.args(["--account", account, "--actor", "robot"]);
        let server = Server::start(command).await;
        for query in queries {
            server.call("query_database", json!({"query": query})).await;
        }
        server.close().await;
    }
}

fn lines(printed: &str) -> Vec<Value> {
    printed.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_are_listed_newest_first_with_filters_and_what_is_missing() {
    let db = shop().await;
    assert_eq!(audit(&db, &["reads", "list"]).await, "No reads are logged.\n");
    some_reads(&db).await;
    let listed = async |arguments: &[&str]| {
        let all = lines(&audit(&db, &[&["reads", "list", "--json"], arguments].concat()).await);
        all.iter().map(|read| read["query"].as_str().unwrap_or("lost").to_owned()).collect::<Vec<_>>()
    };
    let [first, failed, joined, one] = [
        "select id from shop.customers",
        "select id from shop.customers where 1 / (id - 1) > 0",
        "select c.id from shop.customers c, shop.visits v",
        "select 1",
    ];
    let session = lines(&audit(&db, &["reads", "list", "--json"]).await)[0]["client"]["session_id"].clone();
    let session = session.as_str().unwrap().get(..8).unwrap().to_owned();
    for (arguments, expected) in [
        (&[][..], &[one, joined, failed, first][..]),
        (&["--limit", "1"], &[one]),
        (&["--account", "mei"], &[one, joined]),
        (&["--actor", "robot", "--tool", "query_database"], &[one, joined, failed, first]),
        (&["--tool", "explain_query"], &[]),
        (&["--session", &session], &[one, joined]),
        (&["--table", "shop.visits"], &[joined]),
        (&["--table", "shop.customers", "--outcome", "ok"], &[joined, first]),
        (&["--outcome", "sql_error"], &[failed]),
        (&["--since", "1h"], &[one, joined, failed, first]),
        (&["--until", "1h"], &[]),
    ] {
        assert_eq!(listed(arguments).await, expected, "{arguments:?}");
    }
    // More than one answer of the database holds, with equal times.
    db.run(
        "insert into countersign.read_log (read_at, login, tool_name, outcome, query) \
            select now(), 'x', 'many', 'ok', n::text from generate_series(1, 450) n",
    )
    .await;
    let many = listed(&["--tool", "many", "--limit", "430"]).await;
    assert_eq!(many, (21..=450).rev().map(|n| n.to_string()).collect::<Vec<_>>());
    // A gap may have what the filter asks for.
    db.run(
        "insert into countersign.read_log (read_at, login, outcome, entries, first_at, last_at) \
            values (now(), 'x', 'lost', 7, now(), now())",
    )
    .await;
    assert_eq!(listed(&["--table", "shop.visits"]).await, ["lost", joined]);
    let refused = run_audit(&db.url(), &["reads", "list", "--table", "visits"]).await;
    assert!(refused.code == 2 && refused.err.contains("with its schema"), "{}", refused.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_reads_fits_100_columns_and_counts_have_a_row_for_each_group() {
    let db = shop().await;
    some_reads(&db).await;
    let table = audit(&db, &["reads", "list"]).await;
    let words = |line: &str| line.split("  ").map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned).collect();
    let rows: Vec<Vec<String>> = table.lines().map(words).collect();
    assert_eq!(rows[0], ["WHEN", "OUTCOME", "TOOL", "ACCOUNT", "ACTOR", "ROWS", "MS", "WHAT"], "{table}");
    assert_eq!(rows[2][1..6], ["ok", "query_database", "mei", "robot", "0"], "{table}");
    assert_eq!(rows[2][7], "shop.customers shop.visits", "{table}");
    assert_eq!((rows[3][1].as_str(), rows[1][7].as_str()), ("sql_error", "no table"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    let wide = audit(&db, &["reads", "list", "--wide"]).await;
    assert!(wide.contains("FINGERPRINT") && wide.contains("select 1"), "{wide}");

    let counts = async |by: &str| {
        let printed = audit(&db, &["reads", "counts", "--by", by]).await;
        let numbers = |line: &str| line.split(' ').filter(|it| !it.is_empty()).take(4).map(str::to_owned).collect();
        printed.lines().map(numbers).collect::<Vec<Vec<String>>>()
    };
    assert_eq!(
        counts("table").await,
        [
            ["TABLE", "READS", "FAILED", "ROWS"],
            ["shop.customers", "3", "1", "20"],
            ["shop.visits", "1", "0", "0"],
            ["-", "1", "0", "1"]
        ]
    );
    assert_eq!(
        counts("account").await,
        [["ACCOUNT", "READS", "FAILED", "ROWS"], ["default", "2", "1", "20"], ["mei", "2", "0", "1"]]
    );
    assert_eq!(counts("tool").await[1], ["query_database", "4", "1", "21"]);
    db.run(
        "insert into countersign.read_log (read_at, login, outcome, entries, first_at, last_at) \
            values (now(), 'x', 'lost', 7, now(), now())",
    )
    .await;
    assert!(audit(&db, &["reads", "counts"]).await.ends_with("Not logged: 7 reads.\n"));
    let json = lines(&audit(&db, &["reads", "counts", "--by", "account", "--json"]).await);
    assert_eq!((&json[0]["name"], &json[0]["reads"], &json[2]), (&json!("default"), &json!(2), &json!({"lost": 7})));
}

#[tokio::test(flavor = "multi_thread")]
async fn prune_removes_the_days_that_are_old_enough_and_only_those() {
    let db = shop().await;
    for age in [100, 91, 89, 1] {
        let day = format!("((now() at time zone 'UTC')::date - {age})");
        db.run(&format!(
            "select countersign.make_read_partitions({day}, {day}); \
             insert into countersign.read_log (read_at, login, tool_name, outcome) \
                 select {day}::timestamp at time zone 'UTC', 'x', 'old', 'ok' from generate_series(1, {age})"
        ))
        .await;
    }
    let would = audit(&db, &["reads", "prune", "--older-than", "90d", "--dry-run"]).await;
    assert!(would.contains(": 100 rows.") && would.contains(": 91 rows.") && would.lines().count() == 2, "{would}");
    let count = "select count(*) from countersign.read_log where tool_name = 'old'";
    assert_eq!(db.value(count).await, "281", "a dry run removes nothing");
    // A reader of the log: pruning gives way.
    let reader = db.connect().await;
    reader.batch_execute("begin; select count(*) from countersign.read_log").await.unwrap();
    let ran = run_audit(&db.url(), &["reads", "prune"]).await;
    assert!(ran.code == 1 && ran.err.contains("55P03") && ran.err.contains("can be run again"), "{}", ran.err);
    reader.batch_execute("commit").await.unwrap();
    let removed = audit(&db, &["reads", "prune"]).await;
    assert!(removed.ends_with("Removed 191 rows of 2 days.\n"), "{removed}");
    assert_eq!(db.value(count).await, "90");
    assert_eq!(audit(&db, &["reads", "prune"]).await, "No day of the log is that old.\n");
    let listed = audit(&db, &["reads", "list", "--outcome", "pruned"]).await;
    assert!(listed.contains("100 rows of 20") && listed.contains("were removed"), "{listed}");
    // A server's login can neither read the log nor prune it.
    for arguments in [["audit", "reads", "list"], ["audit", "reads", "counts"], ["audit", "reads", "prune"]] {
        let refused = run_countersign(&db.writer_url(), &arguments).await;
        assert!(refused.code == 1 && refused.err.contains("countersign_owner"), "{arguments:?}: {}", refused.err);
    }
}
