//! TLS over the socket. `sslmode` determines what is verified.

use std::io;
use std::net::{IpAddr, Ipv4Addr};

use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::transport::Transport;
use crate::client::connect_options::{SslMode, TLS_PROTOCOL, TlsOptions};

/// Performs the TLS handshake. The server has agreed to TLS or expects a direct handshake.
pub(super) async fn handshake(stream: Transport, host: &str, tls: &TlsOptions) -> io::Result<TlsStream<Transport>> {
    let name = match ServerName::try_from(host.to_owned()) {
        Ok(name) => name,
        Err(_) if tls.mode == SslMode::VerifyFull => {
            return Err(io::Error::other(format!("\"{host}\" is no name that a certificate can have")));
        }
        // The host is not a valid server name. Then no name is verified, and an IP address is not sent as SNI.
        Err(_) => ServerName::from(IpAddr::from(Ipv4Addr::UNSPECIFIED)),
    };
    let connector = TlsConnector::from(tls.client_config()?);
    let connected = connector.connect(name, stream).await;
    let stream = connected.map_err(|error| io::Error::new(error.kind(), format!("TLS: {error}")))?;
    if tls.is_direct && stream.get_ref().1.alpn_protocol() != Some(TLS_PROTOCOL) {
        return Err(io::Error::other(
            "TLS: the server did not say that it speaks PostgreSQL, as sslnegotiation=direct requires (version 17 or later)",
        ));
    }
    Ok(stream)
}
