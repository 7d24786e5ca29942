//! TLS with libpq's options: `sslmode` from disable to verify-full, with custom roots.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Output;

use pg_embedded::{Cluster, Options};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa, KeyIdMethod,
    KeyPair, RevokedCertParams, date_time_ymd,
};
use testkit::{External, Server, Sshd, countersign, run, skip_without};
use tokio::process::Command;

/// The certificate names the first one and [`NAME`]; the server listens on both. Each test has a pair of its own.
type Addresses = (&'static str, &'static str);
const NAME: &str = "db.countersign.test";

const HBA: &str = "\
local all all trust
hostssl all certified 127.0.0.0/8 cert
hostssl all twofold 127.0.0.0/8 scram-sha-256 clientcert=verify-full
hostssl all scrammed 127.0.0.0/8 scram-sha-256
hostssl all barred 127.0.0.0/8 scram-sha-256
hostssl all clear 127.0.0.0/8 password
hostnossl all plain 127.0.0.0/8 scram-sha-256
hostssl all postgres,countersign_reader 127.0.0.0/8 trust
";

/// A PostgreSQL that takes encrypted connections only, beside its unix socket and but for the role `plain`.
struct Guarded {
    cluster: Cluster,
    folder: tempfile::TempDir,
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate for these hosts, or for the role of this name, and its key.
fn certified(by: &Authority, hosts: &[&str], role: &str, serial: u64) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(hosts.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
    params.distinguished_name.push(DnType::CommonName, role);
    params.serial_number = Some(serial.into());
    (params.signed_by(&key, by).unwrap().pem(), key.serialize_pem())
}

/// A list of certificates that count no more: the one with this serial number.
fn revoked(by: &Authority, serial: u64) -> String {
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(2020, 1, 1),
        next_update: date_time_ymd(2120, 1, 1),
        crl_number: 1.into(),
        issuing_distribution_point: None,
        revoked_certs: vec![RevokedCertParams {
            serial_number: serial.into(),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        }],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(by).unwrap().pem().unwrap()
}

impl Guarded {
    async fn start((named, unnamed): Addresses) -> Self {
        let listen = format!("{named},{unnamed}");
        let options = Options::ephemeral().setting("listen_addresses", listen).setting("ssl_ca_file", "clients.crt");
        let cluster = testkit::start_cluster(options);
        let guarded = Self { cluster, folder: tempfile::tempdir().unwrap() };
        let (authority, clients) = (authority(), authority());
        let data = guarded.cluster.data_dir();
        let (certificate, key) = certified(&authority, &[named, NAME], "server", 7);
        give(&data, "server.crt", &certificate);
        give(&data, "server.key", &key);
        give(&data, "clients.crt", &clients.pem());
        give(&data, "pg_hba.conf", HBA);
        let (crt, key) = certified(&clients, &[], "certified", 1);
        let (other_crt, other_key) = certified(&self::authority(), &[], "certified", 1);
        let (both_crt, both_key) = certified(&clients, &[], "twofold", 2);
        for (name, text) in [
            ("root.pem", authority.pem()),
            ("other-root.pem", self::authority().pem()),
            ("certified.crt", crt),
            ("certified.key", key),
            ("other.crt", other_crt),
            ("other.key", other_key),
            ("both.crt", both_crt),
            ("both.key", both_key),
            ("nobody.crl", revoked(&authority, 8)),
            ("server.crl", revoked(&authority, 7)),
            (
                "encrypted.key",
                "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n".into(),
            ),
        ] {
            guarded.keep(name, &text, 0o600);
        }
        let client = testkit::connect(&guarded.cluster.connection_string("postgres")).await;
        for role in ["certified", "twofold", "scrammed", "clear", "plain"] {
            client.batch_execute(&format!("create role {role} superuser login password 'right'")).await.unwrap();
        }
        client.batch_execute("create role barred nologin password 'right'").await.unwrap();
        client.batch_execute("alter system set ssl = on").await.unwrap();
        guarded.cluster.restart().unwrap();
        guarded
    }

