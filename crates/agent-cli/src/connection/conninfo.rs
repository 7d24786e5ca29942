//! A connection string to which keys are added. Whether it is right, [`pg::Target`] says; here it is only looked at for what
//! it says, and added to in its own form: of a repeated key the last one counts (`crates/pg/src/target/conninfo.rs`).

const SCHEMES: [&str; 2] = ["postgresql://", "postgres://"];

pub(crate) fn is_uri(text: &str) -> bool {
    SCHEMES.iter().any(|scheme| text.starts_with(scheme))
}

/// A connection string in the making. Not `Debug`: there is a password in it.
pub(super) struct Text {
    text: String,
    is_uri: bool,
    /// Whether a quoted value has no end: nothing can be added, and nobody will take it.
    is_open: bool,
    /// What it says itself, as far as it can be read.
    pairs: Vec<(String, String)>,
}

impl Text {
    pub(super) fn new(text: &str) -> Self {
        let is_uri = is_uri(text);
        let (pairs, is_open) = if is_uri { (of_uri(text), false) } else { of_keywords(text) };
        // A backslash at the very end would take in what is added behind it; by itself it means nothing.
        let dangling = !is_uri && (text.len() - text.trim_end_matches('\\').len()) % 2 == 1;
        let text = if dangling { text.strip_suffix('\\').unwrap_or(text) } else { text };
        Self { text: text.to_owned(), is_uri, is_open, pairs }
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.pairs.iter().rev().find(|(said, _)| said == key).map(|(_, value)| value.as_str())
    }

    /// Whether it has the key, even with an empty value.
    pub(super) fn says(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// Adds a key; its value counts over one that is there.
    pub(super) fn set(&mut self, key: &str, value: &str) {
        if self.is_open {
            return;
        }
        if self.is_uri {
            let has_query = behind_user(&self.text).1.contains('?');
            self.text.push(if has_query { '&' } else { '?' });
            self.text.push_str(key);
            self.text.push('=');
            self.text.push_str(&percent_encoded(value));
        } else {
            let value = value.replace('\\', "\\\\").replace('\'', "\\'");
            self.text.push_str(&format!(" {key}='{value}'"));
        }
    }

    /// Its password is for its own user.
    pub(super) fn leave_password_unless_user(&mut self, user: &str) {
        if self.says("password") && self.value("user") != Some(user) {
            self.set("password", "");
            self.pairs.retain(|(key, _)| key != "password");
        }
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}

fn percent_encoded(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// `user:password` of a URI, and what stands behind it (and its `@`).
fn behind_user(uri: &str) -> (&str, &str) {
    let rest = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    match rest.find(['@', '/']).and_then(|at| rest.split_at_checked(at)) {
        Some((user, behind)) if behind.starts_with('@') => (user, behind.get(1..).unwrap_or_default()),
        _ => ("", rest),
    }
}

fn of_uri(uri: &str) -> Vec<(String, String)> {
    let (user, behind) = behind_user(uri);
    let (user, password) = user.split_once(':').unwrap_or((user, ""));
    let (place, query) = behind.split_once('?').unwrap_or((behind, ""));
    let (servers, dbname) = place.split_once('/').unwrap_or((place, ""));
    // Several servers say hosts and ports as lists; one that names only a port begins with it.
    let host = if servers.starts_with(':') && !servers.contains(',') { "" } else { servers };
    let has_port = servers.rsplit_once(']').map_or(servers, |(_, behind)| behind).contains(':');
    let port = if has_port { servers } else { "" };
    let mut pairs: Vec<(String, String)> = Vec::new();
    for (key, value) in [("user", user), ("password", password), ("host", host), ("port", port), ("dbname", dbname)] {
        if !value.is_empty() {
            pairs.push((key.to_owned(), percent_decoded(value)));
        }
    }
    for (key, value) in query.split('&').filter_map(|parameter| parameter.split_once('=')) {
        pairs.push((percent_decoded(key), percent_decoded(value)));
    }
    pairs
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, encoded)) = rest.split_once('%') {
        bytes.extend_from_slice(plain.as_bytes());
        let byte = encoded.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.unwrap_or(b'%'));
        rest = encoded.get(if byte.is_some() { 2 } else { 0 }..).unwrap_or_default();
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The pairs, and whether the last value is quoted and has no end.
fn of_keywords(text: &str) -> (Vec<(String, String)>, bool) {
    let mut pairs = Vec::new();
    let mut rest = text;
    while let Some((key, behind)) = rest.split_once('=') {
        let Some((value, behind)) = keyword_value(behind.trim_start()) else { return (pairs, true) };
        pairs.push((key.trim().to_owned(), value));
        rest = behind;
    }
    (pairs, false)
}

/// The value at the beginning, and what stands behind it; `None` if it is quoted and has no end.
fn keyword_value(text: &str) -> Option<(String, &str)> {
    let quoted = text.starts_with('\'');
    let mut chars = text.strip_prefix('\'').unwrap_or(text).chars();
    let mut value = String::new();
    while let Some(c) = chars.next() {
        match c {
            '\\' => value.extend(chars.next()),
            '\'' if quoted => return Some((value, chars.as_str())),
            c if c.is_whitespace() && !quoted => return Some((value, chars.as_str())),
            c => value.push(c),
        }
    }
    (!quoted).then_some((value, ""))
}
