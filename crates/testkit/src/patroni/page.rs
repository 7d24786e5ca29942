//! The samples of `docs/setup/patroni.md`, with the addresses and folders of a test.

use std::path::Path;

use tokio::net::TcpListener;

use crate::repository::repository;

const PAGE: &str = "docs/setup/patroni.md";

/// How many nodes the page has.
pub(super) const NODES: usize = 3;

/// The name of a node.
pub(super) fn name(number: usize) -> String {
    format!("db{}", number + 1)
}

/// `host:port` of every process that listens.
#[derive(Debug)]
pub(super) struct Addresses {
    pub(super) nodes: Vec<NodeAddresses>,
    pub(super) etcd: String,
    pub(super) etcd_peer: String,
    primary: String,
    reads: String,
}

#[derive(Debug)]
pub(super) struct NodeAddresses {
    pub(super) postgresql: String,
    pub(super) rest: String,
}

impl Addresses {
    /// Free ports of this machine. No other test gets them.
    pub(super) async fn free() -> Self {
        let mut listeners = Vec::new();
        let mut free = async || {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("its number").to_string();
            listeners.push(listener);
            address
        };
        let mut nodes = Vec::new();
        for _ in 0..NODES {
            nodes.push(NodeAddresses { postgresql: free().await, rest: free().await });
        }
        Self { nodes, etcd: free().await, etcd_peer: free().await, primary: free().await, reads: free().await }
    }
}

#[derive(Debug)]
pub(super) struct Page {
    patroni: String,
    haproxy: String,
    countersign: String,
}

impl Page {
    pub(super) fn read() -> Self {
        let text = std::fs::read_to_string(repository().join(PAGE)).expect("the page");
        let sample = |beginning: &str| {
            let start = text.find(&format!("\n{beginning}")).unwrap_or_else(|| panic!("{PAGE} has no {beginning}"));
            let (sample, _) = text[start..].split_once("```").expect("the end of the sample");
            sample.trim_start().to_owned()
        };
        Self {
            patroni: sample("# /etc/patroni/patroni.yml"),
            haproxy: sample("# /etc/haproxy/haproxy.cfg"),
            countersign: sample("# countersign.toml"),
        }
    }

    /// patroni.yml of a node.
    pub(super) fn patroni(
        &self,
        number: usize,
        addresses: &Addresses,
        place: &Path,
        programs: &Path,
        is_synchronous: bool,
    ) -> String {
        let node = &addresses.nodes[number];
        let mode = |is_on: bool| format!("synchronous_mode: {is_on}");
        // Debian's default folder of sockets is shared by all clusters.
        let last = "  remove_data_directory_on_rewind_failure: true\n";
        let sockets = format!("{last}  parameters:\n    unix_socket_directories: {}\n", place.display());
        replace(
            &self.patroni,
            &[
                ("name: db1", &format!("name: {}", name(number))),
                ("10.0.0.21:2379", &addresses.etcd),
                ("10.0.0.11:8008", &node.rest),
                ("10.0.0.11:5432", &node.postgresql),
                (&mode(true), &mode(is_synchronous)),
                ("/var/lib/postgresql/15/shop", &place.join("data").display().to_string()),
                ("/usr/lib/postgresql/15/bin", &programs.display().to_string()),
                (last, &sockets),
                ("local all all peer", "local all all trust"),
                ("10.0.0.0/24 scram-sha-256", "127.0.0.1/32 trust"),
            ],
        )
    }

    /// haproxy.cfg, with one more address for the primary: the socket at this path.
    pub(super) fn haproxy(&self, addresses: &Addresses, socket: &Path) -> String {
        let primary = format!("{}\n    bind {} mode 777", addresses.primary, socket.display());
        let mut text = replace(&self.haproxy, &[("10.0.0.31:5000", &primary), ("10.0.0.31:5001", &addresses.reads)]);
        for (number, node) in addresses.nodes.iter().enumerate() {
            let port = node.rest.rsplit(':').next().expect("a port");
            let documented = format!("10.0.0.1{}:5432 check port 8008", number + 1);
            text = replace(&text, &[(&documented, &format!("{} check port {port}", node.postgresql))]);
        }
        text
    }

    pub(super) fn countersign(&self, addresses: &Addresses, signing_key: &Path) -> String {
        let mut text = replace(
            &self.countersign,
            &[
                ("10.0.0.31:5000", &addresses.primary),
                ("10.0.0.31:5001", &addresses.reads),
                ("/etc/countersign/log.key", &signing_key.display().to_string()),
            ],
        );
        for (number, node) in addresses.nodes.iter().enumerate() {
            text = replace(&text, &[(&format!("10.0.0.1{}:5432", number + 1), &node.postgresql)]);
        }
        text
    }

    /// The other line for `database_url` of the page.
    pub(super) fn countersign_through_haproxy(&self, addresses: &Addresses, signing_key: &Path) -> String {
        let text = self.countersign(addresses, signing_key);
        replace(&text, &[("\ndatabase_url", "\n#DATABASE_URL"), ("\n# database_url", "\ndatabase_url")])
    }
}

/// The text with every one of these replaced, each of which must be there.
fn replace(text: &str, places: &[(&str, &str)]) -> String {
    places.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from} is not in {PAGE}: {text}");
        text.replace(from, to)
    })
}
