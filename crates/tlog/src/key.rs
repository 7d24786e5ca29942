//! Ed25519 keys of logs and of witnesses, as text (c2sp.org/signed-note, c2sp.org/tlog-cosignature).

use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use crate::Hash;
use crate::hash::{from_hex, to_hex};
use crate::signature::{Signature, is_key_name};

/// What a key signs, and so whose key it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyKind {
    /// The text of a note: the key of a log (signature type 0x01).
    Log,
    /// The text of a checkpoint with a time: the key of a witness (signature type 0x04).
    Witness,
}

/// A public key: `name+id+base64`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct VerifierKey {
    name: String,
    id: [u8; 4],
    kind: KeyKind,
    public: [u8; 32],
}

/// A private key. `Debug` does not show it.
pub struct SigningKey {
    verifier: VerifierKey,
    seed: [u8; 32],
    pair: Ed25519KeyPair,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text does not have the form `name+id+base64`.
    #[error("a key is a name, 8 hexadecimal digits and base64, with + between them{0}")]
    Form(&'static str),
    /// The name is empty, or has a space or `+`.
    #[error("the name of a key is not empty, and has no space and no +")]
    Name,
    /// The algorithm is not Ed25519.
    #[error("the key is not an Ed25519 key of a log (type 1) or of a witness (type 4)")]
    Kind,
    /// The id does not belong to this name and key.
    #[error("the id of the key does not fit its name and its public key")]
    Id,
    /// The operating system returned no random bytes, or they are not a valid key.
    #[error("no key could be made")]
    Random,
}

const SECRET_PREFIX: &str = "PRIVATE+KEY+";

impl KeyKind {
    const fn byte(self) -> u8 {
        match self {
            Self::Log => 0x01,
            Self::Witness => 0x04,
        }
    }

    const fn parse(byte: u8) -> Option<Self> {
        match byte {
            0x01 => Some(Self::Log),
            0x04 => Some(Self::Witness),
            _ => None,
        }
    }
}

impl VerifierKey {
    fn new(name: &str, kind: KeyKind, public: [u8; 32]) -> Result<Self, KeyError> {
        if !is_key_name(name) {
            return Err(KeyError::Name);
        }
        let hash = Hash::of(&[name.as_bytes(), b"\n", &[kind.byte()], &public]);
        let [a, b, c, d, ..] = *hash.as_bytes();
        Ok(Self { name: name.to_owned(), id: [a, b, c, d], kind, public })
    }

    /// The name. For the key of a log, it is the origin of the log's checkpoints.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the key signs.
    #[must_use]
    pub const fn kind(&self) -> KeyKind {
        self.kind
    }

    pub(crate) const fn id(&self) -> [u8; 4] {
        self.id
    }

    #[must_use]
    pub const fn public(&self) -> &[u8; 32] {
        &self.public
    }

    /// Verifies the bytes after the id in a signature line. Returns the time of a cosignature, or 0.
    pub(crate) fn verify(&self, text: &str, signature: &[u8]) -> Option<u64> {
        let key = UnparsedPublicKey::new(&ED25519, &self.public);
        match self.kind {
            KeyKind::Log => key.verify(text.as_bytes(), signature).ok().map(|()| 0),
            KeyKind::Witness => {
                let (time, signature) = signature.split_first_chunk::<8>()?;
                let time = u64::from_be_bytes(*time);
                key.verify(cosigned(text, time).as_bytes(), signature).ok()?;
                i64::try_from(time).is_ok().then_some(time)
            }
        }
    }

