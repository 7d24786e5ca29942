//! Converts simple check constraints to rules of a parameter.
//!
//! PostgreSQL prints the expression of a constraint (`pg_get_expr`), so constraints of the same form have the same
//! spelling. Only the exact forms below are converted. A rule never rejects a value that its condition accepts, and
//! PostgreSQL checks the constraint in any case.

use crate::expression::{Token, bare, cast, comparison, conjuncts, parts, tokens};
use crate::pattern::is_same_in_ecma_262;
use crate::table::ValueKind;

/// The rules of a parameter, in the form of a manifest.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Rules {
    pub(crate) one_of: Option<Vec<toml::Value>>,
    pub(crate) minimum: Option<toml::Value>,
    pub(crate) maximum: Option<toml::Value>,
    pub(crate) max_length: Option<u64>,
    pub(crate) scale: Option<u32>,
    pub(crate) pattern: Option<String>,
}

/// The maximum length of a pattern, in characters.
const MAX_PATTERN: usize = 200;

impl Rules {
    /// Adds the rules for a constraint of this column. Returns whether they express the whole constraint. `operand`
    /// is the column as the expression spells it: its name, or `VALUE` in the constraint of a domain.
    pub(crate) fn add(&mut self, expression: &str, operand: &str, kind: ValueKind) -> bool {
        let Some(tokens) = tokens(expression) else { return false };
        let mut is_whole = true;
        for condition in conjuncts(&tokens) {
            is_whole &= self.add_condition(condition, operand, kind).is_some();
        }
        is_whole
    }

    /// Whether the rules allow a value. `None` if there is a pattern, which is not evaluated.
    pub(crate) fn allow(&self, value: &toml::Value) -> Option<bool> {
        let number = |value: &toml::Value| match value {
            toml::Value::Integer(number) => Some(*number as f64),
            toml::Value::Float(number) => Some(*number),
            _ => None,
        };
        let is_listed = self.one_of.as_ref().is_none_or(|values| values.contains(value));
        let is_above = self.minimum.as_ref().is_none_or(|minimum| number(value) >= number(minimum));
        let is_below = self.maximum.as_ref().is_none_or(|maximum| number(value) <= number(maximum));
        let length = value.as_str().map_or(0, |text| text.chars().count() as u64);
        let is_short = self.max_length.is_none_or(|most| length <= most);
        self.pattern.is_none().then_some(is_listed && is_above && is_below && is_short)
    }

    fn add_condition(&mut self, condition: &[Token], operand: &str, kind: ValueKind) -> Option<()> {
        let (left, operator, right) = comparison(condition)?;
        if is_operand(left, operand, kind) {
            return self.add_comparison(operator, right, kind);
        }
        if kind == ValueKind::Text && is_length(left, operand) {
            return self.add_length(operator, literal(right, ValueKind::Integer)?.as_integer()?);
        }
        None
    }

    fn add_comparison(&mut self, operator: &str, right: &[Token], kind: ValueKind) -> Option<()> {
        match (operator, kind) {
            ("=", ValueKind::Text | ValueKind::Integer | ValueKind::Enum) => {
                let values = list(right, kind).or_else(|| Some(vec![literal(right, kind)?]))?;
                let known = self.one_of.take();
                let is_known = |value: &toml::Value| known.as_ref().is_none_or(|known| known.contains(value));
                self.one_of = Some(values.into_iter().filter(is_known).collect());
                Some(())
            }
            ("<>", ValueKind::Text) if literal(right, kind)?.as_str() == Some("") => self.add_pattern(not_empty(1)),
            ("~", ValueKind::Text) => {
                let pattern = literal(right, kind)?;
                let is_certain = |pattern: &&str| is_same_in_ecma_262(pattern);
                self.add_pattern(pattern.as_str().filter(is_certain)?.to_owned())
            }
            (">" | ">=" | "<" | "<=", ValueKind::Integer | ValueKind::Number) => {
                let bound = literal(right, kind)?;
                let bound = if operator.ends_with('=') { bound } else { beside(&bound, operator == ">", kind)? };
                let (kept, is_narrower): (_, fn(f64, f64) -> bool) = if operator.starts_with('>') {
                    (&mut self.minimum, |new, old| new > old)
                } else {
                    (&mut self.maximum, |new, old| new < old)
                };
                let number = |value: &toml::Value| value.as_float().or(value.as_integer().map(|whole| whole as f64));
                if kept
                    .as_ref()
                    .is_none_or(|old| number(&bound).zip(number(old)).is_some_and(|(a, b)| is_narrower(a, b)))
                {
                    *kept = Some(bound);
                }
                Some(())
            }
            _ => None,
        }
    }

