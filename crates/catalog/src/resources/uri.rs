//! URIs of resources: `countersign://NAME/PART/PART`, each part percent-encoded (RFC 3986).

use std::fmt;

const SCHEME: &str = "countersign://";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceUri {
    /// Kind of the resource.
    pub name: String,
    /// Path within the kind; each part is decoded.
    pub path: Vec<String>,
}

impl ResourceUri {
    #[must_use]
    pub fn new(name: &str, path: &[&str]) -> Self {
        Self { name: name.to_owned(), path: path.iter().map(|&part| part.to_owned()).collect() }
    }

    /// The path after that of `root`; `None` if the URI does not begin with it.
    pub(crate) fn within(&self, root: &Self) -> Option<&[String]> {
        (self.name == root.name).then(|| self.path.strip_prefix(root.path.as_slice()))?
    }

    /// Parses a URI; `None` if it is invalid. A single slash at the end is ignored.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(SCHEME)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let mut parts = rest.split('/').map(decoded);
        let name = parts.next()?.filter(|name| !name.is_empty())?;
        let path: Vec<String> = parts.collect::<Option<_>>()?;
        // A name in PostgreSQL is never empty and never contains NUL.
        path.iter().all(|part| !part.is_empty() && !part.contains('\0')).then_some(Self { name, path })
    }
}

impl fmt::Display for ResourceUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.name)?;
        self.path.iter().try_for_each(|part| write!(f, "/{}", encoded(part)))
    }
}

/// Encodes all characters except unreserved ones as `%XX`, like the expansion of a URI template.
fn encoded(part: &str) -> String {
    let mut encoded = String::new();
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_~".contains(&byte) || (byte == b'.' && part.bytes().any(|it| it != b'.'))
        {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// `None` if a `%` is not followed by two hexadecimal digits, or the decoded bytes are not UTF-8.
fn decoded(part: &str) -> Option<String> {
    let mut bytes = part.bytes();
    let mut decoded = Vec::with_capacity(part.len());
    while let Some(byte) = bytes.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        decoded.push(if byte == b'%' { digit(bytes.next())? << 4 | digit(bytes.next())? } else { byte });
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        for (uri, text) in [
            (ResourceUri::new("database", &[]), "countersign://database"),
            (ResourceUri::new("database", &["social", "tweet_like"]), "countersign://database/social/tweet_like"),
            (
                ResourceUri::new("database", &["a/b", "Größe 100%?#\"x\""]),
                "countersign://database/a%2Fb/Gr%C3%B6%C3%9Fe%20100%25%3F%23%22x%22",
            ),
            // Software that normalizes URIs would remove a part that consists only of dots.
            (ResourceUri::new("database", &["..", "a.b"]), "countersign://database/%2E%2E/a.b"),
        ] {
            assert_eq!(uri.to_string(), text);
            assert_eq!(ResourceUri::parse(text), Some(uri));
        }
        assert_eq!(ResourceUri::parse("countersign://database/"), Some(ResourceUri::new("database", &[])));
        assert_eq!(ResourceUri::parse("countersign://database/a%2fb/"), Some(ResourceUri::new("database", &["a/b"])));
    }

    #[test]
    fn what_is_no_address_is_none() {
        for text in [
            "",
            "database",
            "file:///etc/passwd",
            "countersign:database",
            "countersign://",
            "countersign:///a",
            "countersign://database//a",
            "countersign://database/a//b",
            "countersign://database/%",
            "countersign://database/%4",
            "countersign://database/%zz",
            "countersign://database/%+1",
            "countersign://database/a%00",
            "countersign://database/%ff",
            "COUNTERSIGN://database",
        ] {
            assert_eq!(ResourceUri::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_name_comes_back(schema in "[^\0]+", table in "(?s)[^\0]+") {
            let uri = ResourceUri::new("database", &[&schema, &table]);
            prop_assert_eq!(ResourceUri::parse(&uri.to_string()), Some(uri));
        }

        #[test]
        fn no_text_does_any_harm(text in "(countersign://)?.*") {
            let _ = ResourceUri::parse(&text);
        }
    }
}
