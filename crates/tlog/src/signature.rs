//! Signature lines of notes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    pub(crate) name: String,
    pub(crate) id: [u8; 4],
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SignatureError(pub(crate) &'static str);

impl Signature {
    pub(crate) fn new(name: &str, id: [u8; 4], bytes: &[u8]) -> Self {
        Self { name: name.to_owned(), id, bytes: bytes.to_vec() }
    }

    /// Parses signature lines, each with a line break at its end.
    pub fn parse_lines(lines: &str) -> Result<Vec<Self>, SignatureError> {
        let lines = lines.strip_suffix('\n').ok_or(SignatureError("the last line has no end"))?;
        lines.split('\n').map(Self::parse).collect()
    }

    fn parse(line: &str) -> Result<Self, SignatureError> {
        let malformed = SignatureError("a signature is a dash, a name and base64");
        let (name, base64) = line.strip_prefix("\u{2014} ").and_then(|line| line.split_once(' ')).ok_or(malformed)?;
        let bytes = STANDARD.decode(base64).map_err(|_| malformed)?;
        let (id, signature) = bytes.split_first_chunk::<4>().ok_or(malformed)?;
        if !is_key_name(name) || signature.is_empty() {
            return Err(malformed);
        }
        Ok(Self::new(name, *id, signature))
    }
}

impl std::fmt::Display for Signature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, id, bytes } = self;
        writeln!(f, "\u{2014} {name} {}", STANDARD.encode([id.as_slice(), bytes].concat()))
    }
}

/// Whether a name may be used in a signature line.
pub(crate) fn is_key_name(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(|c| c.is_whitespace() || c == '+')
}
