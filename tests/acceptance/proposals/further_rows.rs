//! Every row of a large proposal can be seen before it is agreed to, on each face.

use serde_json::{Value, json};
use testkit::{Database, Server, database, long_form, poll, run_countersign};

use super::{agreement, approve, id, state};
use crate::console::{Console, path};

const SCHEMA: &str = "
create schema s;
create table s.stock (id int primary key, name text not null, price numeric not null, n int not null);
insert into s.stock select n, 'item ' || n, 10, n from generate_series(1, 12000) n;
grant usage on schema s to countersign_writer, countersign_reader;
grant select on s.stock to countersign_reader;
grant select, insert, update, delete on s.stock to countersign_writer;
select countersign.track('s.stock');
analyze s.stock";

async fn server(db: &Database, tier: &str) -> Server {
    let mut command = Server::bare_command(db);
    command.args(["--profile", "admin", "--execute-sql", "--execute-sql-max-rows", "10000"]);
    command.args(["--execute-sql-tier", tier]);
    Server::start(command).await
}

/// The keys of all rows that an agent reads in pages.
async fn keys(server: &Server, proposal: &Value) -> Vec<i64> {
    let (mut found, mut after) = (Vec::new(), json!(0));
    while !after.is_null() {
        let asked = json!({"proposal_id": proposal["proposal_id"], "rows": "all", "after": after});
        let page = server.succeed("get_proposal", asked).await["data"].clone();
        let rows = page["preview"]["effects"]["rows"].as_array().unwrap().clone();
        found.extend(rows.iter().map(|row| row["key"]["id"].to_string().trim_matches('"').parse::<i64>().unwrap()));
        after = page["next_after"].clone();
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_of_a_large_write_can_be_read_and_each_column_is_summed_up_over_all() {
    let db = database().await;
    db.run(SCHEMA).await;
    let (console, server) = (Console::on(&db).await, server(&db, "approve").await);
    // In 150 rows far behind the first ones the price falls.
    let sql = "update s.stock set price = case when id > 2850 then price - 9.5 else price * 1.05 end where id <= 3000";
    let proposal = server.propose("execute_sql", json!({"sql": sql})).await;
    let column = "price: of 3000 rows, 2850 become 10.50, 150 become 0.5";
    let shown = run_countersign(&db.url(), &["proposals", "show", id(&proposal)]).await.out;
    assert!(shown.contains(column) && shown.contains("and 2992 more rows: --full shows all of them"), "{shown}");
    assert!(!shown.contains("not shown") && !shown.contains("not known"), "{shown}");
    let full = run_countersign(&db.url(), &["proposals", "show", "--full", id(&proposal)]).await.out;
    assert!(full.lines().any(|line| line.contains("id=3000 \"item 3000\"") && line.contains("0.5")), "{full}");
    let mut anna = console.browser(&db, "anna", &[]).await;
    let page = anna.get(&path(&proposal)).await.body;
    assert!(page.contains(column) && page.contains("2980 more rows") && !page.contains("not listed"), "{page}");
    let last = anna.get(&format!("{}?rows=all&from=2500", path(&proposal))).await.body;
    assert!(last.contains("id = 3000 &#34;item 3000&#34;"), "{last}");
    let mut all = keys(&server, &proposal).await;
    all.sort_unstable();
    assert_eq!(all, (1..=3000).collect::<Vec<_>>());
    let list = run_countersign(&db.url(), &["proposals", "list"]).await.out;
    assert!(list.contains("3000 rows") && !list.contains("not shown"), "{list}");

    assert_eq!(approve(&db, &proposal).await, "done");
    poll::until("the write is executed", async || state(&db, &proposal).await == "executed").await;
    assert_eq!(db.value("select count(*) from s.stock where price = 0.5").await, "150");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_beyond_what_is_stored_are_a_risk_and_so_are_rows_that_were_altered() {
    let db = database().await;
    db.run(SCHEMA).await;
    let server = server(&db, "confirm").await;
    let show = async |proposal: &Value| run_countersign(&db.url(), &["proposals", "show", id(proposal)]).await.out;
    // A value that only one of many rows gets is unusual all the same.
    let sql = "update s.stock set price = case when id = 777 then 99999 else 11 end where id <= 1000";
    let one = server.propose("execute_sql", json!({"sql": sql})).await;
    assert!(show(&one).await.contains("price of s.stock becomes 99999"), "{}", show(&one).await);
    db.run(&format!(
        "update countersign.proposal_rows set rows = replace(rows::text, '99999', '12')::json where proposal_id = '{}'",
        id(&one)
    ))
    .await;
    let altered = show(&one).await;
    assert!(altered.contains("900 rows that it would change are not shown"), "{altered}");
    server.succeed("reject_proposal", json!({"proposal_id": id(&one)})).await;

    // Rows that are wide end where 4 MiB of them are read.
    db.run(
        "create table s.wide (id int primary key, words text); alter table s.wide alter words set storage external;
            insert into s.wide select n, repeat('x', 2000) from generate_series(1, 3000) n;
            grant select, update on s.wide to countersign_writer; grant select on s.wide to countersign_reader;
            select countersign.track('s.wide')",
    )
    .await;
    let wide =
        server.propose("execute_sql", json!({"sql": "update s.wide set words = words || id where id > 0"})).await;
    let listed = keys(&server, &wide).await.len();
    assert!((500..1500).contains(&listed), "{listed}");
    assert!(show(&wide).await.contains(&format!("{} rows that it would change are not shown", 3000 - listed)));
    server.succeed("confirm_proposal", agreement(&wide)).await;
    assert_eq!(state(&db, &wide).await, "executed");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_trials_that_find_rows_in_another_order_are_one_proposal_with_its_generated_columns() {
    let db = database().await;
    db.run(SCHEMA).await;
    db.run(
        "create table s.stamped (id int primary key, grp int not null, v int not null, at timestamptz);
         create function s.stamp() returns trigger language plpgsql as $$ begin new.at := clock_timestamp(); return new; end $$;
         create trigger stamp before update on s.stamped for each row execute function s.stamp();
         insert into s.stamped select n, n % 7, 0, now() from generate_series(1, 9000) n;
         grant select, update on s.stamped to countersign_writer; grant select on s.stamped to countersign_reader;
         select countersign.track('s.stamped')",
    )
    .await;
    let server = server(&db, "confirm").await;
    let rows = if long_form::is_on() { 9000 } else { 2000 };
    // The order of the rows is another one in each trial.
    let sql = format!(
        "with picked as materialized (select id from s.stamped where id <= {rows} order by random()) \
         update s.stamped t set v = t.id from picked p where p.id = t.id"
    );
    let proposal = server.propose("execute_sql", json!({"sql": sql})).await;
    let shown = run_countersign(&db.url(), &["proposals", "show", "--full", id(&proposal)]).await.out;
    assert!(shown.contains(&format!("v: {rows} rows change, 0 to 0 become 1 to {rows}")), "{shown}");
    assert!(shown.contains(&format!("at: {rows} rows get a generated value")), "{shown}");
    server.succeed("confirm_proposal", agreement(&proposal)).await;
    assert_eq!(db.value("select count(*) from s.stamped where v = id").await, rows.to_string());
    server.close().await;
}
