//! HAProxy in front of servers. Requests go to the servers in turn; a server that does not respond is skipped.

use std::fmt::Write;
use std::process::Stdio;

use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::external::External;
use crate::http::{HttpClient, HttpServer};
use crate::poll;

/// A proxy that ends with the test.
#[derive(Debug)]
pub struct HaProxy {
    _child: Child,
    _folder: TempDir,
    base: String,
}

/// Every server is checked every 100 ms, with 10 s for its answer. It is taken out at the first failure and put back
/// at the first success. A request goes to another server only if the first one has not accepted it.
const CONFIG: &str = "\
global
    maxconn 2000
defaults
    mode http
    timeout connect 2s
    timeout client 60s
    timeout server 60s
    timeout tunnel 60s
    timeout check 10s
    option http-server-close
    option redispatch
    retries 3
    retry-on conn-failure
listen countersign
    balance roundrobin
    option httpchk
    http-check send meth GET uri /readyz hdr Host localhost
    default-server inter 100ms fall 1 rise 1 on-marked-down shutdown-sessions
";

impl HaProxy {
    /// Starts HAProxy in front of these servers.
    pub async fn before(servers: &[HttpServer]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        // The port is free once its listener is dropped; no other test gets it.
        let free = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("its number");
        let mut config = format!("{CONFIG}    bind {free}\n");
        for (number, server) in servers.iter().enumerate() {
            writeln!(config, "    server s{number} {} check", server.address()).expect("a string takes it");
        }
        let path = folder.path().join("haproxy.cfg");
        std::fs::write(&path, config).expect("its configuration");
        let mut haproxy = Command::new(External::HaProxy.expected_path());
        haproxy.arg("-db").arg("-f").arg(path).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let child = haproxy.spawn().expect("HAProxy can be started");
        let this = Self { _child: child, _folder: folder, base: format!("http://{free}") };
        this.until_ready().await;
        this
    }

    async fn until_ready(&self) {
        let (client, url) = (reqwest::Client::new(), format!("{}/readyz", self.base));
        let serves = async || client.get(&url).send().await.is_ok_and(|answer| answer.status() == 200);
        poll::until("HAProxy has a server that is ready", serves).await;
    }

    /// HTTP client that connects through HAProxy.
    pub fn http_client(&self) -> HttpClient {
        HttpClient::at(self.base.clone())
    }
}
