//! Texts and values that try to be something else as a part of the statement for a page.

use serde_json::json;
use testkit::{Server, database};

use super::{assert_pages, hint, orders};

#[tokio::test(flavor = "multi_thread")]
async fn a_text_means_the_same_as_a_part_of_a_statement() {
    let db = database().await;
    orders(&db).await;
    let server = Server::on(&db).await;
    for query in [
        "select c from paged.line order by c;",
        "select c from paged.line order by c ; \n ;\t",
        "select c from paged.line order by c -- the end",
        "select c from paged.line order by c -- ) as page;",
        "select c from paged.line order by c /* ) as page -- */",
        "-- (\nselect c, ') as page --' as \"x) page\" from paged.line order by c",
        "(select c from paged.line order by c)",
        "((select c from paged.line) order by c) -- (",
        "select c, $q$) as page (c1) where true --$q$ as d from paged.line order by c",
        "select c, E'\\') as page --' as d, '--;' as e from paged.line order by c;",
        "select page.c as c1, page.b as \"a\"\"b\" from paged.line page order by page.c",
        "with page (c1) as (select c from paged.line) select c1 from page order by c1",
        "SELECT c AS \"from (select 1) as page --\" FROM paged.line ORDER BY c",
    ] {
        assert_pages(&server, query, json!([]), &[50]).await;
    }
    assert_pages(&server, "select c, $1 as d from paged.line order by c", json!(["$2"]), &[50]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_is_no_whole_statement_does_not_get_into_one() {
    let db = database().await;
    orders(&db).await;
    let server = Server::on(&db).await;
    for query in [
        "select c from paged.line) as page; delete from paged.line; select (1",
        "select c from paged.line order by c) as page (c1), (select 1",
        "select c from paged.line order by c /*",
        "select c from paged.line order by c) --",
        "select 1; delete from paged.line",
        "select 'x",
        "select $$x",
    ] {
        let error = server.fail("query_database", json!({"query": query, "after": [1]}), "sql_error").await;
        assert_eq!(error["sqlstate"], "42601", "{query}: {error}");
    }
    for query in ["delete from paged.line returning c", "insert into paged.line values (1) returning c", "set a.b = 1"]
    {
        let arguments = json!({"query": query, "after": [1]});
        let error = server.call("query_database", arguments).await["error"].clone();
        assert!(
            ["not_read_only", "not_permitted", "invalid_params", "sql_error"]
                .contains(&error["code"].as_str().unwrap()),
            "{query}: {error}"
        );
    }
    // What a read may not call, it may not call on the second page either.
    let query = "select c, pg_cancel_backend(0) from paged.line order by c";
    server.fail("query_database", json!({"query": query, "after": [1]}), "not_permitted").await;
    let query = "select c, set_config('countersign.account_id', 'x', true) from paged.line order by c";
    let error = server.call("query_database", json!({"query": query, "after": [1]})).await["error"].clone();
    assert!(["not_permitted", "invalid_params"].contains(&error["code"].as_str().unwrap()), "{error}");
    assert_eq!(db.value("select count(*) from paged.line").await, "120");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_of_after_is_a_value() {
    let db = database().await;
    orders(&db).await;
    let server = Server::on(&db).await;
    let query = "select a, b from paged.line order by a, b";
    for after in [
        json!([1]),
        json!([1, "b", 2]),
        json!([1.5, "b"]),
        json!([null, "b"]),
        json!([1, null]),
        json!([[1], "b"]),
        json!([{"a": 1}, "b"]),
        json!(["1 or true", "b"]),
        json!(["1) --", "b"]),
        json!([true, "b"]),
        json!([1, 2]),
        json!([1, "b\u{0}"]),
        json!([2_147_483_648_i64, "b"]),
        json!({"a": 1}),
        json!("1"),
        json!(1),
    ] {
        let error = server.fail("query_database", json!({"query": query, "after": after}), "invalid_params").await;
        assert!(error["message"].as_str().unwrap().contains("after"), "{after}: {error}");
    }
    // It is compared, and never SQL; and it need not be a key that exists.
    for (after, expected) in [
        (json!([4, "' or true --"]), "select count(*) from paged.line where (a, b) > (4, ''' or true --')"),
        (json!([-1, ""]), "select count(*) from paged.line"),
        (json!(["2", "b50"]), "select count(*) from paged.line where (a, b) > (2, 'b50')"),
        (json!([99, ""]), "select 0"),
    ] {
        let arguments = json!({"query": query, "after": after, "row_limit": 1000});
        let data = server.succeed("query_database", arguments).await["data"].clone();
        assert_eq!(data["row_count"].to_string(), db.value(expected).await, "{after}");
    }
    let arguments =
        json!({"query": "select a from paged.line where a = $1 order by c", "params": [1, 2], "after": [1]});
    server.fail("query_database", arguments, "invalid_params").await;
    let arguments = json!({"query": "select c from paged.line where a = $1 order by c", "params": [], "after": [1]});
    server.fail("query_database", arguments, "invalid_params").await;
    let arguments = json!({"query": "select c from paged.line where a = $1 order by c", "params": ["x"], "after": [1]});
    let error = server.fail("query_database", arguments, "invalid_params").await;
    assert!(error["message"].as_str().unwrap().contains("parameter $1"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_and_types_of_other_schemas_do_not_take_part() {
    let db = database().await;
    orders(&db).await;
    db.run(
        "create extension citext;
         create function public.never(int, int) returns boolean language sql immutable as 'select false';
         create operator public.> (leftarg = int, rightarg = int, function = public.never);
         create table public.folded (k citext primary key);
         insert into public.folded select 'k' || i from generate_series(1, 9) i;
         grant select on public.folded to public",
    )
    .await;
    let server = Server::on(&db).await;
    assert_pages(&server, "select c from paged.line order by c", json!([]), &[50]).await;
    let said = hint(&server, "select k from public.folded order by k").await;
    assert!(said.contains("a type that cannot be given"), "{said}");
}
