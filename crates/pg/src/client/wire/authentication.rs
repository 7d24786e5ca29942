//! Authentication: the server requests it, and the client answers with the methods that the target allows.

use std::io;

use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{self, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256};
use postgres_protocol::message::backend::{AuthenticationSaslBody, Message};
use postgres_protocol::message::frontend;

use super::connection::Connection;
use crate::client::connect_options::{Address, AuthMethod, AuthPolicy, ChannelBinding, ConnectOptions, Password};
use crate::client::error::{Error, ServerError};

/// Authenticates, up to AuthenticationOk.
pub(super) async fn authenticate(connection: &mut Connection, target: &ConnectOptions) -> Result<(), Error> {
    let address = connection.key.route.address.clone();
    let outcome = answer(connection, target, &address).await;
    // As in libpq, the error names the password file: a common cause is an outdated password in a forgotten file.
    outcome.map_err(|error| match (error, target.password_for(&address)) {
        (Error::Server(mut error), Ok(Password { file: Some(file), .. })) if error.sqlstate == "28P01" => {
            error.message.push_str(&format!("; the password is that of the file {}", file.display()));
            Error::Server(error)
        }
        (error, _) => error,
    })
}

async fn answer(connection: &mut Connection, target: &ConnectOptions, address: &Address) -> Result<(), Error> {
    let password = || target.password_for(address).map_err(|why| no_password(&target.user, &why));
    let mut is_bound = false;
    loop {
        let message = connection.receive().await?;
        let asked = match &message {
            Message::AuthenticationOk => connection.asked,
            message if connection.asked == AuthMethod::Scram && is_question(message) => {
                return Err(not_allowed("the server asks once more after SCRAM, which PostgreSQL does not"));
            }
            Message::AuthenticationCleartextPassword => AuthMethod::Password,
            Message::AuthenticationMd5Password(_) => AuthMethod::Md5,
            Message::AuthenticationSasl(_) => AuthMethod::Scram,
            Message::AuthenticationGss | Message::AuthenticationKerberosV5 => AuthMethod::Gss,
            Message::AuthenticationSspi => AuthMethod::Sspi,
            _ => return Err(unexpected(message)),
        };
        // Checked before the client answers, since the answer may contain the password.
        check(&target.login, asked, is_bound)?;
        if asked == AuthMethod::Password && !target.login.names_password && connection.socket().is_exposed() {
            return Err(not_allowed(
                "the server asks for the password itself, and the connection is not encrypted; use sslmode=require or more, \
                 or require_auth=password where nobody listens",
            ));
        }
        connection.asked = asked;
        match message {
            Message::AuthenticationOk => return Ok(()),
            Message::AuthenticationCleartextPassword => {
                frontend::password_message(password()?.secret.expose().as_bytes(), connection.outbox())?;
                connection.flush().await?;
            }
            Message::AuthenticationMd5Password(body) => {
                let secret = password()?.secret;
                let hash = md5_hash(target.user.as_bytes(), secret.expose().as_bytes(), body.salt());
                frontend::password_message(hash.as_bytes(), connection.outbox())?;
                connection.flush().await?;
            }
            Message::AuthenticationSasl(body) => {
                let secret = password()?.secret;
                is_bound = scram(connection, &body, secret.expose().as_bytes(), target.login.channel_binding).await?;
            }
            message => return Err(unexpected(message)),
        }
    }
}

fn is_question(message: &Message) -> bool {
    matches!(
        message,
        Message::AuthenticationCleartextPassword
            | Message::AuthenticationMd5Password(_)
            | Message::AuthenticationSasl(_)
            | Message::AuthenticationGss
            | Message::AuthenticationKerberosV5
            | Message::AuthenticationSspi
    )
}

fn no_password(user: &str, why: &str) -> Error {
    let message = format!("the server asks for a password for user \"{user}\", and {why}");
    Error::Server(Box::new(ServerError::synthetic("28P01", message)))
}

