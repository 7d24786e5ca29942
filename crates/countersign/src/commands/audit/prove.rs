//! `countersign audit prove` and `countersign audit consistency`: proofs that others verify.

use std::path::Path;

use anyhow::Context;
use tlog::SignedNote;

use super::args::{ConsistencyArgs, ProveArgs};
use super::{find, open};
use crate::settings::DatabaseSettings;
use crate::terminal::write_bytes;

pub(super) async fn entry(arguments: &ProveArgs, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let audit = open(settings).await?;
    // A pruned record can be found only by its whole id.
    let id = match types::CorrelationId::parse(arguments.correlation_id.as_str()) {
        Some(id) => id,
        None => find(&audit, &arguments.correlation_id).await?,
    };
    write_bytes(audit.prove(id).await?.to_string().as_bytes());
    Ok(())
}

pub(super) async fn consistency(arguments: &ConsistencyArgs, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let (old, new) = (read(&arguments.old)?, read(&arguments.new)?);
    let audit = open(settings).await?;
    write_bytes(audit.prove_consistency(&old, &new).await?.to_string().as_bytes());
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<SignedNote> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    text.parse().with_context(|| format!("{} is no checkpoint, as `countersign audit seal` prints it", path.display()))
}
