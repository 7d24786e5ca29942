//! Filters that choose the `log` events to emit.

use serde::{Serialize, Serializer};

use crate::error::CliError;

const EVENTS: [&str; 4] = ["startup", "query.result", "query.error", "query.sql_error"];

/// Words that choose events: a name (`query.result`), a prefix (`query`), `all` or `*`. Empty by default: no event is
/// emitted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogFilters(Vec<String>);

impl LogFilters {
    /// Creates filters from words, which are trimmed, put in lower case and deduplicated.
    ///
    /// # Errors
    /// [`CliError`] if a word chooses no event. The message does not repeat the word.
    pub fn new<'w>(words: impl IntoIterator<Item = &'w str>) -> Result<Self, CliError> {
        let mut filters = Self::default();
        for word in words {
            let word = word.trim().to_lowercase();
            if !EVENTS.into_iter().any(|event| chooses(&word, event)) && !word.is_empty() {
                let message = format!("a word of log chooses no event; there are {}", EVENTS.join(", "));
                return Err(CliError::invalid(message).hint("give the name of one, the beginning of some, or all"));
            }
            if !word.is_empty() && !filters.0.contains(&word) {
                filters.0.push(word);
            }
        }
        Ok(filters)
    }

    /// Returns whether this event is to be emitted.
    #[must_use]
    pub fn choose(&self, event: &str) -> bool {
        self.0.iter().any(|word| chooses(word, event))
    }
}

fn chooses(word: &str, event: &str) -> bool {
    word == "all" || word == "*" || event.starts_with(word)
}

impl Serialize for LogFilters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_trimmed_lowered_and_kept_once() {
        let filters = LogFilters::new([" Query.Result ", "query.result", "", "STARTUP"]).unwrap();
        assert_eq!(serde_json::to_string(&filters).unwrap(), r#"["query.result","startup"]"#);
    }

    #[test]
    fn a_word_chooses_an_event_by_its_name_or_its_beginning() {
        let chosen = |words: &[&str]| {
            let filters = LogFilters::new(words.iter().copied()).unwrap();
            let events = ["startup", "query.result", "query.error", "query.sql_error"];
            events.into_iter().filter(|event| filters.choose(event)).collect::<Vec<_>>()
        };
        assert!(chosen(&[]).is_empty());
        assert_eq!(chosen(&["query.result"]), ["query.result"]);
        assert_eq!(chosen(&["query"]), ["query.result", "query.error", "query.sql_error"]);
        assert_eq!(chosen(&["all"]).len(), 4);
        assert_eq!(chosen(&["*"]).len(), 4);
    }

    #[test]
    fn a_word_that_chooses_no_event_is_refused() {
        for word in ["other", "hunter2", "query.resultx"] {
            let problem = LogFilters::new(["all", word]).unwrap_err();
            assert!(problem.message.contains("query.sql_error") && !problem.message.contains(word), "{problem}");
        }
    }
}
