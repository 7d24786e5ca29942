//! The keys: one list from which the flags, the environment variables, the file and its schema follow.
//!
//! A key is a field here. Its doc comment is its help and its documentation in the schema, `env` names its variable, its
//! type says what it takes. Where it goes is [`Settings`](super::Settings): the compiler asks for it there.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use clap::builder::BoolishValueParser;
use ledger::Pooler;
use ledger::proposals::Tier;
use schemars::JsonSchema;
use serde::Deserialize;
use types::{AccountId, Secret};

use super::addresses::{Host, Origin, Proxy, PublicUrl};
use super::bounded::Bounded;

/// A group of keys, each of which may be missing; a layer above goes before one below.
macro_rules! keys {
    ($(#[$meta:meta])* $group:ident { $($(#[$key_meta:meta])* $key:ident: $type:ty,)* }) => {
        #[derive(Debug, Clone, Default, clap::Args, Deserialize, JsonSchema)]
        $(#[$meta])*
        #[serde(default)]
        pub(crate) struct $group {
            $($(#[$key_meta])* pub(crate) $key: Option<$type>,)*
        }

        impl $group {
            pub(super) const NAMES: &[&str] = &[$(stringify!($key)),*];

            pub(super) fn or(self, below: Self) -> Self {
                Self { $($key: self.$key.or(below.$key),)* }
            }
        }
    };
}

keys! {
    /// What is logged.
    #[command(next_help_heading = "Global options")]
    LogKeys {
        /// How much is logged to standard error: error, warn, info (the default), debug, or filters such as
        /// countersign_ledger=debug.
        #[arg(long, env = "COUNTERSIGN_LOG", global = true)]
        log: String,
        /// How it is logged: text (the default) or json, one object a line.
        #[arg(long, env = "COUNTERSIGN_LOG_FORMAT", global = true)]
        log_format: LogFormat,
    }
}

keys! {
    /// Which database.
    #[command(next_help_heading = "Connection options")]
    DatabaseKeys {
        /// postgresql://user@host:5432/dbname, or host=... dbname=... Without it: DATABASE_URL, then PGHOST and the like.
        #[arg(long, env = "COUNTERSIGN_DATABASE_URL", hide_env_values = true, value_parser = secret)]
        #[schemars(with = "Option<String>")]
        database_url: Secret,
        /// A file that holds the connection string; a line break at its end does not count.
        #[arg(long, env = "COUNTERSIGN_DATABASE_URL_FILE", value_name = "FILE")]
        database_url_file: PathBuf,
        /// What stands between this server and PostgreSQL: none (the default), or transaction, a pooler that lends a
        /// connection for a transaction, such as PgBouncer (docs/setup/pgbouncer.md).
        #[arg(long, env = "COUNTERSIGN_POOLER")]
        pooler: PoolerSetting,
    }
}

keys! {
    /// How to connect: part of `[limits]`.
    #[command(next_help_heading = "Connection options")]
    ConnectKeys {
        /// How long connecting may take, in milliseconds, unless the connection string has a connect_timeout; 10000 by
        /// default.
        #[arg(long, env = "COUNTERSIGN_CONNECT_TIMEOUT_MS", value_name = "MS")]
        connect_timeout_ms: Bounded<100, 600_000>,
    }
}

keys! {
    /// Which manifests.
    ManifestKeys {
        /// A manifest whose tools are served; may be given several times.
        #[arg(long = "manifest", env = "COUNTERSIGN_MANIFEST", value_delimiter = ',', value_name = "FILE")]
        manifests: Vec<PathBuf>,
    }
}

keys! {
    /// How to serve.
    ServeKeys {
        /// Which tools are served: readonly, write (the default), admin, or a profile of the configuration file.
        #[arg(long, env = "COUNTERSIGN_PROFILE")]
        profile: String,
        /// On whose behalf the client calls: scope of the records, of duplicates and of idempotency keys; default by
        /// default.
        #[arg(long, env = "COUNTERSIGN_ACCOUNT")]
        #[schemars(with = "Option<String>")]
        account: AccountId,
        /// A label for the records: which agent or which person this client is.
        #[arg(long, env = "COUNTERSIGN_ACTOR")]
        actor: String,
        /// A file with [[tokens]] and nothing else, besides those of the configuration file; read again at SIGHUP.
        #[arg(long, env = "COUNTERSIGN_TOKENS_FILE", value_name = "FILE")]
        tokens_file: PathBuf,
        /// Log in with this to read, instead of the login that `countersign init` made. May be a standby.
        #[arg(long, env = "COUNTERSIGN_READ_URL", hide_env_values = true, value_parser = secret)]
        #[schemars(with = "Option<String>")]
        read_url: Secret,
        /// A file that holds the connection string to read with.
        #[arg(long, env = "COUNTERSIGN_READ_URL_FILE", value_name = "FILE")]
        read_url_file: PathBuf,
        /// Serve tools that read also over a login that is a superuser or may read files, run programs or signal others.
        #[arg(long, env = "COUNTERSIGN_ALLOW_PRIVILEGED_READER", num_args = 0..=1, require_equals = true,
              default_missing_value = "true", value_parser = BoolishValueParser::new())]
        allow_privileged_reader: bool,
        /// Serve execute_sql to the admin profile: any one SQL statement, recorded like every write.
        #[arg(long, env = "COUNTERSIGN_EXECUTE_SQL", num_args = 0..=1, require_equals = true,
              default_missing_value = "true", value_parser = BoolishValueParser::new())]
        execute_sql: bool,
        /// Who has to agree to what execute_sql does: approve (a person who is not the caller, the default), confirm (the
        /// caller's user), or auto (nobody).
        #[arg(long, env = "COUNTERSIGN_EXECUTE_SQL_TIER", value_name = "TIER")]
        execute_sql_tier: ExecuteSqlTier,
        /// Where the answer stands in a tool result: text, structured, or both (the default).
        #[arg(long, env = "COUNTERSIGN_CONTENT")]
        content: Content,
    }
}

