//! Signed notes (c2sp.org/signed-note): a text with signatures below it.

use std::str::FromStr;

use crate::signature::{Signature, SignatureError};
use crate::{SigningKey, VerifierKey};

pub(crate) const MAX_NOTE_BYTES: usize = 65_536;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedNote {
    text: String,
    signatures: Vec<Signature>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// The text is not a signed note.
    #[error("it is no signed note: {0}")]
    Malformed(&'static str),
    /// No known key has signed the note.
    #[error("it is not signed by a trusted key")]
    Unsigned,
    /// A signature with the name and the id of a known key is invalid, or occurs twice.
    #[error("the signature of {0} is invalid")]
    Invalid(String),
}

impl From<SignatureError> for NoteError {
    fn from(error: SignatureError) -> Self {
        Self::Malformed(error.0)
    }
}

impl SignedNote {
    /// A note with this text, which must end with a line break, and these signatures.
    #[must_use]
    pub const fn new(text: String, signatures: Vec<Signature>) -> Self {
        Self { text, signatures }
    }

    /// A note with this text and a signature of each of these log keys.
    #[must_use]
    pub fn sign(text: String, keys: &[SigningKey]) -> Self {
        let signatures = keys.iter().map(|key| key.sign(&text, 0)).collect();
        Self { text, signatures }
    }

    /// The text, with its final line break.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Adds those signatures that the note does not have yet.
    pub fn add(&mut self, signatures: impl IntoIterator<Item = Signature>) {
        for signature in signatures {
            if !self.signatures.contains(&signature) {
                self.signatures.push(signature);
            }
        }
    }

    /// Removes every signature that is not a valid signature of one of these keys.
    pub fn retain_signed_by(&mut self, keys: &[VerifierKey]) {
        let Self { text, signatures } = self;
        let is_valid = |line: &Signature, key: &VerifierKey| {
            key.name() == line.name && key.id() == line.id && key.verify(text, &line.bytes).is_some()
        };
        signatures.retain(|line| keys.iter().any(|key| is_valid(line, key)));
    }

    /// Verifies the signatures of these keys. Returns the keys that have signed, in the order of the lines, each with
    /// the time of its cosignature, or 0. Other signatures are ignored.
    ///
    /// # Errors
    /// [`NoteError::Unsigned`] if none of the keys has signed, [`NoteError::Invalid`] if one of their signatures is
    /// invalid.
    pub fn verify<'k>(&self, keys: &'k [VerifierKey]) -> Result<Vec<(&'k VerifierKey, u64)>, NoteError> {
        let mut signers: Vec<(&VerifierKey, u64)> = Vec::new();
        for Signature { name, id, bytes } in &self.signatures {
            let Some(key) = keys.iter().find(|key| key.name() == name && key.id() == *id) else { continue };
            let time = key.verify(&self.text, bytes).ok_or_else(|| NoteError::Invalid(name.clone()))?;
            if signers.iter().any(|(known, _)| *known == key) {
                return Err(NoteError::Invalid(name.clone()));
            }
            signers.push((key, time));
        }
        if signers.is_empty() { Err(NoteError::Unsigned) } else { Ok(signers) }
    }
}

impl FromStr for SignedNote {
    type Err = NoteError;

    fn from_str(note: &str) -> Result<Self, NoteError> {
        if note.len() > MAX_NOTE_BYTES {
            return Err(NoteError::Malformed("it is larger than 65,536 bytes"));
        }
        if note.bytes().any(|byte| byte < b' ' && byte != b'\n') {
            return Err(NoteError::Malformed("it has a control character"));
        }
        let split = note.rfind("\n\n").ok_or(NoteError::Malformed("no empty line is before the signatures"))?;
        let (text, lines) = (note.get(..=split), note.get(split + 2..));
        let (Some(text), Some(lines)) = (text, lines) else {
            return Err(NoteError::Malformed("no empty line is before the signatures"));
        };
        Ok(Self { text: text.to_owned(), signatures: Signature::parse_lines(lines)? })
    }
}

impl std::fmt::Display for SignedNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.text)?;
        self.signatures.iter().try_for_each(|signature| write!(f, "{signature}"))
    }
}
