//! The TLS options of a connection string (PostgreSQL manual, "SSL Support" of libpq).

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use rustls::ClientConfig;

use super::ConnectOptionsError;
use super::environment::ConnectEnvironment;
use super::keywords::KeywordValues;
use super::user_files;

/// `sslmode` of libpq.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SslMode {
    /// Never.
    Disable,
    /// If the server supports it, without verification of its certificate. `allow` is treated the same.
    #[default]
    Prefer,
    /// Always, without verification of the certificate.
    Require,
    /// Always, with a certificate that is issued by one of the roots.
    VerifyCa,
    /// Always, with a certificate that is issued by one of the roots and names the host.
    VerifyFull,
}

/// The authorities that may sign the server's certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RootCertificates {
    /// The roots of the system.
    #[default]
    System,
    /// The certificates of a PEM file.
    File(PathBuf),
}

/// The client's own certificate, for a server that requests one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// A PEM file with the certificate, followed by the intermediate certificates.
    pub certificate: PathBuf,
    /// A PEM file with its private key.
    pub key: PathBuf,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// Whether the connection is encrypted, and how the certificate is verified.
    pub mode: SslMode,
    /// The authorities that may sign the server's certificate.
    pub roots: RootCertificates,
    /// A PEM file with certificate revocation lists.
    pub revoked: Option<PathBuf>,
    /// The client's own certificate.
    pub client: Option<ClientCertificate>,
    /// Whether the TLS handshake begins at once, without PostgreSQL's SSLRequest (PostgreSQL 17).
    pub is_direct: bool,
    /// Whether the client sends the server name (SNI).
    pub sends_sni: bool,
    /// Whether TLS 1.2 is allowed.
    pub allows_tls_1_2: bool,
    /// Whether TLS 1.3 is allowed.
    pub allows_tls_1_3: bool,
    /// The configuration that was built from these options and their files.
    pub(crate) cache: TlsConfigCache,
}

/// The configuration that was built from the files. All connections share it until one of the files changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct TlsConfigCache(pub(super) Arc<Mutex<Option<LoadedTlsConfig>>>);

/// A configuration, and the modification times of its files.
#[derive(Debug)]
pub(super) struct LoadedTlsConfig {
    pub(super) config: Arc<ClientConfig>,
    pub(super) at: Instant,
    pub(super) written: Vec<Option<SystemTime>>,
}

/// Always equal: the cache is not part of the options.
impl PartialEq for TlsConfigCache {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for TlsConfigCache {}

const MODES: [(&str, SslMode); 6] = [
    ("disable", SslMode::Disable),
    ("allow", SslMode::Prefer),
    ("prefer", SslMode::Prefer),
    ("require", SslMode::Require),
    ("verify-ca", SslMode::VerifyCa),
    ("verify-full", SslMode::VerifyFull),
];

pub(super) fn of(given: &KeywordValues, surroundings: &ConnectEnvironment) -> Result<TlsOptions, ConnectOptionsError> {
    let has_system_roots = given.get("sslrootcert") == Some("system");
    // As in libpq: a certificate of a public authority proves nothing unless the host name is verified as well.
    let usual = if has_system_roots { SslMode::VerifyFull } else { SslMode::Prefer };
    let mut mode = given.choice("sslmode", &MODES, usual)?;
    if has_system_roots && mode != SslMode::VerifyFull {
        return Err(given.wrong("sslmode", "it is too weak for sslrootcert=system; use verify-full"));
    }
    let file = given.get("sslrootcert").filter(|_| !has_system_roots).map(PathBuf::from);
    let file = file.or_else(|| surroundings.existing_user_file(user_files::ROOTS).filter(|_| !has_system_roots));
    if mode == SslMode::Require && file.is_some() {
        mode = SslMode::VerifyCa;
    }
    let is_direct = given.choice("sslnegotiation", &[("postgres", false), ("direct", true)], false)?;
    if is_direct && matches!(mode, SslMode::Disable | SslMode::Prefer) {
        return Err(given.wrong("sslnegotiation", "direct needs an sslmode of require or more"));
    }
    if given.get("sslpassword").is_some() {
        return Err(given.wrong(
            "sslpassword",
            "keys with a passphrase are not supported; `openssl pkey -in KEY -out NEW` takes it off, and mode 0600 keeps others out",
        ));
    }
    let (allows_tls_1_2, allows_tls_1_3) = versions(given)?;
    let revoked = given.get("sslcrl").map(PathBuf::from);
    Ok(TlsOptions {
        mode,
        roots: file.map_or(RootCertificates::System, RootCertificates::File),
        revoked: revoked.or_else(|| surroundings.existing_user_file(user_files::REVOKED)),
        client: client(given, surroundings)?,
        is_direct,
        sends_sni: given.choice("sslsni", &[("0", false), ("1", true)], true)?,
        allows_tls_1_2,
        allows_tls_1_3,
        cache: TlsConfigCache::default(),
    })
}

/// The certificate that was named, or the one at the default place if it exists.
fn client(
    given: &KeywordValues,
    surroundings: &ConnectEnvironment,
) -> Result<Option<ClientCertificate>, ConnectOptionsError> {
    match given.get("sslcertmode") {
        Some("disable") => return Ok(None),
        None | Some("allow") => {}
        Some(_) => return Err(given.wrong("sslcertmode", "it is one of disable, allow; require is not supported")),
    }
    let named = given.get("sslcert").map(PathBuf::from);
    let certificate = named.or_else(|| surroundings.existing_user_file(user_files::CERTIFICATE));
    let key = given.get("sslkey").map(PathBuf::from).or_else(|| surroundings.user_file(user_files::KEY));
    match (certificate, key) {
        (None, _) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(ClientCertificate { certificate, key })),
        (Some(_), None) => Err(given.wrong("sslcert", "it needs the private key; name its file with sslkey")),
    }
}

/// Whether TLS 1.2 and TLS 1.3 are allowed. Older versions never are.
fn versions(given: &KeywordValues) -> Result<(bool, bool), ConnectOptionsError> {
    const OLDEST: [(&str, u8); 4] = [("TLSv1", 2), ("TLSv1.1", 2), ("TLSv1.2", 2), ("TLSv1.3", 3)];
    const NEWEST: [(&str, u8); 2] = [("TLSv1.2", 2), ("TLSv1.3", 3)];
    let oldest = given.choice("ssl_min_protocol_version", &OLDEST, 2)?;
    let newest = given.choice("ssl_max_protocol_version", &NEWEST, 3)?;
    if oldest > newest {
        return Err(given.wrong("ssl_min_protocol_version", "it is newer than ssl_max_protocol_version"));
    }
    Ok((oldest == 2, newest == 3))
}