    /// The signature of a log's key over the text, from its 64 bytes in base64; `None` if this key did not make it.
    #[must_use]
    pub fn accept(&self, text: &str, base64: &str) -> Option<Signature> {
        let bytes = STANDARD.decode(base64).ok()?;
        (self.kind == KeyKind::Log).then(|| self.verify(text, &bytes)).flatten()?;
        Some(Signature::new(&self.name, self.id, &bytes))
    }
}

/// The text that a witness signs.
fn cosigned(text: &str, time: u64) -> String {
    format!("cosignature/v1\ntime {time}\n{text}")
}

impl FromStr for VerifierKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let mut parts = text.splitn(3, '+');
        let (Some(name), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(KeyError::Form(""));
        };
        let id = from_hex(id).ok_or(KeyError::Form(": the id is not hexadecimal"))?;
        let key = STANDARD.decode(key).map_err(|_| KeyError::Form(": the key is not base64"))?;
        let (kind, public) = key.split_first().ok_or(KeyError::Kind)?;
        let kind = KeyKind::parse(*kind).ok_or(KeyError::Kind)?;
        let parsed = Self::new(name, kind, public.try_into().map_err(|_| KeyError::Kind)?)?;
        if parsed.id.as_slice() == id { Ok(parsed) } else { Err(KeyError::Id) }
    }
}

impl std::fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = [&[self.kind.byte()], self.public.as_slice()].concat();
        write!(f, "{}+{}+{}", self.name, to_hex(&self.id), STANDARD.encode(key))
    }
}

impl SigningKey {
    /// A new key from random bytes of the operating system.
    pub fn generate(name: &str, kind: KeyKind) -> Result<Self, KeyError> {
        let mut seed = [0; 32];
        SystemRandom::new().fill(&mut seed).map_err(|_| KeyError::Random)?;
        Self::from_seed(name, kind, seed)
    }

    /// The key that belongs to a seed of 32 bytes.
    pub fn from_seed(name: &str, kind: KeyKind, seed: [u8; 32]) -> Result<Self, KeyError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| KeyError::Random)?;
        let public = pair.public_key().as_ref().try_into().map_err(|_| KeyError::Random)?;
        Ok(Self { verifier: VerifierKey::new(name, kind, public)?, seed, pair })
    }

    #[must_use]
    pub const fn verifier_key(&self) -> &VerifierKey {
        &self.verifier
    }

    /// The private key as text, as Go's note package has it: `PRIVATE+KEY+name+id+base64`.
    #[must_use]
    pub fn to_secret_text(&self) -> String {
        let VerifierKey { name, id, kind, .. } = &self.verifier;
        let key = [&[kind.byte()], self.seed.as_slice()].concat();
        format!("{SECRET_PREFIX}{name}+{}+{}", to_hex(id), STANDARD.encode(key))
    }

    /// Signs the text of a note. A witness also signs this time, in seconds since 1970.
    #[must_use]
    pub fn sign(&self, text: &str, time: u64) -> Signature {
        let VerifierKey { name, id, kind, .. } = &self.verifier;
        let bytes = match kind {
            KeyKind::Log => self.pair.sign(text.as_bytes()).as_ref().to_vec(),
            KeyKind::Witness => {
                [&time.to_be_bytes(), self.pair.sign(cosigned(text, time).as_bytes()).as_ref()].concat()
            }
        };
        Signature::new(name, *id, &bytes)
    }
}

impl FromStr for SigningKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let text = text.strip_prefix(SECRET_PREFIX).ok_or(KeyError::Form(", behind PRIVATE+KEY+"))?;
        let mut parts = text.splitn(3, '+');
        let (Some(name), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(KeyError::Form(", behind PRIVATE+KEY+"));
        };
        let id = from_hex(id).ok_or(KeyError::Form(": the id is not hexadecimal"))?;
        let key = STANDARD.decode(key).map_err(|_| KeyError::Form(": the key is not base64"))?;
        let (kind, seed) = key.split_first().ok_or(KeyError::Kind)?;
        let kind = KeyKind::parse(*kind).ok_or(KeyError::Kind)?;
        let parsed = Self::from_seed(name, kind, seed.try_into().map_err(|_| KeyError::Kind)?)?;
        if parsed.verifier.id.as_slice() == id { Ok(parsed) } else { Err(KeyError::Id) }
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SigningKey").field(&self.verifier).finish()
    }
}