    fn add_length(&mut self, operator: &str, length: i64) -> Option<()> {
        let (least, most) = match operator {
            "<=" => (0, Some(length)),
            "<" => (0, Some(length.checked_sub(1)?)),
            ">=" => (length, None),
            ">" => (length.checked_add(1)?, None),
            "=" => (length, Some(length)),
            _ => return None,
        };
        if let Some(most) = most {
            let most = u64::try_from(most).ok()?;
            self.max_length = Some(self.max_length.map_or(most, |known| known.min(most)));
        }
        match least {
            ..=0 => Some(()),
            // A larger repetition count takes too much memory in a validator.
            1..=255 => self.add_pattern(not_empty(least)),
            _ => None,
        }
    }

    /// Sets the pattern, if there is none yet. PostgreSQL checks a second one.
    fn add_pattern(&mut self, pattern: String) -> Option<()> {
        if self.pattern.is_some() || pattern.chars().count() > MAX_PATTERN {
            return None;
        }
        self.pattern = Some(pattern);
        Some(())
    }
}

/// A pattern for at least this many characters.
fn not_empty(least: i64) -> String {
    if least == 1 { r"[\s\S]".to_owned() } else { format!(r"[\s\S]{{{least}}}") }
}

/// The nearest integer within an exclusive bound. Other kinds of numbers have no nearest one.
fn beside(bound: &toml::Value, is_above: bool, kind: ValueKind) -> Option<toml::Value> {
    let number = bound.as_integer().filter(|_| kind == ValueKind::Integer)?;
    let beside = if is_above { number.checked_add(1) } else { number.checked_sub(1) };
    beside.map(toml::Value::Integer)
}

const TEXT_TYPES: [&str; 3] = ["text", "character varying", "text [ ]"];

/// Whether this side is the column itself, or a text column with a cast to text.
fn is_operand(tokens: &[Token], operand: &str, kind: ValueKind) -> bool {
    let (value, ty) = cast(tokens);
    let is_same_value = ty.is_none_or(|ty| kind == ValueKind::Text && ty == "text");
    is_same_value && matches!(value, [word] if word.is_word(operand))
}

/// Whether this side is the length of the column in characters.
fn is_length(tokens: &[Token], operand: &str) -> bool {
    let [function, rest @ ..] = bare(tokens) else { return false };
    let is_function = function.is_word("char_length") || function.is_word("length");
    let is_call = rest.first().is_some_and(|token| token.is("(")) && rest.len() > 2 && bare(rest).len() < rest.len();
    is_function && is_call && is_operand(rest, operand, ValueKind::Text)
}

/// Parses an expression as a constant of this kind.
pub(crate) fn constant(expression: &str, kind: ValueKind) -> Option<toml::Value> {
    literal(&tokens(expression)?, kind)
}

fn literal(tokens: &[Token], kind: ValueKind) -> Option<toml::Value> {
    let (value, ty) = cast(tokens);
    let number = |text: &str, sign: &str| {
        let text = format!("{sign}{text}");
        let whole = text.parse().ok().map(toml::Value::Integer);
        // A decimal number that a float does not represent exactly cannot be a bound.
        let digits = text.trim_end_matches('0').trim_end_matches('.');
        let fraction =
            || text.parse::<f64>().ok().filter(|number| number.to_string() == digits).map(toml::Value::Float);
        whole.or_else(|| if kind == ValueKind::Number { fraction() } else { None })
    };
    match (kind, value) {
        (ValueKind::Text, [Token::Text(text)]) if ty.as_deref().is_none_or(|ty| TEXT_TYPES.contains(&ty)) => {
            Some(toml::Value::String(text.clone()))
        }
        (ValueKind::Enum, [Token::Text(text)]) => Some(toml::Value::String(text.clone())),
        (ValueKind::Boolean, [word]) if word.is_word("true") => Some(toml::Value::Boolean(true)),
        (ValueKind::Boolean, [word]) if word.is_word("false") => Some(toml::Value::Boolean(false)),
        (ValueKind::Integer | ValueKind::Number, [Token::Word(text) | Token::Text(text)]) => number(text, ""),
        (ValueKind::Integer | ValueKind::Number, [minus, Token::Word(text)]) if minus.is("-") => number(text, "-"),
        _ => None,
    }
}

