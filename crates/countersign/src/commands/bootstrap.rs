//! Builds the served tools from a database and manifests. Everything is checked before the first request, and again
//! before the tools change.

use std::time::Duration;

use anyhow::Context;
use ledger::read::{Reader, SearchPath, UntrustedSchema};
use ledger::{ConnectOptions, Ledger, LoginSetting, ReadLogDetail, ReaderRoleError, SchemaError, WatchedTables};
use manifest::{Diagnostic, ServerNames, Source, ToolCatalog};
use mcp::{Elicitation, StateCodec, StateKey};
use tools::{
    ConsoleLinks, LiveRegistry, MaskPolicy, Metrics, Profile, ProfileRegistries, READS_ONLY, Registry, Services,
    Unavailable,
};
use types::{MaskKey, Principal};

use crate::commands::demo;
use crate::connection;
use crate::settings::{MaskConfig, ProfileConfig, Settings};
use crate::tool_catalog::{self, read_manifests};

fn manifest_sources(settings: &Settings, demo: bool) -> anyhow::Result<Vec<Source>> {
    let mut sources = read_manifests(&settings.manifests)?;
    if demo {
        sources.extend(demo::database::manifests());
    }
    Ok(sources)
}

/// Checks the manifests alone, for a server without a reachable database.
///
/// # Errors
/// With `Diagnostics` inside, if the manifests are wrong.
pub(crate) fn check_files(settings: &Settings, demo: bool) -> anyhow::Result<ToolCatalog> {
    let native = tools::native::executors()?;
    let executors: Vec<&str> = native.names().collect();
    let server = ServerNames { builtin: &tools::builtin::NAMES, executors: &executors };
    manifest::check_files(&manifest_sources(settings, demo)?, &server)
        .map_err(|mistakes| anyhow::Error::new(mistakes).context("the manifests cannot be used"))
}

/// The tools of a server that has not reached its database yet. Errors in the manifests are reported elsewhere.
pub(crate) fn unavailable_tools(
    settings: &Settings,
    demo: bool,
    failure: &Unavailable,
    metrics: &Metrics,
) -> anyhow::Result<ProfileRegistries> {
    let catalog = check_files(settings, demo).unwrap_or_default();
    let tools = Registry::unavailable(&settings.read_limits, settings.call_deadline, failure, metrics, &catalog)?;
    Ok(ProfileRegistries::new(&tools, &profiles(settings)))
}

fn profiles(settings: &Settings) -> Vec<Profile> {
    Profile::builtin().into_iter().chain(settings.profiles.iter().map(|own| own.profile.clone())).collect()
}

/// Builds the tools. The ledger and the services that they use stay the same when the tools change.
pub(crate) struct ServerBuilder {
    pub(crate) ledger: Ledger,
    pub(crate) services: Services,
    target: ConnectOptions,
    /// Whether the demo's manifests are included.
    demo: bool,
}

impl ServerBuilder {
    pub(crate) async fn open(
        target: &ConnectOptions,
        settings: &Settings,
        demo: bool,
        metrics: Metrics,
    ) -> anyhow::Result<Self> {
        let needing = needing_a_ledger(settings, demo);
        let ledger = Ledger::new(target.clone(), settings.ledger.clone());
        let has_ledger = !needing.is_empty() || ledger.exists().await?;
        if has_ledger {
            ledger.check().await.map_err(|error| missing_for(error, &needing))?;
            ledger.check_identity().await?;
        } else {
            tracing::warn!("{READS_ONLY}");
        }
        check_role(&ledger, settings).await?;
        let reader = reader(&ledger, target, settings, has_ledger).await?;
        let collects_tables = ledger.read_log().is_on();
        let reader = reader.map(|reader| if collects_tables { reader.collecting_tables() } else { reader });
        if has_ledger {
            warn_of_settings(&ledger, target, reader.as_ref().map(Reader::target)).await?;
        }
        let masks = masks(settings, reader.as_ref()).await?;
        let services = Services {
            reader,
            has_ledger,
            gate: ledger.gate(),
            records: ledger.records(),
            plans: ledger.plans(),
            call_deadline: settings.call_deadline,
            proposals: ledger.proposals(),
            gauges: ledger.gauges(),
            read_log: ledger.read_log(),
            metrics,
            masks,
            execute_sql: settings.execute_sql.clone(),
            console: settings.console.url.as_deref().map(ConsoleLinks::new),
        };
        Ok(Self { ledger, services, target: target.clone(), demo })
    }

    pub(crate) async fn is_reachable(&self) -> bool {
        ledger::can_connect(&self.target).await.is_ok()
    }

    /// Whether the database has a ledger now.
    pub(crate) async fn finds_ledger(&self) -> anyhow::Result<bool> {
        Ok(self.ledger.exists().await?)
    }

