//! TLS as libpq's users know it: `sslmode` from disable to verify-full, with roots of one's own.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Output;

use embedded::{Cluster, Options};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use testkit::{Server, countersign};
use tokio::process::Command;

/// The certificate names the first one; the server listens on both.
const NAMED: &str = "127.0.0.77";
const UNNAMED: &str = "127.0.0.78";

/// A PostgreSQL that takes encrypted connections only, beside its unix socket.
struct Guarded {
    cluster: Cluster,
    folder: tempfile::TempDir,
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

impl Guarded {
    async fn start() -> Self {
        let listen = format!("{NAMED},{UNNAMED}");
        let cluster = Cluster::start(Options::ephemeral().setting("listen_addresses", listen), &mut |_| {}).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let authority = authority();
        std::fs::write(folder.path().join("root.pem"), authority.pem()).unwrap();
        std::fs::write(folder.path().join("other-root.pem"), self::authority().pem()).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![NAMED.to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
        let data = cluster.data_dir();
        give(&data, "server.crt", &certificate.pem());
        give(&data, "server.key", &key.serialize_pem());
        give(&data, "pg_hba.conf", "local all all trust\nhostssl all all 127.0.0.0/8 trust\n");
        let (client, connection) =
            tokio_postgres::connect(&cluster.connection_string("postgres"), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("alter system set ssl = on").await.unwrap();
        cluster.restart().unwrap();
        Self { cluster, folder }
    }

    fn root(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn init(&self, host: &str, tls: &str) -> Output {
        let url = format!("postgresql://postgres@{host}:{}/postgres?{tls}", self.cluster.port());
        Command::new(countersign()).env("DATABASE_URL", url).arg("init").output().await.unwrap()
    }

    async fn connects(&self, host: &str, tls: &str) {
        let output = self.init(host, tls).await;
        assert!(output.status.success(), "{tls}: {}", String::from_utf8_lossy(&output.stderr));
    }

    async fn is_refused(&self, host: &str, tls: &str, said: &str) {
        let output = self.init(host, tls).await;
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(said), "{tls}: {error}");
    }
}

/// Writes a file that belongs to the server's user alone.
fn give(data: &Path, name: &str, text: &str) {
    let owner = std::fs::metadata(data).unwrap();
    let path = data.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(target_os = "linux"), ignore = "needs loopback addresses beyond 127.0.0.1")]
async fn each_sslmode_checks_what_it_says_and_no_less() {
    let guarded = Guarded::start().await;
    let root = format!("sslrootcert={}", guarded.root("root.pem").display());
    let other = format!("sslrootcert={}", guarded.root("other-root.pem").display());

    guarded.is_refused(NAMED, "sslmode=disable", "no encryption").await;
    guarded.connects(NAMED, "sslmode=prefer").await;
    guarded.connects(NAMED, "sslmode=require").await;
    guarded.connects(UNNAMED, &format!("sslmode=verify-ca&{root}")).await;
    guarded.is_refused(UNNAMED, &format!("sslmode=verify-ca&{other}"), "invalid peer certificate").await;
    guarded.is_refused(UNNAMED, &format!("sslmode=require&{other}"), "invalid peer certificate").await;
    guarded.connects(NAMED, &format!("sslmode=verify-full&{root}")).await;
    guarded.is_refused(UNNAMED, &format!("sslmode=verify-full&{root}"), "not valid for name").await;
    guarded.is_refused(NAMED, "sslmode=verify-full", "invalid peer certificate").await;
    guarded.is_refused(NAMED, "sslmode=verify-full&sslrootcert=/nowhere.pem", "/nowhere.pem").await;
    guarded.is_refused(NAMED, "sslmode=maybe", "verify-full").await;

    // Reading goes the same way, under the reader's own login.
    let url = format!("postgresql://postgres@{NAMED}:{}/postgres?sslmode=verify-full&{root}", guarded.cluster.port());
    let mut command = Command::new(countersign());
    command.env("DATABASE_URL", url).args(["--log", "warn", "serve"]).kill_on_drop(true);
    let server = Server::start(command).await;
    let rows = server
        .query(
            "select ssl, usename::text from pg_stat_ssl join pg_stat_activity using (pid) where pid = pg_backend_pid()",
        )
        .await;
    assert_eq!(rows[0], serde_json::json!({"ssl": true, "usename": "countersign_reader"}));
}
