//! Builds the served tools of a database from its manifests. Everything is checked before the first request, and again
//! before the tools change.

use std::collections::BTreeMap;

use anyhow::Context;
use ledger::read::{Reader, SearchPath, UntrustedSchema};
use ledger::{ConnectOptions, Ledger, LoginSetting, ReadLogDetail, ReaderRoleError, SchemaError, WatchedTables};
use manifest::{Access, DeclaredTool, Diagnostic, Diagnostics, ServerNames, Source, ToolCatalog};
use mcp::Elicitation;
use tools::{
    Activity, ConsoleLinks, LedgerScrape, LiveRegistry, MaskPolicy, Metrics, Profile, ProfileToolsets, READS_ONLY,
    Services, Toolset, Unavailable, View,
};
use types::{DatabaseName, MaskKey, Principal, RoleName};

use crate::commands::demo;
use crate::connection;
use crate::settings::{DatabaseSettings, MaskConfig, ProfileConfig, Settings};
use crate::tool_catalog::{self, ServerTools, read_manifests};

fn manifest_sources(settings: &DatabaseSettings, demo: bool) -> anyhow::Result<Vec<Source>> {
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
pub(crate) fn check_files(settings: &DatabaseSettings, demo: bool) -> anyhow::Result<ToolCatalog> {
    let native = tools::native::executors()?;
    let executors: Vec<&str> = native.names().collect();
    let prefix = &settings.prefix;
    let server = ServerNames { builtin: &tools::builtin::NAMES, executors: &executors, prefix };
    manifest::check_files(&manifest_sources(settings, demo)?, &server)
        .map_err(|mistakes| anyhow::Error::new(mistakes).context("the manifests cannot be used"))
}

/// Checks the manifests of all databases alone, and that a name stands for one tool. Nothing is checked for a server
/// with one database, whose tools are compiled before it starts.
///
/// # Errors
/// With `Diagnostics` inside, if manifests are wrong.
pub(crate) fn check_several(settings: &Settings, demo: bool) -> anyhow::Result<()> {
    if settings.databases.len() < 2 {
        return Ok(());
    }
    let mut known: BTreeMap<String, (&DatabaseSettings, DeclaredTool)> = BTreeMap::new();
    let mut mistakes = Vec::new();
    for database in &settings.databases {
        for tool in check_files(database, demo)?.declared {
            let Some((other, first)) = known.get(&tool.name) else {
                known.insert(tool.name.clone(), (database, tool));
                continue;
            };
            let [own, other] = [database, *other].map(|database| database.name().map_or("", DatabaseName::as_str));
            let message = if first.at != tool.at {
                format!(
                    "the database {other} has another tool of this name ({}): serve one manifest to both databases, or give the tools \
                     of one a prefix (prefix = \"{own}_\" in [database.{own}])",
                    first.at
                )
            } else if tool.params.iter().any(|param| param == tools::DATABASE) {
                format!(
                    "{other} and {own} have this tool, which names its database by the argument \"{}\": rename its parameter, or give \
                     the tools of one database a prefix (prefix = \"{own}_\" in [database.{own}])",
                    tools::DATABASE
                )
            } else {
                continue;
            };
            mistakes.push(Diagnostic { at: tool.at, tool: Some(tool.name), message });
        }
    }
    if mistakes.is_empty() {
        return Ok(());
    }
    mistakes.sort();
    Err(anyhow::Error::new(Diagnostics(mistakes)).context("the manifests cannot be used side by side"))
}

/// The tools of a database that was not reached yet. Errors in the manifests are reported elsewhere.
pub(crate) fn unavailable_tools(
    settings: &Settings,
    database: &DatabaseSettings,
    demo: bool,
    failure: &Unavailable,
    metrics: &Metrics,
) -> anyhow::Result<ProfileToolsets> {
    let catalog = check_files(database, demo).unwrap_or_default();
    let tools = Toolset::unavailable(&database.read_limits, database.call_deadline, failure, metrics, &catalog)?;
    Ok(ProfileToolsets::new(&tools, &profiles(settings), database.name()))
}

fn profiles(settings: &Settings) -> Vec<Profile> {
    Profile::builtin().into_iter().chain(settings.profiles.iter().map(|own| own.profile.clone())).collect()
}

/// Builds the tools of a database. The ledger and the services that they use stay the same when the tools change.
pub(crate) struct ToolBuilder {
    pub(crate) services: Services,
    target: ConnectOptions,
    /// Whether the demo's manifests are included.
    demo: bool,
}

impl ToolBuilder {
    pub(crate) async fn open(
        target: &ConnectOptions,
        settings: &Settings,
        database: &DatabaseSettings,
        demo: bool,
        metrics: Metrics,
    ) -> anyhow::Result<Self> {
        let needing = needing_a_ledger(settings, database, demo);
        let ledger = Ledger::new(target.clone(), database.ledger.clone());
        let has_ledger = !needing.is_empty() || ledger.is_open().await?;
        if has_ledger {
            ledger.check().await.map_err(|error| missing_for(error, &needing))?;
            ledger.check_identity().await?;
        } else {
            tracing::warn!("{READS_ONLY}");
        }
        check_role(&ledger, database).await?;
        connection::check_search_path(target, database).await?;
        let reader = match reader(&ledger, target, database, has_ledger).await? {
            Some(reader) if has_ledger => Some(for_callers(reader, &ledger, settings, database).await?),
            reader => reader,
        };
        let collects_tables = ledger.read_log().is_on();
        let reader = reader.map(|reader| if collects_tables { reader.collecting_tables() } else { reader });
        if has_ledger {
            warn_of_settings(&ledger, target, reader.as_ref().map(Reader::target)).await?;
        }
        let masks = masks(database, reader.as_ref()).await?;
        // The first database keeps its connections.
        let place = settings.databases.iter().position(|own| own.name() == database.name()).unwrap_or_default();
        let activity = match (u32::try_from(place), u32::try_from(settings.databases.len())) {
            (Ok(place @ 1..), Ok(count)) => Activity::measured(place, count),
            _ => Activity::default(),
        };
        let services = Services {
            name: database.name().cloned(),
            reader,
            has_ledger,
            scrape: LedgerScrape::new(has_ledger.then(|| ledger.gauges())),
            ledger,
            call_deadline: database.call_deadline,
            activity,
            metrics,
            masks,
            execute_sql: database.execute_sql.clone(),
            agent_confirms: database.agent_confirms,
            console: settings.console.url.as_deref().map(ConsoleLinks::new),
        };
        Ok(Self { services, target: target.clone(), demo })
    }

    pub(crate) async fn is_reachable(&self) -> bool {
        ledger::can_connect(&self.target).await.is_ok()
    }

    /// Whether the database has a ledger for this login now.
    pub(crate) async fn finds_ledger(&self) -> anyhow::Result<bool> {
        Ok(self.services.ledger.is_open().await?)
    }

    pub(crate) fn sources(&self, settings: &DatabaseSettings) -> anyhow::Result<Vec<Source>> {
        let sources = manifest_sources(settings, self.demo)?;
        anyhow::ensure!(self.services.has_ledger || sources.is_empty(), "{READS_ONLY}");
        Ok(sources)
    }

    /// Builds the tools of every profile and checks everything from the files to the schemas. Unless `strict` is set,
    /// tools that do not fit the database are left out.
    pub(crate) async fn tools(
        &self,
        sources: &[Source],
        settings: &Settings,
        database: &DatabaseSettings,
    ) -> anyhow::Result<BuiltTools> {
        let (profiles, ledger, target) = (&settings.profiles, &self.services.ledger, &self.target);
        let server = ServerTools::new(settings, database);
        let catalog = match database.strict {
            true => tool_catalog::compile(sources, &server, ledger, target).await?,
            false => tool_catalog::compile_fitting(sources, &server, ledger, target).await?,
        };
        let all = Toolset::new(&self.services, &catalog, &tools::native::executors()?)?;
        let toolsets = ProfileToolsets::new(&all, &self::profiles(settings), database.name());
        check_caller_roles(&self.services, settings, database).await?;
        let left_out: Vec<&str> = catalog.left_out.iter().filter_map(|tool| tool.tool.as_deref()).collect();
        let has_nothing = |own: &&ProfileConfig| {
            toolsets.get(&own.profile.name).is_some_and(|tools| tools.has_nothing())
                && !left_out.iter().any(|tool| own.profile.includes(tool, Access::Read))
        };
        let empty: Vec<_> = profiles.iter().filter(has_nothing).map(ProfileConfig::empty).collect();
        if !empty.is_empty() {
            return Err(tool_catalog::profile_error(empty));
        }
        let used = catalog.tools.iter().flat_map(|tool| tool.tables());
        let watched = WatchedTables {
            tables: used.map(|table| (table.schema.clone(), table.table.clone())).collect(),
            all: !catalog.misfits.is_empty() || !catalog.left_out.is_empty(),
        };
        Ok(BuiltTools { toolsets, left_out: catalog.left_out, misfits: catalog.misfits, watched })
    }
}

/// A role that callers may have, and the setting that names it.
pub(crate) struct CallerRole<'s> {
    pub(crate) role: &'s RoleName,
    /// `profiles.support.role`
    pub(crate) setting: String,
    /// Whether a token has to name it.
    pub(crate) is_of_tokens: bool,
}

