//! TLS over the socket: what is checked depends on `sslmode`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::target::{Tls, TlsMode};

/// The TLS handshake on a socket whose server has agreed to it.
pub(super) async fn handshake(stream: TcpStream, host: &str, tls: &Tls) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| io::Error::other(format!("\"{host}\" is no name that a certificate can have")))?;
    let connector = TlsConnector::from(Arc::new(config(tls)?));
    connector.connect(name, stream).await.map_err(|error| io::Error::new(error.kind(), format!("TLS: {error}")))
}

fn config(tls: &Tls) -> io::Result<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let verifier: Arc<dyn ServerCertVerifier> = match tls.mode {
        TlsMode::Disable | TlsMode::Prefer | TlsMode::Require => Arc::new(AnyName { chain: None, provider }),
        TlsMode::VerifyCa => Arc::new(AnyName { chain: Some(chain_verifier(tls, &provider)?), provider }),
        TlsMode::VerifyFull => chain_verifier(tls, &provider)?,
    };
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

fn chain_verifier(tls: &Tls, provider: &Arc<CryptoProvider>) -> io::Result<Arc<WebPkiServerVerifier>> {
    let roots = Arc::new(match &tls.root_certificates {
        Some(path) => roots_in(path)?,
        None => system_roots()?,
    });
    WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider)).build().map_err(io::Error::other)
}

fn roots_in(path: &Path) -> io::Result<RootCertStore> {
    let unreadable = |why: &dyn std::fmt::Display| io::Error::other(format!("sslrootcert {}: {why}", path.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))? {
        let certificate = certificate.map_err(|error| unreadable(&error))?;
        roots.add(certificate).map_err(|error| unreadable(&error))?;
    }
    if roots.is_empty() { Err(unreadable(&"it holds no certificate")) } else { Ok(roots) }
}

fn system_roots() -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(io::Error::other("the system has no root certificates; name a file with sslrootcert"));
    }
    Ok(roots)
}

/// What libpq does below `verify-full`: whatever name the certificate bears, and with `require` and `prefer` whoever has
/// signed it. The connection is encrypted; with whom is checked by `chain` alone.
#[derive(Debug)]
struct AnyName {
    chain: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
