//! From a database and manifests to a server that can answer: everything is checked before the first request.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use contract::{AccountId, Principal};
use ledger::read::{ReadLimits, Reader};
use ledger::{Gate, Ledger, Settings, Target};
use manifest::{Catalog, Source};
use tools::{Backends, Registry};

use crate::cli::ServeArgs;

/// A server and what has to be waited for when it ends.
pub(crate) struct Wired {
    pub(crate) server: mcp::Server,
    pub(crate) gate: Gate,
}

/// Reads manifests; one message names every file that cannot be read.
pub(crate) fn read_manifests(paths: &[PathBuf]) -> anyhow::Result<Vec<Source>> {
    paths
        .iter()
        .map(|path| Source::read(path).with_context(|| format!("the manifest {} cannot be read", path.display())))
        .collect()
}

/// Compiles manifests against the live database.
pub(crate) async fn compile(sources: &[Source], ledger: &Ledger) -> anyhow::Result<Catalog> {
    manifest::compile(sources, &tools::builtin::NAMES, ledger)
        .await
        .map_err(|mistakes| anyhow::anyhow!("the manifests do not fit the database; nothing is served\n{mistakes}"))
}

/// Checks everything and wires it up.
pub(crate) async fn wire(target: Target, sources: &[Source], arguments: &ServeArgs) -> anyhow::Result<Wired> {
    let account_id = AccountId::new(&arguments.account)
        .context("--account (COUNTERSIGN_ACCOUNT) takes 1 to 255 bytes without control characters")?;
    ledger::check(&target).await?;
    let ledger = Ledger::new(target.clone(), Settings::default());
    let catalog = compile(sources, &ledger).await?;
    let limits = ReadLimits::default();
    let reader = reader(&target, arguments, limits.clone()).await?;
    let backends = Backends { reader, gate: ledger.gate(), records: ledger.records(), call_deadline: limits.deadline };
    let registry = Registry::new(&backends, &catalog, arguments.profile)?;
    tracing::info!(
        tools = registry.infos().count(),
        profile = %arguments.profile,
        account = account_id.as_str(),
        database = target.dbname,
        place = target.place(),
        "ready"
    );
    tokio::spawn(ledger.keep_swept());
    let principal = Principal { account_id, actor: arguments.actor.clone() };
    let server = mcp::Server::new(Arc::new(registry), principal, arguments.content.into());
    Ok(Wired { server, gate: backends.gate })
}

/// The read path, if there is a login that may be used for it; the log says why not and what to do.
async fn reader(target: &Target, arguments: &ServeArgs, limits: ReadLimits) -> anyhow::Result<Option<Reader>> {
    let login = match &arguments.read_url {
        Some(url) => Target::parse(url).context("--read-url (COUNTERSIGN_READ_URL)")?,
        None => match ledger::reader_login(target).await {
            Ok(login) => login,
            Err(error @ ledger::ReaderRoleError::NoLogin) => {
                tracing::error!("query_database is not served: {error}");
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        },
    };
    let reader = Reader::new(login, limits);
    match ledger::check_reader(&reader).await {
        Ok(()) => Ok(Some(reader)),
        Err(ledger::ReaderRoleError::Privileged { role, power }) if arguments.allow_privileged_reader => {
            tracing::warn!("query_database reads as \"{role}\", which {power}: a hostile query can use that");
            Ok(Some(reader))
        }
        Err(error @ ledger::ReaderRoleError::Privileged { .. }) => {
            tracing::error!("query_database is not served: {error}");
            Ok(None)
        }
        Err(error) => Err(anyhow::Error::from(error).context("the reader cannot log in")),
    }
}
