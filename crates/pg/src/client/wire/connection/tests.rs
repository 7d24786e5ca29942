use tokio::net::UnixStream;

use super::*;
use crate::client::connect_options::{Address, Keepalive, TlsOptions};
use crate::client::wire::Transport;

/// A connection to a server that has sent these bytes and closed.
async fn connection_with(bytes: &[u8]) -> Connection {
    let (ours, mut server) = UnixStream::pair().unwrap();
    server.write_all(bytes).await.unwrap();
    connection_over(ours)
}

pub(super) fn connection_over(ours: UnixStream) -> Connection {
    let address = Address::Unix("/".into(), 5432);
    let route = Endpoint {
        address,
        tls: TlsOptions::default(),
        keepalive: Keepalive::default(),
        requirepeer: None,
        ssh_tunnel: None,
    };
    Connection::new(Socket::Plain(Transport::Unix(ours)), route)
}

/// M3
#[tokio::test]
async fn a_lost_connection_reserves_no_room_for_a_message_that_did_not_arrive() {
    let mut connection = connection_with(b"").await;
    connection.inbox.extend_from_slice(b"E\x7f\xff\xff\xff12345678");
    connection.lost(closed());
    assert!(connection.inbox.capacity() < 1 << 20, "M3: {} bytes", connection.inbox.capacity());
}

/// M8
#[tokio::test]
async fn an_unasked_ready_for_query_ends_the_connection() {
    let mut connection = connection_with(b"Z\0\0\0\x05I").await;
    assert!(matches!(connection.event().await, Err(Error::Lost(_))));
    assert!(connection.is_broken, "M8");
}

/// M8
#[tokio::test]
async fn a_malformed_message_ends_the_connection() {
    let mut connection = connection_with(b"?\0\0\0\x04").await;
    assert!(matches!(connection.receive().await, Err(Error::Lost(_))));
    assert!(connection.is_broken, "M8");
}

/// M8
#[tokio::test]
async fn a_body_that_cannot_be_parsed_ends_the_connection() {
    // One field, one row of one value, a tag without its end.
    for bytes in [&b"T\0\0\0\x06\0\x01"[..], b"D\0\0\0\x0a\0\x01\0\0\0\x05", b"C\0\0\0\x05I"] {
        let mut connection = connection_with(bytes).await;
        assert!(connection.receive().await.is_err(), "M8: {bytes:?}");
        assert!(connection.is_broken, "M8: {bytes:?}");
    }
}

/// M8
#[tokio::test]
async fn an_answer_to_nothing_ends_the_connection_at_idle() {
    let notice: &[u8] = b"N\0\0\0\x0dSNOTICE\0\0";
    for (bytes, is_broken) in [(notice.to_vec(), false), ([notice, b"C\0\0\0\x0dSELECT 1\0"].concat(), true)] {
        let mut connection = connection_with(b"").await;
        let (ours, mut server) = UnixStream::pair().unwrap();
        connection.socket = Socket::Plain(Transport::Unix(ours));
        server.write_all(&bytes).await.unwrap();
        connection.socket.read_buf(&mut connection.inbox).await.unwrap();
        assert_eq!(connection.is_closed(), is_broken, "M8: {bytes:?}");
    }
}

/// L7
#[tokio::test]
async fn what_cannot_be_pushed_whole_leaves_nothing() {
    let mut connection = connection_with(b"").await;
    connection.push_sync(Purpose::Call);
    let before = connection.outbox.clone();
    let pushed = connection.push_whole(|it| {
        it.push_execute("", 0)?;
        it.push_sync(Purpose::Call);
        it.push_close_statement("a\0b")
    });
    assert!(pushed.is_err(), "L7");
    assert_eq!((&connection.outbox, connection.exchange.len()), (&before, 1), "L7");
    assert!(connection.push_bind("", "a\0b", &[]).is_err(), "L7");
    assert_eq!(connection.outbox, before, "L7");
}

/// L9
#[tokio::test]
async fn an_error_over_the_limit_is_waited_for_no_longer_than_it_is() {
    let mut connection = connection_with(b"E\0\0\0\x15SERROR\0C22000\0Mno\0\0").await;
    connection.max_message_bytes = 8;
    assert!(matches!(connection.receive().await, Ok(Message::ErrorResponse(_))), "L9");
}
