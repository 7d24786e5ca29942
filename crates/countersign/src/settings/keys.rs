//! The keys: one list from which the flags, the environment variables, the file and its schema follow.
//!
//! A key is a field here. Its doc comment is its help and its documentation in the schema, `env` names its variable, its
//! type says what it takes. Where it goes is [`Settings`](super::Settings): the compiler asks for it there.
#![allow(rustdoc::broken_intra_doc_links, reason = "doc comments of keys are help texts, not Markdown")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use ledger::{Pooler, TablePattern};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use toml::de::DeTable;
use types::{AccountId, DatabaseName, Secret};

use super::addresses::{Host, ListenAddress, Origin, Proxy, PublicUrl};
use super::bounded::{Bounded, Millis, Seconds};
use super::console_keys::{CONSOLE, CONSOLE_OIDC, ConsoleKeys, OidcSecretKeys, OperatorKeys};
use super::execute_sql::{ExecuteSqlMode, ExecuteSqlReason, ExecuteSqlTier};
use super::key_group::{groups, keys, options, properties};
use super::notify_keys::{NOTIFY, NotifyKeys};
use super::otel_keys::{OTEL, OtelKeys};
use super::reader::Reader;
use super::reads_keys::{READS, ReadsKeys};
use super::secrets::parse_secret;
use super::signing_keys::SigningKeys;

/// The top of the file, before the first table.
pub(super) const TOP: &str = "";

pub(super) const LIMITS: &str = "limits";

pub(super) const HTTP: &str = "http";

keys! {
    /// Logging.
    #[command(next_help_heading = "Global options")]
    LogKeys {
        /// Log level on standard error: error, warn, info (the default), debug, or filters such as
        /// countersign_ledger=debug.
        #[arg(long, env = "COUNTERSIGN_LOG", global = true)]
        log: String,
        /// Format of the log: text (the default), or json with one object per line.
        #[arg(long, env = "COUNTERSIGN_LOG_FORMAT", global = true)]
        log_format: LogFormat,
    }
}

keys! {
    /// The database.
    #[command(next_help_heading = "Connection options")]
    DatabaseKeys {
        /// Connection string: postgresql://user@host:5432/dbname, or host=... dbname=... Default: DATABASE_URL,
        /// then PGHOST and the other variables of libpq.
        #[arg(long, env = "COUNTERSIGN_DATABASE_URL", hide_env_values = true, value_parser = parse_secret)]
        #[schemars(with = "Option<String>")]
        database_url: Secret,
        /// File with the connection string. A final line break is ignored.
        #[arg(long, env = "COUNTERSIGN_DATABASE_URL_FILE", value_name = "FILE")]
        database_url_file: PathBuf,
        /// Pooler in front of PostgreSQL: none (the default), or transaction, a pooler that lends a connection
        /// for a transaction, such as PgBouncer (docs/setup/pgbouncer.md).
        #[arg(long, env = "COUNTERSIGN_POOLER")]
        pooler: PoolerSetting,
        /// Program that prints the password, and its arguments, without a shell, for connection strings that have
        /// none. {host}, {port}, {user} and {dbname} stand for those of the connection.
        #[arg(long, env = "COUNTERSIGN_PASSWORD_COMMAND", value_delimiter = ' ', hide_short_help = true,
              value_name = "PROGRAM ARGUMENTS")]
        password_command: Vec<String>,
        /// How long a printed password is used for new connections, in seconds; a refused one is not used again.
        /// Default: 600.
        #[arg(long, env = "COUNTERSIGN_PASSWORD_LIFETIME_S", hide_short_help = true, value_name = "S")]
        password_lifetime_s: Seconds<0, 86_400>,
        /// Destination of ssh through which the database is reached: user@bastion, or a name of ~/.ssh/config.
        #[arg(long, env = "COUNTERSIGN_SSH_TUNNEL", hide_short_help = true, value_name = "DESTINATION")]
        ssh_tunnel: String,
    }
}

keys! {
    /// Connecting: part of `[limits]`.
    #[command(next_help_heading = "Connection options")]
    ConnectKeys {
        /// Time limit for connecting, in milliseconds, unless the connection string has a connect_timeout.
        /// Default: 10000.
        #[arg(long, env = "COUNTERSIGN_CONNECT_TIMEOUT_MS", value_name = "MS")]
        connect_timeout_ms: Millis<100, 600_000>,
    }
}

