//! `countersign check`: it reports all mistakes at once, missing privileges as SQL, and the effect of each tool.

use testkit::{Database, TestManifest, database, repository, run};
use tokio::process::Command;

fn check(url: &str, arguments: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>) -> Command {
    let mut command = Command::new(testkit::countersign());
    command.env("DATABASE_URL", url).arg("check").args(arguments);
    command
}

const SHOP: &str = "create schema shop;
    create table shop.product (id serial primary key, price numeric not null);
    create table shop.orders (id bigint primary key, product_id int references shop.product on delete cascade);
    create table shop.reading (day date, value int) partition by range (day);
    create table shop.reading_1 partition of shop.reading for values from ('2026-01-01') to ('2027-01-01')";

const TOOLS: &str = r#"
name = "shop"
version = "1"

[[tool]]
name = "raise_prices"
access = "write"
description = "Raise all prices."
tier = "confirm"
before = "select id from shop.orders for update"
sql = "update shop.product set price = price * (1 + $1 / 100) returning id"
rows = "any"
max_rows = 100
undo = { irreversible = "x" }
param = [{ name = "percent", description = "By how much." }]

[[tool]]
name = "drop_product"
access = "write"
description = "Drop it."
tier = "approve"
before = "select id from shop.product where id = $1 for update"
sql = "delete from shop.product where id = $1 returning id"
rows = "one"
undo = { irreversible = "x" }
param = [{ name = "id", description = "Which.", optional = true }]

[[tool]]
name = "add_product"
access = "write"
description = "Add it."
sql = "insert into shop.product (price) values ($1) returning id"
rows = "one"
undo = { tool = "drop_product", params = { id = "result.id" } }
param = [{ name = "price", description = "In euros." }]

[[tool]]
name = "add_reading"
access = "write"
description = "Add it."
sql = "insert into shop.reading (day, value) values (current_date, $1)  returning value"
rows = "one"
undo = { irreversible = "x" }
param = [{ name = "rate_value", description = "It." }]