/// Whether `require_auth` and `channel_binding` allow the method that the server requests.
fn check(login: &AuthPolicy, asked: AuthMethod, is_bound: bool) -> Result<(), Error> {
    if !login.methods.contains(&asked) {
        let what =
            if asked == AuthMethod::None { "lets us in without asking".to_owned() } else { format!("asks by {asked}") };
        return Err(not_allowed(&format!("the server {what}, which require_auth does not allow")));
    }
    if login.channel_binding == ChannelBinding::Require && asked != AuthMethod::Scram && !is_bound {
        return Err(not_allowed("channel_binding=require: the server does not ask by SCRAM, which alone has it"));
    }
    Ok(())
}

fn not_allowed(what: &str) -> Error {
    Error::Lost(io::Error::other(what.to_owned()))
}

/// Performs SCRAM. Returns whether it was bound to the server's certificate.
async fn scram(
    connection: &mut Connection,
    body: &AuthenticationSaslBody,
    password: &[u8],
    wanted: ChannelBinding,
) -> Result<bool, Error> {
    let offered: Vec<String> = body.mechanisms().map(|name| Ok(name.to_owned())).collect()?;
    let offers = |mechanism: &str| offered.iter().any(|name| name == mechanism);
    let end_point = connection.socket().end_point().filter(|_| wanted != ChannelBinding::Disable);
    let (mechanism, binding) = match end_point {
        Some(hash) if offers(SCRAM_SHA_256_PLUS) => {
            (SCRAM_SHA_256_PLUS, sasl::ChannelBinding::tls_server_end_point(hash))
        }
        _ if wanted == ChannelBinding::Require => {
            return Err(not_allowed(if connection.socket().is_encrypted() {
                "channel_binding=require: the server, or its certificate, has none"
            } else {
                "channel_binding=require: the connection is not encrypted; use sslmode=require or more"
            }));
        }
        // The server learns that this client supports channel binding. A server that supports it too detects a third
        // party in between.
        Some(_) => (SCRAM_SHA_256, sasl::ChannelBinding::unrequested()),
        None => (SCRAM_SHA_256, sasl::ChannelBinding::unsupported()),
    };
    if !offers(mechanism) {
        return Err(unsupported(&format!("SASL mechanisms {}", offered.join(", "))));
    }
    let mut scram = ScramSha256::new(password, binding);
    frontend::sasl_initial_response(mechanism, scram.message(), connection.outbox())?;
    connection.flush().await?;
    let Message::AuthenticationSaslContinue(body) = accepted(connection.receive().await?)? else {
        return Err(unsupported("a SASL exchange out of order"));
    };
    let iterations = iterations(body.data());
    if iterations > MAX_ITERATIONS {
        return Err(unsupported(&format!(
            "{iterations} iterations of SCRAM (scram_iterations; at most {MAX_ITERATIONS} are done here)"
        )));
    }
    scram.update(body.data())?;
    frontend::sasl_response(scram.message(), connection.outbox())?;
    connection.flush().await?;
    let Message::AuthenticationSaslFinal(body) = accepted(connection.receive().await?)? else {
        return Err(unsupported("a SASL exchange out of order"));
    };
    scram.finish(body.data())?;
    Ok(mechanism == SCRAM_SHA_256_PLUS)
}

/// The limit of postgres-protocol. Each iteration costs this client work, and the server only names the number.
const MAX_ITERATIONS: u64 = 100_000;

/// The `i=` of a server-first-message (RFC 5802); 0 if it cannot be read, which the exchange reports.
fn iterations(message: &[u8]) -> u64 {
    let fields = message.split(|byte| *byte == b',');
    let number = fields.filter_map(|field| field.strip_prefix(b"i=")).next();
    number.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok()).unwrap_or_default()
}

/// The message, or its error if it is an ErrorResponse.
fn accepted(message: Message) -> Result<Message, Error> {
    match message {
        Message::ErrorResponse(_) => Err(unexpected(message)),
        message => Ok(message),
    }
}

pub(super) fn unexpected(message: Message) -> Error {
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

/// The form in which PostgreSQL stores a password. `CREATE ROLE .. PASSWORD` accepts it in place of the password,
/// which then appears in no log and no statistics of the server (PostgreSQL manual, "CREATE ROLE").
#[must_use]
pub fn scram_verifier(password: &str) -> String {
    postgres_protocol::password::scram_sha_256(password.as_bytes())
}