/// The roles that callers may have in this database.
pub(crate) fn caller_roles<'s>(settings: &'s Settings, database: &DatabaseSettings) -> Vec<CallerRole<'s>> {
    let reaching = settings.profiles.iter().filter(|own| own.profile.reaches(database.name()));
    let of_profiles = reaching.filter_map(|own| {
        let role = own.profile.role.as_ref()?;
        Some(CallerRole { role, setting: format!("profiles.{}.role", own.profile.name), is_of_tokens: false })
    });
    let of_tokens = settings.oauth.iter().flat_map(|issuer| &issuer.roles);
    let of_tokens = of_tokens.map(|role| CallerRole { role, setting: "oauth.roles".to_owned(), is_of_tokens: true });
    of_profiles.chain(of_tokens).collect()
}

/// The same reader with what policies of row level security need: a seal, and for callers with a role a login of their
/// own, if the ledger has one.
pub(crate) async fn for_callers(
    reader: Reader,
    ledger: &Ledger,
    settings: &Settings,
    database: &DatabaseSettings,
) -> Result<Reader, ledger::read::Error> {
    let reader = reader.with_seal(ledger.caller_seal().await?);
    if caller_roles(settings, database).is_empty() {
        return Ok(reader);
    }
    match ledger.callers_login(reader.target()).await? {
        Some(login) => Ok(reader.with_callers_login(login)),
        None => Ok(reader),
    }
}

