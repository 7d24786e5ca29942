//! From a socket to a session that is ready: start-up message, authentication, backend key; and CancelRequest.

use std::io;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::{AuthenticationSaslBody, Message};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::connection::{CancelKey, Connection};
use super::socket::Socket;
use crate::error::{ConnectError, Error, ServerError};
use crate::target::{Address, Target};

/// What every session of ours is started with, so that text output has one form whatever the database's settings are.
/// Start-up settings are what RESET goes back to, so nothing that a query sets can outlive it.
const SESSION_SETTINGS: [(&str, &str); 6] = [
    ("application_name", "countersign"),
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO"),
    ("IntervalStyle", "postgres"),
    ("extra_float_digits", "1"),
    ("bytea_output", "hex"),
];

/// Connects to the first address that answers, within the target's deadline.
pub(crate) async fn connect(target: &Target, settings: &[(&str, &str)]) -> Result<Connection, ConnectError> {
    let attempt = async {
        let mut last = None;
        for address in &target.addresses {
            match connect_to(address, target, settings).await {
                Ok(connection) => return Ok(connection),
                Err(error @ ConnectError::Unreachable { .. }) => last = Some(error),
                // A server that answered has the last word: another one would hide a wrong password.
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| ConnectError::Unreachable {
            place: target.place(),
            reason: "the connection string names no host".to_owned(),
        }))
    };
    tokio::time::timeout(target.connect_timeout, attempt).await.unwrap_or_else(|_| {
        Err(ConnectError::TimedOut { place: target.place(), timeout_ms: target.connect_timeout.as_millis() })
    })
}

async fn connect_to(address: &Address, target: &Target, settings: &[(&str, &str)]) -> Result<Connection, ConnectError> {
    let unreachable = |error: io::Error| ConnectError::Unreachable {
        place: address.to_string(),
        reason: match error.kind() {
            io::ErrorKind::ConnectionRefused => "connection refused; is PostgreSQL running there?".to_owned(),
            io::ErrorKind::NotFound => "no such socket; is PostgreSQL running there?".to_owned(),
            _ => error.to_string(),
        },
    };
    let socket = Socket::connect(address, &target.tls).await.map_err(unreachable)?;
    let mut connection = Connection::new(socket, address.clone(), target.tls.clone());
    start(&mut connection, target, settings).await.map_err(|error| match error {
        Error::Server(error) => refused(address, *error),
        Error::Lost(error) => unreachable(error),
        other => ConnectError::Unreachable { place: address.to_string(), reason: other.to_string() },
    })?;
    Ok(connection)
}

fn refused(address: &Address, error: ServerError) -> ConnectError {
    match error.sqlstate.as_str() {
        "28P01" | "28000" => ConnectError::Authentication(error.message),
        "3D000" => ConnectError::DatabaseMissing(error.message),
        _ => ConnectError::Refused { place: address.to_string(), error: Box::new(error) },
    }
}

async fn start(connection: &mut Connection, target: &Target, settings: &[(&str, &str)]) -> Result<(), Error> {
    let identity = [("user", target.user.as_str()), ("database", target.dbname.as_str())];
    let options = target.options.as_deref().map(|options| ("options", options));
    let parameters = identity.into_iter().chain(SESSION_SETTINGS).chain(settings.iter().copied()).chain(options);
    frontend::startup_message(parameters, connection.outbox())?;
    connection.flush().await?;
    authenticate(connection, target).await?;
    connection.owed = 1;
    loop {
        match connection.receive().await? {
            Message::BackendKeyData(body) => {
                connection.key.process_id = body.process_id();
                connection.key.secret_key = body.secret_key();
            }
            Message::ReadyForQuery(_) => return Ok(()),
            message => return Err(unexpected(message)),
        }
    }
}

async fn authenticate(connection: &mut Connection, target: &Target) -> Result<(), Error> {
    let password = || {
        target.password.as_ref().map(|password| password.expose().as_bytes()).ok_or_else(|| {
            Error::Server(Box::new(ServerError {
                sqlstate: "28P01".to_owned(),
                message: format!("the server asks for a password for user \"{}\", and none is given", target.user),
                ..ServerError::default()
            }))
        })
    };
    loop {
        match connection.receive().await? {
            Message::AuthenticationOk => return Ok(()),
            Message::AuthenticationCleartextPassword => {
                frontend::password_message(password()?, connection.outbox())?;
                connection.flush().await?;
            }
            Message::AuthenticationMd5Password(body) => {
                let hash = md5_hash(target.user.as_bytes(), password()?, body.salt());
                frontend::password_message(hash.as_bytes(), connection.outbox())?;
                connection.flush().await?;
            }
            Message::AuthenticationSasl(body) => scram(connection, &body, password()?).await?,
            message => return Err(unexpected(message)),
        }
    }
}

async fn scram(connection: &mut Connection, body: &AuthenticationSaslBody, password: &[u8]) -> Result<(), Error> {
    let offered: Vec<String> = body.mechanisms().map(|name| Ok(name.to_owned())).collect()?;
    if !offered.iter().any(|name| name == SCRAM_SHA_256) {
        return Err(unsupported(&format!("SASL mechanisms {}", offered.join(", "))));
    }
    let mut scram = ScramSha256::new(password, ChannelBinding::unsupported());
    frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), connection.outbox())?;
    connection.flush().await?;
    let Message::AuthenticationSaslContinue(body) = accepted(connection.receive().await?)? else {
        return Err(unsupported("a SASL exchange out of order"));
    };
    scram.update(body.data())?;
    frontend::sasl_response(scram.message(), connection.outbox())?;
    connection.flush().await?;
    let Message::AuthenticationSaslFinal(body) = accepted(connection.receive().await?)? else {
        return Err(unsupported("a SASL exchange out of order"));
    };
    Ok(scram.finish(body.data())?)
}

/// A message, unless it is an error.
fn accepted(message: Message) -> Result<Message, Error> {
    match message {
        Message::ErrorResponse(_) => Err(unexpected(message)),
        message => Ok(message),
    }
}

fn unexpected(message: Message) -> Error {
    match message {
        Message::ErrorResponse(body) => match ServerError::from_fields(body.fields()) {
            Ok(error) => Error::Server(Box::new(error)),
            Err(error) => Error::Lost(error),
        },
        Message::AuthenticationGss | Message::AuthenticationSspi | Message::AuthenticationKerberosV5 => {
            unsupported("GSSAPI or SSPI authentication")
        }
        _ => unsupported("a message that does not belong to the start-up"),
    }
}

fn unsupported(what: &str) -> Error {
    Error::Lost(io::Error::other(format!("the server asks for {what}, which is not supported")))
}

/// Asks the server to stop what the session of this key is running, and returns when the server has taken the request
/// in. The signal may still be on its way then, so a session that was cancelled is never used again.
pub(crate) async fn cancel(key: &CancelKey) -> io::Result<()> {
    let mut socket = Socket::connect(&key.address, &key.tls).await?;
    let mut request = BytesMut::new();
    frontend::cancel_request(key.process_id, key.secret_key, &mut request);
    socket.write_all(&request).await?;
    socket.flush().await?;
    // It says nothing: it closes the connection.
    socket.read_to_end(&mut Vec::new()).await?;
    Ok(())
}
