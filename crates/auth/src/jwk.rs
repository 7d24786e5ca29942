//! The keys of an issuer (RFC 7517, RFC 7518), and the algorithms that each may verify.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;

/// The most keys of a set. Issuers publish a handful.
const MAX_KEYS: usize = 100;

/// Signature algorithms of JWTs. All are asymmetric: with a shared secret, every reader of the key set could sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl Algorithm {
    const RSA: [Self; 6] = [Self::Rs256, Self::Rs384, Self::Rs512, Self::Ps256, Self::Ps384, Self::Ps512];

    /// The algorithm with this name in a header or a key. `None` for all others, such as `none` and `HS256`.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            "PS256" => Self::Ps256,
            "PS384" => Self::Ps384,
            "PS512" => Self::Ps512,
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            // RFC 9864 names the curve.
            "EdDSA" | "Ed25519" => Self::EdDsa,
            _ => return None,
        })
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PublicKey {
    id: Option<String>,
    /// The algorithms that the key may verify, by its type and its `alg` member. A token cannot add one.
    algorithms: Vec<Algorithm>,
    material: Material,
}

#[derive(Debug, PartialEq, Eq)]
enum Material {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// An uncompressed point of P-256 or P-384, or a point of Ed25519.
    Point(Vec<u8>),
}

impl PublicKey {
    /// Whether the signature over the message was made with this key.
    pub(crate) fn verify(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        if !self.algorithms.contains(&algorithm) {
            return false;
        }
        let by_point = |how: &'static dyn signature::VerificationAlgorithm| match &self.material {
            Material::Point(point) => UnparsedPublicKey::new(how, point).verify(message, signature).is_ok(),
            Material::Rsa { .. } => false,
        };
        let by_rsa = |how: &'static signature::RsaParameters| match &self.material {
            Material::Rsa { modulus, exponent } => {
                RsaPublicKeyComponents { n: modulus, e: exponent }.verify(how, message, signature).is_ok()
            }
            Material::Point(_) => false,
        };
        match algorithm {
            Algorithm::Rs256 => by_rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::Rs384 => by_rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::Rs512 => by_rsa(&signature::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::Ps256 => by_rsa(&signature::RSA_PSS_2048_8192_SHA256),
            Algorithm::Ps384 => by_rsa(&signature::RSA_PSS_2048_8192_SHA384),
            Algorithm::Ps512 => by_rsa(&signature::RSA_PSS_2048_8192_SHA512),
            Algorithm::Es256 => by_point(&signature::ECDSA_P256_SHA256_FIXED),
            Algorithm::Es384 => by_point(&signature::ECDSA_P384_SHA384_FIXED),
            Algorithm::EdDsa => by_point(&signature::ED25519),
        }
    }
}

/// The members of a key that are read. Others are ignored, as the RFC requires.
#[derive(Deserialize)]
struct RawJwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl RawJwk {
    /// The key, if it is for signatures and of a supported type.
    fn into_key(self) -> Option<PublicKey> {
        let is_for_signatures = self.usage.as_deref().is_none_or(|usage| usage == "sig")
            && self.key_ops.as_ref().is_none_or(|ops| ops.iter().any(|op| op == "verify"));
        let (possible, material): (&[Algorithm], Material) = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => (&Algorithm::RSA, rsa(self.n.as_deref()?, self.e.as_deref()?)?),
            ("EC", Some("P-256")) => (&[Algorithm::Es256], point(self.x.as_deref()?, self.y.as_deref()?, 32)?),
            ("EC", Some("P-384")) => (&[Algorithm::Es384], point(self.x.as_deref()?, self.y.as_deref()?, 48)?),
            ("OKP", Some("Ed25519")) => {
                let bytes = decoded(self.x.as_deref()?).filter(|bytes| bytes.len() == 32)?;
                (&[Algorithm::EdDsa], Material::Point(bytes))
            }
            _ => return None,
        };
        let algorithms: Vec<Algorithm> = match &self.alg {
            Some(own) => Algorithm::from_name(own).filter(|own| possible.contains(own)).into_iter().collect(),
            None => possible.to_vec(),
        };
        (is_for_signatures && !algorithms.is_empty()).then_some(PublicKey { id: self.kid, algorithms, material })
    }
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

/// Accepts 2048 to 8192 bits, the range of `ring`. Leading zeros are removed: some issuers add them, and `ring`
/// rejects them.
fn rsa(n: &str, e: &str) -> Option<Material> {
    let without_zeros = |bytes: Vec<u8>| bytes.into_iter().skip_while(|byte| *byte == 0).collect::<Vec<_>>();
    let (modulus, exponent) = (without_zeros(decoded(n)?), without_zeros(decoded(e)?));
    let is_strong = (256..=1024).contains(&modulus.len()) && modulus.first().is_some_and(|first| *first >= 0x80)
        || (257..=1024).contains(&modulus.len());
    (is_strong && !exponent.is_empty()).then_some(Material::Rsa { modulus, exponent })
}

fn point(x: &str, y: &str, width: usize) -> Option<Material> {
    let (x, y) = (decoded(x)?, decoded(y)?);
    (x.len() == width && y.len() == width).then(|| Material::Point([[4].as_slice(), &x, &y].concat()))
}

#[derive(Debug)]
pub(crate) struct Jwks(Vec<Arc<PublicKey>>);

/// Why a text is not a usable key set.
#[derive(Debug, thiserror::Error)]
pub enum JwksError {
    /// The text is not JSON, or has no list `keys`.
    #[error("not a JSON Web Key Set (RFC 7517): {0}")]
    Format(#[from] serde_json::Error),
    /// No key of the set can verify signatures.
    #[error(
        "it holds no key that can be used: RSA of 2048 to 8192 bits, EC on P-256 or P-384, or Ed25519, for signatures"
    )]
    Empty,
    /// The set has too many keys.
    #[error("it holds more than {MAX_KEYS} keys")]
    TooMany,
}

impl Jwks {
    pub(crate) fn parse(json: &[u8]) -> Result<Self, JwksError> {
        #[derive(Deserialize)]
        struct Document {
            keys: Vec<Value>,
        }
        let document: Document = serde_json::from_slice(json)?;
        if document.keys.len() > MAX_KEYS {
            return Err(JwksError::TooMany);
        }
        // A key of an unknown type must not invalidate the others.
        let keys = document.keys.into_iter().filter_map(|key| serde_json::from_value::<RawJwk>(key).ok()?.into_key());
        let keys: Vec<Arc<PublicKey>> = keys.map(Arc::new).collect();
        if keys.is_empty() { Err(JwksError::Empty) } else { Ok(Self(keys)) }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the issuer still publishes this key.
    pub(crate) fn contains(&self, key: &PublicKey) -> bool {
        self.0.iter().any(|published| **published == *key)
    }

    /// The keys that may have signed a token with this header: those with its id. Without an id, the key for its
    /// algorithm, if there is exactly one.
    pub(crate) fn candidates(&self, id: Option<&str>, algorithm: Algorithm) -> Vec<&Arc<PublicKey>> {
        let able = self.0.iter().filter(|key| key.algorithms.contains(&algorithm));
        match id {
            Some(id) => able.filter(|key| key.id.as_deref() == Some(id)).collect(),
            None => {
                let able: Vec<&Arc<PublicKey>> = able.collect();
                if able.len() == 1 { able } else { Vec::new() }
            }
        }
    }
}