/// Which of several databases is meant. Neither a variable nor the file says that.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Connection options")]
pub(crate) struct ChosenKeys {
    /// Database of the configuration file, by its name there. Default: the only one, or all, where the command works
    /// on all.
    #[arg(long, value_name = "NAME")]
    pub(crate) database: Option<DatabaseName>,
}

keys! {
    /// The manifests.
    ManifestKeys {
        /// Manifest whose tools are served. Can be given several times.
        #[arg(long = "manifest", env = "COUNTERSIGN_MANIFEST", value_delimiter = ',', value_name = "FILE")]
        manifests: Vec<PathBuf>,
    }
}

keys! {
    /// Serving.
    ServeKeys {
        /// Profile that selects the tools to serve: minimal, readonly, write (the default), admin, or a profile of the
        /// configuration file.
        #[arg(long, env = "COUNTERSIGN_PROFILE")]
        profile: String,
        /// Account of the client: scope of its records, duplicates and idempotency keys. Default: default.
        #[arg(long, env = "COUNTERSIGN_ACCOUNT")]
        #[schemars(with = "Option<String>")]
        account: AccountId,
        /// Label for the records: the agent or person that uses this client.
        #[arg(long, env = "COUNTERSIGN_ACTOR")]
        actor: String,
        /// File that contains only [[tokens]], in addition to those of the configuration file. Read again at
        /// SIGHUP.
        #[arg(long, env = "COUNTERSIGN_TOKENS_FILE", value_name = "FILE")]
        tokens_file: PathBuf,
        /// Place of the answer in a tool result: text, structured, or both (the default).
        #[arg(long, env = "COUNTERSIGN_CONTENT")]
        content: Content,
    }
}

keys! {
    /// What is served of a database.
    ServedKeys {
        /// Connection string for reading, perhaps of a standby. Default: the ledger's, or database_url.
        #[arg(long, env = "COUNTERSIGN_READ_URL", hide_env_values = true, value_parser = parse_secret)]
        #[schemars(with = "Option<String>")]
        read_url: Secret,
        /// File with the connection string for reading.
        #[arg(long, env = "COUNTERSIGN_READ_URL_FILE", value_name = "FILE")]
        read_url_file: PathBuf,
        /// Serve reading tools also over a login that is a superuser or may read files, run programs or signal
        /// other sessions.
        #[arg(long, env = "COUNTERSIGN_ALLOW_PRIVILEGED_READER", num_args = 0..=1, require_equals = true,
              default_missing_value = "true", value_parser = BoolishValueParser::new())]
        allow_privileged_reader: bool,
        /// Serve execute_sql, with which agents write SQL of their own: rows, any, or off (the default).
        #[arg(long, env = "COUNTERSIGN_EXECUTE_SQL", num_args = 0..=1, require_equals = true,
              default_missing_value = "rows", value_name = "MODE")]
        execute_sql: ExecuteSqlMode,
        /// Who must agree to a call of execute_sql: auto (nobody), confirm (the caller's user, the default of
        /// rows), or approve (a person other than the caller, the default of any).
        #[arg(long, env = "COUNTERSIGN_EXECUTE_SQL_TIER", value_name = "TIER")]
        execute_sql_tier: ExecuteSqlTier,
        /// Whether every call of execute_sql must say why it writes, for the people who review it: optional (the
        /// default) or required.
        #[arg(long, env = "COUNTERSIGN_EXECUTE_SQL_REASON", value_name = "RULE")]
        execute_sql_reason: ExecuteSqlReason,
        /// The most rows that a call of execute_sql may change in the mode rows, with those that cascades and
        /// triggers change. Default: 100.
        #[arg(long, env = "COUNTERSIGN_EXECUTE_SQL_MAX_ROWS", value_name = "ROWS")]
        execute_sql_max_rows: Bounded<1, 10_000>,
        /// The tables that execute_sql may change in the mode rows: schema.table, or schema.* for all of a schema.
        /// Default: all tracked tables.
        #[arg(long, env = "COUNTERSIGN_EXECUTE_SQL_TABLES", value_delimiter = ',', value_name = "TABLE")]
        #[schemars(with = "Option<Vec<String>>")]
        execute_sql_tables: Vec<TablePattern>,
        /// Let the agent of a client that cannot ask its user confirm proposals of tier confirm: it says that the user has
        /// agreed, and records say that it did. Default: a person confirms in a terminal or in the console.
        #[arg(long, env = "COUNTERSIGN_AGENT_CONFIRMS", num_args = 0..=1, require_equals = true,
              default_missing_value = "true", value_parser = BoolishValueParser::new())]
        agent_confirms: bool,
        /// Refuse to start, and keep the old tools at a reload, if a tool of a manifest does not fit the database.
        /// Default: such a tool is not served, and everything else is.
        #[arg(long, env = "COUNTERSIGN_STRICT", num_args = 0..=1, require_equals = true,
              default_missing_value = "true", value_parser = BoolishValueParser::new())]
        strict: bool,
        /// Interval at which a server looks whether the tables that its tools use have changed, in milliseconds.
        /// Default: 60000.
        #[arg(long, env = "COUNTERSIGN_DRIFT_CHECK_MS", value_name = "MS")]
        drift_check_ms: Bounded<100, 3_600_000>,
    }
}

