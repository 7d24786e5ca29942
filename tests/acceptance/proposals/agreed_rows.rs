//! What a person agrees to is what happens: the rows of a proposal are compared when it runs, in every number, and a statement that
//! does not say which rows it changes is no proposal.

use serde_json::{Value, json};
use testkit::{Database, Server, TestManifest, database, long_form};

use super::{agreement, state};

const SCHEMA: &str = "
create schema s;
create table s.sel (id int primary key, cur int not null);
create table s.item (id int primary key, grp int not null, v int not null);
create table s.part (id int primary key, grp int not null, item int not null references s.item on delete cascade);
create index on s.part (item);
create table s.plain (id int primary key, grp int not null, v int not null);
create table s.noted (id int primary key, v int not null);
create table s.loose (grp int not null, v int not null);
create table s.visit (id int, grp int not null, day date not null, primary key (id, day)) partition by range (day);
create table s.visit_1 partition of s.visit for values from ('2025-01-01') to ('2026-01-01');
create table s.visit_2 partition of s.visit for values from ('2026-01-01') to ('2028-01-01');
create table s.text (id int primary key, words text);
create table s.copy (id bigint generated always as identity primary key, item int, v int, token uuid default gen_random_uuid(),
                     at timestamptz not null default clock_timestamp());
create table s.log (id bigint generated always as identity primary key, what text, at timestamptz default clock_timestamp());
create sequence s.number start 1000000;
create function s.write_log() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as
    $$ begin insert into s.log (what) values (new.id || ' of ' || (select count(*) from s.sel)); return null; end $$;
create trigger write_log after update on s.noted for each row execute function s.write_log();
create function s.count_parts() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as
    $$ begin update s.part set grp = new.v where item = new.id; return null; end $$;
create trigger count_parts after update of v on s.item for each row execute function s.count_parts();
insert into s.sel values (1, 0);
grant usage on schema s to countersign_writer, countersign_reader;
grant select on all tables in schema s to countersign_reader;
grant select, insert, update, delete on all tables in schema s to countersign_writer;
grant usage on sequence s.number to countersign_writer;
select countersign.track(t) from unnest(array['s.item', 's.part', 's.plain', 's.noted', 's.loose', 's.visit', 's.copy', 's.text']::regclass[]) t;
select countersign.track('s.log', is_log => true);
select countersign.track('s.sel');
";

/// The contents of all tables, without what is generated and without logs.
const CONTENTS: &str = "select md5(string_agg(r, ';' order by r collate \"C\")) from (
    select 'item ' || t::text from s.item t union all select 'part ' || t::text from s.part t
    union all select 'plain ' || t::text from s.plain t union all select 'loose ' || t::text from s.loose t
    union all select 'visit ' || t::text from s.visit t union all select 'copy ' || concat_ws(',', item, v) from s.copy t) c (r)";

/// `execute_sql` refuses a table without a key. What these tools read and return says nothing of its rows.
const TOOLS: &str = r#"
[[tool]]
name = "remove_plain"
access = "write"
tier = "confirm"
description = "Delete a row."
before = "select id from s.plain where id = $1 for update"
sql = "delete from s.plain where id = $1 returning id"
rows = "any"
max_rows = 10
param = [{ name = "id", description = "Which." }]
undo = { irreversible = "It is a test." }

[[tool]]
name = "change_loose"
access = "write"
tier = "confirm"
description = "Change rows without a key."
before = "select id from s.noted where id = 0 for update"
sql = "update s.loose t set v = v + 1000000 where grp = (select cur from s.sel) returning 1 as one"
rows = "any"
max_rows = 10000
undo = { irreversible = "It is a test." }

[[tool]]
name = "remove_loose"
access = "write"
tier = "confirm"
description = "Delete rows without a key."
before = "select id from s.noted where id = 0 for update"
sql = "delete from s.loose t where grp = (select cur from s.sel) returning 1 as one"
rows = "any"
max_rows = 10000
undo = { irreversible = "It is a test." }

