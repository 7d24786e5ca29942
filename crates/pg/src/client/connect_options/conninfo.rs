//! The two forms of a connection string, parsed as libpq parses them (PostgreSQL manual, "Connection Strings"). This
//! module splits the text into keys and values and does not interpret them.
//!
//! No error message repeats a value: if a string is misread, any part of it may be a piece of its password.

use std::collections::HashMap;

use super::ConnectOptionsError;

/// Keys and values in their order. The last one of a repeated key is used.
type Pairs = Vec<(String, String)>;

/// The keys and values of a connection string. A caller may add more; `ConnectOptions` checks them. Not `Debug`: they
/// may include a password.
pub struct Conninfo {
    pairs: Pairs,
    /// The source of the text.
    origin: Option<String>,
    /// The sources of those keys whose source is not `origin`.
    origins: HashMap<String, String>,
}

impl Conninfo {
    /// Reads `postgresql://…` or `host=… dbname=…`.
    pub fn parse(text: &str) -> Result<Self, ConnectOptionsError> {
        Ok(Self { pairs: pairs(text).map_err(ConnectOptionsError::Malformed)?, origin: None, origins: HashMap::new() })
    }

    /// Sets the source of the text, for [`super::ParameterOrigins`].
    #[must_use]
    pub fn with_origin(self, origin: impl Into<String>) -> Self {
        Self { origin: Some(origin.into()), ..self }
    }

    /// Whether the text begins like a URI (`postgresql://`).
    pub fn is_uri(text: &str) -> bool {
        behind_scheme(text).is_some()
    }

    /// The value of a key, which may be empty.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().rev().find(|(said, _)| said == key).map(|(_, value)| value.as_str())
    }

    /// Whether the key was given, even with an empty value.
    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Adds a key. Its value replaces an earlier one. `origin` is its source.
    pub fn set(&mut self, key: &str, value: &str, origin: &str) {
        self.pairs.push((key.to_owned(), value.to_owned()));
        self.origins.insert(key.to_owned(), origin.to_owned());
    }

    /// The source of a key's value, if it is known.
    pub(super) fn origin(&self, key: &str) -> Option<&str> {
        self.origins.get(key).or(self.origin.as_ref()).map(String::as_str)
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

/// A connection string in the form `key=value`.
pub(super) fn text<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let words: Vec<String> = pairs.into_iter().map(|(key, value)| format!("{key}={}", written(value))).collect();
    words.join(" ")
}

/// The value as [`keyword_value`] reads it.
fn written(value: &str) -> String {
    let is_plain = |c: char| !c.is_whitespace() && c != '\'' && c != '\\';
    if !value.is_empty() && value.chars().all(is_plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\\', r"\\").replace('\'', r"\'"))
}

fn pairs(text: &str) -> Result<Pairs, String> {
    behind_scheme(text).map_or_else(|| from_keywords(text), from_uri)
}

fn behind_scheme(text: &str) -> Option<&str> {
    ["postgresql://", "postgres://"].iter().find_map(|scheme| text.strip_prefix(scheme))
}

/// Parses `key = value` pairs. A value in single quotes may contain spaces. A backslash escapes the next character.
fn from_keywords(text: &str) -> Result<Pairs, String> {
    let mut pairs = Pairs::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=').ok_or("a key without \"=\" behind it")?;
        let key = key.trim_end();
        // A word that cannot be a key may be the second word of an unquoted password, so it is not repeated.
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err("\"=\" without a key before it; a value with spaces is written in single quotes".to_owned());
        }
        let (value, end) = keyword_value(after.trim_start())?;
        pairs.push((key.to_owned(), value));
        rest = end.trim_start();
    }
    Ok(pairs)
}

/// The value at the beginning of `text`, and the text after it.
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

