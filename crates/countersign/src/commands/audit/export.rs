//! `countersign audit export`: writes the log into a folder that anyone can verify.

use anyhow::Context;
use ledger::audit::{Exported, Parts, Signed};

use super::args::ExportArgs;
use super::{open, seal};
use crate::settings::DatabaseSettings;
use crate::terminal::os_user;
use crate::terminal::print_line;

const README: &[u8] = include_bytes!("bundle_readme.md");
const VERIFY_PY: &[u8] = include_bytes!("../../../../../docs/verify.py");

pub(super) async fn run(arguments: &ExportArgs, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let audit = open(settings).await?;
    match seal::seal_and_sign(&audit, settings).await {
        Ok(Signed::Note(_)) => {
            let (_, uncosigned) = audit.cosign(&settings.ledger.signing).await?;
            if !uncosigned.is_empty() {
                tracing::warn!("the exported checkpoint lacks cosignatures: {}", seal::describe(&uncosigned));
            }
        }
        Ok(Signed::NoKey { .. }) => tracing::warn!("no key of the log is here: what was signed before is exported"),
        Err(error) => tracing::warn!("what was signed before is exported, and nothing behind it: {error:#}"),
    }
    let parts = if arguments.without_parts { Parts::Withheld } else { Parts::Included };
    let extra = [("README.md", README), ("verify.py", VERIFY_PY)];
    let exported = audit.export(&arguments.dir, parts, &extra, &os_user::name()).await;
    let Exported { checkpoint, parts } =
        exported.with_context(|| format!("the log cannot be exported to {}", arguments.dir.display()))?;
    print_line(&format!(
        "Exported {} entries of {} with {parts} parts to {}.",
        checkpoint.size,
        checkpoint.origin,
        arguments.dir.display()
    ));
    print_line(
        "To verify, with the public key that `countersign audit keys list` prints, from a source that you trust:",
    );
    print_line(&format!(
        "  countersign audit verify {0} --vkey KEY\n  python3 verify.py {0} --vkey KEY",
        arguments.dir.display()
    ));
    Ok(())
}
