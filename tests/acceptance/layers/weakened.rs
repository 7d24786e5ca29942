//! Takes single layers of the read path away: a proxy before PostgreSQL that rewrites the messages in which a layer is.
//!
//! The server under test is complete; what reaches PostgreSQL is not.

use std::io;

use pg::ConnectOptions;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

/// One layer of the defence. The login is one more, and the first: see `ledger::check_reader`. That the extended protocol takes
/// one statement is PostgreSQL's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layer {
    /// A statement without result columns is not run.
    ResultColumns,
    /// No function is called that acts beyond the transaction.
    Functions,
    /// `BEGIN READ ONLY`.
    ReadOnlyTransaction,
    /// A query of the server's own comes first, so that the transaction's mode cannot be changed any more.
    FixedMode,
    /// The session's own default is read only.
    ReadOnlyDefault,
    /// `statement_timeout` and its like. The deadline over the whole call remains.
    Timeouts,
    /// `ROLLBACK`, whatever happened.
    Rollback,
    /// The reset of the session before it is used again.
    Cleaning,
}

impl Layer {
    pub(super) const ALL: [Self; 8] = [
        Self::ResultColumns,
        Self::Functions,
        Self::ReadOnlyTransaction,
        Self::FixedMode,
        Self::ReadOnlyDefault,
        Self::Timeouts,
        Self::Rollback,
        Self::Cleaning,
    ];

    /// The text in place of a statement of the server's own that is the layer, or has it.
    fn weakened(self, sql: &str) -> Option<&'static str> {
        let fixes_mode = sql.starts_with("select pg_catalog.set_config('countersign.account_id', $1, true)");
        match self {
            Self::Functions if sql.contains("p.proname = any ($1::pg_catalog.name[] || $2::pg_catalog.name[])") => {
                Some("select null, null where $1::pg_catalog.name[] is null or $2::pg_catalog.name[] is null")
            }
            Self::ReadOnlyTransaction if sql == "begin read only" => Some("begin read write"),
            // Commands take no snapshot, and so leave the mode open.
            Self::FixedMode if fixes_mode => Some("reset search_path"),
            Self::Timeouts if fixes_mode => Some(
                "select pg_catalog.set_config('countersign.account_id', $1, true), $2::pg_catalog.text, $3::pg_catalog.text, \
                 $4::pg_catalog.text",
            ),
            Self::Rollback if sql == "rollback" => Some("commit"),
            Self::Cleaning if sql == "set session authorization default" || sql == "reset all" => Some("select 1"),
            Self::Cleaning if sql.starts_with("select pg_catalog.convert_from(") => Some("select ''"),
            Self::Cleaning if sql.contains("pg_advisory_unlock_all()") => Some("select false"),
            _ => None,
        }
    }

    /// The message of the client without the layer.
    fn weaken_request(self, message: Vec<u8>) -> Vec<u8> {
        let (tag, body) = (message[0], &message[5..]);
        let string = |at: usize| {
            let end = body[at..].iter().position(|byte| *byte == 0).unwrap();
            (std::str::from_utf8(&body[at..at + end]).unwrap(), at + end + 1)
        };
        match tag {
            b'P' => {
                let (name, at) = string(0);
                let (sql, rest) = string(at);
                let Some(weakened) = self.weakened(sql) else { return message };
                framed(b'P', &[name.as_bytes(), b"\0", weakened.as_bytes(), b"\0", &body[rest..]].concat())
            }
            // No parameters, in no format; results in the default format.
            b'B' if self == Self::FixedMode && string(string(0).1).0 == "countersign_settings" => {
                framed(b'B', b"\0countersign_settings\0\0\0\0\0\0\0")
            }
            _ => message,
        }
    }

    /// The message of the server without the layer.
    fn weaken_answer(self, message: Vec<u8>) -> Vec<u8> {
        // No columns at all in place of no result.
        if self == Self::ResultColumns && message[0] == b'n' { framed(b'T', b"\0\0") } else { message }
    }

    /// The start-up message without the layer.
    fn weaken_startup(self, message: Vec<u8>) -> Vec<u8> {
        const SETTING: &[u8] = b"default_transaction_read_only\0on\0";
        let at = message.windows(SETTING.len()).position(|part| part == SETTING);
        let Some(at) = at.filter(|_| self == Self::ReadOnlyDefault) else { return message };
        let body = [&message[4..at], &message[at + SETTING.len()..]].concat();
        [&u32::try_from(body.len() + 4).unwrap().to_be_bytes()[..], &body].concat()
    }
}

fn framed(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[tag][..], &length, body].concat()
}

/// A way to a PostgreSQL server on which one layer is missing.
pub(super) struct Weakened {
    folder: TempDir,
    accepting: JoinHandle<()>,
}

impl Weakened {
    /// Before the server that `options` connect to by a unix socket.
    pub(super) fn before(options: &ConnectOptions, missing: Layer) -> Self {
        let pg::Address::Unix(server, port) = options.addresses[0].clone() else { panic!("a unix socket") };
        let folder = tempfile::Builder::new().prefix("cs-weak-").tempdir_in("/tmp").unwrap();
        let name = format!(".s.PGSQL.{port}");
        let listener = UnixListener::bind(folder.path().join(&name)).unwrap();
        let server = server.join(name);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = server.clone();
                tokio::spawn(async move {
                    let server = UnixStream::connect(&server).await?;
                    forward(client, server, missing).await
                });
            }
        });
        Self { folder, accepting }
    }

    /// `options`, on this way.
    pub(super) fn reroute(&self, options: &ConnectOptions) -> ConnectOptions {
        let pg::Address::Unix(_, port) = options.addresses[0].clone() else { panic!("a unix socket") };
        ConnectOptions { addresses: vec![pg::Address::Unix(self.folder.path().into(), port)], ..options.clone() }
    }
}

impl Drop for Weakened {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn forward(client: UnixStream, server: UnixStream, missing: Layer) -> io::Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests = async {
        let startup = read_message(&mut from_client, Vec::new()).await?;
        // A cancel request has a code of its own and nothing behind it.
        to_server.write_all(&missing.weaken_startup(startup)).await?;
        loop {
            let tag = from_client.read_u8().await?;
            let message = read_message(&mut from_client, vec![tag]).await?;
            to_server.write_all(&missing.weaken_request(message)).await?;
        }
    };
    let answers = async {
        loop {
            let tag = from_server.read_u8().await?;
            let message = read_message(&mut from_server, vec![tag]).await?;
            to_client.write_all(&missing.weaken_answer(message)).await?;
        }
    };
    tokio::select! {
        ended = requests => ended,
        ended = answers => ended,
    }
}

/// Reads a message up to its end, behind the tag that it may have.
async fn read_message(from: &mut (impl AsyncRead + Unpin), mut message: Vec<u8>) -> io::Result<Vec<u8>> {
    let length = from.read_u32().await?;
    message.extend_from_slice(&length.to_be_bytes());
    let start = message.len();
    message.resize(start + length as usize - 4, 0);
    from.read_exact(&mut message[start..]).await?;
    Ok(message)
}
