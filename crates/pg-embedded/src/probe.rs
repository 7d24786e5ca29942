//! Checks by logging in whether a PostgreSQL server answers on a socket (PostgreSQL manual, "Frontend/Backend
//! Protocol", message formats).

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProbeResult {
    /// The server accepts logins; the text is its `server_version`.
    Ready(String),
    /// No server listens, or the server is starting, recovering or shutting down.
    NotYet,
}

/// Cannot connect now: starting, recovering or shutting down.
const CANNOT_CONNECT_NOW: &str = "57P03";

/// Largest accepted message of a login, in bytes.
const LONGEST: usize = 1 << 16;

/// Logs in as `postgres` and disconnects. A server is also ready if it refuses the login with an SQLSTATE other than
/// "cannot connect now", such as for too many clients. Its version is empty then.
pub(crate) fn ask(socket: &Path, timeout: Duration) -> ProbeResult {
    match log_in(socket, timeout) {
        Ok(Some(version)) => ProbeResult::Ready(version),
        Ok(None) | Err(_) => ProbeResult::NotYet,
    }
}

fn log_in(socket: &Path, timeout: Duration) -> io::Result<Option<String>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    let parameters = b"user\0postgres\0database\0postgres\0application_name\0countersign\0\0";
    let length = u32::try_from(8 + parameters.len()).map_err(io::Error::other)?;
    // Protocol version 3.0.
    stream.write_all(&[&length.to_be_bytes(), &196_608_u32.to_be_bytes(), parameters.as_slice()].concat())?;
    let mut version = String::new();
    loop {
        let (kind, body) = read_message(&mut stream)?;
        match kind {
            // ReadyForQuery: send Terminate.
            b'Z' => {
                stream.write_all(&[b'X', 0, 0, 0, 4])?;
                return Ok(Some(version));
            }
            // ParameterStatus: name and value.
            b'S' => {
                let mut texts = body.split(|byte| *byte == 0).map(String::from_utf8_lossy);
                if texts.next().is_some_and(|name| name == "server_version") {
                    version = texts.next().unwrap_or_default().into_owned();
                }
            }
            // ErrorResponse: fields of one letter and a text; C is the SQLSTATE.
            b'E' => {
                let not_now = body
                    .split(|byte| *byte == 0)
                    .any(|field| field.strip_prefix(b"C").is_some_and(|code| code == CANNOT_CONNECT_NOW.as_bytes()));
                return Ok((!not_now).then_some(version));
            }
            _ => {}
        }
    }
}

fn read_message(stream: &mut UnixStream) -> io::Result<(u8, Vec<u8>)> {
    let mut kind = [0; 1];
    stream.read_exact(&mut kind)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length)).map_err(io::Error::other)?.saturating_sub(4);
    if length > LONGEST {
        return Err(io::Error::other("a message of a login is never that long"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    let [kind] = kind;
    Ok((kind, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn answer_to(reply: &'static [u8]) -> ProbeResult {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut hello = [0; 8];
            stream.read_exact(&mut hello).unwrap();
            stream.write_all(reply).unwrap();
            // Stays open until the client disconnects, so that a reset does not discard the reply.
            let _rest = stream.read_to_end(&mut Vec::new());
        });
        let answer = ask(&socket, Duration::from_millis(200));
        server.join().unwrap();
        answer
    }

    #[test]
    fn a_server_that_is_still_recovering_is_not_ready() {
        assert_eq!(answer_to(b"E\0\0\0\x0cC57P03\0\0"), ProbeResult::NotYet);
    }

    #[test]
    fn a_server_that_is_full_is_ready_all_the_same() {
        assert_eq!(answer_to(b"E\0\0\0\x0cC53300\0\0"), ProbeResult::Ready(String::new()));
    }

    #[test]
    fn a_login_that_goes_through_tells_the_version() {
        let reply = b"R\0\0\0\x08\0\0\0\0S\0\0\0\x19server_version\x0015.18\0Z\0\0\0\x05I";
        assert_eq!(answer_to(reply), ProbeResult::Ready("15.18".to_owned()));
    }

    #[test]
    fn silence_and_nonsense_are_no_answer() {
        assert_eq!(answer_to(b""), ProbeResult::NotYet);
        assert_eq!(answer_to(b"R\xff\xff\xff\xff"), ProbeResult::NotYet);
        assert_eq!(ask(Path::new("/nonexistent/s"), Duration::from_millis(50)), ProbeResult::NotYet);
    }
}
