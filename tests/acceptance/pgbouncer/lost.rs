//! The connection is lost at COMMIT, on either side of the pooler: the answer is the truth. The pooler itself is killed
//! in `chaos`.

use serde_json::json;
use testkit::{ConnectionFault, Database, External, FaultPoint, PgBouncer, Proxy, Server, database, skip_without};
use tokio::process::Command;

async fn check(db: &Database, proxy: &Proxy, command: impl Fn() -> Command) {
    let server = Server::start(command()).await;
    for (when, code) in [(FaultPoint::BeforeCommit, Some("in_doubt_aborted")), (FaultPoint::AfterCommit, None)] {
        let call = json!({"text": format!("{when:?}")});
        let fired = proxy.arm(when, ConnectionFault::Cut);
        let envelope = server.call("post_tweet", call.clone()).await;
        let fired = tokio::time::timeout(std::time::Duration::from_secs(5), fired).await;
        fired.expect("there was a COMMIT").expect("the proxy met it");
        assert_eq!(envelope["error"]["code"].as_str(), code, "{when:?}: {envelope}");
        let rows = format!("select count(*) from social.tweet where text = '{when:?}'");
        assert_eq!(db.value(&rows).await, if code.is_some() { "0" } else { "1" });
        let again = server.succeed("post_tweet", call).await;
        assert_eq!(again["data"]["duplicate"] == true, code.is_none(), "{again}");
        assert_eq!(db.value(&rows).await, "1");
    }
    let mut durable = command();
    durable.arg("--durable-admission");
    let server = Server::start(durable).await;
    let fired = proxy.arm(FaultPoint::AfterAdmission, ConnectionFault::Cut);
    let envelope = server.call("post_tweet", json!({"text": "admitted"})).await;
    fired.await.expect("there was an intent");
    assert_eq!(envelope["error"]["retryable"], true, "nobody knows who goes on with it: {envelope}");
    let pending = "select count(*) from countersign.mutation where status = 'pending'";
    assert_eq!(db.value(pending).await, "0");
    server.succeed("post_tweet", json!({"text": "admitted"})).await;
    assert_eq!(db.value("select count(*) from social.tweet where text = 'admitted'").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn between_the_server_and_the_pooler() {
    if skip_without(&[External::PgBouncer]) {
        return;
    }
    let db = database().await;
    let pooler = PgBouncer::start(&db).await;
    let proxy = Proxy::before_socket(pooler.database(), pooler.folder());
    let url = proxy.url().replace("user=postgres", &format!("user={}", ledger::DEFAULT_WRITER));
    let command = || {
        let mut command = Server::command_pooled(&pooler);
        command.env("DATABASE_URL", &url);
        command
    };
    check(&db, &proxy, command).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn between_the_pooler_and_postgresql() {
    if skip_without(&[External::PgBouncer]) {
        return;
    }
    let db = database().await;
    let proxy = Proxy::before(&db);
    let pooler = PgBouncer::before(&proxy, &db, &[]).await;
    check(&db, &proxy, || Server::command_pooled(&pooler)).await;
}
