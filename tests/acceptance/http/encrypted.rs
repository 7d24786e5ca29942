//! TLS without a proxy, and a certificate that is renewed.

use nix::sys::signal::Signal;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use testkit::{External, HttpServer, database, send_signal, skip_without};
use tokio::process::Command;

/// Writes a new certificate, and shows it.
fn renew(folder: &tempfile::TempDir) -> String {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    std::fs::write(folder.path().join("tls.crt"), cert.pem()).unwrap();
    std::fs::write(folder.path().join("tls.key"), signing_key.serialize_pem()).unwrap();
    cert.pem()
}

/// Asks with curl, which trusts this certificate alone.
async fn curl(server: &HttpServer, folder: &tempfile::TempDir, trusted: &str) -> Option<String> {
    let roots = folder.path().join("trusted.pem");
    std::fs::write(&roots, trusted).unwrap();
    let mut curl = Command::new(External::Curl.expected_path());
    curl.args(["--silent", "--show-error", "--max-time", "20", "--cacert"]).arg(roots).arg(server.url("/healthz"));
    let output = curl.output().await.expect("curl");
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_shown_and_renewed_at_sighup() {
    if skip_without(&[External::Curl]) {
        return;
    }
    let db = database().await;
    let folder = tempfile::tempdir().unwrap();
    let first = renew(&folder);
    let config = folder.path().join("countersign.toml");
    std::fs::write(&config, "[http]\ntls_certificate = \"tls.crt\"\ntls_key = \"tls.key\"\n").unwrap();
    let mut command = HttpServer::command(&db);
    command.arg("--config").arg(&config);
    let server = HttpServer::listening(command).await;
    server.logged(" ready ").await;
    assert!(server.url("/").starts_with("https://"));
    assert_eq!(curl(&server, &folder, &first).await.as_deref(), Some("ok\n"));

    let second = renew(&folder);
    send_signal(server.pid(), Signal::SIGHUP);
    server.logged("are served").await;
    assert_eq!(curl(&server, &folder, &second).await.as_deref(), Some("ok\n"));
    assert_eq!(curl(&server, &folder, &first).await, None, "the old one is not shown any more");

    // What cannot be used is not shown.
    std::fs::write(folder.path().join("tls.key"), "no key").unwrap();
    send_signal(server.pid(), Signal::SIGHUP);
    server.logged("cannot be used").await;
    assert_eq!(curl(&server, &folder, &second).await.as_deref(), Some("ok\n"));
}
