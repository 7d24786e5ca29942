//! Silent connections and too many connections.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{HttpClient, HttpServer, database, poll};

use super::raw::{RawConnection, get, network_address, on_all_addresses};

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_without_a_whole_request_in_five_seconds_is_closed() {
    let db = database().await;
    let server = HttpServer::on(&db).await;
    let begun = Instant::now();
    let silent = RawConnection::to(&server).await;
    let mut dripping = RawConnection::to(&server).await;
    let mut talking = RawConnection::to(&server).await;
    assert_eq!(talking.ask(&get("/healthz", &[])).await.unwrap().status, 200);
    let drip = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        for byte in get("/healthz", &["x-long: 0123456789012345678901234567890123456789"]).chars() {
            ticks.tick().await;
            if !dripping.try_send(&byte.to_string()).await {
                return;
            }
        }
        panic!("a head that took {:?} was read to its end", begun.elapsed());
    };
    tokio::join!(silent.closed(), drip);
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(4) && took < Duration::from_secs(20), "{took:?}");
    assert_eq!(talking.ask(&get("/healthz", &[])).await.unwrap().status, 200, "one that has sent a request may wait");
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_do_not_keep_other_clients_out() {
    let Some(address) = network_address() else { return };
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let (token, table) = HttpServer::token("team-a", &[]).await;
    let config = format!("[http]\nconnections = 8\nconnections_per_address = 8\n{table}");
    let (_server, port) = on_all_addresses(&db, &folder, &config).await;
    let address = (address, port).into();
    let mut silent = Vec::new();
    for _ in 0..64 {
        silent.push(RawConnection::open(address).await);
    }
    let bearer = format!("authorization: Bearer {token}");
    let mut client = RawConnection::open(address).await;
    assert_eq!(client.ask(&get("/metrics", &[&bearer])).await.unwrap().status, 200);
    assert_eq!(client.ask(&get("/metrics", &[&bearer])).await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_gets_only_its_share_of_connections() {
    let Some(address) = network_address() else { return };
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let (token, table) = HttpServer::token("team-a", &[]).await;
    let (server, port) = on_all_addresses(&db, &folder, &format!("[http]\nconnections_per_address = 2\n{table}")).await;
    let address = (address, port).into();
    let metrics = get("/metrics", &[&format!("authorization: Bearer {token}")]);
    let (mut first, mut second) = (RawConnection::open(address).await, RawConnection::open(address).await);
    for connection in [&mut first, &mut second] {
        assert_eq!(connection.ask(&metrics).await.unwrap().status, 200);
    }
    RawConnection::open(address).await.closed().await;
    let line = server.logged("a connection was refused").await;
    assert!(line.contains("connections_per_address") && line.contains(&address.ip().to_string()), "{line}");
    let mut local = RawConnection::open(([127, 0, 0, 1], port).into()).await;
    let counted = local.ask(&metrics).await.unwrap().body;
    assert!(counted.contains("countersign_http_refused_total{reason=\"too_many_connections\"} 1"), "{counted}");
    drop(first);
    poll::until("the place of one that has gone is free", async || {
        let answer = RawConnection::open(address).await.ask(&metrics).await;
        answer.is_some_and(|answer| answer.status == 200)
    })
    .await;
    assert_eq!(second.ask(&metrics).await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_all_connections_in_use_probes_and_loopback_are_answered_and_others_get_retry_after() {
    let Some(address) = network_address() else { return };
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let (token, table) = HttpServer::token("team-a", &[]).await;
    let config = format!("[http]\nconnections = 2\nconnections_per_address = 100\n{table}");
    let (_server, port) = on_all_addresses(&db, &folder, &config).await;
    let address = (address, port).into();
    let bearer = format!("authorization: Bearer {token}");
    let mut in_use = Vec::new();
    for _ in 0..2 {
        let mut connection = RawConnection::open(address).await;
        assert_eq!(connection.ask(&get("/metrics", &[&bearer])).await.unwrap().status, 200);
        in_use.push(connection);
    }
    for probe in ["/healthz", "/readyz"] {
        let mut connection = RawConnection::open(address).await;
        let answer = connection.ask(&get(probe, &[])).await.unwrap();
        assert_eq!((answer.status, answer.closes()), (200, true), "{probe}");
        connection.closed().await;
    }
    let refused = RawConnection::open(address).await.ask(&get("/metrics", &[&bearer])).await.unwrap();
    assert_eq!((refused.status, refused.closes()), (503, true), "{refused:?}");
    assert!(refused.head.contains("retry-after: 1"), "{refused:?}");
    let local = HttpClient::at(format!("http://127.0.0.1:{port}")).with_token(&token);
    assert_eq!(local.call("query_database", json!({"query": "select 1"})).await["success"], true);
    for connection in &mut in_use {
        assert_eq!(connection.ask(&get("/metrics", &[&bearer])).await.unwrap().status, 200);
    }
}
