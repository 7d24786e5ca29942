//! No statement is executed twice to learn something about it. PostgreSQL counts the calls of a function.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_read_is_executed_once_with_any_result() {
    let db = database().await;
    db.run(
        "create function public.counted(n int) returns int volatile language plpgsql as $$ begin return n; end $$;
         create table public.t (n int); insert into public.t values (1);
         grant execute on all functions in schema public to countersign_reader;
         grant select on public.t to countersign_reader",
    )
    .await;
    db.run(&format!("alter database {} set track_functions = 'pl'", db.name())).await;
    let server = Server::start(Server::bare_command(&db)).await;
    let one_row = "select public.counted(1) as n";
    let with_param = json!({"query": "select public.counted($1) as n", "params": [1]});
    let calls = [
        // Not seen before, and seen before.
        (json!({"query": one_row}), None, 1),
        (json!({"query": one_row}), None, 1),
        (with_param.clone(), None, 1),
        (with_param, None, 1),
        // One row more than asked tells that there are more.
        (json!({"query": "select public.counted(n) from generate_series(1, 100) n", "row_limit": 3}), None, 4),
        (json!({"query": "select public.counted(1) / 0"}), Some("sql_error"), 1),
        (json!({"query": "select public.counted(1), repeat('x', 2000000)"}), Some("result_too_large"), 1),
        (json!({"query": "select public.counted(1), nosuch from public.t"}), Some("sql_error"), 0),
        (json!({"query": "select public.counted(1) from public.t for update"}), Some("not_read_only"), 0),
        (json!({"query": "select public.counted($1)", "params": ["x"]}), Some("invalid_params"), 0),
        // Seen before, and its columns have another type since.
        (json!({"query": "select public.counted(1), t.n from public.t"}), None, 1),
        (json!({"query": "select public.counted(1), t.n from public.t"}), None, 1),
    ];
    let last = calls.len() - 1;
    let mut expected = 0;
    for (index, (arguments, failure, times)) in calls.into_iter().enumerate() {
        if index == last {
            db.run("alter table public.t alter n type text").await;
        }
        let envelope = server.call("query_database", arguments.clone()).await;
        assert_eq!(envelope["error"]["code"].as_str(), failure, "{arguments}: {envelope}");
        expected += times;
    }
    let explained = json!({"query": one_row});
    server.succeed("explain_query", explained).await;
    server.close().await;
    // A backend reports what it has counted when it ends, if not before.
    let gone = "select 1 where not exists (select from pg_stat_activity where usename = 'countersign_reader' \
                and datname = current_database())";
    db.first_value(gone).await;
    let counted = "select calls from pg_stat_user_functions where funcname = 'counted'";
    assert_eq!(db.value(counted).await, expected.to_string());
}
