//! A shop of tracked orders and items, and the tools that change them.

use testkit::{Database, Server, TestManifest, database};

/// Nine orders with one item each. Both tables are tracked; servers may change them.
pub(crate) const SHOP: &str = "
create schema shop;
create table shop.orders (id int primary key, status text not null default 'open');
create table shop.item (order_id int references shop.orders on delete cascade, line int, primary key (order_id, line));
insert into shop.orders select g from generate_series(1, 9) g;
insert into shop.item select g, 1 from generate_series(1, 9) g;
select countersign.track(t) from unnest('{shop.orders, shop.item}'::regclass[]) t;
grant usage on schema shop to countersign_writer;
grant all on all tables in schema shop to countersign_writer;
";

/// Tool that sets the status of an order.
pub(crate) const SET_STATUS: &str = r#"
[[tool]]
name = "set_status"
access = "write"
description = "Set the status of an order."
sql = "update shop.orders set status = $2 where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }, { name = "status", description = "What." }]
"#;

/// Tool that deletes an order; the foreign key deletes its items.
pub(crate) const DROP_ORDER: &str = r#"
[[tool]]
name = "drop_order"
access = "write"
description = "Drop an order with its items."
sql = "delete from shop.orders where id = $1 returning id"
rows = "one"
param = [{ name = "id", description = "Which." }]
"#;

/// A database with the shop, a server of an agent with these tools, and the connection string of an operator.
pub(crate) async fn with_operator(tools: &str) -> (Database, Server, String) {
    let db = database().await;
    db.run(SHOP).await;
    db.run("grant usage on schema shop to public; grant all on all tables in schema shop to public").await;
    let operator = db.login("operator", "countersign_operator").await;
    let server = TestManifest::new(tools).serve(&db).await;
    (db, server, operator)
}
