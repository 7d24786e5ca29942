//! A real OpenSSH server (Debian's package) of the current user, with keys of its own.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use nix::unistd::{User, geteuid};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::external::{External, program};
use crate::poll;
use crate::process::{descendants, send_signal};

/// The name of the server in the configuration of the client.
const NAME: &str = "bastion";

/// A bastion. It ends with this value.
#[derive(Debug)]
pub struct Sshd {
    folder: TempDir,
    port: u16,
    child: Child,
}

impl Sshd {
    /// Starts a server that the `ssh` of [`Sshd::apply`] trusts.
    pub async fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("cs-sshd-").tempdir_in("/tmp").expect("a short folder");
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = port.expect("a free port").port();
        let path = folder.path();
        for key in ["host", "client"] {
            make_key(&path.join(key)).await;
        }
        std::fs::copy(path.join("client.pub"), path.join("authorized_keys")).expect("its only user");
        trust(path, port, "host.pub");
        let place = path.display();
        let server = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {place}/host\nAuthorizedKeysFile {place}/authorized_keys\n\
             StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\nPasswordAuthentication no\n"
        );
        std::fs::write(path.join("sshd_config"), server).expect("the server's settings");
        let user = User::from_uid(geteuid()).ok().flatten().expect("this user").name;
        let client = format!(
            "Host {NAME}\nHostName 127.0.0.1\nPort {port}\nUser {user}\nIdentityFile {place}/client\n\
             IdentitiesOnly yes\nUserKnownHostsFile {place}/known_hosts\nStrictHostKeyChecking yes\n"
        );
        std::fs::write(path.join("ssh_config"), client).expect("the client's settings");
        // OpenSSH finds the user's own configuration by the user, and not by HOME.
        let ssh = program("ssh").expect("it comes with sshd");
        let script = format!("#!/bin/sh\nexec {} -F {place}/ssh_config \"$@\"\n", ssh.display());
        std::fs::create_dir(path.join("bin")).expect("a folder");
        std::fs::write(path.join("bin/ssh"), script).expect("the client");
        std::fs::set_permissions(path.join("bin/ssh"), PermissionsExt::from_mode(0o755)).expect("a program");
        let child = run(path);
        let started = Self { folder, port, child };
        started.until_it_listens().await;
        started
    }

    /// Lets a command reach its databases through this server.
    pub fn apply(&self, command: &mut Command) {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(self.path().join("bin")).chain(std::env::split_paths(&path));
        command.env("PATH", std::env::join_paths(folders).expect("folders")).env("COUNTERSIGN_SSH_TUNNEL", NAME);
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Ends the server and all of its connections.
    pub async fn kill(&mut self) {
        let pid = self.child.id().expect("it runs");
        let connections = descendants(pid);
        self.child.kill().await.expect("a process of ours");
        for pid in connections {
            send_signal(pid, Signal::SIGKILL);
        }
    }

    /// Starts the server again after [`Sshd::kill`].
    pub async fn restart(&mut self) {
        self.child = run(self.path());
        self.until_it_listens().await;
    }

    /// Lets the client know the server by another key.
    pub async fn distrust(&self) {
        make_key(&self.path().join("other")).await;
        trust(self.path(), self.port, "other.pub");
    }

    async fn until_it_listens(&self) {
        let listens = async || TcpStream::connect(("127.0.0.1", self.port)).await.ok();
        poll::until_some("sshd listens", listens).await;
    }
}

async fn make_key(path: &Path) {
    let mut command = Command::new("ssh-keygen");
    let made = command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).status().await;
    assert!(made.expect("it comes with ssh").success(), "a key");
}

/// Makes this public key the one that the client knows.
fn trust(path: &Path, port: u16, key: &str) {
    let key = std::fs::read_to_string(path.join(key)).expect("a public key");
    std::fs::write(path.join("known_hosts"), format!("[127.0.0.1]:{port} {key}")).expect("the known host");
}

fn run(path: &Path) -> Child {
    if geteuid().is_root() {
        // Debian makes it when the service starts.
        std::fs::create_dir_all("/run/sshd").expect("the folder of sshd");
    }
    let sshd: PathBuf = External::Sshd.expected_path();
    let log = std::fs::File::create(path.join("log")).expect("its log");
    let mut command = Command::new(sshd);
    command.args(["-D", "-e", "-f"]).arg(path.join("sshd_config")).stderr(log).kill_on_drop(true);
    command.spawn().expect("sshd")
}