    pub(crate) fn sources(&self, settings: &Settings) -> anyhow::Result<Vec<Source>> {
        let sources = manifest_sources(settings, self.demo)?;
        anyhow::ensure!(self.services.has_ledger || sources.is_empty(), "{READS_ONLY}");
        Ok(sources)
    }

    /// Builds the tools of every profile and checks everything from the files to the schemas. Unless `strict` is set,
    /// tools that do not fit the database are left out.
    pub(crate) async fn tools(&self, sources: &[Source], settings: &Settings) -> anyhow::Result<BuiltTools> {
        let (profiles_config, ledger, target) = (&settings.profiles, &self.ledger, &self.target);
        let catalog = match settings.strict {
            true => tool_catalog::compile(sources, profiles_config, ledger, target).await?,
            false => tool_catalog::compile_fitting(sources, profiles_config, ledger, target).await?,
        };
        let all = Registry::new(&self.services, &catalog, &tools::native::executors()?)?;
        let registries = ProfileRegistries::new(&all, &profiles(settings));
        let has_nothing =
            |own: &&ProfileConfig| registries.get(&own.profile.name).is_none_or(|tools| tools.has_nothing());
        let empty: Vec<_> = profiles_config.iter().filter(has_nothing).map(ProfileConfig::empty).collect();
        if !empty.is_empty() {
            return Err(tool_catalog::profile_error(empty));
        }
        let used = catalog.tools.iter().flat_map(|tool| tool.tables());
        let watched = WatchedTables {
            tables: used.map(|table| (table.schema.clone(), table.table.clone())).collect(),
            all: !catalog.misfits.is_empty(),
        };
        Ok(BuiltTools { registries, misfits: catalog.misfits, watched })
    }
}

/// The settings that need a ledger, in the words of the configuration.
pub(crate) fn needing_a_ledger(settings: &Settings, demo: bool) -> Vec<&'static str> {
    let needs = [
        ("manifests", demo || !settings.manifests.is_empty()),
        ("execute_sql", settings.execute_sql.is_some()),
        ("log of [reads]", settings.ledger.read_log != ReadLogDetail::Off),
        ("[notify]", settings.notify.is_some()),
    ];
    needs.into_iter().filter_map(|(setting, is_set)| is_set.then_some(setting)).collect()
}

/// The error of a check of the ledger, with the settings that need one.
fn missing_for(error: SchemaError, needing: &[&str]) -> anyhow::Error {
    match error {
        SchemaError::Missing { .. } if !needing.is_empty() => {
            anyhow::Error::new(error).context(format!("{}: this needs a ledger", needing.join(", ")))
        }
        error => error.into(),
    }
}

/// The tools that fit the database.
pub(crate) struct BuiltTools {
    pub(crate) registries: ProfileRegistries,
    /// Why the other tools and notes do not fit.
    pub(crate) misfits: Vec<Diagnostic>,
    /// The tables that the tools depend on.
    pub(crate) watched: WatchedTables,
}

impl BuiltTools {
    pub(crate) fn log_misfits(&self) {
        for mistake in &self.misfits {
            tracing::error!("does not fit the database: {mistake}");
        }
    }
}

pub(crate) fn server(registry: &LiveRegistry, settings: &Settings, elicitation: Elicitation) -> mcp::McpServer {
    let principal =
        Principal { account_id: settings.account.clone(), actor: settings.actor.clone(), ..Principal::default() };
    mcp::McpServer::new(registry.of_profile(&settings.profile), principal, settings.content.into(), elicitation)
}

/// The ledger's keys that seal data held by clients, and the name of the current key.
pub(crate) async fn state_keys(ledger: &Ledger) -> anyhow::Result<(String, Vec<StateKey>)> {
    let keys = ledger.state_keys().all().await.context("the keys for states cannot be read from the ledger")?;
    let sealing =
        keys.iter().find(|key| key.seals).context("the ledger has no key for states: run `countersign init`")?;
    let sealing = sealing.id.clone();
    Ok((sealing, keys.into_iter().map(|key| StateKey { id: key.id, key: key.key.expose().into() }).collect()))
}

/// The interval at which a server looks for new keys. A key is used three minutes after it was made, when every
/// server knows it.
const KEY_INTERVAL: Duration = Duration::from_secs(60);

/// Keeps the sealing keys up to date. Never returns.
pub(crate) async fn refresh_state_keys(ledger: Ledger, codec: StateCodec) {
    let mut turns = tokio::time::interval(KEY_INTERVAL);
    turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    turns.tick().await;
    loop {
        turns.tick().await;
        let replaced = match state_keys(&ledger).await {
            Ok((sealing, keys)) => codec.replace(&sealing, keys).map_err(anyhow::Error::from),
            Err(error) => Err(error),
        };
        if let Err(error) = replaced {
            tracing::warn!("the keys for states were not read again, the old ones stay: {error:#}");
        }
    }
}