/// The values in `ANY (ARRAY[..])`.
fn list(tokens: &[Token], kind: ValueKind) -> Option<Vec<toml::Value>> {
    let [any, array @ ..] = tokens else { return None };
    let (array, _) = cast(array);
    let [keyword, open, items @ .., close] = array else { return None };
    let is_list = any.is_word("ANY") && keyword.is_word("ARRAY") && open.is("[") && close.is("]");
    if !is_list {
        return None;
    }
    parts(items, |token| token.is(",")).into_iter().map(|item| literal(item, kind)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules for a constraint on the column `c`, and whether they express all of it.
    fn rules(expression: &str, kind: ValueKind) -> (Rules, bool) {
        let mut rules = Rules::default();
        let is_whole = rules.add(expression, "c", kind);
        (rules, is_whole)
    }

    fn texts(values: &[&str]) -> Rules {
        let values = values.iter().map(|value| toml::Value::from(*value)).collect();
        Rules { one_of: Some(values), ..Rules::default() }
    }

    fn bounds(minimum: Option<toml::Value>, maximum: Option<toml::Value>) -> Rules {
        Rules { minimum, maximum, ..Rules::default() }
    }

    /// The spelling is that of `pg_get_expr`.
    #[test]
    fn a_simple_condition_becomes_a_rule() {
        let whole = |number: i64| Some(toml::Value::from(number));
        let pattern = |pattern: &str| Rules { pattern: Some(pattern.to_owned()), ..Rules::default() };
        let max_length = Some(100);
        for (expression, kind, expected) in [
            ("(c = ANY (ARRAY['open'::text, 'it''s'::text]))", ValueKind::Text, texts(&["open", "it's"])),
            (
                "((c)::text = ANY ((ARRAY['a'::character varying, 'b'::character varying])::text[]))",
                ValueKind::Text,
                texts(&["a", "b"]),
            ),
            ("((c)::text = 'a'::text)", ValueKind::Text, texts(&["a"])),
            ("(c = ANY (ARRAY['a'::shop.status, 'b'::shop.status]))", ValueKind::Enum, texts(&["a", "b"])),
            (
                "(c = ANY (ARRAY[1, 2]))",
                ValueKind::Integer,
                Rules { one_of: Some(vec![1.into(), 2.into()]), ..Rules::default() },
            ),
            ("((c >= 15) AND (c <= 720))", ValueKind::Integer, bounds(whole(15), whole(720))),
            (
                "((c > 0) AND (c < '-5'::integer) AND (c > '-7'::bigint))",
                ValueKind::Integer,
                bounds(whole(1), whole(-6)),
            ),
            ("(c >= (0)::numeric)", ValueKind::Number, bounds(whole(0), None)),
            ("(c <= 99.50)", ValueKind::Number, bounds(None, Some(toml::Value::from(99.5)))),
            ("(c <> ''::text)", ValueKind::Text, pattern(r"[\s\S]")),
            (
                "((char_length(c) >= 1) AND (char_length(c) <= 100))",
                ValueKind::Text,
                Rules { max_length, ..pattern(r"[\s\S]") },
            ),
            ("(length((c)::text) < 101)", ValueKind::Text, Rules { max_length, ..Rules::default() }),
            ("(c ~ '^[A-Z]{3}$'::text)", ValueKind::Text, pattern("^[A-Z]{3}$")),
        ] {
            assert_eq!(rules(expression, kind), (expected, true), "{expression}");
        }
    }

    #[test]
    fn what_is_not_certain_is_no_rule() {
        for (expression, kind) in [
            ("((c = 'a'::text) OR (c = 'b'::text))", ValueKind::Text),
            ("(NOT (c = 'a'::text))", ValueKind::Text),
            ("((c IS NULL) OR (c > 0))", ValueKind::Integer),
            ("(c <> 'a'::text)", ValueKind::Text),
            ("(c > (0)::numeric)", ValueKind::Number),
            ("(c > 0.5)", ValueKind::Integer),
            ("((c % 2) = 0)", ValueKind::Integer),
            ("(abs(c) < 5)", ValueKind::Integer),
            ("(lower(c) = 'a'::text)", ValueKind::Text),
            ("(btrim(c) <> ''::text)", ValueKind::Text),
            ("(other = 'a'::text)", ValueKind::Text),
            ("(c ~ '^\\d+$'::text)", ValueKind::Text),
            ("(c ~* '^a$'::text)", ValueKind::Text),
            ("(c ~~ 'a%'::text)", ValueKind::Text),
            ("(c = ANY (ARRAY['a'::text, other]))", ValueKind::Text),
            ("(c = lower('A'::text))", ValueKind::Text),
            ("(c = E'a\\nb'::text)", ValueKind::Text),
            ("((c > 0) IS TRUE)", ValueKind::Integer),
            ("(c >= 'infinity'::timestamp without time zone)", ValueKind::Other),
            ("(c > 1", ValueKind::Integer),
        ] {
            assert_eq!(rules(expression, kind), (Rules::default(), false), "{expression}");
        }
        // The other conditions of an AND hold by themselves.
        let part = rules("((c > 0) AND ((c % 2) = 0))", ValueKind::Integer);
        assert_eq!(part, (bounds(Some(toml::Value::from(1)), None), false));
    }

    #[test]
    fn several_constraints_leave_what_all_of_them_allow() {
        let mut rules = Rules { max_length: Some(50), ..Rules::default() };
        for expression in ["(c = ANY (ARRAY['a'::text, 'b'::text]))", "(length(c) <= 80)", "(c = 'b'::text)"] {
            assert!(rules.add(expression, "c", ValueKind::Text));
        }
        assert_eq!(rules, Rules { max_length: Some(50), ..texts(&["b"]) });
        assert_eq!(rules.allow(&"b".into()), Some(true));
        assert_eq!(rules.allow(&"a".into()), Some(false));
    }
}
