//! The approved definition is the one that runs. A value that others can change is not a generated value, and a replaced
//! definition is detected.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use testkit::{Database, Server, TestManifest, database};

use super::{agreement, state};

/// A shop whose invoices take the price of another table, through functions, a view, a trigger and a policy.
const SHOP: &str = r#"
create schema shop;
create table shop.price (id integer primary key, amount integer not null);
insert into shop.price values (1, 100);
create view shop.current_price as select id, amount from shop.price;
create function shop.rounded(amount integer) returns integer language sql immutable as $$ select amount $$;
create function shop.with_tax(amount integer) returns integer language sql stable as $$ select shop.rounded(amount) $$;
create function shop.unrelated() returns integer language sql as $$ select 1 $$;
create table shop.customer (id integer primary key);
insert into shop.customer values (1);
create table shop.invoice (
    id        integer primary key generated always as identity,
    customer  integer not null references shop.customer,
    amount    integer not null,
    code      float8 not null default random(),
    at        timestamptz not null default now()
);
alter table shop.invoice enable row level security;
create policy everybody on shop.invoice using (true);
create function shop.check_invoice() returns trigger language plpgsql as $$
begin
    if new.amount < 0 then raise exception 'negative'; end if;
    return new;
end $$;
create trigger check_invoice before insert on shop.invoice for each row execute function shop.check_invoice();
grant usage on schema shop to countersign_writer, countersign_reader;
grant select, insert, update, delete on all tables in schema shop to countersign_writer;
"#;

/// It takes a while, so that others can change the price between two trials.
const INVOICE: &str = r#"
[[tool]]
name = "send_invoice"
title = "Send an invoice"
description = "Charges the current price."
access = "write"
tier = "confirm"
rows = "one"
sql = """
insert into shop.invoice (customer, amount)
select $1, shop.with_tax(p.amount) from shop.current_price p, pg_sleep(0.02) where p.id = 1
returning id, amount, code, at
"""
undo = { irreversible = "An invoice that was sent cannot be taken back." }

[[tool.param]]
name = "customer"
description = "The customer."
"#;

async fn shop() -> (Database, Server) {
    let db = database().await;
    db.run(SHOP).await;
    let server = TestManifest::new(INVOICE).serve(&db).await;
    (db, server)
}

async fn propose(server: &Server) -> Value {
    server.propose("send_invoice", json!({"customer": 1})).await
}

