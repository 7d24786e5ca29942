//! The TLS configuration, built from the options and the files that they name.

use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::tls::{ClientCertificate, LoadedTlsConfig, RootCertificates, SslMode, TlsOptions};

/// The ALPN protocol name, which both sides announce in a direct handshake (PostgreSQL 17).
pub(crate) const TLS_PROTOCOL: &[u8] = b"postgresql";

/// How long the roots of the system are cached. They are not a single file whose modification time could be compared.
const SYSTEM_ROOTS_AGE: Duration = Duration::from_secs(60);

impl TlsOptions {
    /// The configuration for the files in their current state.
    pub(crate) fn client_config(&self) -> io::Result<Arc<ClientConfig>> {
        let tls = self;
        let mut loaded = self.cache.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken before the files are read, so that a change during the read is noticed the next time.
        let written = written(tls);
        let is_current = |loaded: &&LoadedTlsConfig| {
            loaded.written == written
                && (tls.roots != RootCertificates::System || loaded.at.elapsed() < SYSTEM_ROOTS_AGE)
        };
        if let Some(loaded) = loaded.as_ref().filter(is_current) {
            return Ok(Arc::clone(&loaded.config));
        }
        let config = Arc::new(config(tls)?);
        *loaded = Some(LoadedTlsConfig { config: Arc::clone(&config), at: Instant::now(), written });
        Ok(config)
    }
}

/// The modification times of the files that are named and exist.
fn written(tls: &TlsOptions) -> Vec<Option<SystemTime>> {
    let roots = match &tls.roots {
        RootCertificates::File(path) => Some(path),
        RootCertificates::System => None,
    };
    let own = tls.client.iter().flat_map(|client| [&client.certificate, &client.key]);
    let files = roots.into_iter().chain(&tls.revoked).chain(own);
    files.map(|file| std::fs::metadata(file).and_then(|metadata| metadata.modified()).ok()).collect()
}

fn config(tls: &TlsOptions) -> io::Result<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let versions: Vec<_> =
        [tls.allows_tls_1_2.then_some(&TLS12), tls.allows_tls_1_3.then_some(&TLS13)].into_iter().flatten().collect();
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)
        .map_err(io::Error::other)?;
    let verifier: Arc<dyn ServerCertVerifier> = match tls.mode {
        SslMode::Disable | SslMode::Prefer | SslMode::Require => Arc::new(AnyName { chain: None, provider }),
        SslMode::VerifyCa => Arc::new(AnyName { chain: Some(chain_verifier(tls, &provider)?), provider }),
        SslMode::VerifyFull => chain_verifier(tls, &provider)?,
    };
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = match &tls.client {
        Some(client) => {
            let (chain, key) = identity(client)?;
            builder.with_client_auth_cert(chain, key).map_err(|error| {
                io::Error::other(format!(
                    "sslcert {}: it does not go with the key: {error}",
                    client.certificate.display()
                ))
            })?
        }
        None => builder.with_no_client_auth(),
    };
    config.enable_sni = tls.sends_sni;
    if tls.is_direct {
        config.alpn_protocols = vec![TLS_PROTOCOL.to_vec()];
    }
    Ok(config)
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn identity(client: &ClientCertificate) -> io::Result<Identity> {
    let chain = all_in("sslcert", &client.certificate)?;
    let path = client.key.display();
    let metadata =
        std::fs::metadata(&client.key).map_err(|error| io::Error::other(format!("sslkey {path}: {error}")))?;
    // libpq's rule: readable by its owner only; a file of root may be readable by a group of this user.
    let forbidden = if os::is_owned_by_root(&metadata) { 0o037 } else { 0o077 };
    let mode = os::mode(&metadata);
    if mode & forbidden != 0 {
        return Err(io::Error::other(format!(
            "sslkey {path}: others may read it (mode {mode:04o}); make it 0600, or 0640 if root owns it"
        )));
    }
    let key = PrivateKeyDer::from_pem_file(&client.key).map_err(|error| {
        io::Error::other(match error {
            pem::Error::NoItemsFound => {
                format!("sslkey {path}: it holds no private key without a passphrase; `openssl pkey -in KEY -out NEW` makes one")
            }
            error => format!("sslkey {path}: {error}"),
        })
    })?;
    Ok((chain, key))
}

/// All items of one kind in a PEM file; an error if there are none.
fn all_in<T: PemObject>(key: &str, path: &Path) -> io::Result<Vec<T>> {
    let unusable = |why: &dyn std::fmt::Display| io::Error::other(format!("{key} {}: {why}", path.display()));
    let found = T::pem_file_iter(path).map_err(|error| unusable(&error))?;
    let found: Vec<T> = found.collect::<Result<_, _>>().map_err(|error| unusable(&error))?;
    if found.is_empty() { Err(unusable(&"nothing of this kind is in it")) } else { Ok(found) }
}

fn chain_verifier(tls: &TlsOptions, provider: &Arc<CryptoProvider>) -> io::Result<Arc<WebPkiServerVerifier>> {
    let roots = Arc::new(match &tls.roots {
        RootCertificates::File(path) => roots_in(path)?,
        RootCertificates::System => system_roots()?,
    });
    let mut builder = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider));
    if let Some(path) = &tls.revoked {
        // As in libpq, every certificate of the chain is checked, and an expired revocation list is an error.
        let lists: Vec<CertificateRevocationListDer<'static>> = all_in("sslcrl", path)?;
        builder = builder.with_crls(lists).enforce_revocation_expiration();
    }
    builder.build().map_err(io::Error::other)
}

fn roots_in(path: &Path) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in all_in::<CertificateDer<'static>>("sslrootcert", path)? {
        let unusable = |error| io::Error::other(format!("sslrootcert {}: {error}", path.display()));
        roots.add(certificate).map_err(unusable)?;
    }
    Ok(roots)
}

fn system_roots() -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(io::Error::other("the system has no root certificates; name a file with sslrootcert"));
    }
    Ok(roots)
}

/// The verifier below `verify-full`, as in libpq: it accepts any name, and with `require` and `prefer` any issuer. The
/// connection is encrypted; only `chain` verifies the peer.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, and says where")]

    use super::*;

    #[test]
    fn files_are_read_once_and_again_when_one_has_changed() {
        // L8
        let roots = tempfile::NamedTempFile::new().unwrap();
        let tls = TlsOptions {
            mode: SslMode::Require,
            roots: RootCertificates::File(roots.path().to_owned()),
            allows_tls_1_3: true,
            ..TlsOptions::default()
        };
        let first = tls.client_config().unwrap();
        let again = tls.clone();
        assert!(Arc::ptr_eq(&first, &again.client_config().unwrap()));
        roots.as_file().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert!(!Arc::ptr_eq(&first, &tls.client_config().unwrap()));
    }
}
