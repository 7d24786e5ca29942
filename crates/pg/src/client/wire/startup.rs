//! Opens a session: chooses the server, sends the start-up message, receives the cancel key. Also sends
//! CancelRequests.

use std::borrow::Cow;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use bytes::BytesMut;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

use super::authentication;
use super::connection::rows::owned_row;
use super::connection::{CancelKey, Connection, Event, Purpose, Reported};
use super::socket::{Endpoint, Socket};
use crate::client::connect_options::{Address, AuthMethod, ConnectOptions, Pooler, SslMode, TargetSessionAttrs};
use crate::client::error::{ConnectError, Error, PROTOCOL_VIOLATION, ServerError};
use crate::client::session_settings::SessionSettings;

/// A start-up setting that poolers forward too.
const ENCODING: (&str, &str) = ("client_encoding", "UTF8");

/// The time limit for closing the connection to a server without the requested properties.
const GOODBYE: Duration = Duration::from_millis(100);

const MAX_CANCEL_BYTES: usize = 4096;

const READ_ONLY_SETTING: &str = "default_transaction_read_only";

/// Connects to the first server that accepts the login and has the requested properties. Each address may take the
/// target's `connect_timeout`. A password that its command printed earlier, and that the server refuses, is replaced.
pub(crate) async fn connect(target: &ConnectOptions, settings: &SessionSettings) -> Result<Connection, ConnectError> {
    let start = Instant::now();
    let connected = connect_once(target, settings).await;
    if let (Err(ConnectError::Authentication(_)), Some(command)) = (&connected, target.used_password_command())
        && command.forget_before(start).await
    {
        return connect_once(target, settings).await;
    }
    connected
}

async fn connect_once(target: &ConnectOptions, settings: &SessionSettings) -> Result<Connection, ConnectError> {
    let mut addresses = target.addresses.clone();
    if target.is_shuffled {
        fastrand::shuffle(&mut addresses);
    }
    let mut second_best = None;
    let mut failures = Vec::new();
    for address in addresses {
        let target = match with_password(target, &address).await {
            Ok(target) => target,
            Err(error) => {
                failures.push(error);
                continue;
            }
        };
        let deadline = Instant::now() + target.connect_timeout;
        let resolved = match timeout_at(deadline, resolve(&address, &target)).await {
            Ok(resolved) => resolved.map_err(|error| unreachable_for(&address, &error)),
            Err(_) => Err(timed_out(&address, target.connect_timeout)),
        };
        let resolved = match resolved {
            Ok(resolved) => resolved,
            Err(error) => {
                failures.push(error);
                continue;
            }
        };
        for (index, address) in resolved.into_iter().enumerate() {
            let deadline = if index == 0 { deadline } else { Instant::now() + target.connect_timeout };
            let connected = timeout_at(deadline, connect_to(&address, &target, settings)).await;
            match connected.unwrap_or_else(|_| Err(timed_out(&address, target.connect_timeout))) {
                Ok((connection, Fit::Wanted)) => return Ok(connection),
                Ok((connection, Fit::SecondBest)) => second_best = second_best.or(Some(connection)),
                Err(error) if error.tries_the_next() => {
                    if let Some(tunnel) = &target.ssh_tunnel {
                        tunnel.until_logged().await;
                    }
                    failures.push(error);
                }
                // A server that answered decides the outcome: another server's error would hide, for example, a wrong
                // password.
                Err(error) => return Err(error),
            }
        }
    }
    second_best.ok_or_else(|| ConnectError::of_all(target.address(), failures))
}

/// The target, with the password that its command prints.
async fn with_password<'t>(
    target: &'t ConnectOptions,
    address: &Address,
) -> Result<Cow<'t, ConnectOptions>, ConnectError> {
    let Some(command) = target.used_password_command() else { return Ok(Cow::Borrowed(target)) };
    let password = command.password(target, address).await.map_err(|reason| {
        tracing::warn!(%address, reason, "there is no password");
        ConnectError::PasswordCommand { place: address.to_string() }
    })?;
    Ok(Cow::Owned(ConnectOptions { password: Some(password), ..target.clone() }))
}

/// The addresses of a name, in the order of the system's resolver. A name behind a tunnel is left to the bastion.
async fn resolve(address: &Address, target: &ConnectOptions) -> io::Result<Vec<Address>> {
    let (Address::Tcp { host, hostaddr: None, port }, None) = (address, &target.ssh_tunnel) else {
        return Ok(vec![address.clone()]);
    };
    let found = tokio::net::lookup_host((host.as_str(), *port)).await;
    let found = found.map_err(|error| io::Error::other(format!("the name cannot be looked up: {error}")))?;
    let mut found: Vec<IpAddr> = found.map(|found| found.ip()).collect();
    found.dedup();
    if target.is_shuffled {
        fastrand::shuffle(&mut found);
    }
    let at = |ip| Address::Tcp { host: host.clone(), hostaddr: Some(ip), port: *port };
    Ok(found.into_iter().map(at).collect())
}