[[tool]]
name = "show_orders"
access = "read"
description = "Show them."
sql = "select id from shop.orders where product_id = $1"
param = [{ name = "product_id", description = "Of which product." }]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn missing_privileges_are_one_line_per_table_as_runnable_grants() {
    let db = Database::empty("check_grants").await;
    let init = Command::new(testkit::countersign()).env("DATABASE_URL", db.url()).arg("init").output().await.unwrap();
    assert!(init.status.success(), "{init:?}");
    db.run(SHOP).await;
    let writer = db.writer_url();
    db.run("revoke all on schema shop from countersign_writer; revoke all on all tables in schema shop from countersign_writer;
            revoke all on all sequences in schema shop from countersign_writer").await;
    let manifest = TestManifest::from_text(TOOLS);
    let refused = run(&mut check(&writer, manifest.arguments())).await;
    assert_eq!(refused.code, 1);
    let denied: Vec<&str> = refused.err.lines().filter(|line| line.contains("permission denied")).collect();
    assert_eq!(denied.len(), 1, "one for the schema: {}", refused.err);
    let names = "raise_prices, drop_product, add_product, add_reading, show_orders; `countersign check --grants`";
    assert!(denied[0].contains("for schema shop (SQLSTATE 42501), in ") && denied[0].contains(names), "{denied:?}");

    db.run("grant usage on schema shop to countersign_writer").await;
    let refused = run(&mut check(&writer, manifest.arguments())).await;
    let denied = refused.err.lines().filter(|line| line.contains("permission denied for table")).count();
    assert_eq!(denied, 3, "one for each table: {}", refused.err);
    db.run("revoke usage on schema shop from countersign_writer").await;

    let mut command = check(&db.url(), manifest.arguments());
    let printed = run(command.arg("--grants")).await;
    assert_eq!(
        printed.out.lines().collect::<Vec<_>>(),
        [
            "grant usage on schema shop to countersign_writer;",
            "grant select, insert on shop.reading to countersign_writer;",
            "grant select, insert, update, delete on shop.product to countersign_writer;",
            "grant select, update on shop.orders to countersign_writer;",
            "grant usage on sequence shop.product_id_seq to countersign_writer;",
        ],
        "{printed:?}"
    );
    db.run(&printed.out).await;
    run(&mut check(&writer, manifest.arguments())).await.succeeded();
    let printed = run(&mut command).await;
    assert!(printed.out.starts_with("-- countersign_writer lacks nothing"), "{}", printed.out);
    // N-11: no plan shows what a trigger needs.
    db.run(
        "create function shop.note() returns trigger language plpgsql as 'begin return null; end';
         create trigger noted after insert on shop.reading for each row execute function shop.note();
         create trigger unused after delete on shop.reading for each row execute function shop.note()",
    )
    .await;
    let printed = run(&mut command).await;
    let comments: Vec<&str> = printed.out.lines().skip(1).collect();
    let comment = "-- trigger noted of shop.reading runs shop.note() with the rights of countersign_writer, which needs grants for \
                   all that it does: countersign try";
    assert_eq!(comments, [comment]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_tool_is_one_line_and_likely_mistakes_and_omissions_are_reported() {
    let db = database().await;
    db.run(SHOP).await;
    db.run(
        "create function shop.count() returns trigger language plpgsql as 'begin return null; end';
         create trigger counted after update on shop.product for each row execute function shop.count()",
    )
    .await;
    let manifest = TestManifest::from_text(TOOLS);
    let said = run(&mut check(&db.url(), manifest.arguments())).await.out;
    for line in [
        "raise_prices  confirm  percent integer; writes shop.product; cannot be undone: x",
        "drop_product  approve  id integer (optional); writes shop.product; cannot be undone: x",
        "add_product   auto     price numeric; writes shop.product; undo by drop_product; undo_mutation approve",
        "show_orders   read     product_id integer; reads shop.orders",
        "5 tools fit the database, 4 of them write. Tools that need agreement: 2 (1 confirm, 1 approve); every executor is there.",
    ] {
        assert!(said.lines().any(|found| found == line), "{line}: {said}");
    }
    let told = |words: &[&str]| said.lines().any(|line| words.iter().all(|words| line.contains(words)));
    for words in [
        ["warning: ", "tool raise_prices: parameter percent was inferred as integer", "write $1::numeric"],
        ["warning: ", "tool raise_prices: it writes shop.product", "neither before nor after reads"],
        [
            "warning: ",
            "tool drop_product: it changes rows of tables that neither",
            "shop.orders, by foreign key orders_product_id_fkey to shop.product",
        ],
        ["note: ", "tool raise_prices: no plan shows what these do", "trigger counted of shop.product"],
    ] {
        assert!(told(&words), "{words:?}: {said}");
    }
    assert!(!told(&["tool add_product"]) && !told(&["tool drop_product", "trigger"]), "{said}");
    // What ships has nothing to be warned of.
    let shipped = ["social", "studio"].map(|name| repository().join(format!("manifests/{name}.toml")));
    let said = run(check(&db.url(), ["--manifest"]).arg(&shipped[0]).arg("--manifest").arg(&shipped[1])).await.out;
    assert!(said.contains("20 tools fit") && !said.contains("warning: manifests"), "{said}");
    assert!(!said.lines().any(|line| line.starts_with("warning:") && line.contains("tool ")), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_executor_hides_no_other_mistake_and_an_unqualified_name_gets_its_hint() {
    let db = database().await;
    db.run(SHOP).await;
    let text = TOOLS
        .replace("insert into shop.product", "insert into product")
        .replace("select id from shop.orders where", "select id from shop.order where");
    let orphan = "\n[[tool]]\nname = 'burn'\naccess = 'write'\ndescription = 'It.'\nexecutor = 'burn'\n\
                  before = 'select 1 as one'\nundo = { irreversible = 'x' }\n";
    let manifest = TestManifest::from_text(&format!("{text}{orphan}"));
    let config = tempfile::tempdir().unwrap();
    let file = config.path().join("countersign.toml");
    std::fs::write(&file, "[profiles.own]\ntools = ['burn', 'drop_product', 'no_such_tool']\n").unwrap();
    let mut command = check(&db.url(), manifest.arguments());
    let said = run(command.env("COUNTERSIGN_CONFIG", &file)).await.err;
    for words in [
        ["tool burn", "needs the executor \"burn\", which is not registered"],
        ["tool add_product", "A manifest writes tables with their schema"],
        ["tool add_product", "The nearest tables that exist: shop.product"],
        ["tool show_orders", "The nearest tables that exist: shop.orders."],
        ["profile own", "there is no tool \"no_such_tool\""],
    ] {
        assert!(said.lines().any(|line| words.iter().all(|words| line.contains(words))), "{words:?}: {said}");
    }
    assert!(!said.contains("no tool \"burn\"") && !said.contains("no tool \"drop_product\""), "{said}");
}

/// N-28: 19.999 becomes 20.00 in `numeric(12, 2)`, and only the manifest can refuse it.
#[tokio::test(flavor = "multi_thread")]
async fn a_parameter_whose_column_keeps_fewer_digits_is_named() {
    let db = Database::empty("check_rounding").await;
    run(Command::new(testkit::countersign()).env("DATABASE_URL", db.url()).arg("init")).await.succeeded();
    // A negative scale, which PostgreSQL 15 has first, is no number of digits.
    let thousands = if db.cluster().version().major >= 15 { "numeric(5, -3)" } else { "numeric" };
    db.run(&format!(
        "create schema shop; create domain shop.price as numeric(8, 3); create table shop.product
         (id int primary key, price numeric(12, 2), cost shop.price, weight numeric, count int, thousands {thousands})"
    ))
    .await;
    let tool = |name: &str, column: &str, more: &str| {
        format!(
            "[[tool]]\nname = \"{name}\"\naccess = \"write\"\ndescription = \"Set it.\"\nrows = \"one\"\n\
             sql = \"update shop.product set {column} = $2 where id = $1 returning id\"\nundo = {{ irreversible = \"x\" }}\n\
             param = [{{ name = \"id\", description = \"Which.\" }}, {{ name = \"{column}\", description = \"New.\"{more} }}]\n"
        )
    };
    let manifest = [
        "name = \"shop\"\nversion = \"1\"\n".to_owned(),
        tool("set_price", "price", ""),
        tool("set_exact_price", "price", ", scale = 2"),
        tool("set_cost", "cost", ""),
        tool("set_weight", "weight", ""),
        tool("set_count", "count", ""),
        tool("set_thousands", "thousands", ""),
    ];
    let manifest = TestManifest::from_text(&manifest.join("\n"));
    let checked = run(&mut check(&db.url(), manifest.arguments())).await;
    let said = checked.out.split([' ', '\n']).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    assert_eq!(checked.code, 0, "{said}");
    for (tool, column, scale) in [("set_price", "price", 2), ("set_cost", "cost", 3)] {
        let note = format!("tool {tool}: shop.product.{column} keeps {scale} digits after the decimal point");
        assert!(said.contains(&note), "{said}");
    }
    assert_eq!(said.matches("after the decimal point").count(), 2, "{said}");
}
