//! From a database and manifests to a server that can answer: everything is checked before the first request.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use contract::Principal;
use ledger::read::Reader;
use ledger::{Gate, Ledger, Target};
use manifest::{Catalog, Source};
use tools::{Backends, Registry};

use crate::connection;
use crate::settings::Settings;

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
pub(crate) async fn wire(target: Target, sources: &[Source], settings: &Settings) -> anyhow::Result<Wired> {
    ledger::check(&target).await?;
    check_role(&target, settings).await?;
    let ledger = Ledger::new(target.clone(), settings.ledger.clone());
    let catalog = compile(sources, &ledger).await?;
    let backends = Backends {
        reader: reader(&target, settings).await?,
        gate: ledger.gate(),
        records: ledger.records(),
        call_deadline: settings.call_deadline,
    };
    let registry = Registry::new(&backends, &catalog, settings.profile)?;
    tracing::info!(
        tools = registry.infos().count(),
        profile = %settings.profile,
        account = settings.account.as_str(),
        database = target.dbname,
        place = target.place(),
        "ready"
    );
    tokio::spawn(ledger.keep_swept());
    let principal = Principal { account_id: settings.account.clone(), actor: settings.actor.clone() };
    let server = mcp::Server::new(Arc::new(registry), principal, settings.content.into());
    Ok(Wired { server, gate: backends.gate })
}

/// A server should be able to do what it must, and no more.
async fn check_role(target: &Target, settings: &Settings) -> anyhow::Result<()> {
    let Some(excess) = ledger::excess_of_server(target).await? else { return Ok(()) };
    let advice = "log in as the role that `countersign init` makes for servers (countersign_writer), granted what the manifests need";
    anyhow::ensure!(!settings.strict_roles, "{excess}; strict_roles refuses that: {advice}");
    tracing::warn!("{excess}: more than a server needs; {advice}");
    Ok(())
}

/// The read path, if there is a login that may be used for it; the log says why not and what to do.
async fn reader(target: &Target, settings: &Settings) -> anyhow::Result<Option<Reader>> {
    let login = match &settings.read {
        Some(read) => connection::parse(read, settings)?,
        None => match ledger::reader_login(target).await {
            Ok(login) => login,
            Err(error @ ledger::ReaderRoleError::NoLogin) => {
                tracing::error!("query_database is not served: {error}");
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        },
    };
    let reader = Reader::new(login, settings.read_limits.clone());
    match ledger::check_reader(&reader).await {
        Ok(()) => Ok(Some(reader)),
        Err(ledger::ReaderRoleError::Privileged { role, power }) if settings.allow_privileged_reader => {
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
