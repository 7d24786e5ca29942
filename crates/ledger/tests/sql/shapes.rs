//! Each shape of a write: undone, every row is what it was, bit by bit; redone, what the write left; undone again, what it was.

use testkit::Database;
use tokio_postgres::Client;

use crate::support::{ledger, server, undo, write};

/// Shapes of later versions of PostgreSQL.
const SINCE: &[(u32, Shape)] = &[
    (
        15,
        Shape {
            name: "MERGE",
            schema: "create table t (id int primary key, n int); insert into t select g, g from generate_series(1, 5) g;",
            track: "t",
            writes: &[
                "merge into t using (values (1, 9), (2, 2), (9, 9)) s (id, n) on t.id = s.id
                 when matched and s.n = t.n then delete when matched then update set n = s.n when not matched then insert values (s.id, s.n)",
            ],
        },
    ),
    (
        18,
        Shape {
            name: "virtual generated columns",
            schema: "create table v (id int primary key, n int, twice int generated always as (n * 2) virtual, note text);
                     insert into v (id, n) values (1, 1), (2, null);",
            track: "v",
            writes: &["update v set n = 5", "delete from v", "insert into v (id, n) values (3, 3)"],
        },
    ),
];

/// A schema of its own with these tables, what is tracked, and the writes.
struct Shape {
    name: &'static str,
    schema: &'static str,
    track: &'static str,
    writes: &'static [&'static str],
}

