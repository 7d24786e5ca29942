//! Transactions whose time passes, whose pipe ends, and whose requests come faster than they are done.

use tokio::io::AsyncWriteExt;

use crate::harness::{Pipe, brief};

const BEGIN: &str = r#"{"code":"begin","id":"t","options":{"read_only":false,"transaction_timeout_ms":1000}}"#;
const COMMIT: &str = r#"{"code":"commit","id":"c"}"#;
const ROLLBACK: &str = r#"{"code":"rollback","id":"r"}"#;

#[tokio::test(start_paused = true)]
async fn an_idle_transaction_is_rolled_back_when_its_time_has_passed_and_says_so() {
    let mut pipe = Pipe::start(&[]);
    pipe.send(BEGIN).await;
    pipe.query("q", "rows 1", "").await;
    assert_eq!(pipe.brief(2).await, ["result t BEGIN", "result q ROWS 1"]);
    let notice = pipe.next().await;
    assert_eq!(brief(&notice), "notice 25P04");
    assert_eq!((&notice["severity"], &notice["session"]), (&"WARNING".into(), &"default".into()));
    assert_eq!(notice["message"], "the transaction of this session was rolled back after 1000 ms");
    assert_eq!(pipe.fake.notes().last().map(String::as_str), Some("rollback"));
    pipe.query("q", "write 1", "").await;
    let refused = pipe.next().await;
    assert_eq!(brief(&refused), "error q invalid_request");
    assert_eq!((&refused["error"], &refused["hint"]), (&notice["message"], &"send rollback first".into()));
    pipe.send(ROLLBACK).await;
    pipe.query("q", "rows 1", "").await;
    assert_eq!(pipe.brief(2).await, ["result r ROLLBACK", "result q ROWS 1"]);
    assert!(!pipe.fake.notes().contains(&"in transaction:".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_query_is_stopped_when_the_time_of_its_transaction_has_passed() {
    let mut pipe = Pipe::start(&[]);
    pipe.send(BEGIN).await;
    pipe.query("q", "sleep 5000", "").await;
    pipe.query("q2", "write 1", "").await;
    pipe.send(COMMIT).await;
    let mut events = pipe.brief(5).await;
    events.sort();
    let expected =
        ["error q2 invalid_request", "notice 25P04", "result t BEGIN", "sql_error c 25P04", "sql_error q 25P04"];
    assert_eq!(events, expected);
    let notes = pipe.fake.notes();
    assert!(notes.contains(&"rollback".to_owned()) && !notes.contains(&"commit".to_owned()), "{notes:?}");
    assert!(!notes.contains(&"committed".to_owned()), "{notes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_query_that_does_not_stop_ends_its_transaction() {
    let mut pipe = Pipe::start(&[]);
    pipe.send(r#"{"code":"begin","id":"t"}"#).await;
    pipe.query("q", "stuck", "").await;
    pipe.until_noted("stuck on").await;
    pipe.send(r#"{"code":"cancel","id":"q"}"#).await;
    pipe.query("q2", "rows 1", "").await;
    assert_eq!(pipe.brief(3).await, ["result t BEGIN", "error q cancelled", "error q2 invalid_request"]);
    assert!(pipe.fake.notes().contains(&"rollback by drop".to_owned()));
}

#[tokio::test]
async fn queries_run_in_the_order_of_arrival_and_requests_after_the_end_wait_for_it() {
    for _ in 0..20 {
        let mut pipe = Pipe::start(&[]);
        pipe.send(BEGIN).await;
        for id in 0..20 {
            pipe.query(&format!("q{id}"), &format!("rows {id}"), "").await;
        }
        pipe.send(COMMIT).await;
        pipe.query("after", "rows 99", "").await;
        pipe.send(r#"{"code":"begin","id":"t2"}"#).await;
        pipe.query("in", "rows 100", "").await;
        pipe.send(r#"{"code":"rollback","id":"r"}"#).await;
        let events = pipe.brief(26).await;
        assert!(events.iter().all(|event| event.starts_with("result")), "{events:?}");
        let notes = pipe.fake.notes();
        let mut expected = vec!["begin, may write".to_owned()];
        for id in 0..20 {
            expected.extend(["in transaction:".to_owned(), format!("rows {id} on default, may write")]);
        }
        expected.push("commit".to_owned());
        let (first, rest) = notes.split_at(expected.len());
        assert_eq!(first, expected);
        let inside = rest.iter().position(|note| note == "in transaction:").unwrap();
        assert_eq!(rest[inside + 1], "rows 100 on default");
        assert!(rest.contains(&"rows 99 on default".to_owned()) && rest.contains(&"rollback".to_owned()), "{rest:?}");
    }
}

#[tokio::test]
async fn a_waiting_query_is_cancelled_at_once_but_a_commit_or_rollback_never() {
    let mut pipe = Pipe::start(&[]);
    pipe.send(r#"{"code":"begin","id":"t"}"#).await;
    pipe.query("q1", "wait", "").await;
    pipe.query("q2", "rows 2", "").await;
    pipe.send(ROLLBACK).await;
    pipe.until_noted("wait on").await;
    pipe.send(r#"{"code":"cancel","id":"q2"}"#).await;
    pipe.send(r#"{"code":"cancel","id":"r"}"#).await;
    assert_eq!(pipe.brief(1).await, ["result t BEGIN"]);
    let mut refused = pipe.brief(2).await;
    refused.sort();
    // The id of an end that runs would make its refused cancel look like the end of it.
    assert_eq!(refused, ["error invalid_request", "error q2 cancelled"]);
    pipe.send(r#"{"code":"cancel","id":"q1"}"#).await;
    assert_eq!(pipe.brief(2).await, ["error q1 cancelled", "result r ROLLBACK"]);
    assert!(!pipe.fake.notes().iter().any(|note| note.starts_with("rows 2")));
}

#[tokio::test]
async fn after_a_cancelled_begin_the_following_statements_are_not_committed() {
    let mut pipe = Pipe::start(&[]);
    pipe.send(r#"{"code":"begin","id":"t"}"#).await;
    pipe.query("q1", "wait", "").await;
    pipe.send(ROLLBACK).await;
    pipe.send(r#"{"code":"begin","id":"t2","options":{"read_only":false}}"#).await;
    pipe.query("q2", "write 1", "").await;
    pipe.send(COMMIT).await;
    pipe.until_noted("wait on").await;
    pipe.send(r#"{"code":"cancel","id":"t2"}"#).await;
    assert_eq!(pipe.brief(2).await, ["result t BEGIN", "error t2 cancelled"]);
    pipe.send(r#"{"code":"cancel","id":"q1"}"#).await;
    let mut events = pipe.brief(4).await;
    events.sort();
    let expected = ["error c cancelled", "error q1 cancelled", "error q2 invalid_request", "result r ROLLBACK"];
    assert_eq!(events, expected);
    let notes = pipe.fake.notes();
    assert!(!notes.iter().any(|note| note.starts_with("commit")), "{notes:?}");
    pipe.send(BEGIN).await;
    assert_eq!(pipe.brief(1).await, ["result t BEGIN"]);
}

#[tokio::test]
async fn a_transaction_open_at_the_end_is_rolled_back() {
    let mut pipe = Pipe::start(&[]);
    pipe.send(BEGIN).await;
    pipe.query("q", "write 1", "").await;
    let (left, code, fake) = pipe.finish().await;
    assert_eq!((left, code), (vec!["result t BEGIN".to_owned(), "result q INSERT 0 1".into(), "close".into()], 0));
    assert_eq!(fake.notes().last_chunk::<2>().unwrap(), &["rollback", "drained"]);

    let mut pipe = Pipe::start(&[]);
    pipe.send(BEGIN).await;
    assert_eq!(pipe.brief(1).await, ["result t BEGIN"]);
    let Pipe { mut input, output, fake, ended, .. } = pipe;
    drop(output);
    // It is noticed by the next event.
    input.write_all(b"{\"code\":\"ping\"}\n").await.unwrap();
    assert_eq!(ended.await.unwrap().code, 1);
    assert_eq!(fake.notes().last_chunk::<2>().unwrap(), &["rollback", "drained"]);
}
