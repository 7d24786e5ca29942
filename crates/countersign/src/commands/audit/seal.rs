//! `countersign audit seal`: seals the final records, and signs a checkpoint, which the witnesses cosign.

use anyhow::{Context, bail};
use ledger::audit::{Audit, Signed, Uncosigned};

use super::open;
use crate::settings::DatabaseSettings;
use crate::terminal::{print_error, print_line, write_bytes};

pub(super) async fn run(settings: &DatabaseSettings) -> anyhow::Result<()> {
    let audit = open(settings).await?;
    let sealed = seal_and_sign(&audit, settings).await?;
    let unsealed = audit.unsealed().await?;
    if unsealed > 0 {
        print_error(&format!(
            "Not sealed: {unsealed}. These final records ended meanwhile, or a transaction that has written to the ledger is \
             still open (pg_stat_activity)."
        ));
    }
    match sealed {
        Signed::Note(note) => {
            let (cosigned, uncosigned) = audit.cosign(&settings.ledger.signing).await?;
            write_bytes(cosigned.unwrap_or(note).to_string().as_bytes());
            if !uncosigned.is_empty() {
                bail!("the checkpoint is signed, but {}", describe(&uncosigned));
            }
        }
        Signed::NoKey { checkpoint, keys } if keys.is_empty() => {
            print_line(&format!("Sealed: the log has {} entries, root {}.", checkpoint.size, checkpoint.root));
            print_line("Nothing was signed: the log has no key. `countersign audit keys new` makes one.");
        }
        Signed::NoKey { checkpoint, keys } => {
            let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
            bail!(
                "the log has {} entries now, and nothing was signed: the private key of {} is not here; --signing-key names its file",
                checkpoint.size,
                names.join(" or ")
            )
        }
    }
    Ok(())
}

/// Seals all final records, and signs a checkpoint if a key of the log is configured.
pub(super) async fn seal_and_sign(audit: &Audit, settings: &DatabaseSettings) -> anyhow::Result<Signed> {
    audit.seal().await.context("the records cannot be sealed")?;
    Ok(audit.sign(&settings.ledger.signing).await?)
}

/// The witnesses that have not cosigned, and the reasons.
pub(super) fn describe(uncosigned: &[Uncosigned]) -> String {
    let each = uncosigned.iter().map(|Uncosigned { witness, error }| {
        format!("the witness {} ({}) has not cosigned it: {error}", witness.key.name(), witness.url.as_str())
    });
    each.collect::<Vec<_>>().join("; ")
}