fn timed_out(address: &Address, after: Duration) -> ConnectError {
    ConnectError::TimedOut { place: address.to_string(), timeout_ms: after.as_millis() }
}

fn unreachable_for(address: &Address, error: &io::Error) -> ConnectError {
    use io::ErrorKind as Kind;
    ConnectError::Unreachable {
        place: address.to_string(),
        reason: match error.kind() {
            Kind::ConnectionRefused => "connection refused; is PostgreSQL running there?".to_owned(),
            Kind::NotFound => "no such socket; is PostgreSQL running there?".to_owned(),
            _ => error.to_string(),
        },
        is_transient: matches!(
            error.kind(),
            Kind::ConnectionRefused
                | Kind::NotFound
                | Kind::ConnectionReset
                | Kind::ConnectionAborted
                | Kind::BrokenPipe
                | Kind::UnexpectedEof
                | Kind::HostUnreachable
                | Kind::NetworkUnreachable
                | Kind::TimedOut
        ),
    }
}

/// Whether a server has the properties of `target_session_attrs`.
enum Fit {
    Wanted,
    /// Used if no better server is found.
    SecondBest,
}

async fn connect_to(
    address: &Address,
    target: &ConnectOptions,
    settings: &SessionSettings,
) -> Result<(Connection, Fit), ConnectError> {
    let route = Endpoint::new(address.clone(), target);
    let mut connection = match open(&route, target, settings).await {
        // As in libpq: a server that accepts only unencrypted connections (pg_hba.conf: hostnossl) may report this
        // only now.
        Err(failed) if failed.is_about_encryption && target.tls.mode == SslMode::Prefer => {
            open(&route.plain(), target, settings).await.map_err(|_| failed.error)?
        }
        opened => opened.map_err(|failed| failed.error)?,
    };
    let reads_only = settings.iter().any(|(name, _)| name == READ_ONLY_SETTING);
    if target.pooler == Pooler::None && connection.reported.other_engine.is_none() {
        check_is_direct(&mut connection).await.map_err(|error| connect_error(address, error))?;
    } else if target.pooler != Pooler::None {
        // A pooler may report outdated values.
        connection.reported = Reported { other_engine: connection.reported.other_engine, ..Reported::default() };
    }
    match fit(&mut connection, target.session_attrs, reads_only).await {
        Ok(Ok(fit)) => Ok((connection, fit)),
        Ok(Err(reason)) => {
            connection.terminate(GOODBYE).await;
            Err(ConnectError::Unreachable { place: address.to_string(), reason: reason.to_owned(), is_transient: true })
        }
        Err(error) => Err(connect_error(address, error)),
    }
}

struct Failed {
    error: ConnectError,
    /// Whether an attempt without TLS may succeed.
    is_about_encryption: bool,
}

async fn open(route: &Endpoint, target: &ConnectOptions, settings: &SessionSettings) -> Result<Connection, Failed> {
    let socket = Socket::connect(route).await.map_err(|error| Failed {
        is_about_encryption: error.kind() == io::ErrorKind::InvalidData,
        error: unreachable_for(&route.address, &error),
    })?;
    let is_encrypted = socket.is_encrypted();
    let mut connection = Connection::new(socket, route.clone());
    start(&mut connection, target, settings).await.map_err(|error| {
        // After an authentication request, the error has nothing to do with encryption, and a password that was sent
        // encrypted must not be sent again in clear text.
        let refused_at_once =
            connection.asked == AuthMethod::None && matches!(&error, Error::Server(error) if error.sqlstate == "28000");
        let error = match error {
            Error::Server(error) if error.sqlstate == PROTOCOL_VIOLATION && target.pooler == Pooler::None => {
                ConnectError::Pooled { place: route.address.to_string(), reason: format!("it says: {}", error.message) }
            }
            error => connect_error(&route.address, error),
        };
        Failed { is_about_encryption: is_encrypted && refused_at_once, error }
    })?;
    Ok(connection)
}

fn connect_error(address: &Address, error: Error) -> ConnectError {
    match error {
        Error::Server(error) => refused(address, *error),
        Error::Lost(error) => unreachable_for(address, &error),
        Error::Connect(error) => error,
        other => unreachable_for(address, &io::Error::other(other.to_string())),
    }
}

fn refused(address: &Address, error: ServerError) -> ConnectError {
    match error.sqlstate.as_str() {
        "28P01" | "28000" => ConnectError::Authentication(error.message),
        "3D000" => ConnectError::DatabaseMissing(error.message),
        _ => ConnectError::Refused { place: address.to_string(), error: Box::new(error) },
    }
}

