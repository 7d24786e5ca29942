//! The signer's state outside of the database: private keys, and the last checkpoint that it signed.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use tlog::{Checkpoint, SignedNote, SigningKey};

use super::sign_error::SignError;

/// The keys and commands that sign the checkpoints of a log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Signing {
    /// Files with private keys. All of them that are keys of the log sign, for example two while a key is replaced.
    /// The last signed checkpoint is stored beside the first file.
    pub key_files: Vec<PathBuf>,
    /// A command that reads the text of a note and prints an Ed25519 signature of it in base64, such as the client of
    /// a key management service.
    pub command: Option<String>,
    /// The folder of the default key file, and of the last checkpoint that a command signed.
    pub directory: Option<PathBuf>,
}

impl Signing {
    /// The default file of the ledger's private key.
    #[must_use]
    pub fn default_key_file(&self, ledger_id: &str) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(format!("{ledger_id}.key")))
    }

    pub(super) fn key_files(&self, ledger_id: &str) -> Vec<PathBuf> {
        if !self.key_files.is_empty() {
            return self.key_files.clone();
        }
        let found = self.directory.as_deref().and_then(|directory| directory.read_dir().ok()).into_iter().flatten();
        let paths = found.flatten().map(|entry| entry.path());
        let is_own = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with(ledger_id) && name.ends_with(".key")
        };
        let mut paths: Vec<PathBuf> = paths.filter(is_own).collect();
        paths.sort();
        paths
    }

    /// Checks that the configured key files can be read.
    pub fn check(&self) -> Result<(), SignError> {
        self.key_files.iter().try_for_each(|path| read_key(path).map(drop))
    }

    /// The file with the last checkpoint that this signer has signed.
    pub(super) fn state_file(&self, ledger_id: &str) -> Option<StateFile> {
        let beside_key = self.key_files.first().map(|file| file.with_extension("checkpoint"));
        let path = beside_key.or_else(|| Some(self.directory.as_ref()?.join(format!("{ledger_id}.checkpoint"))))?;
        Some(StateFile(path))
    }
}

/// Whether there is a command or a private key, which need not be a key of the log.
pub(super) fn has_private_key(signing: &Signing, ledger_id: &str) -> bool {
    signing.command.is_some() || signing.key_files(ledger_id).iter().any(|file| file.exists())
}

/// The file with the last checkpoint that this signer has signed, or that it knows to be signed.
#[derive(Debug)]
pub(super) struct StateFile(PathBuf);

/// Reads a private key.
///
/// # Errors
/// [`SignError::Key`], for example because other users than the owner may read the file.
pub fn read_key(path: &Path) -> Result<SigningKey, SignError> {
    let refused = |why: String| SignError::Key { path: path.to_owned(), why };
    let file = File::open(path).map_err(|error| refused(error.to_string()))?;
    let mode = os::mode(&file.metadata().map_err(|error| refused(error.to_string()))?);
    if mode & 0o077 != 0 {
        return Err(refused(format!("others than its owner may read it (mode {mode:o}): chmod 600")));
    }
    let text = std::io::read_to_string(file).map_err(|error| refused(error.to_string()))?;
    text.trim_end().parse().map_err(|error| refused(format!("{error}")))
}

/// Writes a new private key to a file that only its owner may read.
pub fn write_key(path: &Path, key: &SigningKey) -> Result<(), SignError> {
    let refused = |error: std::io::Error| SignError::Key { path: path.to_owned(), why: error.to_string() };
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(refused)?;
    }
    // The file is written completely before it gets its name, because another process may read it as soon as it
    // exists.
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = os::private(File::options().write(true).create_new(true)).open(&new).map_err(refused)?;
    let written = file.write_all(format!("{}\n", key.to_secret_text()).as_bytes()).and_then(|()| file.sync_all());
    let linked = written.and_then(|()| std::fs::hard_link(&new, path));
    std::fs::remove_file(&new).and(linked).map_err(refused)
}

impl StateFile {
    /// The stored checkpoint. Its signatures are not verified.
    pub(super) fn read(&self) -> Result<Option<Checkpoint>, SignError> {
        let malformed = |error: &dyn std::fmt::Display| self.refused(format!("it is malformed: {error}"));
        match std::fs::read_to_string(&self.0) {
            Ok(text) => {
                let note: SignedNote = text.parse().map_err(|error| malformed(&error))?;
                note.text().parse().map(Some).map_err(|error| malformed(&error))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.refused(error.to_string())),
        }
    }

    /// Stores a checkpoint, unless a larger one is stored already. Several processes may call this at the same time.
    pub(super) fn keep(&self, note: &SignedNote, size: u64) -> Result<(), SignError> {
        let refused = |error: std::io::Error| self.refused(error.to_string());
        if let Some(directory) = self.0.parent() {
            std::fs::create_dir_all(directory).map_err(refused)?;
        }
        let lock = File::create(self.0.with_extension("lock")).map_err(refused)?;
        lock.lock().map_err(refused)?;
        if self.read()?.is_some_and(|kept| kept.size >= size) {
            return Ok(());
        }
        let new = self.0.with_extension("new");
        let mut file = File::create(&new).map_err(refused)?;
        file.write_all(note.to_string().as_bytes()).and_then(|()| file.sync_all()).map_err(refused)?;
        std::fs::rename(&new, &self.0).map_err(refused)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    fn refused(&self, why: String) -> SignError {
        SignError::State { path: self.0.clone(), why }
    }
}
