//! Calls of functions that run texts or read by name, in every place of a query where an expression can stand. Many of these
//! places are in no plan.

use ledger::read::{ReadError, ReadRequest, Reader, RowFormat};
use pg::ConnectOptions;
use testkit::lone_database;

use super::{LONG, reader};

/// The places of PostgreSQL's grammar (`a_expr`, `b_expr`, `c_expr`, `func_expr` and what of SELECT contains them); `{}` is an
/// expression of type text, which is 'a' in the control.
const PLACES: [&str; 78] = [
    "select {}",
    "select distinct on ({}) 1",
    "select 1 from t where {} = 'a'",
    "select 1 from t group by {}",
    "select 1 from t group by grouping sets (({}), ())",
    "select 1 from t group by rollup ({}), cube (id)",
    "select 1 from t having max({}) = 'a'",
    "select 1 from t order by {}",
    "select 1 from t order by id using <, {} desc nulls last",
    "select 1 from t limit length({})",
    "select 1 from t offset length({})",
    "select 1 from t fetch first (length({})) rows only",
    "select count(*) over (partition by {}) from t",
    "select count(*) over (order by {}) from t",
    "select count(*) over w from t window w as (partition by {})",
    "select count(*) over (order by id rows between length({}) preceding and current row) from t",
    "select count(*) over (order by id rows between current row and length({}) following) from t",
    "select count(*) filter (where {} = 'a') from t",
    "select string_agg({}, ',' order by {}) from t",
    "select percentile_disc(0.5) within group (order by {}) from t",
    "select lag({}, length({}), {}) over (order by id) from t",
    "values ({})",
    "values ('b'), ({})",
    "values ('b'), ('c') order by {}",
    "values ('b'), ('c') limit length({})",
    "select 1 from (values ('b'), ({})) v (a)",
    "select 1 where {} in ('a', 'b')",
    "select 1 where 'b' in ('a', {})",
    "select 1 where {} in (select 'a')",
    "select 1 where {} not in (select 'b' union all select 'c')",
    "select 1 where ({}, 1) in (select 'a', 1 union all select 'b', 2)",
    "select 1 where {} = any (array['a'])",
    "select 1 where 'a' = any (array[{}])",
    "select 1 where {} = any (select 'a')",
    "select 1 where {} <> all (select 'b' union all select 'c')",
    "select 1 where ({}, 1) = (select 'a', 1)",
    "select 1 where exists (select {})",
    "select 1 where exists (select 1 limit length({}))",
    "select (select {})",
    "select array[{}]",
    "select array(select {})",
    "select array(values ('a'), ({}))",
    "select row({}, 1)",
    "select (array['a'])[length({})]",
    "select (array['a'])[1:length({})]",
    "select case {} when 'a' then 1 end",
    "select case 'a' when {} then 1 end",
    "select case when {} = 'a' then 1 end",
    "select case when true then {} end",
    "select case when false then '' else {} end",
    "select coalesce(null, {}), nullif({}, ''), greatest({}, ''), least({}, '')",
    "select 1 where {} between 'a' and 'b'",
    "select 1 where 'a' not between symmetric {} and 'b'",
    "select 1 where {} like 'a' escape {}",
    "select 1 where {} similar to 'a'",
    "select 1 where {} is distinct from 'a' or {} is null or {}::xml is document",
    "select 1 where ({} = 'a') is true",
    "select {}::varchar, cast({} as name), ({} collate \"C\")",
    "select now() at time zone coalesce(nullif({}, 'a'), 'UTC')",
    "select operator(pg_catalog.-) length({}), {} operator(pg_catalog.||) 'b'",
    "select concat(variadic array[{}]), make_interval(hours => length({}))",
    "select extract(day from current_date + length({})), overlay('abc' placing {} from length({}) for 1)",
    "select position({} in 'abc'), substring('abc' from length({}) for 1), substring('abc' similar {} escape '#')",
    "select trim(both {} from 'abc'), normalize({}), collation for ({})",
    "select 1 where (current_date, current_date) overlaps (current_date, current_date + length({}))",
    "select xmlelement(name a, xmlattributes({} as b), {}), xmlforest({} as c), xmlconcat({}::xml)",
    "select xmlparse(content {}), xmlpi(name a, {}), xmlroot({}::xml, version {}), xmlserialize(content {}::xml as text)",
    "select 1 where xmlexists(({}) passing '<a/>')",
    "select x.a from xmltable(({}) passing '<a/>' columns a text path {} default {}) x",
    "select 1 from lower({}) f",
    "select 1 from rows from (lower({}), upper({})) with ordinality f",
    "select 1 from t, lateral (select {}) s",
    "select 1 from t join t u on {} = 'a'",
    "select 1 from t tablesample bernoulli (length({})) repeatable (length({}))",
    "with c as materialized (values ('b'), ({})) select 1 from c",
    "with recursive c (n) as (select 1 union all select n + length({}) from c where n < 2) select n from c",
    "select {} union all select {} intersect select {} except select {}",
    "explain (analyze, costs off) select 1 limit length({})",
];

