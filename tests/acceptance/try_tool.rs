//! `countersign try`: a tool from the shell, without its effect.

use serde_json::Value;
use testkit::{CommandOutput, Database, database, repository, run_countersign};

async fn try_tool(db: &Database, arguments: &[&str]) -> CommandOutput {
    let manifest = repository().join("manifests/social.toml");
    let start = ["try", "--manifest", manifest.to_str().unwrap()];
    run_countersign(&db.writer_url(), &[&start, arguments].concat()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_shown_and_not_written() {
    let db = database().await;
    let tweets = db.value("select count(*) from social.tweet").await;
    let tried = try_tool(&db, &["post_tweet", r#"{"text": "tried"}"#]).await.succeeded();
    assert!(tried.out.contains("\"text\": \"tried\""), "{}", tried.out);
    assert!(tried.out.ends_with("Nothing was written: the write was run and rolled back.\n"), "{}", tried.out);
    let tried = try_tool(&db, &["post_tweet", r#"{"text": "tried"}"#, "--json"]).await;
    let answer: Value = serde_json::from_str(&tried.out).unwrap();
    assert_eq!(answer["data"]["result"]["text"], "tried", "{answer}");
    assert_eq!(db.value("select count(*) from social.tweet").await, tweets);
    assert_eq!(db.value("select count(*) from countersign.record").await, "0", "a trial leaves no record");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_would_fail_says_why_and_exits_with_1() {
    let db = database().await;
    for (tool, arguments, said) in [
        ("like_tweet", r#"{"tweet": 1}"#, "unknown argument \"tweet\""),
        ("like_tweet", "[1]", "the arguments are not a JSON object"),
        ("like_twit", "{}", "has no tool \"like_twit\"; its tools are: "),
        ("post_tweet", r#"{"text": ""}"#, "Nothing was written."),
    ] {
        let tried = try_tool(&db, &[tool, arguments]).await;
        assert_eq!((tried.code, tried.out.as_str()), (1, ""), "{tool} {arguments}: {}", tried.err);
        assert!(tried.err.contains(said), "{tool} {arguments}: {}", tried.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_is_run() {
    let db = database().await;
    let tried = try_tool(&db, &["query_database", r#"{"query": "select 6 * 7 as answer"}"#]).await.succeeded();
    assert!(tried.out.contains("\"answer\": 42"), "{}", tried.out);
    assert!(tried.out.ends_with("Nothing was written: the tool only reads.\n"), "{}", tried.out);
}