/// Logs a warning for settings that `ALTER ROLE .. SET` and `ALTER DATABASE .. SET` change for the sessions of servers.
async fn warn_of_settings(
    ledger: &Ledger,
    target: &ConnectOptions,
    reader: Option<&ConnectOptions>,
) -> anyhow::Result<()> {
    let logins: Vec<&str> = [Some(target), reader].into_iter().flatten().map(|target| target.user.as_str()).collect();
    for LoginSetting { scope, setting } in ledger.unexpected_settings(&logins).await? {
        tracing::warn!(
            "{scope} has the setting {setting}, which a server does not expect; `alter {scope} reset ..` removes it"
        );
    }
    Ok(())
}

/// Checks that the server's login has the needed privileges and no others.
async fn check_role(ledger: &Ledger, settings: &Settings) -> anyhow::Result<()> {
    let Some(excess) = ledger.check_server_role().await? else { return Ok(()) };
    let advice = "log in as the role that `countersign init` makes for servers (countersign_writer), granted what the manifests need";
    anyhow::ensure!(!settings.strict_roles, "{excess}; strict_roles refuses that: {advice}");
    tracing::warn!("{excess}: more than a server needs; {advice}");
    Ok(())
}

/// The masks of callers. An error if they do not fit the database.
pub(crate) async fn masks(settings: &Settings, reader: Option<&Reader>) -> anyhow::Result<MaskPolicy> {
    let MaskConfig { rules, trusted_functions } = &settings.masks;
    let policy = MaskPolicy::new(rules, trusted_functions, &MaskKey::new(settings.mask_key()?));
    for (masks, reader) in policy.all().zip(std::iter::repeat(reader)) {
        if let Some(reader) = reader {
            reader.check_masks(masks).await.context("[mask] cannot be applied")?;
        }
    }
    Ok(policy)
}

const CANNOT_LOG_IN: &str = "the reader cannot log in (`countersign init` gives its login a new password if that is why; \
    --read-url names another login)";

/// The reason why names in this schema must be qualified.
pub(crate) fn not_searched(schema: &UntrustedSchema) -> String {
    format!(
        "reads do not search the schema {0} for names without a schema, since {1} may create objects in it, \
         and could put them in front of what an agent calls: revoke create on schema {0} from {1}",
        schema.name,
        schema.creators.join(", ")
    )
}

/// The read path, if a login may be used for it. Otherwise the reason and the remedy are logged; without a ledger,
/// nothing is left to serve, and the reason is an error. Without a ledger the login is the server's own, unless another
/// one is configured.
async fn reader(
    ledger: &Ledger,
    target: &ConnectOptions,
    settings: &Settings,
    has_ledger: bool,
) -> anyhow::Result<Option<Reader>> {
    let refused = |error: ReaderRoleError| {
        let what = "query_database is not served";
        if !has_ledger {
            return Err(anyhow::Error::new(error).context(what));
        }
        tracing::error!("{what}: {error}");
        Ok(None)
    };
    let login = match &settings.read {
        Some(read) => connection::parse(read, settings)?,
        None if !has_ledger => target.clone(),
        None => match ledger.reader_login().await {
            Ok(login) => login,
            Err(error @ ReaderRoleError::NoLogin) => return refused(error),
            Err(error) => return Err(error.into()),
        },
    };
    let path = SearchPath::load(&login).await.context(CANNOT_LOG_IN)?;
    for schema in &path.untrusted {
        tracing::warn!("{}", not_searched(schema));
    }
    let reader = Reader::new(login, &path, settings.read_limits.clone()).deny_schema(ledger::SCHEMA);
    match ledger::check_reader(&reader).await {
        Ok(()) if has_ledger => Ok(Some(reader)),
        Ok(()) => {
            if let Some(excess) = own_login(&reader).await? {
                anyhow::ensure!(!settings.strict_roles, "{excess}; strict_roles refuses that");
                tracing::warn!("{excess}");
            }
            Ok(Some(reader))
        }
        Err(ReaderRoleError::Privileged { role, power }) if settings.allow_privileged_reader => {
            tracing::warn!("query_database reads as \"{role}\", which {power}: a hostile query can use that");
            Ok(Some(reader))
        }
        Err(error @ ReaderRoleError::Privileged { .. }) => refused(error),
        Err(error) => Err(anyhow::Error::from(error).context(CANNOT_LOG_IN)),
    }
}

/// What is missing if the login of a reader that `init` has not made may change a table.
pub(crate) async fn own_login(reader: &Reader) -> anyhow::Result<Option<String>> {
    let table = ledger::changeable_table(reader).await?;
    Ok(table.map(|table| {
        format!(
            "query_database reads as \"{}\", which may change {table}: what keeps a query from that is its read-only transaction, \
             and not the login. Use a login with SELECT only (`countersign init` makes one)",
            reader.target().user
        )
    }))
}