keys! {
    /// How writes are carried out.
    #[command(next_help_heading = "Options for writes")]
    WriteKeys {
        /// Refuse to serve over a login that can do more than the manifests and the ledger's protocol need: a superuser,
        /// the ledger's owner, a role that makes roles or bypasses row level security. Without, the log says so.
        #[arg(long, env = "COUNTERSIGN_STRICT_ROLES", num_args = 0..=1, require_equals = true,
              default_missing_value = "true", value_parser = BoolishValueParser::new())]
        strict_roles: bool,
        /// Every write of countersign query, pipe and psql is recorded in the ledger, or refused: no --no-audit, and no database
        /// without a ledger.
        #[arg(long, env = "COUNTERSIGN_REQUIRE_AUDIT", num_args = 0..=1, require_equals = true,
              default_missing_value = "true", value_parser = BoolishValueParser::new())]
        require_audit: bool,
        /// The key of the fingerprints (HMAC-SHA-256), 16 characters or more; the same for all servers of one ledger.
        #[arg(long, env = "COUNTERSIGN_FINGERPRINT_KEY", hide_env_values = true, value_parser = secret)]
        #[schemars(with = "Option<String>")]
        fingerprint_key: Secret,
        /// A file that holds the key of the fingerprints; a line break at its end does not count.
        #[arg(long, env = "COUNTERSIGN_FINGERPRINT_KEY_FILE", value_name = "FILE")]
        fingerprint_key_file: PathBuf,
        /// For how many seconds this server answers identical calls from memory, without a record; 30 by default, 0 for
        /// never.
        #[arg(long, env = "COUNTERSIGN_DUPLICATE_MEMORY_S", value_name = "SECONDS")]
        duplicate_memory_s: Bounded<0, 300>,
        /// Wait for the disk when an intent is recorded, and not only when its write commits.
        #[arg(long, env = "COUNTERSIGN_DURABLE_ADMISSION", num_args = 0..=1, require_equals = true,
              default_missing_value = "true", value_parser = BoolishValueParser::new())]
        durable_admission: bool,
        /// For how many seconds a proposed write waits for somebody to agree; 1800 by default.
        #[arg(long, env = "COUNTERSIGN_PROPOSAL_LIFETIME_S", value_name = "SECONDS")]
        proposal_lifetime_s: Bounded<1, 2_592_000>,
    }
}

