//! The names that a text may mention, for checks that a plan alone cannot answer: a call needs the name of its
//! function.

use std::collections::BTreeSet;

/// Every name that the text may mention, including in literals and comments: each word as it is and in lower case,
/// and everything between double quotes. Identifiers with Unicode escapes are refused elsewhere (`account_setting`).
pub(super) fn mentioned_names(sql: &str) -> BTreeSet<String> {
    const QUOTE: &str = "\u{0}";
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$') || !c.is_ascii();
    let words = sql.split(|c| !is_part(c)).filter(|word| !word.is_empty());
    let words = words.flat_map(|word| [word.to_owned(), word.to_ascii_lowercase(), word.to_lowercase()]);
    let escaped = sql.replace("\"\"", QUOTE);
    let quoted = escaped.split('"').skip(1).map(|name| name.replace(QUOTE, "\""));
    let cut = |mut name: String| {
        name.truncate(name.floor_char_boundary(MAX_NAME_BYTES));
        name
    };
    words.chain(quoted).map(cut).collect()
}

/// `NAMEDATALEN` - 1. PostgreSQL truncates longer names.
const MAX_NAME_BYTES: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_and_everything_in_double_quotes_may_be_a_name() {
        let names = mentioned_names("values (SHOP.Email_Of(1), shop.\"odd \"\"name\"(), 'lit_eral') -- comm\u{e9}nt");
        for name in ["shop", "Email_Of", "email_of", "odd \"name", "lit_eral", "comm\u{e9}nt", "1"] {
            assert!(names.contains(name), "{name} is not in {names:?}");
        }
        assert!(!names.contains("email"));
        assert!(mentioned_names(&"x".repeat(70)).contains(&"x".repeat(63)));
    }
}
