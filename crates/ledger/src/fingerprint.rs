//! Decides which calls are identical, by SHA-256 over the tool and every effective parameter in a canonical form.

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use types::{CallerContext, Secret};

/// Computes fingerprints. All servers of one ledger must have the same key, or none.
///
/// Without a key, a reader of the ledger can guess a parameter with few possible values (a number of nine digits) by
/// hashing all of them. With a key, the hash is an HMAC, and guessing needs the key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fingerprints {
    key: Option<Secret>,
}

/// A fingerprint: 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fingerprint(String);

impl Fingerprints {
    /// SHA-256 without a key; with a key of any length, HMAC-SHA-256.
    #[must_use]
    pub const fn new(key: Option<Secret>) -> Self {
        Self { key }
    }

    /// The key, if there is one.
    #[must_use]
    pub const fn key(&self) -> Option<&Secret> {
        self.key.as_ref()
    }

    /// An id of the key, which does not reveal the key; `none` without a key.
    #[must_use]
    pub fn key_id(&self) -> String {
        if self.key.is_none() {
            return "none".to_owned();
        }
        // No tool has this name.
        self.of("countersign fingerprint key", &Map::new(), &CallerContext::default()).0.chars().take(16).collect()
    }

    /// The fingerprint of a call of `tool`. `params` are the effective parameters, including defaults and values that
    /// the server fills in. Calls with another role or other claims are different calls: they may concern other rows.
    #[must_use]
    pub fn of(&self, tool: &str, params: &Map<String, Value>, caller: &CallerContext) -> Fingerprint {
        // No tool name, parameter or context contains a NUL, so different calls have different bytes.
        let mut call = format!("{tool}\0{}", canonical_json(&Value::Object(params.clone())));
        if let Some(context) = caller.to_json() {
            call.push('\0');
            call.push_str(&context);
        }
        let digest = match &self.key {
            Some(key) => {
                let keyed = Hmac::<Sha256>::new_from_slice(key.expose().as_bytes());
                let keyed = keyed.unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
                keyed.chain_update(call).finalize().into_bytes()
            }
            None => Sha256::digest(call),
        };
        Fingerprint(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// SHA-256 of a text, in 64 hexadecimal digits.
pub(crate) fn sha256_hex(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Fingerprint {
    /// The hexadecimal digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Canonical JSON: sorted keys, no white space, and one spelling for each number (`1`, `1.0` and `1e0` are the same
/// number).
#[must_use]
pub fn canonical_json(value: &Value) -> String {
    let mut out = String::new();
    push(&mut out, value);
    out
}

fn push(out: &mut String, value: &Value) {
    match value {
        Value::Number(number) => out.push_str(&plain_number(&number.to_string())),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                push(out, item);
            }
            out.push(']');
        }
        Value::Object(object) => {
            let mut entries: Vec<_> = object.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| key.as_str());
            out.push('{');
            for (index, (key, item)) in entries.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                push(out, item);
            }
            out.push('}');
        }
        Value::Null | Value::Bool(_) | Value::String(_) => out.push_str(&value.to_string()),
    }
}

/// The maximum number of zeros that are written out for an exponent. A number with more keeps an exponent, so that
/// ten bytes of input cannot become a hundred thousand.
const MAX_ZEROS: i64 = 40;

/// `1.5e3` as `1500`, `2.50` and `25E-1` as `2.5`, `-0.0` as `0`; beyond [`MAX_ZEROS`] the digits and an exponent.
fn plain_number(number: &str) -> String {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let Ok(exponent) = exponent.parse::<i64>() else { return number.to_ascii_lowercase() };
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let joined = format!("{whole}{fraction}");
    let digits = joined.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return "0".to_owned();
    }
    let length = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
    // The number is `significant` followed by `zeros` zeros; if negative, `significant` has that many digits after
    // the decimal point.
    let zeros = (length(digits) - length(significant)).saturating_sub(length(fraction)).saturating_add(exponent);
    if zeros >= 0 {
        if zeros > MAX_ZEROS {
            return format!("{sign}{significant}e{zeros}");
        }
        return format!("{sign}{significant}{}", "0".repeat(usize::try_from(zeros).unwrap_or_default()));
    }
    let leading = zeros.saturating_neg().saturating_sub(length(significant));
    if leading > MAX_ZEROS {
        return format!("{sign}{significant}e{zeros}");
    }
    let padded = format!("{}{significant}", "0".repeat(usize::try_from(leading + 1).unwrap_or_default()));
    let point = padded.len() - usize::try_from(zeros.unsigned_abs()).unwrap_or_default();
    let (whole, fraction) = padded.split_at_checked(point).unwrap_or((&padded, ""));
    format!("{sign}{whole}.{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(tool: &str, json: &str) -> Fingerprint {
        let params = serde_json::from_str::<Value>(json).unwrap();
        Fingerprints::default().of(tool, params.as_object().unwrap(), &CallerContext::default())
    }

