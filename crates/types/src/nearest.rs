//! Nearest existing names for a name that does not exist: the names that a model most likely meant.

const MAX_NAMES: usize = 5;

/// PostgreSQL cuts longer names (`NAMEDATALEN`), so characters after this limit cannot distinguish two names.
const MAX_CHARS: usize = 63;

/// The names most similar to `wanted`, best first.
#[must_use]
pub fn nearest_names(wanted: &str, existing: &[String]) -> Vec<String> {
    nearest(wanted, existing, String::as_str).into_iter().cloned().collect()
}

/// The candidates most similar to `wanted`, best first. `name_of` returns the part of a candidate to compare.
/// Candidates that are equally similar keep their order.
#[must_use]
pub fn nearest<'a, T>(wanted: &str, candidates: &'a [T], name_of: impl Fn(&T) -> &str) -> Vec<&'a T> {
    let wanted = comparable(wanted);
    let mut scored: Vec<(usize, &T)> = candidates
        .iter()
        .filter_map(|candidate| distance(&wanted, &comparable(name_of(candidate))).map(|score| (score, candidate)))
        .collect();
    scored.sort_by_key(|(score, _)| *score);
    scored.into_iter().take(MAX_NAMES).map(|(_, candidate)| candidate).collect()
}

/// Wrong guesses differ most often in case and underscores: `tweetLikes` for `tweet_likes`.
fn comparable(name: &str) -> String {
    name.chars().take(MAX_CHARS).filter(|it| *it != '_').flat_map(char::to_lowercase).collect()
}

/// The number of edits between the two names, at most a third of their letters; `None` if they are not similar. A
/// name within the other one (`like` in `tweet_like`) is similar too, but ranks after every misspelt name.
fn distance(wanted: &str, candidate: &str) -> Option<usize> {
    let (wanted_chars, candidate_chars) = (wanted.chars().count(), candidate.chars().count());
    let tolerance = (wanted_chars.max(candidate_chars) / 3).max(1);
    // A name of two letters occurs in almost every other name.
    let is_within =
        wanted_chars.min(candidate_chars) >= 3 && (candidate.contains(wanted) || wanted.contains(candidate));
    if !is_within
        && (wanted_chars.abs_diff(candidate_chars) > tolerance || letters_apart(wanted, candidate) > tolerance)
    {
        return None;
    }
    let changes = strsim::osa_distance(wanted, candidate);
    // `a` and `b` are one edit apart, but share no letter.
    let shares_letters = changes < wanted_chars.max(candidate_chars);
    if changes <= tolerance && shares_letters {
        return Some(changes);
    }
    is_within.then_some(MAX_CHARS + changes)
}

/// A lower bound of the number of edits, which compares the letters regardless of their order. It is much faster to
/// compute than the distance, and excludes most names of a large database.
fn letters_apart(one: &str, other: &str) -> usize {
    let mut surplus = [0_i32; 64];
    let mut count = |name: &str, by: i32| {
        for letter in name.chars() {
            if let Some(surplus) = surplus.get_mut(letter as usize % 64) {
                *surplus += by;
            }
        }
    };
    count(one, 1);
    count(other, -1);
    let [missing, superfluous] =
        [-1, 1].map(|sign| surplus.iter().map(|surplus| (surplus * sign).max(0).unsigned_abs() as usize).sum());
    usize::max(missing, superfluous)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(wanted: &str, candidates: &[&str]) -> Vec<String> {
        nearest(wanted, candidates, |name| name).into_iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_most_similar_name_comes_first() {
        let tables = ["account", "bookmark", "tweet", "tweet_like", "retweet"];
        assert_eq!(found("twet", &tables), ["tweet"]);
        assert_eq!(found("tweets", &tables), ["tweet"]);
        assert_eq!(found("Account", &tables), ["account"]);
        assert_eq!(found("tweetLikes", &tables), ["tweet_like", "tweet"]);
        assert_eq!(found("acocunt", &tables), ["account"], "two letters swapped are one change");
    }

    #[test]
    fn a_part_of_a_name_finds_the_whole_and_a_stranger_finds_nothing() {
        let columns = ["id", "account_id", "text", "created_at"];
        assert_eq!(found("created", &columns), ["created_at"]);
        assert_eq!(found("account", &columns), ["account_id"]);
        assert_eq!(found("price", &columns), [""; 0]);
        assert_eq!(found("it", &["at"]), ["at"]);
        assert_eq!(found("a", &["b"]), [""; 0]);
        assert_eq!(found("", &columns), [""; 0]);
    }

    #[test]
    fn a_name_of_any_length_is_compared_in_no_time() {
        assert_eq!(found(&"x".repeat(10_000_000), &["tweet"; 10_000]), [""; 0]);
    }

    proptest::proptest! {
        #[test]
        fn the_letters_are_never_further_apart_than_the_names(one in "[a-dé]{0,12}", other in "[a-dé]{0,12}") {
            proptest::prop_assert!(letters_apart(&one, &other) <= strsim::osa_distance(&one, &other));
        }
    }
}