keys! {
    /// Writing.
    #[command(next_help_heading = "Options for writes")]
    WriteKeys {
        /// Refuse a login that can do more than manifests and ledger need: a superuser, the ledger's owner, a
        /// role that creates roles or bypasses row level security. Default: a warning in the log.
        #[arg(long, env = "COUNTERSIGN_STRICT_ROLES", num_args = 0..=1, require_equals = true,
              default_missing_value = "true", value_parser = BoolishValueParser::new())]
        strict_roles: bool,
        /// Schemas in which the statements of writes, and what triggers, defaults and constraints call, look up names
        /// without a schema, after pg_catalog. Nobody but its owner may create objects in one. Default: none.
        #[arg(long, env = "COUNTERSIGN_WRITE_SEARCH_PATH", value_delimiter = ',', value_name = "SCHEMA")]
        write_search_path: Vec<String>,
        /// Record every write of countersign query, pipe and psql in the ledger, or refuse it: --no-audit and
        /// databases without a ledger are refused.
        #[arg(long, env = "COUNTERSIGN_REQUIRE_AUDIT", num_args = 0..=1, require_equals = true,
              default_missing_value = "true", value_parser = BoolishValueParser::new())]
        require_audit: bool,
        /// Key of the fingerprints (HMAC-SHA-256), at least 16 characters. All servers of one ledger must have
        /// the same.
        #[arg(long, env = "COUNTERSIGN_FINGERPRINT_KEY", hide_env_values = true, value_parser = parse_secret)]
        #[schemars(with = "Option<String>")]
        fingerprint_key: Secret,
        /// File with the key of the fingerprints. A final line break is ignored.
        #[arg(long, env = "COUNTERSIGN_FINGERPRINT_KEY_FILE", value_name = "FILE")]
        fingerprint_key_file: PathBuf,
        /// Seconds in which this server answers identical calls from memory, without a record. Default: 30; 0
        /// for never.
        #[arg(long, env = "COUNTERSIGN_DUPLICATE_MEMORY_S", value_name = "SECONDS")]
        duplicate_memory_s: Seconds<0, 300>,
        /// Record the intent of a write, and wait for the disk, before the write begins.
        #[arg(long, env = "COUNTERSIGN_DURABLE_ADMISSION", num_args = 0..=1, require_equals = true,
              default_missing_value = "true", value_parser = BoolishValueParser::new())]
        durable_admission: bool,
        /// Seconds that a proposed write waits for agreement. Default: 1800.
        #[arg(long, env = "COUNTERSIGN_PROPOSAL_LIFETIME_S", value_name = "SECONDS")]
        proposal_lifetime_s: Seconds<1, 2_592_000>,
    }
}