    fn keep(&self, name: &str, text: &str, mode: u32) {
        std::fs::write(self.file(name), text).unwrap();
        std::fs::set_permissions(self.file(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `key=/folder/name`, for a connection string of either form.
    fn named(&self, key: &str, name: &str) -> String {
        format!("{key}={}", self.file(name).display())
    }

    async fn init_as(&self, user: &str, host: &str, tls: &str) -> Output {
        let url = format!("postgresql://{user}@{host}:{}/postgres?{tls}", self.cluster.port());
        Command::new(countersign()).env("DATABASE_URL", url).arg("init").output().await.unwrap()
    }

    async fn connects(&self, host: &str, tls: &str) {
        self.connects_as("postgres", host, tls).await;
    }

    async fn connects_as(&self, user: &str, host: &str, tls: &str) {
        let output = self.init_as(user, host, tls).await;
        assert!(output.status.success(), "{user} {tls}: {}", String::from_utf8_lossy(&output.stderr));
    }

    async fn is_refused(&self, host: &str, tls: &str, said: &str) {
        self.is_refused_as("postgres", host, tls, said).await;
    }

    async fn is_refused_as(&self, user: &str, host: &str, tls: &str, said: &str) {
        let output = self.init_as(user, host, tls).await;
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(said), "{user} {tls}: {error}");
    }
}

/// Writes a file that belongs to the server's user alone.
pub(crate) fn give(data: &Path, name: &str, text: &str) {
    let owner = std::fs::metadata(data).unwrap();
    let path = data.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(target_os = "linux"), ignore = "needs loopback addresses beyond 127.0.0.1")]
async fn each_sslmode_makes_all_checks_that_libpq_documents() {
    const NAMED: &str = "127.0.0.77";
    const UNNAMED: &str = "127.0.0.78";
    let guarded = Guarded::start((NAMED, UNNAMED)).await;
    let (root, other) = (guarded.named("sslrootcert", "root.pem"), guarded.named("sslrootcert", "other-root.pem"));

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

    // The name is that of the host, wherever hostaddr says that it is.
    let there = format!("sslmode=verify-full&{root}&hostaddr={UNNAMED}");
    guarded.connects(NAME, &there).await;
    guarded.is_refused("other.countersign.test", &there, "not valid for name").await;
    // L11: where no name is checked, one that no certificate can have is no obstacle.
    guarded.connects("a..b", &format!("sslmode=require&hostaddr={UNNAMED}")).await;
    guarded.is_refused("a..b", &there, "no name that a certificate can have").await;
    guarded.connects(NAMED, &format!("sslmode=verify-full&{root}&ssl_min_protocol_version=TLSv1.3&sslsni=0")).await;
    guarded.connects(NAMED, &format!("sslmode=verify-full&{root}&ssl_max_protocol_version=TLSv1.2")).await;
    // A handshake without a word before it is what PostgreSQL 17 knows; an older one hangs up.
    let direct = format!("sslmode=verify-full&{root}&sslnegotiation=direct");
    if guarded.cluster.version().major >= 17 {
        guarded.connects(NAMED, &direct).await;
    } else {
        guarded.is_refused(NAMED, &direct, "Cannot connect").await;
    }
    // Whom everybody trusts has not signed this one.
    guarded.is_refused(NAMED, "sslrootcert=system", "invalid peer certificate").await;
    // What was revoked counts no more, and what was not does.
    let with = |list| format!("sslmode=verify-full&{root}&{}", guarded.named("sslcrl", list));
    guarded.connects(NAMED, &with("nobody.crl")).await;
    guarded.is_refused(NAMED, &with("server.crl"), "Revoked").await;
    guarded.is_refused(NAMED, &with("root.pem"), "sslcrl").await;

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

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(target_os = "linux"), ignore = "needs loopback addresses beyond 127.0.0.1")]
async fn through_a_bastion_the_certificate_is_still_that_of_the_database() {
    if skip_without(&[External::Sshd]) {
        return;
    }
    const NAMED: &str = "127.0.0.85";
    const UNNAMED: &str = "127.0.0.86";
    let (guarded, bastion) = (Guarded::start((NAMED, UNNAMED)).await, Sshd::start().await);
    let tls = format!("sslmode=verify-full&{}", guarded.named("sslrootcert", "root.pem"));
    let port = guarded.cluster.port();
    for (host, more, refusal) in [
        (NAMED, "", None),
        (NAME, "&hostaddr=127.0.0.86", None),
        (UNNAMED, "", Some("not valid for name")),
        ("other.countersign.test", "&hostaddr=127.0.0.86", Some("not valid for name")),
    ] {
        let url = format!("postgresql://postgres@{host}:{port}/postgres?{tls}{more}");
        let mut command = Command::new(countersign());
        bastion.apply(command.env("DATABASE_URL", url).arg("init"));
        let output = run(&mut command).await;
        assert_eq!(output.code == 0, refusal.is_none(), "{host}: {}", output.err);
        assert!(output.err.contains(refusal.unwrap_or_default()), "{host}: {}", output.err);
    }
    // Between bastion and database, others may listen.
    let url = format!("postgresql://clear:right@{NAMED}:{port}/postgres?sslmode=disable");
    give(&guarded.cluster.data_dir(), "pg_hba.conf", &format!("host all clear 127.0.0.0/8 password\n{HBA}"));
    guarded.cluster.restart().unwrap();
    let mut command = Command::new(countersign());
    bastion.apply(command.env("DATABASE_URL", url).arg("init"));
    let output = run(&mut command).await;
    assert!(output.code == 1 && output.err.contains("the connection is not encrypted"), "{}", output.err);
}

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(target_os = "linux"), ignore = "needs loopback addresses beyond 127.0.0.1")]
async fn a_login_uses_a_client_certificate_or_channel_binding() {
    const NAMED: &str = "127.0.0.79";
    let guarded = Guarded::start((NAMED, "127.0.0.80")).await;
    let root = guarded.named("sslrootcert", "root.pem");
    let with = |name: &str, key: &str| {
        let files = [guarded.named("sslcert", name), guarded.named("sslkey", key)];
        format!("sslmode=verify-full&{root}&{}&{}", files[0], files[1])
    };
    let own = with("certified.crt", "certified.key");
    guarded.connects_as("certified", NAMED, &own).await;
    let none = format!("sslmode=verify-full&{root}");
    guarded.is_refused_as("certified", NAMED, &none, "Authentication failed").await;
    guarded.is_refused_as("certified", NAMED, &format!("{own}&sslcertmode=disable"), "Authentication failed").await;
    // A foreign authority, a foreign name, a foreign key.
    guarded.is_refused_as("certified", NAMED, &with("other.crt", "other.key"), "Cannot connect").await;
    guarded.is_refused_as("certified", NAMED, &with("both.crt", "both.key"), "Authentication failed").await;
    guarded.is_refused_as("certified", NAMED, &with("certified.crt", "both.key"), "does not go with the key").await;
    guarded.is_refused_as("certified", NAMED, &with("nowhere.crt", "both.key"), "nowhere.crt").await;
    guarded.is_refused_as("certified", NAMED, &with("both.crt", "encrypted.key"), "without a passphrase").await;
    // clientcert=verify-full: the certificate and the password.
    let both = with("both.crt", "both.key");
    guarded.connects_as("twofold", NAMED, &format!("{both}&password=right")).await;
    guarded.is_refused_as("twofold", NAMED, &format!("{both}&password=wrong"), "Authentication failed").await;
    guarded.is_refused_as("twofold", NAMED, &format!("{none}&password=right"), "Authentication failed").await;
    let lent = format!("{}&password=right", with("certified.crt", "certified.key"));
    guarded.is_refused_as("twofold", NAMED, &lent, "Authentication failed").await;
    let key = std::fs::read_to_string(guarded.file("certified.key")).unwrap();
    guarded.keep("certified.key", &key, 0o644);
    guarded.is_refused_as("certified", NAMED, &own, "others may read it (mode 0644)").await;

    // Channel binding.
    let bound = "sslmode=require&channel_binding=require&password=right";
    guarded.connects_as("scrammed", NAMED, bound).await;
    guarded.connects_as("scrammed", NAMED, "sslmode=require&channel_binding=disable&password=right").await;
    guarded.connects_as("scrammed", NAMED, "sslmode=require&password=right&require_auth=scram-sha-256").await;
    guarded.is_refused_as("clear", NAMED, bound, "does not ask by SCRAM").await;
    let careful = "sslmode=require&password=right&require_auth=!password";
    guarded.is_refused_as("clear", NAMED, careful, "asks by password").await;
    guarded.connects_as("clear", NAMED, "sslmode=require&password=right").await;
    // L3: who was refused after the password is not tried again in clear.
    guarded.is_refused_as("barred", NAMED, "sslmode=prefer&password=right", "Authentication failed").await;
    let log = std::fs::read_to_string(guarded.cluster.log_path()).unwrap();
    assert!(log.contains("role \"barred\" is not permitted to log in"), "L3: {log}");
    let in_clear = log.lines().find(|line| line.contains("user \"barred\"") && line.contains("no encryption"));
    assert_eq!(in_clear, None, "L3");
    let plain = "sslmode=disable&channel_binding=require&password=right";
    guarded.is_refused_as("plain", NAMED, plain, "the connection is not encrypted").await;
    // sslmode=prefer: a server that refuses us because we came encrypted is asked again.
    guarded.connects_as("plain", NAMED, "password=right").await;
    guarded.is_refused_as("plain", NAMED, "sslmode=require&password=right", "Authentication failed").await;
}
