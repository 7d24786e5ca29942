//! The file of a witness: its private key and the checkpoints that it has cosigned. One file contains both, so that
//! the key cannot be restored without the checkpoints.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tlog::{Checkpoint, CheckpointError, KeyError, KeyKind, NoteError, SignedNote, SigningKey};

/// The file as JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    /// `PRIVATE+KEY+name+id+base64`.
    key: String,
    /// The newest cosigned checkpoint of each log, as signed notes.
    cosigned: Vec<String>,
}

/// The open file of a witness. No other process has it open.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    key: SigningKey,
    cosigned: Vec<(Checkpoint, SignedNote)>,
    /// The lock, held as long as this value lives.
    _lock: File,
}

/// The reason why a file cannot be used as the file of a witness.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be used as the file of a witness: {reason}", path.display())]
pub struct StateFileError {
    path: PathBuf,
    reason: Reason,
}

#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it does not exist; `countersign witness new` makes it")]
    Missing,
    #[error("another process serves it")]
    Locked,
    #[error("others than its owner may read it (mode {0:o}): chmod 600")]
    Mode(u32),
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("{0}")]
    Key(#[from] KeyError),
    #[error("it has the key of a log")]
    LogKey,
    #[error("a checkpoint in it is not cosigned by its key: {0}")]
    Note(#[from] NoteError),
    #[error("{0}")]
    Checkpoint(#[from] CheckpointError),
}

impl StateFile {
    /// Creates the file of a new witness, readable only by its owner.
    ///
    /// # Errors
    /// [`StateFileError`] if the file exists or cannot be written.
    pub fn create(path: &Path, key: &SigningKey) -> Result<(), StateFileError> {
        let made = (|| {
            let mut file = os::private(OpenOptions::new().write(true).create_new(true)).open(path)?;
            write(&mut file, &Stored { key: key.to_secret_text(), cosigned: Vec::new() })?;
            sync_directory(path)
        })();
        made.map_err(|error| StateFileError { path: path.to_owned(), reason: error.into() })
    }

    /// Reads and locks the file.
    pub fn open(path: &Path) -> Result<Self, StateFileError> {
        Self::read(path).map_err(|reason| StateFileError { path: path.to_owned(), reason })
    }

    fn read(path: &Path) -> Result<Self, Reason> {
        if !path.exists() {
            return Err(Reason::Missing);
        }
        // Each write replaces the file itself, so a separate file is locked.
        let lock = File::create(beside(path, "lock"))?;
        lock.try_lock().map_err(|_| Reason::Locked)?;
        let file = File::open(path)?;
        let mode = os::mode(&file.metadata()?);
        if mode & 0o077 != 0 {
            return Err(Reason::Mode(mode));
        }
        let Stored { key, cosigned } = serde_json::from_reader(file)?;
        let key: SigningKey = key.parse()?;
        if key.verifier_key().kind() != KeyKind::Witness {
            return Err(Reason::LogKey);
        }
        let parse = |note: &String| {
            let note: SignedNote = note.parse()?;
            note.verify(std::slice::from_ref(key.verifier_key()))?;
            Ok::<_, Reason>((note.text().parse()?, note))
        };
        let cosigned = cosigned.iter().map(parse).collect::<Result<_, _>>()?;
        Ok(Self { path: path.to_owned(), key, cosigned, _lock: lock })
    }

    #[must_use]
    pub const fn key(&self) -> &SigningKey {
        &self.key
    }

    /// The newest cosigned checkpoint of each log.
    pub(crate) fn cosigned(&self) -> &[(Checkpoint, SignedNote)] {
        &self.cosigned
    }

    /// Stores the newest checkpoint of a log. It is on the disk when this returns.
    pub(crate) fn keep(&mut self, checkpoint: Checkpoint, note: SignedNote) -> io::Result<()> {
        let mut cosigned = self.cosigned.clone();
        cosigned.retain(|(kept, _)| kept.origin != checkpoint.origin);
        cosigned.push((checkpoint, note));
        let notes = cosigned.iter().map(|(_, note)| note.to_string()).collect();
        let new = beside(&self.path, "new");
        let mut file = os::private(OpenOptions::new().write(true).create(true).truncate(true)).open(&new)?;
        write(&mut file, &Stored { key: self.key.to_secret_text(), cosigned: notes })?;
        std::fs::rename(&new, &self.path)?;
        // From here on the new file is in use, whether or not its name is on the disk yet.
        self.cosigned = cosigned;
        sync_directory(&self.path)
    }
}

fn write(file: &mut File, stored: &Stored) -> io::Result<()> {
    file.write_all(format!("{}\n", serde_json::to_string_pretty(stored)?).as_bytes())?;
    file.sync_all()
}

/// The path of a file beside another one: `witness.json.lock`.
fn beside(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}

/// Syncs the folder of a file: a new name of the file is on the disk only after that.
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    os::sync_folder(parent)
}
