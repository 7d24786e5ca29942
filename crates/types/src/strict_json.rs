//! JSON without repeated keys, and with a bounded number of values.
//!
//! serde_json silently keeps the last of two equal keys, but the client may have meant the first one, and a reviewer
//! may have read that one. So the text is refused. A parsed value takes a hundred bytes or more, so four megabytes of
//! `1,1,1` would take half a gigabyte of memory. So the values are counted before any of them is kept.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::escape::quoted;

/// The reason why a text is refused.
#[derive(Debug, thiserror::Error)]
pub enum StrictJsonError {
    /// The text is not JSON. The message of serde_json does not quote it.
    #[error(transparent)]
    InvalidJson(serde_json::Error),
    #[error("the key {} appears twice in one object", quoted(.0))]
    RepeatedKey(String),
    #[error("it holds more than {0} JSON values")]
    TooManyValues(usize),
}

/// Parses `text` without keeping it, and returns the number of values in it, at any depth. A number that is not a
/// 64-bit integer counts as two, since serde_json represents it as an object.
pub fn check_strict_json(text: &[u8], max_values: usize) -> Result<usize, StrictJsonError> {
    let mut found = Found { values: 0, max_values, twice: None };
    let mut reader = serde_json::Deserializer::from_slice(text);
    let read = Strict(&mut found).deserialize(&mut reader).and_then(|()| reader.end());
    match (found, read) {
        (Found { twice: Some(key), .. }, _) => Err(StrictJsonError::RepeatedKey(key)),
        (Found { values, .. }, _) if values > max_values => Err(StrictJsonError::TooManyValues(max_values)),
        (_, Err(error)) => Err(StrictJsonError::InvalidJson(error)),
        (Found { values, .. }, Ok(())) => Ok(values),
    }
}

/// The findings so far. A repeated key or too many values end the parsing.
struct Found {
    values: usize,
    max_values: usize,
    twice: Option<String>,
}

struct Strict<'a>(&'a mut Found);

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.0.values += 1;
        if self.0.values > self.0.max_values {
            return Err(D::Error::custom("too many values"));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if keys.contains(&key) {
                self.0.twice = Some(key);
                return Err(A::Error::custom("a key appears twice"));
            }
            keys.insert(key);
            map.next_value_seed(Strict(self.0))?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Strict(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        serde::Deserialize::deserialize(deserializer).map(|IgnoredAny| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 70_000;

    #[test]
    fn a_key_that_stands_twice_is_refused_at_any_depth_and_in_any_spelling() {
        for twice in [r#"{"a":1,"a":2}"#, r#"{"x":[{"a":1,"b":2,"a":3}]}"#, r#"{"a":1,"\u0061":2}"#] {
            let refused = check_strict_json(twice.as_bytes(), MAX).unwrap_err();
            assert_eq!(refused.to_string(), r#"the key "a" appears twice in one object"#, "{twice}");
        }
    }

    #[test]
    fn values_are_counted_at_any_depth_and_too_many_are_refused() {
        assert_eq!(check_strict_json(br#"{"a":[1,{"b":null}],"c":"x"}"#, 6).unwrap(), 6);
        assert_eq!(check_strict_json(b"1.5", MAX).unwrap(), 2);
        let many = |count| format!("[{}1]", "1,".repeat(count));
        assert!(check_strict_json(many(MAX - 2).as_bytes(), MAX).is_ok());
        let refused = check_strict_json(many(MAX - 1).as_bytes(), MAX).unwrap_err();
        assert_eq!(refused.to_string(), "it holds more than 70000 JSON values");
    }

    #[test]
    fn the_same_key_in_different_objects_is_fine_and_so_is_every_kind_of_value() {
        let text = r#"{"a":{"a":[{"a":1},{"a":-1.5e3}]},"b":[true,null,"x",12345678901234567890123]}"#;
        assert!(check_strict_json(text.as_bytes(), MAX).is_ok());
        assert!(matches!(check_strict_json(b"{", MAX), Err(StrictJsonError::InvalidJson(_))));
        assert!(matches!(check_strict_json(b"{} {}", MAX), Err(StrictJsonError::InvalidJson(_))));
    }
}
