//! Order, pressure and ends of a pipe. Time is tokio's own and stands still while anything can be done.

use std::collections::HashMap;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use crate::harness::{Pipe, brief, in_time};

const STREAM: &str = r#","options":{"stream_rows":true,"batch_rows":10}"#;

#[tokio::test]
async fn a_fast_query_overtakes_a_slow_one() {
    // B6-06, B6-07
    let mut pipe = Pipe::start(&[]);
    pipe.query("slow", "wait", "").await;
    pipe.query("fast", "rows 1", "").await;
    assert_eq!(pipe.brief(1).await, ["result fast ROWS 1"]);
    pipe.until_noted("wait on").await;
    pipe.send(r#"{"code":"cancel","id":"slow"}"#).await;
    // B9-30
    assert_eq!(pipe.brief(1).await, ["error slow cancelled"]);
    assert_eq!(pipe.finish().await.0, ["close"]);
}

#[tokio::test(start_paused = true)]
async fn queries_run_side_by_side() {
    // B6-06
    let mut pipe = Pipe::start(&[]);
    let begun = Instant::now();
    for id in 0..8 {
        pipe.query(&format!("q{id}"), "sleep 500", "").await;
    }
    let mut ended = pipe.brief(8).await;
    ended.sort();
    assert_eq!(ended, (0..8).map(|id| format!("result q{id} ROWS 0")).collect::<Vec<_>>());
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn an_id_in_flight_is_refused_and_free_again_after_its_terminal_event() {
    // B6-08
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
async fn sixty_four_are_in_flight_and_one_more_is_held_back_while_ping_and_cancel_are_heard() {
    // B3-51, B9-35, X-45, F-80
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
async fn what_comes_faster_than_it_runs_all_runs_in_its_order() {
    // F-80: a commit waits for the queries before it.
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
    // F-80: the end of the input is behind what is held back.
    let mut pipe = Pipe::start(&[]);
    for id in 0..500 {
        pipe.query(&format!("q{id}"), "sleep 100", "").await;
    }
    let (left, code, _) = pipe.finish().await;
    assert_eq!(left.iter().filter(|event| event.starts_with("result")).count(), 500, "{left:?}");
    assert_eq!((left.len(), code), (501, 0));
}

#[tokio::test(start_paused = true)]
async fn what_ends_in_time_has_its_result_before_the_close() {
    // B6-10, B9-35
    let mut pipe = Pipe::start(&[]);
    pipe.query("q1", "sleep 4900", "").await;
    pipe.query("q2", "sleep 5100", "").await;
    pipe.send(r#"{"code":"close"}"#).await;
    pipe.query("late", "rows 1", "").await;
    assert_eq!(pipe.finish().await.0, ["result q1 ROWS 0", "error q2 cancelled", "close"]);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_stop_is_left_alone_and_has_its_terminal_event_all_the_same() {
    // B9-35
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
async fn a_signal_ends_it_as_close_does() {
    let mut pipe = Pipe::start(&[]);
    pipe.query("q", "wait", "").await;
    pipe.until_noted("wait on").await;
    pipe.stop.asked.cancel();
    assert_eq!(pipe.brief(2).await, ["error q cancelled", "close"]);
    assert_eq!(in_time(pipe.ended).await.unwrap().code, 0);
}

#[tokio::test(start_paused = true)]
async fn a_signal_ends_it_also_if_nobody_reads_what_is_left() {
    let mut pipe = Pipe::with_room(&[], 64);
    pipe.query("q", "endless", STREAM).await;
    pipe.until_noted("endless on").await;
    pipe.stop.asked.cancel();
    let begun = Instant::now();
    assert_eq!(in_time(pipe.ended).await.unwrap().code, 1);
    assert!(begun.elapsed() <= Duration::from_secs(21), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_input_ends_it_also_if_nobody_reads_what_is_left() {
    // F-76
    let mut pipe = Pipe::with_room(&[], 64);
    pipe.query("q", "endless", STREAM).await;
    pipe.until_noted("endless on").await;
    pipe.input.shutdown().await.unwrap();
    let begun = Instant::now();
    let exit = in_time(pipe.ended).await.unwrap();
    assert_eq!((exit.code, exit.complaint), (1, None));
    assert!(begun.elapsed() <= Duration::from_secs(21), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_is_slow_gets_everything_after_the_end_of_the_input() {
    // F-76
    let mut pipe = Pipe::with_room(&[], 64);
    for number in 0..30 {
        pipe.query(&format!("q{number}"), "rows 1", "").await;
    }
    pipe.input.shutdown().await.unwrap();
    let mut ends = 0;
    while let Some(event) = pipe.try_next().await {
        ends += usize::from(event["code"] == "result");
        tokio::time::sleep(Duration::from_secs(15)).await;
    }
    assert_eq!((ends, in_time(pipe.ended).await.unwrap().code), (30, 0));
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_result_nobody_reads_is_no_failure() {
    // F-70, F-76: also where it waits behind other events, and where nobody knows whether it was committed.
    let write = r#","options":{"read_only":false}"#;
    let mut pipe = Pipe::with_room(&["--log", "query"], 64);
    for number in 0..30 {
        pipe.query(&format!("w{number}"), "write 1", write).await;
    }
    pipe.query("u", "stuck-commit", write).await;
    pipe.until_noted("committed").await;
    pipe.input.shutdown().await.unwrap();
    let exit = in_time(pipe.ended).await.unwrap();
    let complaint = exit.complaint.expect("a complaint");
    assert_eq!(exit.code, 3);
    for id in (0..30).map(|number| format!("\"w{number}\" (INSERT 0 1; receipt c-2)")) {
        assert!(complaint.contains(&id), "{id}: {complaint}");
    }
    assert!(complaint.contains("\"u\" (the answer to COMMIT did not come"), "{complaint}");
}

#[tokio::test(start_paused = true)]
async fn a_second_signal_does_not_wait_for_what_is_in_flight() {
    // F-78
    let mut pipe = Pipe::start(&[]);
    pipe.query("q", "wait", "").await;
    pipe.until_noted("wait on").await;
    let begun = Instant::now();
    pipe.stop.asked.cancel();
    tokio::time::sleep(Duration::from_secs(1)).await;
    pipe.stop.urged.cancel();
    assert_eq!(pipe.brief(2).await, ["error q cancelled", "close"]);
    assert_eq!(in_time(pipe.ended).await.unwrap().code, 0);
    assert_eq!(begun.elapsed().as_secs(), 1);
}

#[tokio::test]
async fn a_reader_that_stops_stops_queries_and_not_the_commands() {
    // B1-04, B1-18
    let mut pipe = Pipe::with_room(&[], 256);
    pipe.query("e", "endless", STREAM).await;
    pipe.query("e2", "endless", STREAM).await;
    pipe.until_noted("endless on").await;
    pipe.send(r#"{"code":"ping"}"#).await;
    pipe.send(r#"{"code":"cancel","id":"e"}"#).await;
    pipe.until_noted("endless cancelled").await;
    // The other one is waiting for its reader.
    let mut events = HashMap::<String, usize>::new();
    loop {
        let event = pipe.next().await;
        *events.entry(brief(&event)).or_default() += 1;
        if event["code"] == "error" {
            break;
        }
    }
    // No more than what fits between the query and its reader was made.
    assert!(events["result_rows e"] < 40, "{events:?}");
    assert_eq!((events.get("error e cancelled"), events.get("pong")), (Some(&1), Some(&1)), "{events:?}");
    pipe.send(r#"{"code":"cancel","id":"e2"}"#).await;
    let (left, code, _) = pipe.finish().await;
    assert_eq!(left.iter().filter(|event| *event == "error e2 cancelled").count(), 1);
    assert_eq!((left.last().map(String::as_str), code), (Some("close"), 0));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_stops_for_longer_than_a_statement_may_take_ends_it() {
    // X-31, X-32
    for begin in [None, Some(r#"{"code":"begin","id":"t"}"#)] {
        let mut pipe = Pipe::with_room(&[], 256);
        if let Some(begin) = begin {
            pipe.send(begin).await;
            assert_eq!(pipe.brief(1).await, ["result t BEGIN"]);
        }
        let options = r#","options":{"stream_rows":true,"batch_rows":10,"statement_timeout_ms":3000}"#;
        pipe.query("e", "endless", options).await;
        let has_gone = async |pipe: &Pipe, after| {
            tokio::time::sleep(Duration::from_millis(after)).await;
            pipe.fake.notes().contains(&"gone".to_owned())
        };
        assert_eq!((has_gone(&pipe, 2900).await, has_gone(&pipe, 200).await), (false, true));
        let mut event = pipe.next().await;
        while event["code"] != "sql_error" {
            event = pipe.next().await;
        }
        assert_eq!((&event["id"], &event["sqlstate"]), (&"e".into(), &"57014".into()), "{event}");
        let (left, code, _) = pipe.finish().await;
        assert_eq!((left, code), (vec!["close".to_owned()], 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_of_what_has_ended_may_take_its_time() {
    // Some of it waits in the queue, some before it, and nothing of it holds a backend.
    let mut pipe = Pipe::with_room(&[], 64);
    let options = r#","options":{"stream_rows":true,"batch_rows":10,"statement_timeout_ms":1000}"#;
    pipe.query("r", "rows 190", options).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let events = pipe.brief(21).await;
    assert_eq!(events.last().map(String::as_str), Some("result_end r ROWS 190"), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_being_committed_is_not_stopped_and_says_how_it_ended() {
    // B8-11
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
async fn a_write_is_committed_only_after_its_rows_were_written_out() {
    // B3-12, B8-11
    let write = r#","options":{"read_only":false,"stream_rows":true}"#;
    let mut pipe = Pipe::with_room(&[], 64);
    pipe.query("w", "write-returning 5", write).await;
    pipe.until_noted("write-returning").await;
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    pipe.send(r#"{"code":"cancel","id":"w"}"#).await;
    while brief(&pipe.next().await) != "error w cancelled" {}
    assert!(!pipe.fake.notes().contains(&"committed".to_owned()), "nobody has read its rows");
    pipe.query("w", "write-returning 5", write).await;
    assert_eq!(pipe.brief(3).await, ["result_start w", "result_rows w", "result_end w ROWS 5"]);
    assert!(pipe.fake.notes().contains(&"committed".to_owned()));
}

#[tokio::test]
async fn what_was_not_taken_as_a_whole_is_no_result() {
    let mut pipe = Pipe::start(&[]);
    pipe.query("q", "deaf", "").await;
    pipe.until_noted("deaf on").await;
    pipe.send(r#"{"code":"cancel","id":"q"}"#).await;
    assert_eq!(pipe.brief(1).await, ["error q cancelled"]);
}

#[tokio::test]
async fn a_result_that_does_not_fit_is_no_write() {
    // B3-12, B3-61
    let mut pipe = Pipe::start(&[]);
    let options = r#","options":{"read_only":false,"inline_max_rows":1}"#;
    pipe.query("w", "write-returning 2", options).await;
    assert_eq!(pipe.brief(1).await, ["error w result_too_large"]);
    assert!(!pipe.fake.notes().contains(&"committed".to_owned()));
}

#[tokio::test]
async fn without_a_reader_everything_is_cancelled() {
    let mut pipe = Pipe::start(&[]);
    pipe.query("q", "wait", "").await;
    pipe.query("e", "endless", STREAM).await;
    pipe.until_noted("wait on").await;
    let Pipe { input, output, fake, ended, .. } = pipe;
    drop(output);
    assert_eq!(ended.await.unwrap().code, 1);
    // The input is still open.
    drop(input);
    let notes = fake.notes();
    assert!(notes.contains(&"wait cancelled".to_owned()) && notes.contains(&"drained".to_owned()), "{notes:?}");
}

#[tokio::test]
async fn bad_lines_do_not_end_the_session_and_the_last_needs_no_end() {
    // B6-09, B6-10
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
async fn a_session_that_is_changed_is_forgotten() {
    // B3-23
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
    // B3-54, B9-17
    assert_eq!(startup["args"], serde_json::json!({"front_end": "pipe", "host": "db"}));
    assert_eq!(startup["env"], serde_json::json!({"COUNTERSIGN_PASSWORD_SECRET": "***"}));
    assert_eq!(startup["config"]["statement_timeout_ms"], 7);
    pipe.query("q", "settings", "").await;
    let row = &pipe.next().await["rows"][0];
    assert_eq!((&row["at"], &row["statement_timeout_ms"]), (&"db:5432".into(), &7.into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_accepted_query_has_exactly_one_terminal_event() {
    // B6-07, B8-16, X-38
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