[[tool]]
name = "remove_any_loose"
access = "write"
tier = "confirm"
description = "Delete any row."
before = "select id from s.noted where id = 0 for update"
sql = "delete from s.loose where ctid = (select ctid from s.loose order by random() limit 1) returning 1 as one"
rows = "any"
max_rows = 10000
undo = { irreversible = "It is a test." }
"#;

/// Statements over the rows of the group that `s.sel` names, each with the table whose rows it selects.
const STATEMENTS: &[(&str, &str)] = &[
    ("s.plain", "update s.plain t set v = v + 1 where {selected}"),
    ("s.plain", "update s.plain t set v = t.v + 1 from s.sel x where t.grp = x.cur"),
    ("s.plain", "update s.plain t set id = id + 100000 where {selected}"),
    ("s.plain", "insert into s.copy (item, v) select id, v from s.plain t where {selected}"),
    ("s.plain", "merge into s.plain t using s.sel x on t.grp = x.cur when matched then update set v = t.v + 1"),
    ("s.plain", "merge into s.plain t using s.sel x on t.grp = x.cur when matched then delete"),
    ("s.item", "delete from s.item t where {selected}"),
    ("s.loose", "update s.loose t set v = v + 1000000 where grp = (select cur from s.sel)"),
    ("s.loose", "delete from s.loose t where grp = (select cur from s.sel)"),
    ("s.visit", "update s.visit t set day = day + 365 where {selected}"),
];

/// How a statement selects the rows.
const SELECTIONS: &[&str] = &[
    "grp = (select cur from s.sel)",
    "exists (select from s.sel x where x.cur = t.grp)",
    "grp in (select cur from s.sel where id = 1)",
];

