//! Finds regular expressions of check constraints that mean the same to a client.

/// Whether a regular expression means the same in PostgreSQL and in ECMA 262. Accepted are anchors, ASCII letters and
/// digits, simple sets of them, groups, alternatives and greedy repetitions. Everything else (`.`, `\d`,
/// `[[:alpha:]]`, look-around) differs in some case, such as line ends or letters beyond ASCII.
pub(crate) fn is_same_in_ecma_262(pattern: &str) -> bool {
    const PLAIN: &str = " _-@#%&=<>,;:!~'\"/";
    // Within a set, `--`, `&&` and `~~` are operators in some clients.
    const PLAIN_IN_SET: &str = " _@#%=,;:.+*?()$|/";
    // `\\<` is the beginning of a word in some clients.
    const ESCAPED: &str = ".*+?()[]{}^$|\\/-";
    let mut letters = pattern.chars().peekable();
    let (mut in_set, mut after_repetition) = (false, false);
    // A leading `***` has a special meaning in PostgreSQL.
    if pattern.starts_with('*') {
        return false;
    }
    while let Some(letter) = letters.next() {
        let was_repetition = std::mem::take(&mut after_repetition);
        let next = letters.peek().copied();
        let is_same = match letter {
            '\\' => !in_set && letters.next_if(|c| ESCAPED.contains(*c)).is_some(),
            _ if letter.is_ascii_alphanumeric() => true,
            ']' if in_set => {
                in_set = false;
                true
            }
            '[' => {
                let is_first = !in_set;
                in_set = true;
                let _negation = letters.next_if_eq(&'^');
                is_first && letters.peek() != Some(&']')
            }
            '-' if in_set => next != Some('-'),
            _ if in_set => PLAIN_IN_SET.contains(letter),
            '^' | '$' | '|' | ')' => true,
            '(' => next != Some('?') && next != Some('*'),
            '*' | '+' | '?' => {
                after_repetition = true;
                !was_repetition
            }
            '{' => {
                let bounds: String = std::iter::from_fn(|| letters.next_if(|c| *c != '}')).collect();
                after_repetition = true;
                !was_repetition && letters.next().is_some() && is_repetition(&bounds)
            }
            _ => PLAIN.contains(letter),
        };
        if !is_same {
            return false;
        }
    }
    !in_set
}

/// `2`, `2,` or `2,5`: at most 255, as in PostgreSQL.
fn is_repetition(bounds: &str) -> bool {
    let (least, most) = bounds.split_once(',').unwrap_or((bounds, ""));
    let is_count = |text: &str| text.parse::<u8>().is_ok() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_count(least) && (most.is_empty() || is_count(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_certain_is_taken_over() {
        for pattern in ["^[A-Z]{3}$", r"^[a-z0-9._%+-]+@[a-z]+\.[a-z]{2,}$", "^(a|bc)*$", "^[^@ ]+$", r"^\([0-9]+\)$"] {
            assert!(is_same_in_ecma_262(pattern), "{pattern}");
        }
        for pattern in [
            r"^\d+$",
            "^.+$",
            "[[:alpha:]]",
            "(?i)abc",
            "***=abc",
            "a+?",
            "[a--b]",
            "[a&&b]",
            r"\<a",
            "[a",
            "a{1,300}",
            "[]a]",
        ] {
            assert!(!is_same_in_ecma_262(pattern), "{pattern}");
        }
    }
}