keys! {
    /// How HTTP is served: the table `[http]`.
    #[command(next_help_heading = "Options for HTTP")]
    HttpKeys {
        /// Serve MCP over HTTP on this address and port, such as 127.0.0.1:7777, instead of standard input and output.
        #[arg(long = "http", env = "COUNTERSIGN_HTTP", value_name = "ADDRESS")]
        #[schemars(with = "Option<String>")]
        listen: SocketAddr,
        /// Where clients find this server, such as https://mcp.example.com: its name may stand in the Host header, and OAuth
        /// needs it.
        #[arg(long = "http-public-url", env = "COUNTERSIGN_HTTP_PUBLIC_URL", value_name = "URL")]
        public_url: PublicUrl,
        /// Names besides localhost and that of public_url that the Host header may have: name, or name:port.
        #[arg(long = "http-allowed-hosts", env = "COUNTERSIGN_HTTP_ALLOWED_HOSTS", value_delimiter = ',', value_name = "HOST")]
        allowed_hosts: Vec<Host>,
        /// Origins whose pages may call this server from a browser: https://name[:port]. None by default.
        #[arg(long = "http-allowed-origins", env = "COUNTERSIGN_HTTP_ALLOWED_ORIGINS", value_delimiter = ',', value_name = "ORIGIN")]
        allowed_origins: Vec<Origin>,
        /// A file with the certificate and those that lead to its authority, in PEM. Without it: plain HTTP.
        #[arg(long = "http-tls-certificate", env = "COUNTERSIGN_HTTP_TLS_CERTIFICATE", value_name = "FILE")]
        tls_certificate: PathBuf,
        /// A file with the key of the certificate, in PEM.
        #[arg(long = "http-tls-key", env = "COUNTERSIGN_HTTP_TLS_KEY", value_name = "FILE")]
        tls_key: PathBuf,
        /// Requests a second that an account may send on average; 100 by default, 0 for no limit.
        #[arg(long = "http-requests-per-s", env = "COUNTERSIGN_HTTP_REQUESTS_PER_S", value_name = "REQUESTS")]
        requests_per_s: Bounded<0, 1_000_000>,
        /// Requests that an account may send at once after a pause; 200 by default.
        #[arg(long = "http-burst", env = "COUNTERSIGN_HTTP_BURST", value_name = "REQUESTS")]
        burst: Bounded<1, 1_000_000>,
        /// Sessions of an account in this server; 256 by default. With more, the one that has been idle longest is given up.
        #[arg(long = "http-sessions", env = "COUNTERSIGN_HTTP_SESSIONS", value_name = "SESSIONS")]
        sessions: Bounded<1, 100_000>,
        /// For how many seconds a session may lie idle before the server keeps nothing of it until its client comes back; 300 by
        /// default.
        #[arg(long = "http-session-idle-s", env = "COUNTERSIGN_HTTP_SESSION_IDLE_S", value_name = "SECONDS")]
        session_idle_s: Bounded<1, 86_400>,
        /// Reads of an account at work at once, where tokens or an issuer name several accounts; read_sessions less a quarter by
        /// default, so that none keeps the others from reading.
        #[arg(long = "http-reads", env = "COUNTERSIGN_HTTP_READS", value_name = "READS")]
        reads: Bounded<1, 1000>,
        /// Event streams that an account may have open; 256 by default.
        #[arg(long = "http-streams", env = "COUNTERSIGN_HTTP_STREAMS", value_name = "STREAMS")]
        streams: Bounded<1, 100_000>,
        /// Connections of all clients together; 1024 by default. A few more are taken for /healthz, /readyz and loopback.
        #[arg(long = "http-connections", env = "COUNTERSIGN_HTTP_CONNECTIONS", value_name = "CONNECTIONS")]
        connections: Bounded<1, 100_000>,
        /// Connections of one address, or of one IPv6 network of 64 bits, except loopback and trusted proxies; a quarter of
        /// connections by default.
        #[arg(long = "http-connections-per-address", env = "COUNTERSIGN_HTTP_CONNECTIONS_PER_ADDRESS", value_name = "CONNECTIONS")]
        connections_per_address: Bounded<1, 100_000>,
        /// Addresses and networks (10.0.0.0/8) of the proxies in front, whose X-Forwarded-For names the client; the first of its
        /// addresses from the right that is not a proxy's. None by default.
        #[arg(long = "http-trusted-proxies", env = "COUNTERSIGN_HTTP_TRUSTED_PROXIES", value_delimiter = ',', value_name = "ADDRESS")]
        trusted_proxies: Vec<Proxy>,
    }
}

