//! Texts of the pages.

use types::visible;

/// A labelled value on a page.
pub(crate) struct Fact {
    pub(crate) name: &'static str,
    pub(crate) value: FactValue,
}

/// A value, and how it is shown.
pub(crate) enum FactValue {
    Text(String),
    /// An id or a digest.
    Id(String),
    /// An RFC 3339 time.
    Time(String),
    Link {
        to: String,
        text: String,
    },
}

impl Fact {
    pub(crate) fn text(name: &'static str, text: impl Into<String>) -> Self {
        Self { name, value: FactValue::Text(text.into()) }
    }

    pub(crate) fn id(name: &'static str, id: impl Into<String>) -> Self {
        Self { name, value: FactValue::Id(id.into()) }
    }

    pub(crate) fn time(name: &'static str, time: impl Into<String>) -> Self {
        Self { name, value: FactValue::Time(time.into()) }
    }

    pub(crate) fn link(name: &'static str, to: String, text: String) -> Self {
        Self { name, value: FactValue::Link { to, text } }
    }
}

pub(crate) fn proposer(actor: Option<&str>, account: &str) -> String {
    match actor {
        Some(actor) => format!("{} ({})", visible(actor), visible(account)),
        None => visible(account),
    }
}

/// `2026-11-23 18:04 UTC` of an RFC 3339 time.
pub(crate) fn to_the_minute(time: impl AsRef<str>) -> String {
    let minute: String = time.as_ref().chars().take(16).collect();
    format!("{} UTC", minute.replace('T', " "))
}

/// The title of the tool and its parameters in the description of a proposal: `Delete a package`, `package_id 3`. A
/// description is `{title} with {parameters}. It would touch ..`. The parameters may contain anything.
pub(crate) fn title_and_params(description: &str) -> (String, String) {
    let sentence = TOUCHES.iter().filter_map(|touches| description.rfind(touches)).max();
    let sentence = sentence.and_then(|end| description.get(..end)).unwrap_or(description);
    let (title, params) = sentence.split_once(" with ").unwrap_or((sentence, ""));
    (visible(title), visible(params))
}

/// The possible beginnings of the sentence after the parameters.
const TOUCHES: [&str; 2] = [". It would touch ", ". It was not tried"];

/// A phrase as a sentence: with a capital letter, and a full stop.
pub(crate) fn sentence(phrase: &str) -> String {
    let mut characters = phrase.chars();
    let first = characters.next().map(char::to_uppercase).into_iter().flatten();
    first.chain(characters).chain(['.']).collect()
}

/// A text, with control and formatting characters made visible.
pub(crate) fn optional(text: &Option<String>) -> Option<String> {
    text.as_deref().map(visible)
}

/// A query string of the fields that have a value: `?tool=set_status&actor=anna`, or nothing.
pub(crate) fn query_string<'a>(fields: impl IntoIterator<Item = (&'a str, Option<String>)>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in fields {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            query.append_pair(name, &value);
        }
    }
    let query = query.finish();
    if query.is_empty() { query } else { format!("?{query}") }
}

/// The maximum length of a text that is shown completely, and the length of the excerpt of a longer one, in
/// characters.
const SHORT: usize = 2_000;
const EXCERPT: usize = 400;

/// A text, or an excerpt together with the whole text.
pub(crate) struct LongText {
    pub(crate) start: String,
    pub(crate) whole: Option<String>,
    pub(crate) count: usize,
}

impl LongText {
    pub(crate) fn new(text: String) -> Self {
        Self::around(text, 0)
    }

    /// Two versions of a text. The excerpts begin shortly before the first difference.
    pub(crate) fn pair(old: String, new: String) -> [Self; 2] {
        let equal = old.chars().zip(new.chars()).take_while(|(old, new)| old == new).count();
        [Self::around(old, equal), Self::around(new, equal)]
    }

    fn around(text: String, place: usize) -> Self {
        let count = text.chars().count();
        if count <= SHORT {
            return Self { start: text, whole: None, count };
        }
        let skipped = if place < EXCERPT { 0 } else { place.saturating_sub(EXCERPT / 4) };
        let excerpt: String = text.chars().skip(skipped).take(EXCERPT).collect();
        let start = if skipped == 0 { excerpt } else { format!("… {excerpt}") };
        Self { start, whole: Some(text), count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_title_ends_where_the_parameters_begin() {
        for (description, title, params) in [
            ("Delete a package with id 3. It would touch 2 rows. It can be undone.", "Delete a package", "id 3"),
            ("Delete all. It would touch 2 rows. There would be nothing to undo.", "Delete all", ""),
            ("Run SQL with sql \"x. y\". It was not tried, so", "Run SQL", "sql \"x. y\""),
            (
                "Say with text \". It would touch 9 rows. \". It would touch 1 row.",
                "Say",
                "text \". It would touch 9 rows. \"",
            ),
            ("Something else", "Something else", ""),
        ] {
            assert_eq!(title_and_params(description), (title.to_owned(), params.to_owned()), "{description}");
        }
    }

    #[test]
    fn long_texts_are_shown_where_they_differ() {
        let short = LongText::new("short".to_owned());
        assert!(short.start == "short" && short.whole.is_none());
        let long = "é".repeat(SHORT + 1);
        let [old, new] = LongText::pair(format!("{long}old{long}"), format!("{long}new"));
        assert!(old.start.starts_with("… é") && old.start.contains("old") && new.start.ends_with("new"));
        assert_eq!((new.count, new.whole), (SHORT + 4, Some(format!("{long}new"))));
        let [old, new] = LongText::pair("a".to_owned(), "b".repeat(SHORT + 1));
        assert_eq!((old.start.as_str(), new.start), ("a", "b".repeat(EXCERPT)));
    }
}
