//! nginx with its defaults in front of a server, as docs/setup/proxy.md has it.

use std::process::Stdio;

use serde_json::json;
use testkit::{External, HttpClient, HttpServer, database, poll, skip_without};
use tokio::net::TcpListener;
use tokio::process::Command;

use super::HANDSHAKE;
use super::sse::Session;

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_both_transports_work_through_nginx() {
    if skip_without(&[External::Nginx]) {
        return;
    }
    let db = database().await;
    let server = HttpServer::on(&db).await;
    let page = std::fs::read_to_string(testkit::repository().join("docs/setup/proxy.md")).unwrap();
    let sample = page.split_once("```nginx\n").unwrap().1.split_once("```").unwrap().0;
    let location = sample.replace("127.0.0.1:7777", &server.address());
    // The port is free once its listener is dropped; no other test gets it.
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {place}/{name};"))
        .join(" ");
    let config = format!(
        "daemon off; master_process off; pid {place}/pid; error_log {place}/errors;
         events {{}} http {{ access_log off; {temporary} server {{ listen {free}; {location} }} }}"
    );
    let path = folder.path().join("nginx.conf");
    std::fs::write(&path, config).unwrap();
    let mut nginx = Command::new(External::Nginx.expected_path());
    nginx.arg("-c").arg(&path).arg("-p").arg(folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let _running = nginx.kill_on_drop(true).spawn().unwrap();
    let client = HttpClient::at(format!("http://{free}")).with("host", "localhost");
    let answers = async || reqwest::get(format!("http://{free}/healthz")).await.is_ok_and(|it| it.status() != 502);
    poll::until("nginx passes requests on", answers).await;

    let streamed = client.clone().open(HANDSHAKE, json!({})).await;
    assert_eq!(streamed.call("post_tweet", json!({"text": "through nginx"})).await["success"], true);
    let mut old = Session::open(client).await;
    let call = json!({"name": "query_database", "arguments": {"query": "select repeat('x', 100000) as long"}});
    let answer = old.request(1, "tools/call", call).await;
    let long = answer["result"]["structuredContent"]["data"]["rows"][0]["long"].as_str().unwrap();
    assert_eq!(long.len(), 100_000);
}