    #[test]
    fn the_digest_is_sha_256_or_hmac_sha_256_with_a_key() {
        // Expected values from `printf 'like_tweet\0{"tweet_id":7}' | openssl dgst -sha256 [-hmac KEY]`.
        let params = serde_json::json!({"tweet_id": 7}).as_object().unwrap().clone();
        let plain = Fingerprints::default().of("like_tweet", &params, &CallerContext::default());
        assert_eq!(plain.as_str(), "766487a451a1d8d40d90c8c08aeb6205cfd3d9102d3babee011c6bb006b699b5");
        let keyed = Fingerprints::new(Some(Secret::new("KEY"))).of("like_tweet", &params, &CallerContext::default());
        assert_eq!(keyed.as_str(), "6314853a3490aa2dd725b682098bb1274881f67fe0f6e138314f217a17b37ff5");
    }

    #[test]
    fn the_role_and_every_claim_matter() {
        let of = |context: &str| {
            Fingerprints::default().of("t", &Map::new(), &serde_json::from_str::<CallerContext>(context).unwrap())
        };
        let contexts = [
            "{}",
            r#"{"role":"app_eu"}"#,
            r#"{"role":"app_us"}"#,
            r#"{"claims":{"tenant":"a"}}"#,
            r#"{"claims":{"tenant":"b"}}"#,
            r#"{"role":"app_eu","claims":{"tenant":"a"}}"#,
        ];
        let different: std::collections::HashSet<Fingerprint> = contexts.into_iter().map(of).collect();
        assert_eq!(different.len(), contexts.len());
    }

    #[test]
    fn key_order_white_space_and_exponents_do_not_matter() {
        let plain = fingerprint("t", r#"{"a":1500,"b":{"x":[1,null],"y":"é"}}"#);
        assert_eq!(plain, fingerprint("t", r#"{ "b": {"y":"\u00e9", "x":[1, null]}, "a": 1.5e3 }"#));
        assert_eq!(plain.as_str().len(), 64);
    }

    #[test]
    fn the_tool_and_every_digit_of_every_parameter_matter() {
        let plain = fingerprint("t", r#"{"a":9007199254740992}"#);
        assert_ne!(plain, fingerprint("u", r#"{"a":9007199254740992}"#));
        assert_ne!(plain, fingerprint("t", r#"{"a":9007199254740993}"#));
        assert_ne!(plain, fingerprint("t", r#"{"a":9007199254740992,"b":null}"#));
        assert_ne!(fingerprint("t", r#"{"a":1.0}"#), fingerprint("t", r#"{"a":1.01}"#));
        assert_ne!(fingerprint("t", r#"{"a":"1"}"#), fingerprint("t", r#"{"a":1}"#));
    }

    #[test]
    fn a_number_is_spelled_by_its_value() {
        let spelled: Vec<String> =
            ["1e0", "1.0", "25E-1", "-1.50e1", "1e-3", "0e5", "12.5e+2", "-0", "0.50", "-0.0", "100"]
                .map(plain_number)
                .into();
        assert_eq!(spelled, ["1", "1", "2.5", "-15", "0.001", "0", "1250", "0", "0.5", "0", "100"]);
    }

    #[test]
    fn a_short_number_stays_short_whatever_its_exponent() {
        let spelled: Vec<String> = ["1e131072", "150e131070", "-2.5e-5000", "1e999999999999"].map(plain_number).into();
        assert_eq!(spelled, ["1e131072", "15e131071", "-25e-5001", "1e999999999999"]);
        assert_eq!(plain_number(&format!("15{}", "0".repeat(60))), plain_number("1.5e61"));
        assert_eq!(plain_number("1e-9223372036854775808").len(), 22);
    }

    proptest::proptest! {
        #[test]
        fn a_number_and_its_exponent_form_have_one_spelling(digits in "[1-9][0-9]{0,15}", shift in 0_usize..20) {
            let shifted = format!("{digits}{}", "0".repeat(shift));
            proptest::prop_assert_eq!(plain_number(&format!("{digits}e{shift}")), shifted);
        }
    }
}
