//! Words of commands that are printed for a user to run.

use types::visible;

/// A text as one word of a shell's command line, with hidden characters escaped.
pub(crate) fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/');
    if word.chars().all(is_plain) {
        return word.to_owned();
    }
    if visible(word) == word {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    // bash, zsh and ksh read the escapes of `$'..'`.
    format!("$'{}'", visible(&word.replace('\\', r"\\").replace('\'', r"\'")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_word_of_the_shell() {
        for (word, expected) in [
            ("shop.orders", "shop.orders"),
            ("/etc/shop.toml", "/etc/shop.toml"),
            ("shop.\"Order Items\"", "'shop.\"Order Items\"'"),
            ("it's", r"'it'\''s'"),
            ("a\nb'\\", r"$'a\nb\'\\'"),
        ] {
            assert_eq!(shell_word(word), expected);
        }
    }
}