/// Expressions that call such a function, with the functions of extensions in the schema `ext`.
const CALLS: [&str; 22] = [
    "query_to_xml('select 1', true, false, '')::text",
    "query_to_xmlschema('select 1', true, false, '')::text",
    "query_to_xml_and_xmlschema('select 1', true, false, '')::text",
    "cursor_to_xml('c', 1, true, false, '')::text",
    "table_to_xml('t', true, false, '')::text",
    "table_to_xml_and_xmlschema('t', true, false, '')::text",
    "schema_to_xml('public', true, false, '')::text",
    "schema_to_xml_and_xmlschema('public', true, false, '')::text",
    "database_to_xml(true, false, '')::text",
    "database_to_xml_and_xmlschema(true, false, '')::text",
    "ts_rewrite('a'::tsquery, 'select ''a''::tsquery, ''b''::tsquery')::text",
    "(select word from ts_stat('select ''a''::tsvector') limit 1)",
    "(select word from ts_stat('select ''a''::tsvector', 'a') limit 1)",
    "(select (('select ''a''::tsvector'::text).ts_stat).word limit 1)",
    "(select (('select ''a''::tsvector'::text) . \"ts_stat\").word limit 1)",
    "(select (('select ''a''::tsvector'::text)./* */ts_stat).word limit 1)",
    "ext.dblink_connect('x', 'dbname=x')",
    "ext.dblink_exec('x', 'select 1')",
    "(select a from ext.dblink('select 1') d (a text))",
    "(select a from ext.crosstab('select 1, 2, 3') c (a text, b text))",
    "(select branch from ext.connectby('t', 'id', 'id', '1', 0, '~') c (a text, b text, c int, branch text))",
    "(select a from ext.xpath_table('id', 'id', 't', '/a', 'true') x (id int, a text))",
];

/// Other ways to write the first of these calls.
const SPELLINGS: [&str; 8] = [
    "QUERY_TO_XML('select 1', true, false, '')::text",
    "\"query_to_xml\" ('select 1', true, false, '')::text",
    "pg_catalog . query_to_xml\n('select 1', true, false, '')::text",
    "query_to_xml/* */('select 1', true, false, '')::text",
    "query_to_xml -- (\n ('select 1', true, false, '')::text",
    "U&\"query\\005fto\\005fxml\"('select 1', true, false, '')::text",
    "U&\"query!005fto!005fxml\" UESCAPE '!' ('select 1', true, false, '')::text",
    "query_to_xml(tableforest => false, targetns => '', query => 'select 1', nulls => true)::text",
];

async fn outcome(reader: &Reader, sql: &str) -> Result<(), ReadError> {
    reader.read(&ReadRequest::new(sql, &[], RowFormat::Array)).await.map(drop)
}

/// Whether a query is refused because of a function, and not for any other reason.
async fn is_refused(reader: &Reader, place: &str, call: &str) -> Result<(), String> {
    let sql = place.replace("{}", call);
    match outcome(reader, &sql).await {
        Err(ReadError::ForbiddenFunction { .. }) => Ok(()),
        other => Err(format!("{sql}: {other:?}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_place_of_a_query_hides_a_function_that_runs_texts_or_reads_by_name() {
    let db = lone_database().await;
    db.run("create table public.t (id int primary key); insert into public.t values (1); grant select on public.t to countersign_reader; \
            create schema ext; create extension dblink schema ext; create extension tablefunc schema ext; create extension xml2 schema ext; \
            grant usage on schema ext to countersign_reader")
        .await;
    let login = ConnectOptions::parse(&db.url_as("countersign_reader")).unwrap();
    let reader = reader(&login, LONG);
    let mut wrong = Vec::new();
    for place in PLACES {
        // The control: what is refused below is refused for the function.
        let control = outcome(&reader, &place.replace("{}", "lower('A')")).await;
        let is_grammar = |error: &ReadError| !matches!(error, ReadError::Database(pg::Error::Server(error)) if error.sqlstate == "42601");
        if let Err(error) = control
            && (matches!(error, ReadError::ForbiddenFunction { .. }) || !is_grammar(&error))
        {
            wrong.push(format!("{place}: {error:?}"));
        }
        for call in [
            "query_to_xml('select 1', true, false, '')::text",
            "(select word from ts_stat('select ''a''::tsvector') limit 1)",
        ] {
            wrong.extend(is_refused(&reader, place, call).await.err());
        }
    }
    for call in CALLS.into_iter().chain(SPELLINGS) {
        for place in ["select {}", "values ('b'), ({})", "select 1 from t limit length({})"] {
            wrong.extend(is_refused(&reader, place, call).await.err());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // A text may mention it, and a column may have its name.
    outcome(&reader, "select t.id as table_to_xml, 'query_to_xml' as name from t").await.unwrap();
}