keys! {
    /// What is bounded: part of `[limits]`.
    #[command(next_help_heading = "Limits")]
    LimitKeys {
        /// How long a read may take, from the call to the answer, in milliseconds; 30000 by default.
        #[arg(long, env = "COUNTERSIGN_QUERY_TIMEOUT_MS", value_name = "MS")]
        query_timeout_ms: Bounded<100, 3_600_000>,
        /// How long any other call may take, writes above all, in milliseconds; 30000 by default.
        #[arg(long, env = "COUNTERSIGN_CALL_DEADLINE_MS", value_name = "MS")]
        call_deadline_ms: Bounded<100, 3_600_000>,
        /// How long a call waits for its user to answer, where the client can ask them, in milliseconds; 120000 by default.
        #[arg(long, env = "COUNTERSIGN_ASK_TIMEOUT_MS", value_name = "MS")]
        ask_timeout_ms: Bounded<100, 3_600_000>,
        /// How many rows a read returns when the caller does not say; 500 by default.
        #[arg(long, env = "COUNTERSIGN_ROW_LIMIT", value_name = "ROWS")]
        row_limit: Bounded<1, 100_000>,
        /// The most rows that a caller can ask for; 10000 by default.
        #[arg(long, env = "COUNTERSIGN_MAX_ROW_LIMIT", value_name = "ROWS")]
        max_row_limit: Bounded<1, 100_000>,
        /// The most bytes of a result, as text; 1048576 by default.
        #[arg(long, env = "COUNTERSIGN_MAX_RESULT_BYTES", value_name = "BYTES")]
        max_result_bytes: Bounded<65_536, 16_777_216>,
        /// The most connections for reading, opened when they are needed; 8 by default.
        #[arg(long, env = "COUNTERSIGN_READ_SESSIONS", value_name = "SESSIONS")]
        read_sessions: Bounded<1, 1000>,
        /// The most connections for writing, opened when they are needed; 16 by default.
        #[arg(long, env = "COUNTERSIGN_WRITE_SESSIONS", value_name = "SESSIONS")]
        write_sessions: Bounded<2, 1000>,
    }
}

/// Every key of one layer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    pub(crate) log: LogKeys,
    pub(crate) database: DatabaseKeys,
    pub(crate) connect: ConnectKeys,
    pub(crate) manifests: ManifestKeys,
    pub(crate) serve: ServeKeys,
    pub(crate) write: WriteKeys,
    pub(crate) http: HttpKeys,
    pub(crate) limits: LimitKeys,
}

impl Keys {
    /// This layer over another one.
    pub(super) fn or(self, below: Self) -> Self {
        Self {
            log: self.log.or(below.log),
            database: self.database.or(below.database),
            connect: self.connect.or(below.connect),
            manifests: self.manifests.or(below.manifests),
            serve: self.serve.or(below.serve),
            write: self.write.or(below.write),
            http: self.http.or(below.http),
            limits: self.limits.or(below.limits),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Content {
    /// The text alone.
    Text,
    /// The structured content alone.
    Structured,
    /// Both.
    #[default]
    Both,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PoolerSetting {
    /// Nothing that lends connections.
    #[default]
    None,
    /// A pooler that lends one for a transaction, or for longer.
    Transaction,
}

impl From<PoolerSetting> for Pooler {
    fn from(given: PoolerSetting) -> Self {
        match given {
            PoolerSetting::None => Self::None,
            PoolerSetting::Transaction => Self::Transaction,
        }
    }
}

/// Who has to agree to what execute_sql does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ExecuteSqlTier {
    /// Nobody.
    Auto,
    /// The caller's user.
    Confirm,
    /// A person who is not the caller.
    #[default]
    Approve,
}

impl From<ExecuteSqlTier> for Option<Tier> {
    fn from(tier: ExecuteSqlTier) -> Self {
        match tier {
            ExecuteSqlTier::Auto => None,
            ExecuteSqlTier::Confirm => Some(Tier::Confirm),
            ExecuteSqlTier::Approve => Some(Tier::Approve),
        }
    }
}

impl From<Content> for mcp::ResultContent {
    fn from(content: Content) -> Self {
        match content {
            Content::Text => Self::Text,
            Content::Structured => Self::Structured,
            Content::Both => Self::Both,
        }
    }
}

fn secret(text: &str) -> Result<Secret, std::convert::Infallible> {
    Ok(Secret::new(text))
}