/// What a query of a caller with a role can reach if it leaves the role.
pub(crate) async fn excess_of_callers(
    reader: &Reader,
    settings: &Settings,
    database: &DatabaseSettings,
) -> Result<Vec<String>, ledger::read::Error> {
    let roles: Vec<String> = caller_roles(settings, database).iter().map(|own| own.role.as_str().to_owned()).collect();
    if roles.is_empty() {
        return Ok(Vec::new());
    }
    let excess = ledger::reachable_without_role(reader, &roles).await?;
    let login = reader.for_callers();
    let sentence = |what| format!("callers with a role read over the login {}, which {what}", login.target().user);
    Ok(excess.into_iter().map(sentence).collect())
}

/// Checks the roles of profiles. A role that only a token can name is checked by each transaction, so it is only logged
/// here.
async fn check_caller_roles(
    services: &Services,
    settings: &Settings,
    database: &DatabaseSettings,
) -> anyhow::Result<()> {
    for CallerRole { role, setting, is_of_tokens } in caller_roles(settings, database) {
        let reader = services.reader.as_ref();
        let Some(why) = services.ledger.check_caller_role(reader, role, services.has_ledger).await? else { continue };
        let refused = format!("statements may not run as the role {role} ({setting}): it {why}");
        anyhow::ensure!(is_of_tokens, "{refused}");
        tracing::warn!("{refused}");
    }
    if let Some(reader) = &services.reader {
        for excess in excess_of_callers(reader, settings, database).await? {
            tracing::warn!("{excess}: a query that leaves its role could use that");
        }
    }
    Ok(())
}

/// The settings that need a ledger, in the words of the configuration.
pub(crate) fn needing_a_ledger(settings: &Settings, database: &DatabaseSettings, demo: bool) -> Vec<&'static str> {
    let needs = [
        ("manifests", demo || !database.manifests.is_empty()),
        ("execute_sql", database.execute_sql.is_some()),
        ("log of [reads]", database.ledger.read_log != ReadLogDetail::Off),
        // Of several databases, those without a ledger have nothing to tell.
        ("[notify]", settings.notify.is_some() && database.label.is_none()),
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
    pub(crate) toolsets: ProfileToolsets,
    /// What the tools lack that are left out.
    pub(crate) left_out: Vec<Diagnostic>,
    /// Why the other tools and notes do not fit.
    pub(crate) misfits: Vec<Diagnostic>,
    /// The tables that the tools depend on.
    pub(crate) watched: WatchedTables,
}

impl BuiltTools {
    pub(crate) fn log_missing(&self) {
        for missing in &self.left_out {
            tracing::warn!("left out: {missing}");
        }
        for mistake in &self.misfits {
            tracing::error!("does not fit the database: {mistake}");
        }
    }
}

pub(crate) fn server(registry: &LiveRegistry, settings: &Settings, elicitation: Elicitation) -> mcp::McpServer {
    let principal =
        Principal { account_id: settings.account.clone(), actor: settings.actor.clone(), ..Principal::default() };
    mcp::McpServer::new(
        registry.view(View::of_profile(&settings.profile)),
        principal,
        settings.content.into(),
        elicitation,
    )
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
async fn check_role(ledger: &Ledger, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let Some(excess) = ledger.check_server_role().await? else { return Ok(()) };
    let advice = "log in as the role that `countersign init` makes for servers (countersign_writer), granted what the manifests need";
    anyhow::ensure!(!settings.strict_roles, "{excess}; strict_roles refuses that: {advice}");
    tracing::warn!("{excess}: more than a server needs; {advice}");
    Ok(())
}

/// The masks of callers. An error if they do not fit the database.
pub(crate) async fn masks(settings: &DatabaseSettings, reader: Option<&Reader>) -> anyhow::Result<MaskPolicy> {
    let MaskConfig { rules, trusted_functions } = &settings.masks;
    let trusted_functions = trusted_functions.as_deref().unwrap_or_default();
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
    settings: &DatabaseSettings,
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