/// What others do between a proposal and its execution, and whether the same rows are selected after it.
const CHANGES: &[(&str, bool)] = &[
    ("select 1", true),
    // The same rows in another physical order.
    ("update {table} t set grp = grp where mod(hashtext(t::text), 2) = 0", true),
    // As many other rows.
    ("update s.sel set cur = 1", false),
    // One row leaves the group, and another one enters it.
    ("update {table} t set grp = 1 - grp where ctid in (select ctid from {table} where grp = 0 order by {order} limit 1)
      or ctid in (select ctid from {table} where grp = 1 order by {order} desc limit 1)", false),
];

/// As many rows as are shown, one more, and many.
fn sizes() -> [u32; 4] {
    [1, 100, 101, long_form::choose(300, 3000)]
}

async fn server(db: &Database) -> Server {
    let manifest = TestManifest::new(TOOLS);
    let mut command = manifest.command(db);
    command.args(["--profile", "write", "--execute-sql", "--execute-sql-max-rows", "10000"]);
    Server::start(command).await
}

async fn world() -> (Database, Server) {
    let db = database().await;
    db.run(SCHEMA).await;
    let server = server(&db).await;
    (db, server)
}

async fn version(db: &Database) -> u32 {
    db.value("show server_version_num").await.parse().unwrap()
}

/// Two groups with this number of rows in each table.
async fn fill(db: &Database, size: u32) {
    db.run(&format!(
        "delete from s.item; delete from s.plain; delete from s.loose; delete from s.visit; delete from s.copy;
         update s.sel set cur = 0;
         insert into s.item select n, n % 2, n from generate_series(1, 2 * {size}) n;
         insert into s.part select n, 0, n from generate_series(1, 2 * {size}) n;
         insert into s.plain select n, n % 2, n from generate_series(1, 2 * {size}) n;
         insert into s.loose select n % 2, n / 4 from generate_series(1, 2 * {size}) n;
         insert into s.visit select n, n % 2, '2025-06-01' from generate_series(1, 2 * {size}) n"
    ))
    .await;
}

/// The contents after this statement.
async fn after(db: &Database, sql: &str) -> String {
    let client = db.connect().await;
    client.batch_execute("begin").await.unwrap();
    client.batch_execute(sql).await.unwrap();
    client.query_one(CONTENTS, &[]).await.unwrap().get(0)
}

async fn propose(server: &Server, sql: &str) -> Value {
    let loose = if sql.starts_with("update s.loose") { Some("change_loose") } else { None };
    match loose.or(sql.starts_with("delete from s.loose").then_some("remove_loose")) {
        Some(tool) => server.propose(tool, json!({"idempotency_key": format!("key-{}", fastrand::u64(..))})).await,
        None => server.propose("execute_sql", json!({"sql": sql})).await,
    }
}

/// The proposal becomes stale, and nothing is written. Returns what the agent reads.
async fn is_stale(db: &Database, server: &Server, proposal: &Value) -> String {
    let before = db.value(CONTENTS).await;
    let error = server.fail("confirm_proposal", agreement(proposal), "proposal_stale").await;
    assert_eq!(db.value(CONTENTS).await, before, "nothing was written");
    assert_eq!(state(db, proposal).await, "stale");
    let recorded = "select error_code from countersign.mutation order by id desc limit 1";
    assert_eq!(db.value(recorded).await, "proposal_stale");
    error["message"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn other_rows_than_the_shown_ones_are_stale_in_every_number() {
    let (db, server) = world().await;
    let seed = long_form::variable("COUNTERSIGN_TEST_AGREED_SEED").unwrap_or_else(|| fastrand::u64(..));
    let mut random = fastrand::Rng::with_seed(seed);
    let has_merge = version(&db).await >= 150_000;
    for round in 0..long_form::choose(1, 4) {
        for (number, (table, statement)) in STATEMENTS.iter().enumerate() {
            for (place, (change, is_same)) in CHANGES.iter().enumerate() {
                if statement.starts_with("merge") && !has_merge {
                    continue;
                }
                // Each statement and each change meets each size.
                let size = sizes()[(number + place + round) % 4];
                let selected = SELECTIONS[random.usize(..SELECTIONS.len())];
                let sql = format!("{} /* {round} {place} */", statement.replace("{selected}", selected));
                let order = if *table == "s.loose" { "v" } else { "id" };
                let change = change.replace("{table}", table).replace("{order}", order);
                let case = format!("COUNTERSIGN_TEST_AGREED_SEED={seed} {size} rows: {sql}; {change}");
                fill(&db, size).await;
                let expected = after(&db, &sql).await;
                let proposal = propose(&server, &sql).await;
                db.run(&change).await;
                let before = db.value(CONTENTS).await;
                let answer = server.call("confirm_proposal", agreement(&proposal)).await;
                let contents = db.value(CONTENTS).await;
                if *is_same {
                    assert_eq!(answer["success"], true, "{case}: {answer}");
                    assert_eq!(contents, expected, "{case}");
                } else {
                    assert_eq!(answer["error"]["code"], "proposal_stale", "{case}: {answer}");
                    assert_eq!(contents, before, "{case}");
                    assert_eq!(state(&db, &proposal).await, "stale", "{case}");
                }
            }
        }
    }
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_rows_without_a_key_are_counted() {
    let (db, server) = world().await;
    let sql = "delete from s.loose";
    // Each row twice: combined by XOR, 102 rows of any kind would be as none.
    let pairs = "insert into s.loose select g, 10 * g + n % 5 from generate_series(0, 1) g, generate_series(1, 51) n, generate_series(1, 2)";
    db.run(pairs).await;
    let proposal = propose(&server, sql).await;
    db.run("update s.sel set cur = 1").await;
    is_stale(&db, &server, &proposal).await;
    // Two equal rows more, and two less of others.
    db.run("update s.sel set cur = 0").await;
    let proposal = propose(&server, sql).await;
    db.run("update s.loose set v = 1 where ctid in (select ctid from s.loose where grp = 0 and v = 2 limit 2)").await;
    let said = is_stale(&db, &server, &proposal).await;
    assert!(said.starts_with("it would delete other rows from s.loose than those that were shown"), "{said}");
    // Four more.
    let proposal = propose(&server, sql).await;
    db.run("insert into s.loose select 0, 1 from generate_series(1, 4)").await;
    is_stale(&db, &server, &proposal).await;
    // Others take rows away and put equal ones elsewhere.
    let proposal = propose(&server, sql).await;
    db.run("with gone as (delete from s.loose where v in (1, 3) returning grp, v) insert into s.loose select grp, v from gone")
        .await;
    server.succeed("confirm_proposal", agreement(&proposal)).await;
    assert_eq!(db.value("select count(*), min(grp) from s.loose").await, "102");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_cascades_and_triggers_are_compared_and_logs_only_counted() {
    let (db, server) = world().await;
    let fill = "delete from s.item; insert into s.item select n, 0, n from generate_series(1, 2) n;
                insert into s.part select n, 0, 1 + n % 2 from generate_series(1, 300) n";
    let swap = "update s.part set item = 3 - item where id in (7, 8)";
    for sql in ["delete from s.item where id = 1", "update s.item set v = v + 1 where id = 1"] {
        db.run(fill).await;
        let proposal = propose(&server, sql).await;
        assert_eq!(proposal["preview"]["effects"]["count"], 151, "{proposal}");
        db.run(swap).await;
        let said = is_stale(&db, &server, &proposal).await;
        assert!(said.contains("other rows") && said.contains("s.part"), "{said}");
        // The control.
        let proposal = propose(&server, sql).await;
        db.run("update s.part set grp = grp where id < 40").await;
        server.succeed("confirm_proposal", agreement(&proposal)).await;
    }
    // 150 rows of the log, all with other words.
    db.run("insert into s.noted select n, n from generate_series(1, 150) n").await;
    let proposal = propose(&server, "update s.noted set v = v + 1").await;
    db.run("insert into s.sel values (2, 5)").await;
    server.succeed("confirm_proposal", agreement(&proposal)).await;
    assert_eq!(db.value("select count(*) from s.log where what like '% of 2'").await, "150");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generated_value_is_no_reason_and_the_values_beside_it_are_compared() {
    let (db, server) = world().await;
    fill(&db, 200).await;
    // The new key is a number of a sequence, the old one is not.
    let proposal = propose(&server, "update s.plain set id = nextval('s.number') where id = 7").await;
    let row = &proposal["preview"]["effects"]["rows"][0];
    assert_eq!(
        (&row["key"], &row["columns"]["id"]),
        (&json!({"id": 7}), &json!({"before": "7", "after": "(generated)"}))
    );
    server.succeed("confirm_proposal", agreement(&proposal)).await;
    assert_eq!(db.value("select count(*) from s.plain where id = 7 or id >= 1000000").await, "1");

    // The inserted rows have another item each, beside three generated columns.
    let sql = "insert into s.copy (item, v) select id, v from s.item where grp = (select cur from s.sel)";
    let proposal = propose(&server, sql).await;
    db.run("update s.item set v = v + 5 where id = 398").await;
    let said = is_stale(&db, &server, &proposal).await;
    assert!(said.starts_with("it would insert other rows into s.copy than those that were shown"), "{said}");
    // Two rows exchange a value: each column has the same values as before.
    let proposal = propose(&server, sql).await;
    db.run("update s.item set v = case id when 100 then 102 else 100 end where id in (100, 102)").await;
    is_stale(&db, &server, &proposal).await;
    let proposal = propose(&server, sql).await;
    server.succeed("confirm_proposal", agreement(&proposal)).await;
    assert_eq!(db.value("select count(*) from s.copy").await, "200");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_updated_rows_are_compared_beyond_those_that_are_shown() {
    let (db, server) = world().await;
    let rows = long_form::choose(300, 3000);
    db.run(&format!(
        "create table s.stamped (id int primary key, v int not null, secret text, seen int not null default 0, at timestamptz, word text);
         create table s.total (id int primary key, sum int not null);
         create function s.add_up() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as
             $$ begin update s.total set sum = sum + new.v - old.v where id = 1 + mod(new.id, 150); return null; end $$;
         create trigger add_up after update of v on s.stamped for each row execute function s.add_up();
         grant select, insert, update, delete on s.stamped, s.total to countersign_writer;
         select countersign.track('s.stamped', sensitive => array['secret']), countersign.track('s.total');
         insert into s.stamped select n, n, 'old', 0, now(), 'old' from generate_series(1, {rows}) n;
         insert into s.total select n, 0 from generate_series(1, 150) n;
         insert into s.sel values (2, 5)"
    ))
    .await;
    let last = format!("case when id = {rows} then (select cur from s.sel where id = 2) else v + 1 end");
    let looked_up = format!("update s.stamped set v = {last}");
    let secret = format!("update s.stamped set secret = ({last})::text");
    let with_clock = format!("update s.stamped set v = {last}, at = clock_timestamp(), word = random()::text");
    let other_source = "update s.sel set cur = cur + 1 where id = 2".to_owned();
    let other_old = format!("update s.stamped set v = v + 1 where id = {rows}");
    // Each column has the same values as before, in other rows.
    let exchange = format!("update s.stamped set v = 2 * {rows} - 1 - v where id >= {rows} - 1");
    for (sql, change, is_same) in [
        (&looked_up, &other_source, false),
        (&secret, &other_source, false),
        (&with_clock, &other_source, false),
        (&"update s.stamped set v = v + 1".to_owned(), &other_old, false),
        (&"update s.stamped set v = v + 1".to_owned(), &exchange, false),
        // What the write leaves alone, values that are generated, and what triggers add up.
        (&"update s.stamped set v = v + 1".to_owned(), &"update s.stamped set seen = seen + 1".to_owned(), true),
        (&with_clock, &"update s.stamped set at = now(), seen = seen + 1".to_owned(), true),
        (&"update s.stamped set v = v + 1".to_owned(), &"update s.total set sum = sum + 1000".to_owned(), true),
    ] {
        let contents = "select md5(string_agg(t::text, ' ' order by id)) from s.stamped t";
        let proposal = propose(&server, &format!("{sql} /* {} */", fastrand::u64(..))).await;
        db.run(change).await;
        let before = db.value(contents).await;
        let answer = server.call("confirm_proposal", agreement(&proposal)).await;
        if is_same {
            assert_eq!(answer["success"], true, "{sql}; {change}: {answer}");
            assert_ne!(db.value(contents).await, before, "{sql}; {change}");
        } else {
            assert_eq!(answer["error"]["code"], "proposal_stale", "{sql}; {change}: {answer}");
            let said = format!("it would change values of {rows} row(s) of s.stamped other than was shown");
            assert!(answer["error"]["message"].as_str().unwrap().starts_with(&said), "{sql}; {change}: {answer}");
            assert_eq!(db.value(contents).await, before, "{sql}; {change}");
        }
    }
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_chooses_rows_by_the_clock_or_by_chance_is_no_proposal() {
    let (db, server) = world().await;
    let has_merge = version(&db).await >= 150_000;
    fill(&db, 10_000).await;
    let any = "case when clock_timestamp() > now() + interval '1 day' then 397 else 404 + (random() * 19000)::int end";
    let statements = [
        // Chance decides for each row: about 200 of 20,000 rows, never the same ones.
        "delete from s.plain where mod(id, 100) = case when clock_timestamp() > now() + interval '1 day' then 97 \
         else (random() * 99)::int end"
            .to_owned(),
        format!("update s.plain set v = 0 where id = (select {any})"),
        "update s.plain set v = 0 where id = (select id from s.plain order by random() limit 1)".to_owned(),
        format!("update s.plain set v = 0 where id in (select {any})"),
        format!("merge into s.plain t using (select {any} as id) x on t.id = x.id when matched then delete"),
        // Above the number that is shown.
        "update s.plain set v = 0 where id in (select id from s.plain order by random() limit 200)".to_owned(),
        "delete from s.item where id in (select id from s.item order by random() limit 200)".to_owned(),
    ];
    let before = db.value(CONTENTS).await;
    for sql in statements.iter().filter(|sql| has_merge || !sql.starts_with("merge")) {
        let error = server.fail("execute_sql", json!({"sql": sql}), "invalid_params").await;
        let said = error["message"].as_str().unwrap();
        assert!(said.starts_with("the write does not say which rows of s."), "{sql}: {error}");
        assert!(error["hint"].as_str().unwrap().contains("by their keys"), "{error}");
    }
    let error = server.fail("remove_any_loose", json!({}), "invalid_params").await;
    assert!(error["message"].as_str().unwrap().contains("which rows of s.loose it would delete"), "{error}");
    assert_eq!(db.value(CONTENTS).await, before);
    assert_eq!(db.value("select count(*) from countersign.proposal").await, "0");
    // The control: a row that is named by its key may get a value by the clock or by chance.
    let proposal = propose(&server, "update s.plain set v = (random() * 1000000)::int where id = 397").await;
    let row = &proposal["preview"]["effects"]["rows"][0];
    assert_eq!(
        (&row["key"], &row["columns"]["v"]),
        (&json!({"id": 397}), &json!({"before": "397", "after": "(generated)"}))
    );
    server.succeed("confirm_proposal", agreement(&proposal)).await;
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_text_is_compared_to_its_end() {
    let (db, server) = world().await;
    db.run("insert into s.text select n, repeat('long ', 200) || n from generate_series(1, 2) n").await;
    let sql = "update s.text set words = (select words || '!' from s.text where id = 2) where id = 1";
    let proposal = propose(&server, sql).await;
    let shown = proposal["preview"]["effects"]["rows"][0]["columns"]["words"]["after"].as_str().unwrap().to_owned();
    assert!(shown.ends_with('…') && shown.chars().count() < 600, "{shown}");
    db.run("update s.text set words = words || ' and other words' where id = 2").await;
    let said = is_stale(&db, &server, &proposal).await;
    assert!(said.starts_with("the rows of s.text are not as they were shown"), "{said}");
    // The control.
    let proposal = propose(&server, sql).await;
    server.succeed("confirm_proposal", agreement(&proposal)).await;
    assert_eq!(db.value("select words like '%2 and other words!' from s.text where id = 1").await, "t");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_without_an_effect_asks_nobody_and_is_recorded() {
    let (db, server) = world().await;
    fill(&db, 2).await;
    db.run(
        "create table s.untracked (at timestamptz); grant insert on s.untracked to countersign_writer;
         create function s.note_it() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as
             $$ begin insert into s.untracked values (now()); return null; end $$;
         create trigger note_it after delete on s.plain for each statement execute function s.note_it();
         insert into s.noted values (1, 1)",
    )
    .await;
    let before = db.value(CONTENTS).await;
    for (sql, rows) in [
        ("update s.plain set v = 0 where id = -1", 0),
        ("update s.plain set v = v where id = 1", 1),
        // The first and the second trial find no row, and the write itself finds one. The trials after it do not.
        ("update s.plain set v = 0 where id = (select case nextval('s.number') when 1000002 then 1 else -1 end)", 0),
    ] {
        let done = server.succeed("execute_sql", json!({"sql": sql})).await;
        assert_eq!(done["meta"]["rows_affected"], rows, "{sql}: {done}");
        assert_eq!(db.value(CONTENTS).await, before, "{sql}");
        let receipt = done["meta"]["correlation_id"].as_str().unwrap();
        let status = format!("select status from countersign.mutation where correlation_id = '{receipt}'");
        assert_eq!(db.value(&status).await, "success", "{sql}");
    }
    let failed = "select string_agg(error_code, ',') from countersign.mutation where status = 'failure'";
    assert_eq!(db.value(failed).await, "proposal_stale", "the write that found a row");
    assert_eq!(db.value("select count(*) from countersign.proposal").await, "0");
    // The controls: what triggers and other parts of a statement write is an effect.
    server.propose("remove_plain", json!({"id": -1})).await;
    for sql in [
        "update s.noted set v = v where id = 1",
        "with new as (insert into s.copy (item) values (1)) update s.item set v = 0 where false",
    ] {
        server.propose("execute_sql", json!({"sql": sql})).await;
    }
    server.close().await;
}
