//! Which `log` events are emitted (promises B9-06, B9-10).

use serde::{Serialize, Serializer};

/// Words that choose events: the name of one (`query.result`), the beginning of some (`query`), `all` or `*`. A word that
/// fits none chooses none. Empty by default: nothing is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filters(Vec<String>);

impl Filters {
    /// Trimmed, in lower case, each once.
    pub fn new<'w>(words: impl IntoIterator<Item = &'w str>) -> Self {
        let mut filters = Vec::new();
        for word in words {
            let word = word.trim().to_lowercase();
            if !word.is_empty() && !filters.contains(&word) {
                filters.push(word);
            }
        }
        Self(filters)
    }

    /// Whether this event is to be told of.
    #[must_use]
    pub fn choose(&self, event: &str) -> bool {
        self.0.iter().any(|word| word == "all" || word == "*" || event.starts_with(word.as_str()))
    }
}

impl Serialize for Filters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_trimmed_lowered_and_kept_once() {
        // B9-10
        let filters = Filters::new([" Query.Result ", "query.result", "", "STARTUP"]);
        assert_eq!(serde_json::to_string(&filters).unwrap(), r#"["query.result","startup"]"#);
    }

    #[test]
    fn a_word_chooses_an_event_by_its_name_or_its_beginning() {
        // B9-06, B9-10
        let chosen = |words: &[&str]| {
            let filters = Filters::new(words.iter().copied());
            let events = ["startup", "query.result", "query.error", "query.sql_error"];
            events.into_iter().filter(|event| filters.choose(event)).collect::<Vec<_>>()
        };
        assert!(chosen(&[]).is_empty() && chosen(&["other"]).is_empty());
        assert_eq!(chosen(&["query.result"]), ["query.result"]);
        assert_eq!(chosen(&["query"]), ["query.result", "query.error", "query.sql_error"]);
        assert_eq!(chosen(&["all"]).len(), 4);
        assert_eq!(chosen(&["*"]).len(), 4);
    }
}
