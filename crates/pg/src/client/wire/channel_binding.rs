//! Channel binding of SCRAM: a hash of the server's certificate (RFC 5929, section 4).

use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;

/// `sha*WithRSAEncryption`, 1.2.840.113549.1.1.x.
const RSA: [u8; 8] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
/// `ecdsa-with-SHA*`, 1.2.840.10045.4.x and 1.2.840.10045.4.3.x.
const ECDSA: [u8; 6] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04];

/// The hash of a certificate in DER by the hash function of its own signature; by SHA-256 where that one is MD5 or
/// SHA-1. `None` for signatures that do not name a hash function in this way (Ed25519, RSASSA-PSS).
pub(super) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    // Certificate ::= SEQUENCE { tbsCertificate SEQUENCE, signatureAlgorithm SEQUENCE { OID, .. }, .. } (RFC 5280, 4.1)
    let (fields, _) = element(certificate, SEQUENCE)?;
    let (_, behind) = element(fields, SEQUENCE)?;
    let (algorithm, _) = element(behind, SEQUENCE)?;
    let (oid, _) = element(algorithm, OBJECT_IDENTIFIER)?;
    let (rsa, ecdsa) = (oid.strip_prefix(&RSA), oid.strip_prefix(&ECDSA));
    Some(match (rsa, ecdsa) {
        (Some([4 | 5 | 11]), _) | (_, Some([1] | [3, 2])) => Sha256::digest(certificate).to_vec(),
        (Some([12]), _) | (_, Some([3, 3])) => Sha384::digest(certificate).to_vec(),
        (Some([13]), _) | (_, Some([3, 4])) => Sha512::digest(certificate).to_vec(),
        (Some([14]), _) | (_, Some([3, 1])) => Sha224::digest(certificate).to_vec(),
        _ => return None,
    })
}

/// The content of the DER element at the beginning, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..0x80 => (usize::from(*first), rest),
        _ => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length =
                digits.iter().try_fold(0_usize, |sum, digit| sum.checked_mul(256)?.checked_add((*digit).into()));
            (length?, rest)
        }
    };
    if *found == tag { rest.split_at_checked(length) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate with this signature algorithm and a body of so many bytes.
    fn certificate(oid: &[u8], body: usize) -> Vec<u8> {
        let der = |tag: u8, content: &[u8]| {
            let length = u32::try_from(content.len()).unwrap().to_be_bytes();
            [&[tag, 0x84], length.as_slice(), content].concat()
        };
        let algorithm = der(SEQUENCE, &[der(OBJECT_IDENTIFIER, oid), vec![5, 0]].concat());
        der(SEQUENCE, &[der(SEQUENCE, &vec![7; body]), algorithm, der(3, &[0; 9])].concat())
    }

    #[test]
    fn the_hash_is_that_of_the_signature_and_never_weaker_than_sha_256() {
        for (oid, bytes) in [
            ([&RSA[..], &[4]].concat(), Some(32)),
            ([&RSA[..], &[5]].concat(), Some(32)),
            ([&RSA[..], &[11]].concat(), Some(32)),
            ([&RSA[..], &[12]].concat(), Some(48)),
            ([&RSA[..], &[13]].concat(), Some(64)),
            ([&RSA[..], &[14]].concat(), Some(28)),
            ([&RSA[..], &[10]].concat(), None),
            ([&ECDSA[..], &[1]].concat(), Some(32)),
            ([&ECDSA[..], &[3, 2]].concat(), Some(32)),
            ([&ECDSA[..], &[3, 3]].concat(), Some(48)),
            ([&ECDSA[..], &[3, 4]].concat(), Some(64)),
            (vec![0x2b, 0x65, 0x70], None),
        ] {
            assert_eq!(end_point(&certificate(&oid, 300)).map(|hash| hash.len()), bytes, "{oid:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_certificate_makes_the_reader_panic(bytes: Vec<u8>, cut in 0..60_usize) {
            let _ = end_point(&bytes);
            let whole = certificate(&ECDSA, 3);
            let _ = end_point(&whole[..cut.min(whole.len())]);
        }
    }
}