keys! {
    /// HTTP: the table `[http]`.
    #[command(next_help_heading = "Options for HTTP")]
    HttpKeys {
        /// Serve MCP over HTTP on this address and port, such as 127.0.0.1:7777, instead of standard input and
        /// output.
        #[arg(long = "http", env = "COUNTERSIGN_HTTP", value_name = "ADDRESS")]
        #[schemars(with = "Option<String>")]
        listen: ListenAddress,
        /// Address of this server for clients, such as https://mcp.example.com. The Host header may have its
        /// name. Required for OAuth.
        #[arg(long = "http-public-url", env = "COUNTERSIGN_HTTP_PUBLIC_URL", value_name = "URL")]
        public_url: PublicUrl,
        /// Names that the Host header may have, besides localhost and the name of public_url: name, or
        /// name:port.
        #[arg(long = "http-allowed-hosts", env = "COUNTERSIGN_HTTP_ALLOWED_HOSTS", value_delimiter = ',', value_name = "HOST")]
        allowed_hosts: Vec<Host>,
        /// Origins whose pages may call this server from a browser: https://name[:port]. Default: none.
        #[arg(long = "http-allowed-origins", env = "COUNTERSIGN_HTTP_ALLOWED_ORIGINS", value_delimiter = ',', value_name = "ORIGIN")]
        allowed_origins: Vec<Origin>,
        /// File with the certificate chain, in PEM. Default: plain HTTP.
        #[arg(long = "http-tls-certificate", env = "COUNTERSIGN_HTTP_TLS_CERTIFICATE", value_name = "FILE")]
        tls_certificate: PathBuf,
        /// File with the private key of the certificate, in PEM.
        #[arg(long = "http-tls-key", env = "COUNTERSIGN_HTTP_TLS_KEY", value_name = "FILE")]
        tls_key: PathBuf,
        /// Requests per second of an account on average. Default: 100; 0 for no limit.
        #[arg(long = "http-requests-per-s", env = "COUNTERSIGN_HTTP_REQUESTS_PER_S", value_name = "REQUESTS")]
        requests_per_s: Bounded<0, 1_000_000>,
        /// Requests that an account may send at once after a pause. Default: 200.
        #[arg(long = "http-burst", env = "COUNTERSIGN_HTTP_BURST", value_name = "REQUESTS")]
        burst: Bounded<1, 1_000_000>,
        /// Sessions of an account in this server. Default: 256. With more, the session that was idle longest is
        /// dropped.
        #[arg(long = "http-sessions", env = "COUNTERSIGN_HTTP_SESSIONS", value_name = "SESSIONS")]
        sessions: Bounded<1, 100_000>,
        /// Seconds after which the server discards the state of an idle session until its client returns. Default:
        /// 300.
        #[arg(long = "http-session-idle-s", env = "COUNTERSIGN_HTTP_SESSION_IDLE_S", value_name = "SECONDS")]
        session_idle_s: Seconds<1, 86_400>,
        /// Reads of an account that run at once, if tokens or an issuer name several accounts. Default: three
        /// quarters of read_sessions, so that no account blocks the reads of the others.
        #[arg(long = "http-reads", env = "COUNTERSIGN_HTTP_READS", value_name = "READS")]
        reads: Bounded<1, 1000>,
        /// Open event streams of an account. Default: 256.
        #[arg(long = "http-streams", env = "COUNTERSIGN_HTTP_STREAMS", value_name = "STREAMS")]
        streams: Bounded<1, 100_000>,
        /// Connections of all clients together. Default: 1024. A few more are accepted for /healthz, /readyz
        /// and loopback.
        #[arg(long = "http-connections", env = "COUNTERSIGN_HTTP_CONNECTIONS", value_name = "CONNECTIONS")]
        connections: Bounded<1, 100_000>,
        /// Connections of one address, or of one IPv6 network of 64 bits, except loopback and trusted proxies.
        /// Default: a quarter of connections.
        #[arg(long = "http-connections-per-address", env = "COUNTERSIGN_HTTP_CONNECTIONS_PER_ADDRESS", value_name = "CONNECTIONS")]
        connections_per_address: Bounded<1, 100_000>,
        /// Addresses and networks (10.0.0.0/8) of proxies whose X-Forwarded-For names the client: the last
        /// address in it that is not a proxy's. Default: none.
        #[arg(long = "http-trusted-proxies", env = "COUNTERSIGN_HTTP_TRUSTED_PROXIES", value_delimiter = ',', value_name = "ADDRESS")]
        trusted_proxies: Vec<Proxy>,
    }
}

keys! {
    /// Questions to users: part of `[limits]`.
    #[command(next_help_heading = "Limits")]
    AskKeys {
        /// Time that a call waits for its user, where the client can ask the user, in milliseconds. Default:
        /// 120000.
        #[arg(long, env = "COUNTERSIGN_ASK_TIMEOUT_MS", value_name = "MS")]
        ask_timeout_ms: Millis<100, 3_600_000>,
    }
}

