//! Entry points for the fuzz targets in `fuzz/`.

use bytes::Buf;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use crate::client::connect_options::{Address, Keepalive, TlsOptions};
use crate::client::wire::{Connection, Endpoint, Event, MAX_MESSAGE_BYTES, Purpose, Socket, Transport};

/// The maximum number of statements to send.
const MAX_STATEMENTS: u8 = 16;

/// Reads these bytes as a server's answers to statements, up to the end of the connection. The first bytes choose the
/// statements to send, one byte for each, up to a 0.
///
/// # Panics
/// If an event names a statement that was not sent, or the connection uses more memory than it may.
pub fn read_server_messages(mut bytes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return };
    runtime.block_on(async move {
        let Ok((ours, mut server)) = UnixStream::pair() else { return };
        let endpoint = Endpoint {
            address: Address::Unix("/".into(), 0),
            tls: TlsOptions::default(),
            keepalive: Keepalive::default(),
            requirepeer: None,
            ssh_tunnel: None,
        };
        let mut connection = Connection::new(Socket::Plain(Transport::Unix(ours)), endpoint);
        let first = connection.next_statement();
        let mut sent = 1;
        while bytes.has_remaining() && sent < MAX_STATEMENTS {
            let choice = bytes.get_u8();
            if choice == 0 {
                break;
            }
            connection.next_statement();
            sent += 1;
            if push(&mut connection, choice).is_err() {
                return;
            }
        }
        connection.push_sync(Purpose::Call);
        let serving = async {
            let _ = server.write_all(bytes).await;
            let _ = server.shutdown().await;
            std::future::pending::<()>().await;
        };
        let reading = async {
            while let Ok(event) = connection.event().await {
                let (Event::Row(statement, _) | Event::Completed(statement, _) | Event::Failed(statement, _)) = event
                else {
                    continue;
                };
                // A simple query and a Sync have statements of their own.
                assert!(statement > first && statement.since(first) <= 2 * usize::from(sent));
            }
        };
        tokio::select! {
            () = serving => {}
            () = reading => {}
        }
        assert!(connection.buffered_bytes() <= 2 * MAX_MESSAGE_BYTES);
    });
}

fn push(connection: &mut Connection, choice: u8) -> Result<(), crate::Error> {
    if choice & 1 != 0 {
        connection.push_parse("", "", &[])?;
    }
    if choice & 2 != 0 {
        connection.push_describe_statement("")?;
    }
    if choice & 4 != 0 {
        connection.push_bind("", "", &[])?;
        connection.push_describe_portal("")?;
    }
    if choice & 8 != 0 {
        connection.push_execute("", 0)?;
    }
    if choice & 16 != 0 {
        connection.push_close_statement("")?;
    }
    if choice & 32 != 0 {
        connection.push_simple_query("", Purpose::Call)?;
    }
    if choice & 64 != 0 {
        connection.push_sync(Purpose::Call);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_of_a_server_make_the_client_panic(
            sent in prop::collection::vec(1..128_u8, 0..8),
            messages in prop::collection::vec(
                (prop::sample::select(&b"123CDEGHINSTZdcnst"[..]), prop::collection::vec(any::<u8>(), 0..24)),
                0..24,
            ),
        ) {
            let mut bytes = [sent, vec![0]].concat();
            for (tag, body) in messages {
                bytes.push(tag);
                bytes.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
                bytes.extend(body);
            }
            read_server_messages(&bytes);
        }
    }
}
