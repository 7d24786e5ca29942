//! `countersign audit keys`, and the key that `init` makes.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use ledger::audit::{Audit, Signing, read_key, write_key};
use tlog::{KeyKind, SigningKey, VerifierKey};

use super::args::LogKeysCommand;
use super::open;
use crate::settings::DatabaseSettings;
use crate::terminal::os_user;
use crate::terminal::{print_line, print_lines};

pub(super) async fn run(command: &LogKeysCommand, settings: &DatabaseSettings) -> anyhow::Result<()> {
    let audit = open(settings).await?;
    match command {
        LogKeysCommand::List(_) => {
            for key in audit.keys().await? {
                print_line(&format!("{}{}", key.vkey, if key.is_retired { "  (retired)" } else { "" }));
            }
        }
        LogKeysCommand::New(_) => {
            let ledger_id = audit.ledger_id().await?;
            let signing = &settings.ledger.signing;
            let (key, path) = add_new(&audit, signing, key_file(signing, &ledger_id).map(free_file)?).await?;
            print_lines(describe(&key, &path));
        }
        LogKeysCommand::Add(arguments) => {
            ensure!(
                arguments.own.vkey.kind() == KeyKind::Log,
                "this is the key of a witness: the key of a log has the type 1"
            );
            add(&audit, &arguments.own.vkey).await?;
            print_line("The key signs the log from now on.");
        }
        LogKeysCommand::Retire(arguments) => {
            let retired = audit.retire_key(&arguments.own.vkey.to_string(), &os_user::name()).await;
            retired.context("the key cannot be retired; this takes a member of countersign_owner")?;
            print_line("The key does not sign the log any more.");
        }
    }
    Ok(())
}

/// Makes a key for a log that has none. Returns lines that report it.
pub(crate) async fn ensure_key(audit: &Audit, signing: &Signing) -> anyhow::Result<Vec<String>> {
    let keys = audit.keys().await?;
    let active: Vec<_> = keys.into_iter().filter(|key| !key.is_retired).collect();
    if !active.is_empty() {
        return Ok(active.into_iter().map(|key| format!("The log of the ledger is signed by {}", key.vkey)).collect());
    }
    if signing.command.is_some() {
        return Ok(vec![
            "The log has no key yet: `countersign audit keys add VKEY` adds that of the signing command.".to_owned(),
        ]);
    }
    let ledger_id = audit.ledger_id().await?;
    let (key, path) = add_new(audit, signing, key_file(signing, &ledger_id)?).await?;
    Ok(describe(&key, &path))
}

fn describe(key: &VerifierKey, path: &std::path::Path) -> Vec<String> {
    vec![
        format!("The log of the ledger is signed with the private key in {}.", path.display()),
        "Its public key, for auditors; keep it where the database's administrators cannot change it:".to_owned(),
        format!("  {key}"),
    ]
}

/// The file for the key that `init` makes.
fn key_file(signing: &Signing, ledger_id: &str) -> anyhow::Result<PathBuf> {
    signing.default_key_file(ledger_id).context(
        "there is no folder for the private key of the log: give --signing-key FILE, or set HOME or XDG_CONFIG_HOME",
    )
}

/// Reads the private key from the configured file or from `file`, or makes it there, and adds its public key to the
/// log.
async fn add_new(audit: &Audit, signing: &Signing, file: PathBuf) -> anyhow::Result<(VerifierKey, PathBuf)> {
    let path = signing.key_files.last().cloned().unwrap_or(file);
    if !path.exists() {
        let known = audit.keys().await?;
        let name = known.first().and_then(|key| key.vkey.split('+').next()).map(str::to_owned);
        let name = match name {
            Some(name) => name,
            None => format!("countersign/{}", audit.ledger_id().await?),
        };
        let written = write_key(&path, &SigningKey::generate(&name, KeyKind::Log)?);
        // Another `init` may have created the file in the meantime.
        if !path.exists() {
            written?;
        }
    }
    let key = read_key(&path)?;
    ensure!(key.verifier_key().kind() == KeyKind::Log, "{} has the key of a witness", path.display());
    add(audit, key.verifier_key()).await?;
    Ok((key.verifier_key().clone(), path))
}

/// A path that does not exist yet, for a further key.
fn free_file(path: PathBuf) -> PathBuf {
    let mut free = path.clone();
    let mut number = 2;
    while free.exists() {
        free = path.with_extension(format!("{number}.key"));
        number += 1;
    }
    free
}

async fn add(audit: &Audit, key: &VerifierKey) -> anyhow::Result<()> {
    let added = audit.add_key(key, &os_user::name()).await;
    added.context("the key cannot be added to the log; this takes a member of countersign_owner")
}