async fn start(connection: &mut Connection, target: &ConnectOptions, settings: &SessionSettings) -> Result<(), Error> {
    let identity = [
        ("user", target.user.as_str()),
        ("database", target.dbname.as_str()),
        ("application_name", target.application_name.as_str()),
    ];
    let options = target.options.as_deref().map(|options| ("options", options));
    let settings = settings.iter().filter(|_| target.pooler == Pooler::None);
    let parameters = identity.into_iter().chain([ENCODING]).chain(settings).chain(options);
    frontend::startup_message(parameters, connection.outbox())?;
    connection.flush().await?;
    authentication::authenticate(connection, target).await.map_err(of_another_protocol)?;
    loop {
        match connection.receive().await.map_err(of_another_protocol)? {
            Message::BackendKeyData(body) => {
                connection.key.process_id = body.process_id();
                connection.key.secret_key = body.secret_key();
            }
            Message::ReadyForQuery(_) => return Ok(()),
            message => return Err(authentication::unexpected(message)),
        }
    }
}

/// An unreadable message belongs to a newer protocol version: NegotiateProtocolVersion, or a cancel key of another
/// length.
fn of_another_protocol(error: Error) -> Error {
    match error {
        Error::Lost(error) if error.kind() == io::ErrorKind::InvalidInput => Error::Lost(io::Error::other(format!(
            "the server does not answer in version 3.0 of the protocol, which is the one that is spoken here: {error}"
        ))),
        error => error,
    }
}

/// Checks that the answering backend is the one that was started: its cancel key has the backend's process id. A
/// pooler has keys of its own, since it lends several backends.
async fn check_is_direct(connection: &mut Connection) -> Result<(), Error> {
    let backend = ask(connection, "select pg_catalog.pg_backend_pid()").await?;
    if backend == connection.key.process_id.to_string() {
        return Ok(());
    }
    let place = connection.key.route.address.to_string();
    let reason = "another process answers than the one that was connected to".to_owned();
    Err(Error::Connect(ConnectError::Pooled { place, reason }))
}

/// Whether the server has the requested properties; if not, the reason.
///
/// A read-only session is read-only because this client requests it, which says nothing about the server. For such a
/// session, read-write means a primary and read-only a standby.
async fn fit(
    connection: &mut Connection,
    wanted: TargetSessionAttrs,
    reads_only: bool,
) -> Result<Result<Fit, &'static str>, Error> {
    if wanted == TargetSessionAttrs::Any {
        return Ok(Ok(Fit::Wanted));
    }
    let Reported { in_hot_standby, default_transaction_read_only, .. } = connection.reported;
    let in_recovery = match in_hot_standby {
        Some(in_recovery) => in_recovery,
        None => ask(connection, "select pg_catalog.pg_is_in_recovery()").await? == "t",
    };
    let is_read_only = match default_transaction_read_only {
        _ if in_recovery || reads_only => in_recovery,
        Some(is_read_only) => is_read_only,
        None => ask(connection, "show transaction_read_only").await? == "on",
    };
    Ok(match wanted {
        TargetSessionAttrs::ReadWrite if is_read_only => {
            Err("its sessions are read-only, and target_session_attrs asks for read-write")
        }
        TargetSessionAttrs::ReadOnly if !is_read_only => {
            Err("its sessions are read-write, and target_session_attrs asks for read-only")
        }
        TargetSessionAttrs::Primary if in_recovery => {
            Err("it is a standby, and target_session_attrs asks for a primary")
        }
        TargetSessionAttrs::Standby if !in_recovery => {
            Err("it is a primary, and target_session_attrs asks for a standby")
        }
        TargetSessionAttrs::PreferStandby if !in_recovery => Ok(Fit::SecondBest),
        _ => Ok(Fit::Wanted),
    })
}

/// The value that a constant query returns.
async fn ask(connection: &mut Connection, own_text: &str) -> Result<String, Error> {
    connection.push_simple_query(own_text, Purpose::Call)?;
    connection.flush().await?;
    let mut answer = String::new();
    let mut take = |event| {
        if let Event::Row(_, body) = event {
            answer = owned_row(&body)?.into_iter().flatten().next().unwrap_or_default();
        }
        Ok(())
    };
    let failure = connection.converse(&mut take).await?;
    failure.map_or(Ok(answer), |failure| Err(failure.into()))
}

/// Asks the server to cancel what the session of this key is running. Returns when the server has received the
/// request. The signal may reach the backend later, so a cancelled session is never reused.
pub(crate) async fn cancel(key: &CancelKey) -> io::Result<()> {
    let mut socket = Socket::connect(&key.route).await?;
    let mut request = BytesMut::new();
    frontend::cancel_request(key.process_id, key.secret_key, &mut request);
    socket.write_all(&request).await?;
    socket.flush().await?;
    // The server answers a CancelRequest by closing the connection, without a message.
    let (mut bytes, mut said) = ([0; 512], 0);
    while said <= MAX_CANCEL_BYTES {
        match socket.read(&mut bytes).await? {
            0 => return Ok(()),
            read => said += read,
        }
    }
    Err(io::Error::other("the server answers a cancel request, which PostgreSQL does not"))
}
