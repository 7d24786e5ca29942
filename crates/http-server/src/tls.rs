//! The certificate of a server.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// The server's certificate and key, which can be replaced while serving.
#[derive(Debug, Clone)]
pub struct ReloadableTls {
    config: Arc<RwLock<Arc<ServerConfig>>>,
}

impl ReloadableTls {
    /// Serves this certificate and key.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        Self { config: Arc::new(RwLock::new(Arc::new(config))) }
    }

    /// Replaces certificate and key for new connections.
    pub fn replace(&self, config: ServerConfig) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    #[must_use]
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Reads a certificate chain and its private key, both in PEM.
///
/// # Errors
/// [`TlsError`] if a file cannot be read, or certificate and key do not match.
pub fn read_tls(certificate: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = config.with_no_client_auth().with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or is not the expected PEM.
    #[error("{0}")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// Certificate and key do not match, or are not supported.
    #[error("{0}")]
    Rustls(#[from] rustls::Error),
}