/// `[user[:password]@][host][:port][,...][/dbname][?key=value[&...]]`.
fn from_uri(text: &str) -> Result<Pairs, String> {
    let mut pairs = Pairs::new();
    let (user, rest) = match text.find(['@', '/']).and_then(|at| Some((text.get(..at)?, text.get(at..)?))) {
        Some((user, rest)) if rest.starts_with('@') => (user, rest.get(1..).unwrap_or_default()),
        _ => ("", text),
    };
    let (user, password) = user.split_once(':').unwrap_or((user, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (servers, dbname) = rest.split_once('/').unwrap_or((rest, ""));
    let (hosts, ports) = servers_of(servers)?;
    for (key, value) in [("user", user), ("password", password), ("host", &hosts), ("port", &ports), ("dbname", dbname)]
    {
        if !value.is_empty() {
            pairs.push((key.to_owned(), decoded(value)?));
        }
    }
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (key, value) = parameter.split_once('=').ok_or("a parameter behind \"?\" without \"=\"")?;
        if value.contains('=') {
            return Err("a second \"=\" in a parameter behind \"?\"; within a value it is written %3D".to_owned());
        }
        pairs.push(match (decoded(key)?, decoded(value)?) {
            // JDBC's spelling, which libpq accepts too.
            (key, value) if key == "ssl" && value == "true" => ("sslmode".to_owned(), "require".to_owned()),
            pair => pair,
        });
    }
    Ok(pairs)
}

/// The hosts and the ports, each as a list separated by commas. IPv6 addresses lose their brackets.
fn servers_of(text: &str) -> Result<(String, String), String> {
    let mut hosts = Vec::new();
    let mut ports = Vec::new();
    for server in text.split(',') {
        let (host, port) = match server.strip_prefix('[') {
            Some(bracketed) => {
                let (host, after) = bracketed.split_once(']').ok_or("\"[\" without \"]\"")?;
                let port = after.strip_prefix(':').or_else(|| after.is_empty().then_some(""));
                (host, port.ok_or("something other than a port behind \"]\"")?)
            }
            None => server.split_once(':').unwrap_or((server, "")),
        };
        if host.contains('@') || port.contains('@') {
            return Err("a second \"@\" before the host; within a user or a password it is written %40".to_owned());
        }
        if !port.bytes().all(|byte| byte.is_ascii_digit()) {
            // The text is not repeated: in `user:pass/word@host` the part before the slash is the beginning of the
            // password.
            return Err("a port that is no number; within a password \"/\" is written %2F".to_owned());
        }
        hosts.push(host);
        ports.push(port);
    }
    let or_nothing = |parts: Vec<&str>| {
        if parts.iter().all(|part| part.is_empty()) && parts.len() == 1 { String::new() } else { parts.join(",") }
    };
    Ok((or_nothing(hosts), or_nothing(ports)))
}

fn decoded(text: &str) -> Result<String, String> {
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
            [Some(0), Some(0)] => return Err("%00, which no value can hold".to_owned()),
            [Some(high), Some(low)] => bytes.push(u8::try_from(high * 16 + low).unwrap_or_default()),
            _ => return Err("a \"%\" without two hexadecimal digits; the character itself is written %25".to_owned()),
        }
    }
    String::from_utf8(bytes).map_err(|_| "a percent-encoding that is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        let pairs = pairs(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        pairs.iter().map(|(key, value)| format!("{key}=<{value}>")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn uris_give_what_libpq_gives() {
        for (uri, expected) in [
            ("postgresql://", ""),
            ("postgres:///", ""),
            ("postgresql://localhost", "host=<localhost>"),
            ("postgresql://localhost:5433", "host=<localhost> port=<5433>"),
            ("postgresql://localhost/mydb", "host=<localhost> dbname=<mydb>"),
            ("postgresql://user@localhost", "user=<user> host=<localhost>"),
            ("postgresql://user:secret@localhost", "user=<user> password=<secret> host=<localhost>"),
            (
                "postgresql://other@localhost/otherdb?connect_timeout=10&application_name=myapp",
                "user=<other> host=<localhost> dbname=<otherdb> connect_timeout=<10> application_name=<myapp>",
            ),
            ("postgresql://host1:123,host2:456/somedb", "host=<host1,host2> port=<123,456> dbname=<somedb>"),
            ("postgresql://host1,host2:456", "host=<host1,host2> port=<,456>"),
            ("postgresql:///mydb?host=localhost&port=5433", "dbname=<mydb> host=<localhost> port=<5433>"),
            ("postgresql://[2001:db8::1234]/database", "host=<2001:db8::1234> dbname=<database>"),
            ("postgresql://[::1]:5433,[::2]", "host=<::1,::2> port=<5433,>"),
            ("postgresql:///dbname?host=/var/lib/postgresql", "dbname=<dbname> host=</var/lib/postgresql>"),
            ("postgresql://%2Fvar%2Flib%2Fpostgresql/dbname", "host=</var/lib/postgresql> dbname=<dbname>"),
            ("postgresql://:5433", "port=<5433>"),
            ("postgresql://u:p%40ss%2F%23%25%3F@h", "user=<u> password=<p@ss/#%?> host=<h>"),
            ("postgresql://u:p#s?s@h", "user=<u> password=<p#s?s> host=<h>"),
            ("postgresql://u:a:b@h", "user=<u> password=<a:b> host=<h>"),
            ("postgresql://h?ssl=true", "host=<h> sslmode=<require>"),
            ("postgresql://h/d?options=-c%20geqo%3Doff", "host=<h> dbname=<d> options=<-c geqo=off>"),
            ("postgresql:///?host=a%2Cb", "host=<a,b>"),
        ] {
            assert_eq!(read(uri), expected, "{uri}");
        }
    }

    #[test]
    fn keywords_give_what_libpq_gives() {
        for (text, expected) in [
            ("", ""),
            ("  host = h   port=1 ", "host=<h> port=<1>"),
            (r"password='a b\'c\\d' user=it\'s", r"password=<a b'c\d> user=<it's>"),
            ("password='' user=u", "password=<> user=<u>"),
            ("password='sslmode=disable'", "password=<sslmode=disable>"),
            ("host=a,b port=,2", "host=<a,b> port=<,2>"),
            ("password=p@ss/#%", "password=<p@ss/#%>"),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_without_repeating_it() {
        for text in [
            "postgresql://me:hunter2@hunter2@h/d",
            "postgresql://me:hunter2/hunter2@h/d",
            "postgresql://me:hunter2%zz@h",
            "postgresql://me:hunter2%00@h",
            "postgresql://me:hunter2%ff@h",
            "postgresql://[::1/hunter2",
            "postgresql://[::1]hunter2",
            "postgresql://h?hunter2",
            "postgresql://h?a=hunter2=b",
            "host=h password='hunter2",
            "host=h password=my hunter2",
            "host=h password=my hunter2 hunter=2",
            "=hunter2",
            "postgres:/nonsense hunter2",
        ] {
            let error = pairs(text).expect_err(text);
            assert!(!error.contains("hunter"), "{text}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in ".*") {
            let _ = pairs(&text);
            let _ = pairs(&format!("postgresql://{text}"));
        }

        #[test]
        fn any_password_survives_both_forms(password in "[^\0]+") {
            let encoded: String = password.bytes().map(|byte| format!("%{byte:02x}")).collect();
            let uri = pairs(&format!("postgresql://u:{encoded}@h/d")).unwrap();
            proptest::prop_assert_eq!(&uri[1].1, &password);
            let quoted = password.replace('\\', r"\\").replace('\'', r"\'");
            let keywords = pairs(&format!("user=u password='{quoted}' dbname=d")).unwrap();
            proptest::prop_assert_eq!(&keywords[1].1, &password);
        }
    }
}
