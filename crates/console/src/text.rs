//! Texts of the pages.

use review::sentences::capitalized;
use review::{CallText, TextPart};
use serde_json::Value;
use types::{CallerContext, ClientInfo, visible};

/// A labelled value on a page.
pub(crate) struct Fact {
    pub(crate) name: &'static str,
    pub(crate) value: FactValue,
}

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

/// The maximum length of the parameters in a line, in characters.
const MAX_PARAMS_CHARS: usize = 160;

/// The parameters of a call in a line: `package_id: 3, title: "A week"`.
pub(crate) fn params<'a>(given: impl IntoIterator<Item = (&'a String, &'a Value)>) -> String {
    CallText::new(given).line(MAX_PARAMS_CHARS)
}

/// The parts of a text with paths of JSON values, between which a line may break. Numbers stay whole.
pub(crate) fn steps(path: &str) -> Vec<&str> {
    let (mut steps, mut rest) = (Vec::new(), path);
    let is_step = |rest: &str| rest.starts_with(|first: char| !first.is_ascii_digit() && !"._[]".contains(first));
    while let Some((end, _)) =
        rest.match_indices(['.', ']', '[', '_']).find(|(at, _)| rest.get(at + 1..).is_some_and(is_step))
    {
        let (step, behind) = rest.split_at(end + 1);
        steps.push(step);
        rest = behind;
    }
    steps.push(rest);
    steps
}

/// A value as people read it: text without quotes, everything else as JSON.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => visible(text),
        Value::Null => "null".to_owned(),
        other => visible(&other.to_string()),
    }
}

/// A phrase as a sentence: with a capital letter, and a full stop unless it is a question.
pub(crate) fn sentence(phrase: &str) -> String {
    format!("{}{}", capitalized(phrase), if phrase.ends_with('?') { "" } else { "." })
}

/// The name and version of a client, as it reports them.
pub(crate) fn client(client: Option<&ClientInfo>) -> Option<String> {
    let client = client?;
    let version = optional(&client.version).map(|version| format!(" {version}")).unwrap_or_default();
    Some(format!("{}{version}", optional(&client.name)?))
}

/// The role and the claims that a write runs with.
pub(crate) fn context(context: Option<&CallerContext>) -> impl Iterator<Item = Fact> {
    let role = context.and_then(|context| context.role.as_ref()).map(|role| Fact::text("Role", visible(role.as_str())));
    let claims = context.and_then(CallerContext::claims_text).map(|claims| Fact::text("Claims", claims));
    role.into_iter().chain(claims)
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
const SHORT: usize = 600;
const EXCERPT: usize = 400;

/// The length from which the words of two texts are compared, in characters.
const COMPARED: usize = 120;

/// A text, or an excerpt together with the whole text.
pub(crate) struct LongText {
    pub(crate) start: String,
    pub(crate) whole: Option<String>,
    pub(crate) count: usize,
}

impl LongText {
    /// Whether a table of several rows keeps it on one line.
    pub(crate) fn is_short(&self) -> bool {
        self.count <= 32
    }

    pub(crate) fn new(text: String) -> Self {
        if text.chars().nth(SHORT).is_none() { Self::cut(text, SHORT) } else { Self::cut(text, EXCERPT) }
    }

    /// An excerpt of this length, if the text is longer.
    pub(crate) fn cut(text: String, excerpt: usize) -> Self {
        let count = text.chars().count();
        if count <= excerpt {
            return Self { start: text, whole: None, count };
        }
        Self { start: text.chars().take(excerpt).collect(), whole: Some(text), count }
    }
}

/// The SQL statement of a call, and the values of its parameters.
pub(crate) struct SqlText {
    pub(crate) text: String,
    pub(crate) values: LongText,
}

impl SqlText {
    /// `None` if the call has no statement.
    pub(crate) fn new(call: &CallText<'_>) -> Option<Self> {
        let values = LongText::new(call.values(usize::MAX));
        (!call.statement.is_empty()).then(|| Self { text: call.statement.join("\n"), values })
    }
}

/// The value of a parameter: on one line, or a text with lines such as a statement.
pub(crate) struct Statement {
    pub(crate) text: LongText,
    pub(crate) is_statement: bool,
}

impl Statement {
    pub(crate) fn new(value: &Value) -> Self {
        match value {
            Value::String(text) if text.contains([' ', '\n']) => {
                Self { text: LongText::new(visible_lines(text)), is_statement: true }
            }
            value => Self { text: LongText::new(shown(value)), is_statement: false },
        }
    }
}

/// The words that differ between two long texts, and the whole texts.
pub(crate) struct Words {
    pub(crate) parts: Vec<TextPart>,
    pub(crate) before: String,
    pub(crate) after: String,
}

impl Words {
    /// Whether the words of these texts are compared.
    pub(crate) fn is_for(before: &str, after: &str) -> bool {
        [before, after].iter().all(|text| text.chars().nth(COMPARED).is_some())
    }

    pub(crate) fn new(before: &str, after: &str) -> Self {
        let part = |part| match part {
            TextPart::Same(text) => TextPart::Same(visible_lines(&text)),
            TextPart::Removed(text) => TextPart::Removed(visible_lines(&text)),
            TextPart::Added(text) => TextPart::Added(visible_lines(&text)),
            TextPart::Skipped(count) => TextPart::Skipped(count),
        };
        let parts = review::word_diff(before, after).into_iter().map(part).collect();
        Self { parts, before: visible_lines(before), after: visible_lines(after) }
    }
}

/// A text with its lines, and with every other hidden character made visible.
pub(crate) fn visible_lines(text: &str) -> String {
    text.split('\n').map(visible).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_breaks_between_the_steps_of_a_path() {
        assert_eq!(steps("settings.page_size[1].\"a b\": 1.50"), ["settings.", "page_", "size[1].", "\"a b\": 1.50"]);
        assert_eq!((steps(""), steps("id")), (vec![""], vec!["id"]));
    }

    #[test]
    fn long_texts_have_an_excerpt_and_two_of_them_their_difference() {
        let short = LongText::new("short".to_owned());
        assert!(short.start == "short" && short.whole.is_none());
        let long = "é ".repeat(SHORT);
        assert_eq!(LongText::new(long.clone()).start.chars().count(), EXCERPT);
        let words = Words::new(&format!("{long}old\u{202e}"), &format!("{long}new\n\u{202e}"));
        assert!(words.parts.contains(&TextPart::Added("new\n\\u202e".to_owned())), "{:?}", words.parts);
        assert!(Words::is_for(&long, &long) && !Words::is_for(&long, "new"));
    }
}
