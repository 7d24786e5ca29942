//! The keys for the signatures of the ledger's log.
#![allow(rustdoc::broken_intra_doc_links, reason = "doc comments of keys are help texts, not Markdown")]

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::key_group::keys;

keys! {
    /// The signatures of the ledger's log.
    #[command(next_help_heading = "Options for signatures")]
    SigningKeys {
        /// File with a private key that signs the checkpoints of the ledger's log. Can be given several times
        /// while a key is replaced. Default: the file that `countersign init` has made for this ledger.
        #[arg(long = "signing-key", env = "COUNTERSIGN_SIGNING_KEY", value_delimiter = ',', value_name = "FILE")]
        signing_key: Vec<PathBuf>,
        /// Command that signs instead, such as the client of a key management service: it reads the text on
        /// standard input and prints an Ed25519 signature in base64.
        #[arg(long = "signing-command", env = "COUNTERSIGN_SIGNING_COMMAND", value_name = "COMMAND")]
        signing_command: String,
    }
}

impl SigningKeys {
    pub(super) fn signing(self) -> ledger::audit::Signing {
        ledger::audit::Signing {
            key_files: self.signing_key.unwrap_or_default(),
            command: self.signing_command,
            directory: key_directory(),
        }
    }
}

/// The folder of the private keys that `init` makes: `keys` in the user's folder.
fn key_directory() -> Option<PathBuf> {
    Some(config_directory()?.join("keys"))
}

/// The user's folder for files of this program: `$XDG_CONFIG_HOME/countersign`, or that below `~/.config`, or on Windows
/// below `%APPDATA%`.
pub(crate) fn config_directory() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let usual = || if cfg!(windows) { absolute("APPDATA") } else { Some(absolute("HOME")?.join(".config")) };
    let config = absolute("XDG_CONFIG_HOME").or_else(usual)?;
    Some(config.join("countersign"))
}
