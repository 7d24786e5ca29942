//! The console has the limits of `/mcp`: connections that send nothing, or no body, keep nobody out (S-4, S-14).

use std::net::SocketAddr;
use std::time::Duration;

use reqwest::StatusCode;
use testkit::database;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::console::Console;

/// More connections than the server has.
const MANY: usize = 300;

/// How long a client may wait for an answer beside all the others.
const SOON: Duration = Duration::from_secs(4);

/// Connections that have sent this and send nothing more.
async fn stalled(url: &str, text: &str) -> Vec<TcpStream> {
    let address: SocketAddr = url.strip_prefix("http://").unwrap().parse().unwrap();
    let mut streams = Vec::new();
    for _ in 0..MANY {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        streams.push(stream);
    }
    streams
}

/// The status of a GET beside stalled connections.
async fn answered(url: &str, path: &str) -> StatusCode {
    let get = reqwest::get(format!("{url}{path}"));
    tokio::time::timeout(SOON, get).await.expect("an answer soon").expect("an answer").status()
}

fn head(url: &str, path: &str) -> String {
    let host = url.strip_prefix("http://").unwrap();
    format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\norigin: {url}\r\nsec-fetch-site: same-origin\r\n\
         content-type: application/x-www-form-urlencoded\r\ncontent-length: 1000\r\n\r\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_stall_do_not_close_the_console() {
    // S-4: requests whose bodies never come. S-14: connections that send nothing, and half a head.
    let db = database().await;
    let console = Console::on(&db).await;
    let url = console.url.clone();
    let head = head(&url, "/login");
    let mut all = Vec::new();
    for text in [head.as_str(), "", &head[..20]] {
        all.push(stalled(&url, text).await);
        assert_eq!(answered(&url, "/login").await, StatusCode::OK, "{text:?}");
    }
    // A person who is logged in is not closed out either, and keeps the connection.
    let mut browser = console.browser(&db, "anna", &[]).await;
    assert_eq!(browser.get("/").await.status, StatusCode::OK);
    all.push(stalled(&url, &head).await);
    assert_eq!(browser.get("/").await.status, StatusCode::OK);
    // A form that is larger than any is refused unread.
    let large = head.replace("content-length: 1000", "content-length: 1000000");
    let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).await.unwrap();
    stream.write_all(large.as_bytes()).await.unwrap();
    stream.write_all(&[b'x'; 70_000]).await.unwrap();
    let mut answer = [0; 12];
    tokio::time::timeout(SOON, stream.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(std::str::from_utf8(&answer), Ok("HTTP/1.1 413"));
}
