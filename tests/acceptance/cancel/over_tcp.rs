//! Cancellation over TCP and TLS. A proxy records how each connection begins: over TLS no CancelRequest may be in clear text.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pg_embedded::{Cluster, Options};
use rcgen::{CertificateParams, CertifiedKey, KeyPair};
use testkit::countersign;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::tls::give;

/// The codes of PostgreSQL's first messages (manual, "Message Formats").
const CANCEL_REQUEST: [u8; 4] = 80_877_102_i32.to_be_bytes();
const SSL_REQUEST: [u8; 4] = 80_877_103_i32.to_be_bytes();

/// How the connections began.
#[derive(Debug, Default)]
struct Seen {
    cancels: AtomicUsize,
    encrypted: AtomicUsize,
}

async fn forward(mut client: TcpStream, port: u16, seen: Arc<Seen>) {
    let mut first = [0; 8];
    client.read_exact(&mut first).await.unwrap();
    for (code, count) in [(CANCEL_REQUEST, &seen.cancels), (SSL_REQUEST, &seen.encrypted)] {
        if first[4..] == code {
            count.fetch_add(1, Ordering::SeqCst);
        }
    }
    let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    server.write_all(&first).await.unwrap();
    // Either side may go away at any time.
    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
}

/// A PostgreSQL that listens on TCP, with and without TLS, and a proxy before it.
struct Listening {
    cluster: Cluster,
    port: u16,
    seen: Arc<Seen>,
}

impl Listening {
    async fn start() -> Self {
        let cluster = testkit::start_cluster(Options::ephemeral().setting("listen_addresses", "127.0.0.1"));
        let key = KeyPair::generate().unwrap();
        let cert = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
        let pair = CertifiedKey { cert, signing_key: key };
        let data = cluster.data_dir();
        give(&data, "server.crt", &pair.cert.pem());
        give(&data, "server.key", &pair.signing_key.serialize_pem());
        give(&data, "pg_hba.conf", "local all all trust\nhost all all 127.0.0.0/8 trust\n");
        let client = testkit::connect(&cluster.connection_string("postgres")).await;
        client.batch_execute("alter system set ssl = on").await.unwrap();
        cluster.restart().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (seen, behind) = (Arc::new(Seen::default()), cluster.port());
        let counts = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, behind, Arc::clone(&counts)));
            }
        });
        Self { cluster, port, seen }
    }

    fn command(&self, tls: &str, arguments: &[&str]) -> Command {
        let url = format!("postgresql://postgres@127.0.0.1:{}/postgres?sslmode={tls}", self.port);
        let mut command = Command::new(countersign());
        command.env("DATABASE_URL", url).args(arguments).kill_on_drop(true);
        command
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_takes_the_way_of_its_connection() {
    exclusive().await;
    let listening = Listening::start().await;
    assert!(listening.command("disable", &["init"]).output().await.unwrap().status.success());
    let url = listening.cluster.connection_string("postgres");
    let client = testkit::connect(&url).await;
    let watch = Watch { client };
    for (tls, name) in [("disable", "notification, TCP"), ("require", "notification, TLS")] {
        let command = listening.command(tls, &["--log", "error", "serve"]);
        let mut session = Session::start(command, HANDSHAKE).await;
        session.lives().await;
        let before = listening.seen.encrypted.load(Ordering::SeqCst);
        let mut times = Vec::new();
        for _ in 0..5 {
            times.push(ways::cancelled(&mut session, &watch, "query_database", ways::sleeps(), ways::SLEEPING).await);
        }
        report(name, times);
        session.lives().await;
        assert!(session.server.close().await);
        let in_clear = listening.seen.cancels.swap(0, Ordering::SeqCst);
        let encrypted = listening.seen.encrypted.load(Ordering::SeqCst) - before;
        match tls {
            // A cancel is repeated where the backend takes its time.
            "disable" => assert!(in_clear >= 5 && encrypted == 0, "{in_clear} in clear, {encrypted} encrypted"),
            // The cancels, and a session anew after each.
            _ => assert!(in_clear == 0 && encrypted >= 10, "{in_clear} in clear, {encrypted} encrypted"),
        }
    }
}
