//! What a connection string says about TLS (PostgreSQL manual, "SSL Support" of libpq).
//!
//! tokio-postgres' parser knows neither `verify-ca` and `verify-full` nor `sslrootcert`, so these two keys are taken out
//! of the string before it reads the rest.

use std::path::PathBuf;

/// `sslmode` of libpq.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// Never.
    Disable,
    /// If the server can, without checking who it is; `allow` is read as this.
    #[default]
    Prefer,
    /// Always, without checking who it is.
    Require,
    /// Always, with a certificate that the roots vouch for.
    VerifyCa,
    /// Always, with a certificate that the roots vouch for and that names the host.
    VerifyFull,
}

/// How to do TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// Whether, and how much is checked.
    pub mode: TlsMode,
    /// A PEM file with the roots; the system's if `None`. As in libpq, `require` with one is `verify-ca`.
    pub root_certificates: Option<PathBuf>,
}

/// Takes `sslmode` and `sslrootcert` out of a connection string; the rest, and what they say.
pub(super) fn take(text: &str) -> Result<(String, Tls), String> {
    let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
    let (rest, taken) = if is_url { take_from_url(text)? } else { take_from_keywords(text)? };
    let mut tls = Tls::default();
    for (key, value) in taken {
        match key.as_str() {
            "sslmode" => tls.mode = mode(&value)?,
            _ if value == "system" => tls.root_certificates = None,
            _ => tls.root_certificates = Some(PathBuf::from(value)),
        }
    }
    if tls.mode == TlsMode::Require && tls.root_certificates.is_some() {
        tls.mode = TlsMode::VerifyCa;
    }
    Ok((rest, tls))
}

fn mode(value: &str) -> Result<TlsMode, String> {
    Ok(match value {
        "disable" => TlsMode::Disable,
        "allow" | "prefer" => TlsMode::Prefer,
        "require" => TlsMode::Require,
        "verify-ca" => TlsMode::VerifyCa,
        "verify-full" => TlsMode::VerifyFull,
        _ => {
            return Err("sslmode is one of disable, allow, prefer, require, verify-ca, verify-full".to_owned());
        }
    })
}

fn is_ours(key: &str) -> bool {
    matches!(key, "sslmode" | "sslrootcert")
}

type Taken = (String, Vec<(String, String)>);

fn take_from_url(text: &str) -> Result<Taken, String> {
    let Some((base, query)) = text.split_once('?') else { return Ok((text.to_owned(), Vec::new())) };
    let mut kept = Vec::new();
    let mut taken = Vec::new();
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some((key, value)) if is_ours(key) => taken.push((key.to_owned(), percent_decoded(value)?)),
            _ => kept.push(pair),
        }
    }
    let rest = if kept.is_empty() { base.to_owned() } else { format!("{base}?{}", kept.join("&")) };
    Ok((rest, taken))
}

fn percent_decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next(), rest.next()];
        let digit = |digit: Option<u8>| digit.and_then(|digit| char::from(digit).to_digit(16));
        match digits.map(digit) {
            [Some(high), Some(low)] => bytes.push(u8::try_from(high * 16 + low).unwrap_or_default()),
            _ => return Err("a % that is no percent-encoding".to_owned()),
        }
    }
    String::from_utf8(bytes).map_err(|_| "a percent-encoding that is not UTF-8".to_owned())
}

/// `key = value` pairs; a value in single quotes may hold spaces, and a backslash takes the next character as it is.
fn take_from_keywords(text: &str) -> Result<Taken, String> {
    let mut kept = String::new();
    let mut taken = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=').ok_or("a key without a value")?;
        let (value, end) = keyword_value(after.trim_start())?;
        let length = rest.len() - end.len();
        if is_ours(key.trim()) {
            taken.push((key.trim().to_owned(), value));
        } else {
            kept.push_str(rest.get(..length).unwrap_or_default());
            kept.push(' ');
        }
        rest = end.trim_start();
    }
    Ok((kept, taken))
}

/// The value at the beginning of `text`, and what comes after it.
fn keyword_value(text: &str) -> Result<(String, &str), String> {
    let quoted = text.starts_with('\'');
    let body = text.strip_prefix('\'').unwrap_or(text);
    let mut value = String::new();
    let mut chars = body.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            '\'' if quoted => return Ok((value, body.get(at + 1..).unwrap_or_default())),
            c if c.is_whitespace() && !quoted => return Ok((value, body.get(at..).unwrap_or_default())),
            c => value.push(c),
        }
    }
    if quoted { Err("a quoted value without its end".to_owned()) } else { Ok((value, "")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_give_up_their_two_keys_and_keep_the_rest() {
        let (rest, tls) =
            take("postgresql://u:p@h/d?sslmode=verify-full&connect_timeout=3&sslrootcert=%2Fca%20x.pem").unwrap();
        assert_eq!(rest, "postgresql://u:p@h/d?connect_timeout=3");
        assert_eq!(tls, Tls { mode: TlsMode::VerifyFull, root_certificates: Some("/ca x.pem".into()) });
        let (rest, tls) = take(r"host = h sslrootcert='/ca x.pem' password='a b\'c' sslmode = require user=u").unwrap();
        assert_eq!(rest, r"host = h password='a b\'c' user=u ");
        assert_eq!(tls.mode, TlsMode::VerifyCa, "require with roots checks them");
        let inside = r"host=h password='it\'s sslmode=disable'";
        assert_eq!(take(inside).unwrap().1, Tls::default(), "what stands inside a value is no key");
    }

    #[test]
    fn an_unknown_mode_is_named_with_those_that_exist() {
        assert!(take("host=h sslmode=maybe").unwrap_err().contains("verify-full"));
        assert!(take("host=h password='open").is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in ".*") {
            let _ = take(&text);
            let _ = take(&format!("postgresql://{text}"));
        }
    }
}
