//! HTTPS: only the host of the URL is accepted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::net::SocketAddr;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use countersign_http_client::HttpClient;

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A server with a certificate for this name. It answers every request with `{}`.
async fn server(by: &CertifiedIssuer<'static, KeyPair>, name: &str) -> SocketAddr {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, by).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}").await;
            let _ = stream.shutdown().await;
        }
    });
    address
}

#[tokio::test]
async fn the_certificate_must_name_the_host_and_have_a_trusted_authority() {
    let (ours, theirs) = (authority(), authority());
    let get = async |name: &str, by: &CertifiedIssuer<'static, KeyPair>| {
        let url = format!("https://localhost:{}/keys", server(by, name).await.port());
        let mut roots = RootCertStore::empty();
        roots.add(ours.der().clone()).unwrap();
        HttpClient::with_roots(url.parse().unwrap(), roots).unwrap().get("application/json").await
    };
    assert_eq!(get("localhost", &ours).await.unwrap(), "{}");
    // Another certificate authority with the same name.
    let error = get("localhost", &theirs).await.unwrap_err().to_string();
    assert!(error.contains("invalid peer certificate: BadSignature"), "{error}");
    let error = get("other.example.com", &ours).await.unwrap_err().to_string();
    assert!(error.contains("not valid for name"), "{error}");
}
