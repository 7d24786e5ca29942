//! Order, pressure and ends of a pipe. Time is tokio's own and stands still while anything can be done.

mod readers;

use std::collections::HashMap;

use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use crate::harness::{Pipe, brief, in_time};

const STREAM: &str = r#","options":{"stream_rows":true,"batch_rows":10}"#;

#[tokio::test]
async fn a_fast_query_overtakes_a_slow_one() {
    let mut pipe = Pipe::start(&[]);
    pipe.query("slow", "wait", "").await;
    pipe.query("fast", "rows 1", "").await;
    assert_eq!(pipe.brief(1).await, ["result fast ROWS 1"]);
    pipe.until_noted("wait on").await;
    pipe.send(r#"{"code":"cancel","id":"slow"}"#).await;
    assert_eq!(pipe.brief(1).await, ["error slow cancelled"]);
    assert_eq!(pipe.finish().await.0, ["close"]);
}

#[tokio::test]
async fn an_id_in_flight_is_refused_and_free_again_after_its_terminal_event() {
    let mut pipe = Pipe::start(&[]);
    pipe.query("q", "wait", "").await;
    pipe.query("q", "rows 1", "").await;
    let refused = pipe.next().await;
    assert_eq!(brief(&refused), "error q invalid_request");
    assert_eq!(refused["error"], "the id \"q\" is in flight");
    pipe.send(r#"{"code":"cancel","id":"q"}"#).await;
    assert_eq!(pipe.brief(1).await, ["error q cancelled"]);
    for _ in 0..100 {
        pipe.query("q", "rows 1", "").await;
        assert_eq!(pipe.brief(1).await, ["result q ROWS 1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn sixty_four_queries_run_and_the_next_waits_while_ping_and_cancel_are_answered() {
    let mut pipe = Pipe::start(&[]);
    for id in 0..64 {
        pipe.query(&format!("q{id}"), "wait", "").await;
    }
    for id in 64..68 {
        pipe.query(&format!("q{id}"), "rows 1", "").await;
    }
    pipe.send(r#"{"code":"ping"}"#).await;
    assert_eq!(pipe.next().await["trace"], serde_json::json!({"uptime_s": 0, "requests_total": 64, "in_flight": 64}));
    // One that is held back has its end, and the others run one after another as there is room.
    pipe.send(r#"{"code":"cancel","id":"q66"}"#).await;
    assert_eq!(pipe.brief(1).await, ["error q66 cancelled"]);
    pipe.send(r#"{"code":"cancel","id":"q7"}"#).await;
    assert_eq!(
        pipe.brief(4).await,
        ["error q7 cancelled", "result q64 ROWS 1", "result q65 ROWS 1", "result q67 ROWS 1"]
    );
    pipe.query("q7", "wait", "").await;
    pipe.query("late", "rows 1", "").await;
    let begun = Instant::now();
    let (left, code, fake) = pipe.finish().await;
    // What is in flight has 5 s, then it is cancelled; what is held back is not begun.
    assert_eq!(begun.elapsed().as_secs(), 5);
    assert_eq!((left.len(), left.last().map(String::as_str), code), (66, Some("close"), 0));
    assert_eq!(left.iter().filter(|event| event.ends_with("cancelled")).count(), 65);
    assert_eq!(fake.notes().last().map(String::as_str), Some("drained"));
    assert!(!fake.notes().contains(&"late".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn queries_that_arrive_faster_than_they_run_all_run_in_order() {
    // A commit waits for the queries before it.
    let mut pipe = Pipe::start(&[]);
    pipe.send(r#"{"code":"begin","id":"begin"}"#).await;
    for id in 0..300 {
        pipe.query(&format!("q{id}"), "rows 1", "").await;
    }
    pipe.send(r#"{"code":"commit","id":"commit"}"#).await;
    let mut expected = vec!["result begin BEGIN".to_owned()];
    expected.extend((0..300).map(|id| format!("result q{id} ROWS 1")));
    expected.push("result commit COMMIT".to_owned());
    assert_eq!(pipe.brief(302).await, expected);
    assert_eq!(pipe.finish().await.0, ["close"]);
}

#[tokio::test(start_paused = true)]
async fn a_long_list_of_queries_is_read_to_its_end_and_runs() {
    // The end of the input comes after the queries that are held back.
    let mut pipe = Pipe::start(&[]);
    for id in 0..500 {
        pipe.query(&format!("q{id}"), "sleep 100", "").await;
    }
    let (left, code, _) = pipe.finish().await;
    assert_eq!(left.iter().filter(|event| event.starts_with("result")).count(), 500, "{left:?}");
    assert_eq!((left.len(), code), (501, 0));
}

#[tokio::test(start_paused = true)]
async fn a_query_that_ends_in_time_has_its_result_before_the_close() {
    let mut pipe = Pipe::start(&[]);
    pipe.query("q1", "sleep 4900", "").await;
    pipe.query("q2", "sleep 5100", "").await;
    pipe.send(r#"{"code":"close"}"#).await;
    pipe.query("late", "rows 1", "").await;
    assert_eq!(pipe.finish().await.0, ["result q1 ROWS 0", "error q2 cancelled", "close"]);
}

#[tokio::test(start_paused = true)]
async fn a_query_that_does_not_stop_is_abandoned_and_still_gets_its_terminal_event() {
    let mut pipe = Pipe::start(&[]);
    pipe.query("stuck", "stuck", "").await;
    pipe.query("commit", "stuck-commit", r#","options":{"read_only":false}"#).await;
    let begun = Instant::now();
    let (mut left, code, fake) = pipe.finish().await;
    left.sort();
    assert_eq!(left, ["close", "error commit commit_outcome_unknown", "error stuck cancelled"]);
    // 5 s to come to an end, 10 for the answer to a COMMIT.
    assert_eq!((begun.elapsed().as_secs(), code), (15, 0));
    assert!(fake.notes().contains(&"gone".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_signal_ends_the_pipe_like_close() {
    let mut pipe = Pipe::start(&[]);
    pipe.query("q", "wait", "").await;
    pipe.until_noted("wait on").await;
    pipe.stop.asked.cancel();
    assert_eq!(pipe.brief(2).await, ["error q cancelled", "close"]);
    assert_eq!(in_time(pipe.ended).await.unwrap().code, 0);
}

#[tokio::test(start_paused = true)]
async fn a_running_commit_is_not_stopped_and_reports_its_outcome() {
    let write = r#","options":{"read_only":false}"#;
    let mut pipe = Pipe::start(&[]);
    pipe.query("w", "slow-commit 20000", write).await;
    pipe.until_noted("committing").await;
    pipe.send(r#"{"code":"cancel","id":"w"}"#).await;
    assert_eq!(pipe.brief(1).await, ["result w INSERT 0 1"]);
    // At the end of the session it is waited for, though not for ever. The receipt tells where to look.
    pipe.query("w", "slow-commit 9000", write).await;
    pipe.query("v", "slow-commit 20000", write).await;
    pipe.until_noted("committing").await;
    pipe.stop.asked.cancel();
    assert_eq!(pipe.brief(1).await, ["result w INSERT 0 1"]);
    let unknown = pipe.next().await;
    assert_eq!(brief(&unknown), "error v commit_outcome_unknown");
    assert_eq!(unknown["correlation_id"], "c-3");
    assert_eq!(pipe.brief(1).await, ["close"]);
}

#[tokio::test]
async fn a_cancelled_write_of_output_ends_as_cancelled() {
    let mut pipe = Pipe::start(&[]);
    pipe.query("q", "deaf", "").await;
    pipe.until_noted("deaf on").await;
    pipe.send(r#"{"code":"cancel","id":"q"}"#).await;
    assert_eq!(pipe.brief(1).await, ["error q cancelled"]);
}

#[tokio::test]
async fn bad_lines_do_not_end_the_session_and_the_last_needs_no_end() {
    let mut pipe = Pipe::start(&[]);
    let long = "x".repeat(3 << 20);
    pipe.send(&format!(r#"{{"code":"query","id":"long","sql":"{long}"}}"#)).await;
    assert_eq!(pipe.brief(1).await, ["error long invalid_request"]);
    pipe.input.write_all(b"\n\r\n{\"id\":\"\xff\"}\n").await.unwrap();
    assert_eq!(pipe.brief(1).await, ["error invalid_request"]);
    pipe.input.write_all(br#"{"code":"query","id":"q","sql":"rows 1"}"#).await.unwrap();
    assert_eq!(pipe.finish().await.0, ["result q ROWS 1", "close"]);
}

#[tokio::test]
async fn changed_and_removed_sessions_are_closed() {
    let mut pipe = Pipe::start(&[]);
    pipe.send(r#"{"code":"config","sessions":{"a":{"host":"h"},"b":{}},"inline_max_rows":5}"#).await;
    pipe.send(r#"{"code":"config","inline_max_rows":6}"#).await;
    pipe.send(r#"{"code":"config","sessions":{"a":{"port":0}}}"#).await;
    assert_eq!(pipe.brief(3).await, ["config", "config", "error invalid_request"]);
    assert_eq!(pipe.fake.notes(), ["forget a", "forget b"]);
}

#[tokio::test]
async fn a_pipe_has_its_configuration_from_its_flags() {
    let mut pipe = Pipe::start(&["--host", "db", "--statement-timeout-ms", "7", "--log", "startup"]);
    let startup = pipe.next().await;
    assert_eq!((&startup["event"], &startup["version"]), (&"startup".into(), &env!("CARGO_PKG_VERSION").into()));
    assert_eq!(startup["args"], serde_json::json!({"front_end": "pipe", "host": "db"}));
    assert_eq!(startup["env"], serde_json::json!({"COUNTERSIGN_PASSWORD_SECRET": "***"}));
    assert_eq!(startup["config"]["statement_timeout_ms"], 7);
    pipe.query("q", "settings", "").await;
    let row = &pipe.next().await["rows"][0];
    assert_eq!((&row["at"], &row["statement_timeout_ms"]), (&"db:5432".into(), &7.into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_accepted_query_has_exactly_one_terminal_event() {
    let scripts = ["rows 3", "half 20", "panic", "write 1", "wait", "nonsense", "notices 2", "begin-less"];
    let mut pipe = Pipe::start(&[]);
    let mut terminal = HashMap::<String, usize>::new();
    for round in 0..40 {
        let mut open = 0;
        for (index, script) in scripts.iter().enumerate() {
            let id = format!("q{round}-{index}");
            pipe.query(&id, script, if index % 2 == 0 { "" } else { STREAM }).await;
            open += 1;
        }
        pipe.send(&format!(r#"{{"code":"cancel","id":"q{round}-4"}}"#)).await;
        while open > 0 {
            let event = pipe.next().await;
            if ["result", "result_end", "error", "sql_error"].contains(&event["code"].as_str().unwrap()) {
                *terminal.entry(event["id"].as_str().unwrap().to_owned()).or_default() += 1;
                open -= 1;
            }
        }
    }
    assert!(terminal.len() == 40 * scripts.len() && terminal.values().all(|count| *count == 1), "{terminal:?}");
    assert_eq!(pipe.finish().await.0, ["close"]);
}
