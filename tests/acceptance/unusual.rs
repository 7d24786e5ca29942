//! New values that their columns do not usually have, by the statistics of PostgreSQL: people see them as risks.

use serde_json::{Value, json};
use testkit::{Database, Server, TestManifest, database, run_countersign};

use crate::console::{Console, path};

const TABLES: &str = "
create schema shop;
create table shop.kind (name text primary key);
insert into shop.kind values ('room'), ('boat'), ('tent');
create table shop.booking (id int primary key, status text not null, price numeric not null, day date not null,
    note text not null, is_open boolean not null default true, kind text references shop.kind, nights int not null default 3);
insert into shop.booking select n, (array['open', 'paid', 'shipped'])[n % 3 + 1], 10 + n % 120, date '2026-01-01' + n % 300,
    'Note ' || n, true, case when n % 2 = 0 then 'room' else 'boat' end from generate_series(1, 1000) n;
select countersign.track('shop.booking');
grant usage on schema shop to countersign_writer;
grant select, update, insert on shop.booking to countersign_writer;
";

const TOOLS: &str = r#"
[[tool]]
name = "set_booking"
access = "write"
tier = "approve"
description = "Change a booking."
before = "select * from shop.booking where id = $1 for update"
sql = """update shop.booking set status = coalesce($2, status), price = coalesce($3, price), day = coalesce($4, day),
    note = coalesce($5, note), is_open = coalesce($6, is_open), kind = coalesce($7, kind), nights = coalesce($8, nights) where id = $1 returning id"""
rows = "one"
param = [
    { name = "id", description = "Which." },
    { name = "status", description = "What.", optional = true },
    { name = "price", description = "What.", optional = true },
    { name = "day", description = "When.", optional = true },
    { name = "note", description = "What.", optional = true },
    { name = "is_open", description = "Whether.", optional = true },
    { name = "kind", description = "Which.", optional = true },
    { name = "nights", description = "How many.", optional = true },
]
"#;

async fn bookings() -> (Database, Server) {
    let db = database().await;
    db.run(TABLES).await;
    let server = TestManifest::new(TOOLS).serve(&db).await;
    (db, server)
}

/// The risks about values in what the command line shows of a proposal.
async fn risks(db: &Database, proposal: &Value) -> Vec<String> {
    let id = proposal["proposal_id"].as_str().unwrap();
    let shown = run_countersign(&db.url(), &["proposals", "show", id]).await.out;
    let risks = shown.lines().filter_map(|line| line.strip_prefix("caution ")).map(|risk| risk.trim().to_owned());
    risks.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_the_statistics_do_not_know_is_a_risk() {
    let (db, server) = bookings().await;
    let typo = json!({"id": 7, "status": "archvied"});
    let proposal = server.propose("set_booking", typo.clone()).await;
    assert_eq!(risks(&db, &proposal).await, Vec::<String>::new(), "there are no statistics");
    db.run("analyze shop.booking").await;
    let again = server.propose("set_booking", typo.clone()).await;
    assert_eq!(again["proposal_id"], proposal["proposal_id"], "new statistics do not make another proposal");
    let id = json!({"proposal_id": proposal["proposal_id"]});
    server.succeed("reject_proposal", id).await;

    let day = db.value("select to_char(now() at time zone 'UTC', 'YYYY-MM-DD')").await;
    let listed = "it is none of the 3 values of this column";
    let far = "it is far outside of the values of this column";
    for (arguments, said) in [
        (typo, Some(format!("status of shop.booking becomes archvied: {listed}"))),
        (
            json!({"id": 7, "status": "paid\u{202e}<b>\n"}),
            Some(format!(r#"status of shop.booking becomes "paid\u202e<b>\n": {listed}"#)),
        ),
        (json!({"id": 7, "price": 99999.5}), Some(format!("price of shop.booking becomes 99999.5: {far}"))),
        (json!({"id": 7, "price": -500}), Some(format!("price of shop.booking becomes -500: {far}"))),
        (json!({"id": 7, "day": "2206-02-01"}), Some(format!("day of shop.booking becomes 2206-02-01: {far}"))),
        // All rows have 3.
        (json!({"id": 7, "nights": 300}), Some(format!("nights of shop.booking becomes 300: {far}"))),
        (json!({"id": 7, "nights": 5}), None),
        // What grows, free texts, flags and values that a foreign key checks are not unusual.
        (json!({"id": 7, "price": 150}), None),
        (json!({"id": 7, "day": "2027-01-01"}), None),
        (json!({"id": 7, "status": "open", "note": "Something new"}), None),
        (json!({"id": 7, "is_open": false}), None),
        (json!({"id": 7, "kind": "tent"}), None),
    ] {
        let proposal = server.propose("set_booking", arguments.clone()).await;
        let expected: Vec<String> = said.iter().map(|said| format!("{said}, by the statistics of {day}.")).collect();
        assert_eq!(risks(&db, &proposal).await, expected, "{arguments}");
        // The agent may not be allowed to read the column.
        assert!(!proposal.to_string().contains("unusual") && !proposal.to_string().contains("listed"), "{proposal}");
    }
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_and_the_inbox_say_it_and_a_login_without_the_right_knows_nothing() {
    let (db, server) = bookings().await;
    db.run("analyze shop.booking").await;
    let console = Console::on(&db).await;
    let mut anna = console.browser(&db, "anna", &[]).await;
    let proposal = server.propose("set_booking", json!({"id": 7, "status": "<b>archived</b>"})).await;
    let page = anna.get(&path(&proposal)).await.body;
    let risk = "<li class=\"caution\"><strong>caution</strong> status of shop.booking becomes &#34;&#60;b&#62;archived";
    assert!(page.contains(risk), "{page}");
    let inbox = anna.get("/").await.body;
    assert!(inbox.contains("<span class=\"state caution\">1 unusual value</span>"), "{inbox}");
    // Row security hides the statistics from the writer's login, like a column that it may not read.
    db.run("alter table shop.booking enable row level security; create policy all_rows on shop.booking using (true)")
        .await;
    let proposal = server.propose("set_booking", json!({"id": 8, "status": "archvied"})).await;
    assert_eq!(risks(&db, &proposal).await, Vec::<String>::new());
    server.close().await;
}