async fn invoices(db: &Database) -> String {
    db.value("select count(*) from shop.invoice").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_under_constant_change_is_shown_and_compared() {
    // Without one snapshot for both trials the price differs between them. It would count as a value that the database
    // generates, and any price would be executed.
    let (db, server) = shop().await;
    let stop = Arc::new(AtomicBool::new(false));
    let attacker = tokio::spawn({
        let (db, stop) = (db.clone(), Arc::clone(&stop));
        async move {
            let client = db.connect().await;
            while !stop.load(Ordering::Relaxed) {
                client.execute("update shop.price set amount = amount + 1 where id = 1", &[]).await.unwrap();
            }
        }
    });
    db.first_value("select 1 from shop.price where amount > 110").await;
    let proposal = propose(&server).await;
    let preview = &proposal["preview"];
    let shown = preview["result"]["amount"].as_i64().unwrap_or_else(|| panic!("no amount is shown: {preview}"));
    assert!(shown > 100, "{preview}");
    // What the database makes anew is named, and never shown as null.
    assert_eq!(preview["generated"], json!(["result.at", "result.code", "result.id"]), "{preview}");
    for name in ["at", "code", "id"] {
        assert_eq!(preview["result"][name], "(generated)", "{preview}");
    }
    server.fail("confirm_proposal", agreement(&proposal), "proposal_stale").await;
    stop.store(true, Ordering::Relaxed);
    attacker.await.unwrap();
    assert_eq!((invoices(&db).await, state(&db, &proposal).await), ("0".to_owned(), "stale".to_owned()));

    // The control: the price stays, and what was shown is what is charged.
    let proposal = propose(&server).await;
    let done = server.succeed("confirm_proposal", agreement(&proposal)).await;
    assert_eq!(done["data"]["result"]["amount"], proposal["preview"]["result"]["amount"]);
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_was_replaced_since_is_noticed() {
    let (db, server) = shop().await;
    let with_tax = "create or replace function shop.with_tax(amount integer) returns integer language sql stable as";
    for (change, named) in [
        (format!("{with_tax} $$ select 0 * shop.rounded(amount) $$"), "function with_tax"),
        // What a function calls.
        (
            "create or replace function shop.rounded(amount integer) returns integer language sql immutable as \
             $$ select amount + 0 $$"
                .to_owned(),
            "function rounded",
        ),
        // Another function of the name, which a call may mean from now on.
        (
            "create function shop.rounded(amount bigint) returns integer language sql as $$ select 1 $$".to_owned(),
            "function rounded",
        ),
        // Replaced, and put back.
        (format!("{with_tax} $$ select 0 $$; {with_tax} $$ select 0 * shop.rounded(amount) $$"), "function with_tax"),
        (
            "create or replace function shop.check_invoice() returns trigger language plpgsql as \
             $$ begin return new; end $$"
                .to_owned(),
            "function check_invoice",
        ),
        (
            "create trigger again before insert on shop.invoice for each row execute function shop.check_invoice()"
                .to_owned(),
            "table shop.invoice",
        ),
        ("alter table shop.invoice disable trigger again".to_owned(), "table shop.invoice"),
        (
            "create or replace view shop.current_price as select id, amount + 0 as amount from shop.price".to_owned(),
            "view shop.current_price",
        ),
        ("alter policy everybody on shop.invoice using (amount >= 0)".to_owned(), "table shop.invoice"),
        ("alter table shop.invoice alter column code set default 0.5".to_owned(), "table shop.invoice"),
        (
            "alter table shop.invoice drop constraint invoice_customer_fkey, add constraint invoice_customer_fkey \
             foreign key (customer) references shop.customer on delete cascade"
                .to_owned(),
            "table shop.customer, table shop.invoice",
        ),
    ] {
        let proposal = propose(&server).await;
        db.run(&change).await;
        let error = server.fail("confirm_proposal", agreement(&proposal), "proposal_stale").await;
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("changed since") && message.contains(named), "{change}: {message}");
        assert_eq!(
            (invoices(&db).await, state(&db, &proposal).await),
            ("0".to_owned(), "stale".to_owned()),
            "{change}"
        );
    }

    // The control: what the write does not depend on may change.
    let proposal = propose(&server).await;
    db.run(
        "create or replace function shop.unrelated() returns integer language sql as $$ select 2 $$; \
         create table shop.other (id integer); analyze shop.invoice, shop.price",
    )
    .await;
    server.succeed("confirm_proposal", agreement(&proposal)).await;
    assert_eq!(invoices(&db).await, "1");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_is_replaced_while_the_write_runs_is_noticed() {
    // The write waits for a row. Whether it has looked up its functions already or not, nothing is written.
    let (db, server) = shop().await;
    let proposal = propose(&server).await;
    let mut other = db.connect().await;
    let lock = other.transaction().await.unwrap();
    // The foreign key check waits for this row, when the trigger and the functions have run.
    lock.batch_execute("select from shop.customer where id = 1 for update").await.unwrap();
    let confirm = server.call("confirm_proposal", agreement(&proposal));
    let replace = async {
        db.first_value(
            "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
        )
        .await;
        db.run(
            "create or replace function shop.rounded(amount integer) returns integer language sql immutable as \
             $$ select amount $$",
        )
        .await;
        lock.commit().await.unwrap();
    };
    let (answer, ()) = tokio::join!(confirm, replace);
    assert_eq!(answer["error"]["code"], "proposal_stale", "{answer}");
    assert_eq!(invoices(&db).await, "0");
    server.close().await;
}