keys! {
    /// Limits: part of `[limits]`.
    #[command(next_help_heading = "Limits")]
    LimitKeys {
        /// Time limit of a read, from the call to the answer, in milliseconds. Default: 30000.
        #[arg(long, env = "COUNTERSIGN_QUERY_TIMEOUT_MS", value_name = "MS")]
        query_timeout_ms: Millis<100, 3_600_000>,
        /// Time limit of any other call, above all of writes, in milliseconds. Default: 30000.
        #[arg(long, env = "COUNTERSIGN_CALL_DEADLINE_MS", value_name = "MS")]
        call_deadline_ms: Millis<100, 3_600_000>,
        /// Rows of a read if the caller passes no limit. Default: 500.
        #[arg(long, env = "COUNTERSIGN_ROW_LIMIT", value_name = "ROWS")]
        row_limit: Bounded<1, 100_000>,
        /// The most rows that a caller can ask for. Default: 10000.
        #[arg(long, env = "COUNTERSIGN_MAX_ROW_LIMIT", value_name = "ROWS")]
        max_row_limit: Bounded<1, 100_000>,
        /// The most bytes of a result, as text. Default: 1048576.
        #[arg(long, env = "COUNTERSIGN_MAX_RESULT_BYTES", value_name = "BYTES")]
        max_result_bytes: Bounded<65_536, 16_777_216>,
        /// The most connections for reading, opened when needed, and closed after a minute without use. Default: 8.
        #[arg(long, env = "COUNTERSIGN_READ_SESSIONS", value_name = "SESSIONS")]
        read_sessions: Bounded<1, 1000>,
        /// The most connections for writing, opened when needed, and closed after a minute without use. Default: 16.
        #[arg(long, env = "COUNTERSIGN_WRITE_SESSIONS", value_name = "SESSIONS")]
        write_sessions: Bounded<2, 1000>,
    }
}

groups! {
    /// The keys of what belongs to one database.
    DatabaseGroups {
        connection: DatabaseKeys in TOP,
        manifests: ManifestKeys in TOP,
        served: ServedKeys in TOP,
        write: WriteKeys in TOP,
        signing: SigningKeys in TOP,
        operator: OperatorKeys in TOP,
        connect: ConnectKeys in LIMITS,
        limits: LimitKeys in LIMITS,
        reads: ReadsKeys in READS,
    }
}

groups! {
    /// The keys of what all databases of a server share.
    ServerGroups {
        serve: ServeKeys in TOP,
        log: LogKeys in TOP,
        ask: AskKeys in LIMITS,
        notify: NotifyKeys in NOTIFY,
        otel: OtelKeys in OTEL,
        http: HttpKeys in HTTP,
        console: ConsoleKeys in CONSOLE,
        oidc_secret: OidcSecretKeys in CONSOLE_OIDC,
    }
}

/// Every key of one layer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    pub(crate) chosen: ChosenKeys,
    pub(crate) database: DatabaseGroups,
    pub(crate) server: ServerGroups,
}

impl Keys {
    /// The keys that were given to a command, of the groups that are options of it.
    pub(crate) fn given(command: &ArgMatches) -> Result<Self, clap::Error> {
        let (database, server) = (DatabaseGroups::given(command)?, ServerGroups::given(command)?);
        Ok(Self { chosen: given(command)?, database, server })
    }

    /// The schema of the keys that stand in a table.
    pub(super) fn schema(table: &str) -> Map<String, Value> {
        let mut keys = DatabaseGroups::schema(table);
        keys.extend(ServerGroups::schema(table));
        keys
    }
}

/// The keys of a group; none, if the group is not among the options of this command.
fn given<G: Args + Default>(command: &ArgMatches) -> Result<G, clap::Error> {
    let is_given = G::group_id().is_some_and(|group| command.try_contains_id(group.as_str()).unwrap_or_default());
    if is_given { G::from_arg_matches(command) } else { Ok(G::default()) }
}

options! {
    /// The database of a command, and how to connect to it.
    ConnectionKeys: ChosenKeys, DatabaseKeys, ConnectKeys
}

options! {
    /// The database, and what signs its log.
    SignedKeys: SigningKeys, ConnectionKeys
}

options! {
    /// What the console is configured by.
    ConsoleServerKeys: ConsoleKeys, OidcSecretKeys, OperatorKeys, ConnectionKeys
}

options! {
    /// Everything that is configured of a server.
    ServerKeys: ManifestKeys, ServeKeys, ServedKeys, WriteKeys, ReadsKeys, SigningKeys, NotifyKeys, OtelKeys, HttpKeys,
                AskKeys, LimitKeys, ConnectionKeys
}

/// The arguments of a command, and after them the options that are settings: by default, those of the connection.
#[derive(Debug, Args)]
pub(crate) struct With<T: Args, K: Args = ConnectionKeys> {
    #[command(flatten)]
    pub(crate) own: T,
    #[command(flatten)]
    _keys: K,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
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
    /// A direct connection, or a pooler that lends connections for a session.
    #[default]
    None,
    /// A pooler that lends a connection for a transaction.
    Transaction,
}

types::same_variants! { PoolerSetting => Pooler { None, Transaction } }

types::same_variants! { Content => mcp::ResultContent { Text, Structured, Both } }