const SHAPES: &[Shape] = &[
    Shape {
        name: "setter, relative, bulk, delete",
        schema: "create table t (id int primary key, v numeric, note text);
                 insert into t select g, g, 'n' || g from generate_series(1, 80) g;",
        track: "t",
        writes: &[
            "update t set v = 5 where id = 1",
            "update t set v = v + 5 where id = 1",
            "update t set v = 1.0 where id = 1",
            "update t set v = v * 2, note = null",
            "delete from t where id > 40",
            "delete from t",
        ],
    },
    Shape {
        name: "insert and upsert, into nothing and over a row",
        schema: "create table t (id int primary key, n int not null default 0, at timestamptz default now(), unique (n));
                 insert into t values (1, 1);",
        track: "t",
        writes: &[
            "insert into t values (2, 2)",
            "insert into t values (1, 5) on conflict (id) do update set n = t.n + excluded.n",
            "insert into t values (3, 7) on conflict (id) do update set n = excluded.n",
            "with a as (insert into t values (9, 9) returning id) update t set n = n + 100 where id = 1",
            "delete from t where id = 1; insert into t values (1, 50)",
            "insert into t values (4, 4); update t set n = 5 where id = 4; delete from t where id = 4; update t set n = 0 where id = 1",
        ],
    },
    Shape {
        name: "cascades of two levels, SET NULL and SET DEFAULT, self references",
        schema: "create table a (id int primary key);
                 create table b (id int primary key, a int references a on delete cascade on update cascade);
                 create table c (id int primary key, b int references b on delete cascade, x text);
                 create table d (id int primary key, a int references a on delete set null);
                 create table e (id int primary key, a int default 1 references a on delete set default);
                 create table tree (id int primary key, up int references tree on delete cascade);
                 insert into a select generate_series(1, 5); insert into b select g, (g % 5) + 1 from generate_series(1, 20) g;
                 insert into c select g, (g % 20) + 1, 'x' from generate_series(1, 60) g;
                 insert into d select g, (g % 5) + 1 from generate_series(1, 10) g; insert into e select g, (g % 5) + 1 from generate_series(1, 10) g;
                 insert into tree values (1, null), (2, 1), (3, 2), (4, 3), (5, 1);",
        track: "a b c d e tree",
        writes: &["delete from a where id = 2", "delete from a where id in (3, 4)", "delete from tree where id = 1", "delete from b"],
    },
    Shape {
        name: "triggers that write elsewhere, that change the row, and that change rows of the same statement",
        schema: "create table owner (id int primary key, total int not null default 0);
                 create table item (id int primary key, owner int references owner, n int, stamp int default 0);
                 create table history (id int generated always as identity, what text);
                 create function item_total() returns trigger language plpgsql as $$ begin
                     if tg_op <> 'INSERT' then update owner set total = total - old.n where id = old.owner; end if;
                     if tg_op <> 'DELETE' then update owner set total = total + new.n where id = new.owner; end if;
                     insert into history (what) values (tg_op); return null; end $$;
                 create trigger item_total after insert or update of n, owner or delete on item for each row execute function item_total();
                 create function item_next() returns trigger language plpgsql as $$ begin
                     update item set stamp = stamp + 1 where id = new.id % 3 + 1 and stamp < 3; return null; end $$;
                 create trigger a_next after update of n on item for each row execute function item_next();
                 insert into owner values (1), (2);
                 insert into item values (1, 1, 1), (2, 1, 2), (3, 2, 3); delete from history;",
        track: "owner item history=log",
        writes: &[
            "update item set n = 10 where id = 1",
            "insert into item values (4, 2, 4)",
            "delete from item where id = 3",
            "update item set owner = 2",
            "update item set n = n + 1",
        ],
    },
    Shape {
        name: "INSTEAD OF views and rules",
        schema: "create table t (id int primary key, v int); create table log2 (id int primary key, v int);
                 create view w as select id, v * 2 as v from t;
                 create function w_write() returns trigger language plpgsql as $$ begin
                     if tg_op = 'INSERT' then insert into t values (new.id, new.v / 2); return new;
                     elsif tg_op = 'UPDATE' then update t set v = new.v / 2 where id = old.id; return new;
                     else delete from t where id = old.id; return old; end if; end $$;
                 create trigger w_write instead of insert or update or delete on w for each row execute function w_write();
                 create table r (id int primary key, v int);
                 create rule also as on insert to r do also insert into log2 values (new.id, new.v);
                 create rule gone as on delete to r do instead update r set v = -1 where id = old.id;
                 insert into t values (1, 1); insert into r values (1, 1);",
        track: "t r log2",
        writes: &["insert into w values (2, 8)", "update w set v = 40", "delete from w", "delete from r where id = 1"],
    },
    Shape {
        name: "deferred constraints and deferred triggers",
        schema: "create table p (id int primary key, n int unique deferrable initially deferred);
                 create table k (id int primary key, p int references p deferrable initially deferred);
                 create table total (one int primary key, n bigint);
                 create function p_total() returns trigger language plpgsql as $$ begin
                     update total set n = (select sum(x.n) from p x) where n is distinct from (select sum(x.n) from p x); return null; end $$;
                 create constraint trigger p_total after insert or update or delete on p deferrable initially deferred
                     for each row execute function p_total();
                 insert into p values (1, 1), (2, 2); insert into total values (1, 3) on conflict do nothing; update total set n = 3;",
        track: "p k total",
        writes: &["update p set n = 3 - n", "insert into k values (1, 9); insert into p values (9, 9)", "update p set n = n + 10", "delete from p"],
    },
    Shape {
        name: "partitions with another order of columns, and moves between them",
        schema: "create table m (id int, region text, v int, note text, primary key (id, region)) partition by list (region);
                 create table m_a partition of m for values in ('a');
                 create table m_b (note text, v int, id int not null, region text not null, gone int);
                 alter table m_b drop column gone; alter table m attach partition m_b for values in ('b');
                 create table leaf (id int primary key, v int) partition by range (id);
                 create table leaf_1 partition of leaf for values from (0) to (10); create table leaf_2 partition of leaf for values from (10) to (20);
                 insert into m select g, case when g % 2 = 0 then 'a' else 'b' end, g, 'n' || g from generate_series(1, 10) g;
                 insert into leaf select g, g from generate_series(1, 19) g;",
        track: "m leaf",
        writes: &[
            "update m set region = 'b' where id = 2",
            "update m set v = v + 1, note = 'x, \"y\"'",
            "update m set region = case region when 'a' then 'b' else 'a' end",
            "delete from m_b",
            "insert into m_b (id, region, v) values (99, 'b', 1)",
            "delete from leaf where id = 15; update leaf set id = 15 where id = 5",
        ],
    },
    Shape {
        name: "generated and identity columns, domains, enums, composite keys, partial and expression indexes",
        schema: "create domain amount as numeric(12, 2) check (value >= 0); create type mood as enum ('sad', 'ok');
                 create table g (id int generated always as identity primary key, a amount, twice numeric generated always as (a * 2) stored, m mood);
                 create table k (x mood, y text, v int, primary key (x, y));
                 create table u (n int not null unique, w text); create unique index on u (w) where n > 3;
                 insert into g (a, m) select g, 'ok' from generate_series(1, 5) g;
                 insert into k values ('sad', 'a, \"b\"', 1), ('ok', '', 2); insert into u values (1, null), (2, 'two');",
        track: "g k u",
        writes: &[
            "insert into g (a, m) values (7.5, 'sad')",
            "update g set a = a + 1, m = 'sad' where id = 2",
            "delete from g",
            "update k set v = v + 1",
            "delete from k",
            "update u set w = 'x' where n = 1",
            "update u set n = n + 10",
        ],
    },
    Shape {
        name: "values that text and json lose: -0, NaN, infinity, jsonb null, bounds, BC, composites, quotes",
        schema: r#"create type pair as (a int, b text);
                 create table v (id int primary key, f float8, r real, n numeric, d date, ts timestamptz, t timestamp, iv interval, b bytea,
                     j json, jb jsonb, arr int[], txt text[], p pair, ps pair[], rng int4range, bits bit varying, net inet, m money, ch char(5), x xml, pt point, tz timetz);
                 insert into v values
                     (1, '-0', '-0', 'NaN', 'infinity', '-infinity', '0044-03-15 BC', '1 mon -2 days 03:04:05.6', '\x00ff00', '{"a": 1,  "a": 2}',
                      'null', '[0:2]={1,NULL,3}', '{"a,b",NULL,"q\"\\"}', '(1,)', array['(1,"x, (y)")', null]::pair[], '[1,5)', B'101', '10.0.0.1/8', 12.5, 'a', '<a> b</a>', '(1,2)', '04:05:06+03'),
                     (2, 'Infinity', 'NaN', 1.10, '4713-01-01 BC', 'now', 'infinity', '-1 year', '', '"\ud800"', '{"x": [null]}', '{}', '{{a},{b}}', null, '{}', 'empty', '', '::1', 0, '', null, null, null),
                     (3, 1e-310, 0.1, 1e30, null, null, null, null, null, null, null, null, null, '(,)', null, null, null, null, null, null, null, null, null);"#,
        track: "v",
        writes: &[
            "update v set f = 0, r = 0, n = 1, j = null, jb = null, arr = '{1}', txt = null, iv = null, b = null, p = null",
            "delete from v",
            "update v set f = -f, jb = 'null', j = '{}', arr = '[5:5]={9}', ts = ts, n = n",
            "insert into v (id, f, jb, txt, p) values (9, '-Infinity', 'null', array[E'\\n\\t', ''], row(null, '')::pair)",
        ],
    },
    Shape {
        name: "keys that change: of a leaf, of a row that others refer to, exchanged",
        schema: "create table k (id int primary key, v text); create table r (id int primary key, k int references k on update cascade);
                 create table s (id int primary key, v text);
                 insert into k values (1, 'a'), (2, 'b'), (3, 'c'); insert into r values (1, 1), (2, 2), (3, null);
                 insert into s values (1, 'one'), (2, 'two');",
        track: "k r s",
        writes: &[
            "update k set id = 10, v = 'moved' where id = 1",
            "update k set id = id + 100",
            "update s set id = 5 where id = 1",
            "update s set id = -1 where id = 1; update s set id = 1 where id = 2; update s set id = 2 where id = -1",
            "update s set id = 7 where id = 2; update s set id = 8 where id = 7; update s set v = 'x' where id = 8",
        ],
    },
    Shape {
        name: "large values that a write leaves alone, and that it changes",
        schema: "create table l (id int primary key, n int, doc text, raw bytea, j jsonb);
                 insert into l select g, g, repeat(md5(g::text), 300), decode(repeat('00ff', 2000), 'hex'), jsonb_build_object('a, \"b\"', repeat('z', 5000)) from generate_series(1, 5) g;",
        track: "l",
        writes: &["update l set n = n + 1", "update l set doc = doc || 'x', n = 0", "update l set raw = null where id = 2", "delete from l where id = 1",
                  "update l set n = 1; update l set n = 2, j = '{}'; update l set doc = 'short'"],
    },
    Shape {
        name: "names that need quotes, percent signs and dropped columns",
        schema: r#"create table "T %s" ("Id" int primary key, gone int, "a %I" text, "select" int, "q""uote" text);
                 alter table "T %s" drop column gone; insert into "T %s" values (1, 'x', 2, 'y'), (2, null, null, null);"#,
        track: r#""T %s""#,
        writes: &[r#"update "T %s" set "a %I" = 'z', "select" = 9"#, r#"delete from "T %s""#, r#"update "T %s" set "Id" = 5 where "Id" = 1"#],
    },
];

async fn check(database: &Database, session: &Client, number: usize, shape: &Shape) {
    let space = format!("s{number}");
    // As the superuser who owns the tables: a server's login finds them through its search_path.
    database.run(&format!("create schema {space}; set search_path = {space}; {}", shape.schema)).await;
    for target in shape.track.split_inclusive(|letter: char| letter == ' ' && !shape.track.starts_with('"')) {
        let (table, log) = target.trim().split_once("=log").map_or((target.trim(), false), |(table, _)| (table, true));
        database.run(&format!("set search_path = {space}; select countersign.track('{table}', is_log => {log})")).await;
    }
    assert_eq!(
        database.rows("select * from countersign.tracking_problems() where problem not like 'no key%'").await,
        Vec::<Vec<String>>::new()
    );
    crate::support::run(session, &format!("set search_path = {space}")).await.unwrap();
    let state = async || {
        // Log tables may grow; a money or a time zone is shown as the session says.
        let mut rows = contents(database, &space).await;
        rows.retain(|row| !shape.track.contains(&format!("{}=log", row[0])));
        rows
    };
    for statement in shape.writes {
        let before = state().await;
        let written = write(session, statement).await;
        let after = state().await;
        let context = format!("{}: {statement}", shape.name);
        let undone = undo(session, &[written]).await.unwrap_or_else(|conflict| panic!("{context}: {conflict:#}"));
        assert_eq!(state().await, before, "undo of {context}");
        let redone =
            undo(session, &[undone]).await.unwrap_or_else(|conflict| panic!("redo of {context}: {conflict:#}"));
        assert_eq!(state().await, after, "redo of {context}");
        undo(session, &[redone]).await.unwrap_or_else(|conflict| panic!("second undo of {context}: {conflict:#}"));
        assert_eq!(state().await, before, "second undo of {context}");
        // The first undo stands again.
        let again = undo(session, &[written]).await.expect_err("undone twice");
        assert_eq!(crate::support::codes(&again), ["duplicate"], "{context}: {again:#}");
    }
}

/// Every row of every table, exactly.
async fn contents(database: &Database, space: &str) -> Vec<Vec<String>> {
    let tables = format!(
        "select quote_ident(c.relname) from pg_class c where c.relnamespace = '{space}'::regnamespace and c.relkind = 'r' order by 1"
    );
    let mut all = Vec::new();
    for table in database.rows(&tables).await {
        let name = &table[0];
        all.extend(database.rows(&format!("select '{name}', t::text from {space}.{name} t order by t::text")).await);
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_gives_back_every_value_of_every_shape() {
    let database = ledger("shapes").await;
    let session = server(&database).await;
    let version = database.cluster().version().major;
    let later = SINCE.iter().filter(|(since, _)| *since <= version).map(|(_, shape)| shape);
    for (number, shape) in SHAPES.iter().chain(later).enumerate() {
        check(&database, &session, number, shape).await;
    }
}
