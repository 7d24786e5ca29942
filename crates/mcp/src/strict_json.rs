//! JSON in which no object has the same key twice.
//!
//! serde_json keeps the last of two equal keys without a word, while the client may have meant the first one, and a
//! reviewer may have read it (attack ID10). So such a message is refused.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Reads `text` and keeps nothing of it.
///
/// # Errors
/// What is wrong with it: it is not JSON, or an object has a key twice.
pub(crate) fn check(text: &[u8]) -> Result<(), serde_json::Error> {
    serde_json::from_slice::<Strict>(text).map(|Strict| ())
}

struct Strict;

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Strict;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Strict, A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if keys.contains(&key) {
                return Err(A::Error::custom(format_args!("the key {key:?} stands twice in one object")));
            }
            keys.insert(key);
            map.next_value::<Strict>()?;
        }
        Ok(Strict)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Strict, A::Error> {
        while items.next_element::<Strict>()?.is_some() {}
        Ok(Strict)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Strict, E> {
        Ok(Strict)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Strict, E> {
        Ok(Strict)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Strict, E> {
        Ok(Strict)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Strict, E> {
        Ok(Strict)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Strict, E> {
        Ok(Strict)
    }

    fn visit_unit<E: Error>(self) -> Result<Strict, E> {
        Ok(Strict)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Strict, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Strict)
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_key_that_stands_twice_is_refused_at_any_depth_and_in_any_spelling() {
        for twice in [r#"{"a":1,"a":2}"#, r#"{"x":[{"a":1,"b":2,"a":3}]}"#, r#"{"a":1,"\u0061":2}"#] {
            assert!(check(twice.as_bytes()).unwrap_err().to_string().contains("\"a\" stands twice"), "{twice}");
        }
    }

    #[test]
    fn the_same_key_in_different_objects_is_fine_and_so_is_every_kind_of_value() {
        let text = r#"{"a":{"a":[{"a":1},{"a":-1.5e3}]},"b":[true,null,"x",12345678901234567890123]}"#;
        assert!(check(text.as_bytes()).is_ok());
        assert!(check(b"{").is_err());
    }
}
