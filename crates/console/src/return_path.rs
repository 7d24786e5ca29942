//! The page that a person wanted before they signed in.

use form_urlencoded::byte_serialize;
use serde::Deserialize;

const MAX_BYTES: usize = 2048;

/// A path of the console with its query: `/proposals/..`. A redirect to it never leaves the console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReturnPath(String);

/// The query parameter with the page to return to.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NextQuery {
    pub(crate) next: String,
}

impl ReturnPath {
    /// The path, if it is valid; otherwise the inbox. Browsers treat `//host` and `/\host` as other hosts, and remove
    /// control characters before they parse a URL.
    pub(crate) fn new(path: &str) -> Self {
        let is_plain = path.bytes().all(|byte| matches!(byte, b'!'..=b'~') && byte != b'\\');
        let is_path = path.starts_with('/') && !path.starts_with("//");
        // The login page would redirect to itself.
        let is_login = path.starts_with("/login") || path.starts_with("/logout");
        let is_allowed = is_plain && is_path && !is_login && path.len() <= MAX_BYTES;
        Self(if is_allowed { path.to_owned() } else { "/".to_owned() })
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The address of `page`, which redirects to this path afterwards.
    pub(crate) fn after(&self, page: &str) -> String {
        if self.0 == "/" {
            return page.to_owned();
        }
        let separator = if page.contains('?') { '&' } else { '?' };
        format!("{page}{separator}next={}", byte_serialize(self.0.as_bytes()).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_the_console_are_kept() {
        for kept in ["/", "/proposals/1", "/records?tool=a%20b&since=//x", "/a//b", "/a#b"] {
            assert_eq!(ReturnPath::new(kept).as_str(), kept);
        }
        let long = format!("/{}", "x".repeat(MAX_BYTES));
        for other in [
            "",
            "x",
            "proposals/1",
            "https://evil.example.com/",
            "//evil.example.com",
            "///evil.example.com",
            "/\\evil.example.com",
            "\\/evil.example.com",
            "/a\\b",
            "/\t/evil.example.com",
            "/\n",
            " /",
            "/ä",
            "javascript:alert(1)",
            ".evil.example.com",
            "@evil.example.com",
            "/login",
            "/login/oidc?next=/",
            "/logout",
            &long,
        ] {
            assert_eq!(ReturnPath::new(other).as_str(), "/", "{other}");
        }
    }

    #[test]
    fn the_path_is_a_parameter_of_another_page() {
        assert_eq!(ReturnPath::new("/").after("/login"), "/login");
        assert_eq!(ReturnPath::new("/r?a=b&c").after("/login"), "/login?next=%2Fr%3Fa%3Db%26c");
        assert_eq!(ReturnPath::new("/r").after("/login/oidc?again=1"), "/login/oidc?again=1&next=%2Fr");
    }
}
