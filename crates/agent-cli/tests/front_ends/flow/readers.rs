//! Slow, stopped and closed readers of the output.

use std::collections::HashMap;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use super::STREAM;
use crate::harness::{Pipe, brief, in_time};

#[tokio::test(start_paused = true)]
async fn a_signal_ends_the_pipe_also_with_unread_output() {
    let mut pipe = Pipe::with_room(&[], 64);
    pipe.query("q", "endless", STREAM).await;
    pipe.until_noted("endless on").await;
    pipe.stop.asked.cancel();
    let begun = Instant::now();
    assert_eq!(in_time(pipe.ended).await.unwrap().code, 1);
    assert!(begun.elapsed() <= Duration::from_secs(21), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_input_ends_the_pipe_also_with_unread_output() {
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
async fn a_commit_with_an_unread_result_is_not_a_failure() {
    // Nor is one whose result waits behind other events, or whose outcome is unknown.
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

#[tokio::test]
async fn a_reader_that_stops_stops_queries_and_not_the_commands() {
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
async fn a_reader_that_stops_for_longer_than_the_statement_timeout_ends_the_pipe() {
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
async fn a_reader_may_take_its_time_after_the_statement_has_ended() {
    // Some of it waits in the queue, some before it, and nothing of it holds a backend.
    let mut pipe = Pipe::with_room(&[], 64);
    let options = r#","options":{"stream_rows":true,"batch_rows":10,"statement_timeout_ms":1000}"#;
    pipe.query("r", "rows 190", options).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let events = pipe.brief(21).await;
    assert_eq!(events.last().map(String::as_str), Some("result_end r ROWS 190"), "{events:?}");
}

#[tokio::test]
async fn a_write_is_committed_only_after_its_rows_were_written_out() {
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
